//! Sessions, streams and waiting calls: through any replica, and after their owner is gone.

pub mod any_replica;
pub mod continuations;
mod event_streams;
pub mod failures;
mod foreign_ids;
mod handover;
pub mod revival;
