//! The gateway's side towards the servers.
//!
//! A [`Server`] is one configured server with its whole life: started, probed
//! for its era, listed, called, lost, started again, stopped. Behind it stand
//! two transports, [`stdio`] for child processes and [`http`] for everything
//! else, each of which speaks both eras. What lies above this room sees none
//! of that: it hands over a permitted call and gets a reply.

pub mod backoff;
pub mod child;
mod connection;
mod deadline;
mod fault;
mod http;
mod levels;
mod listing;
mod news;
mod pace;
pub mod parking;
mod peer;
mod questions;
mod reads;
mod server;
mod stdio;
mod supervisor;

pub use fault::LinkFault;
pub use http::Client as HttpClient;
pub use news::{Held, Hub, Letter, Mailbox, Refusal, Subscriptions, Topic};
pub use peer::{Peer, Tells};
pub use server::{Hold, Server, State, View};
pub use supervisor::Surroundings;

#[cfg(test)]
pub(crate) mod tests;
