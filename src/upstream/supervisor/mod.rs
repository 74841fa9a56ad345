//! The lives of one server's instances: started, probed, listed, called, lost,
//! started again, stopped.
//!
//! An instance is one child process, or one connection or session over HTTP,
//! and has a task of its own ([`life`]). The first belongs to everybody; where
//! one will not do for all clients the [`pool`] opens further ones, bounded in
//! number. [`kin`] is what they share. How bytes reach a server is not known
//! here: [`opening`] asks a transport for a connection.

pub mod backoff;
pub(in crate::upstream) mod instance;
pub(in crate::upstream) mod kin;
mod life;
mod opening;
pub(in crate::upstream) mod pool;
pub(in crate::upstream) mod state;
