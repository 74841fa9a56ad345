//! Supervision of one server's instances: started, probed, listed, called, lost, restarted,
//! stopped.
//!
//! An instance is one child process, or one HTTP connection or session, and has a task of its own
//! ([`life`]). The main instance is shared. If it cannot serve all clients, the [`pool`] opens
//! further ones, in limited number. A server that speaks both eras has some for Legacy clients
//! ([`legacy_side`]). If there is only one client, the main instance declares the capabilities of
//! that client ([`sole_client`]). If the gateway has no account at a server, it uses those of
//! clients ([`accounts`]). [`remembered_era`] records the main instance's era. [`lists`] requests
//! the lists of an instance. [`shared`] is the state that the instances share. This module does not
//! depend on the transport: [`opening`] requests a connection from one.

mod accounts;
pub(super) mod instance;
pub(super) mod legacy_side;
pub(super) mod shared;
mod life;
pub(super) mod lists;
mod opening;
pub mod restart;
pub(super) mod remembered_era;
pub(super) mod pool;
pub(super) mod sole_client;
pub(super) mod start_queue;
pub(super) mod state;
