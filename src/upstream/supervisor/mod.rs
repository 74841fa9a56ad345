//! The lives of one server's instances: started, probed, listed, called, lost,
//! restarted, stopped.
//!
//! An instance is one child process, or one HTTP connection or session, and has
//! a task of its own ([`life`]). The main instance is shared; where one cannot
//! serve all clients, the [`pool`] opens further ones, bounded in number; a
//! server that speaks both eras has some for Legacy clients ([`legacy_side`]).
//! Where there is only one client, the main instance is told what that client
//! can do ([`sole_client`]).
//! Where the gateway has no account at a server, those of clients are used ([`accounts`]).
//! [`remembered_era`] is what is known of the main instance's era.
//! [`shared`] is the state that they share. This module does not know how bytes
//! reach a server: [`opening`] asks a transport for a connection.

mod accounts;
pub(in crate::upstream) mod instance;
pub(in crate::upstream) mod legacy_side;
pub(in crate::upstream) mod shared;
mod callers;
mod life;
mod opening;
pub mod restart;
pub(in crate::upstream) mod remembered_era;
pub(in crate::upstream) mod pool;
pub(in crate::upstream) mod sole_client;
pub(in crate::upstream) mod start_queue;
pub(in crate::upstream) mod state;
