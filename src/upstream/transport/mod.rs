//! How messages reach a server: [`http`] for Streamable HTTP and its
//! predecessor of 2024-11-05, [`stdio`] for child processes.
//!
//! Both speak both eras, and both are a [`connection`] to those above: a
//! permitted call in, a reply out. [`peer`] is what a server said of itself
//! when it was asked. When a connection is opened, and what happens when it is
//! lost, is decided by the supervisor.

pub mod child;
pub(in crate::upstream) mod connection;
pub(in crate::upstream) mod http;
pub(in crate::upstream) mod peer;
pub(in crate::upstream) mod stdio;
