//! Requests between replicas: their connections, envelopes, and the port that accepts them.

mod certificates;
mod connections;
pub mod envelopes;
pub mod frames;
mod heads;
pub mod port;
