//! The gateway's side towards the servers.
//!
//! A [`Server`] is one configured server with its whole life: started, probed
//! for its era, listed, called, lost, started again, stopped. That is the life
//! of its first instance; where one child or session will not do for all
//! clients, because of what they can do or whose they are ([`Owner`]), it has
//! more of them. Behind an instance stand two transports, [`stdio`] for child processes and [`http`] for everything
//! else, each of which speaks both eras. What lies above this room sees none
//! of that: it hands over a permitted call and gets a reply.

pub mod backoff;
pub mod child;
mod connection;
mod deadline;
mod fault;
mod given_up;
mod http;
mod instance;
mod kin;
mod levels;
mod life;
mod listing;
mod lists;
mod news;
mod opening;
mod outside;
mod owner;
mod pace;
pub mod parking;
mod peer;
mod pool;
mod questions;
mod reads;
mod server;
mod state;
mod stdio;

pub use fault::LinkFault;
pub use http::{Client as HttpClient, ResponseBody, TransportError, client_tls};
pub use kin::{Hold, Surroundings};
pub use news::{Held, Hub, Letter, Mailbox, Refusal, Subject, Subscriptions, Topic};
pub use outside::Askable;
pub use owner::{Owner, Whose};
pub use peer::{Peer, Tells};
pub use server::{Reach, Server};
pub use state::{InstanceView, State, View};

#[cfg(test)]
pub(crate) mod tests;
