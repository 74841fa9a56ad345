//! The Model Context Protocol, without connections.
//!
//! [`mcp`] is its vocabulary, [`call`] the internal form of a call between a client and a server,
//! and [`era`] rewrites messages between the two eras of the protocol. Nothing here opens a
//! connection, reads the configuration or decides about a call. A module uses those listed after
//! it, never one before it.

#![warn(unreachable_pub)]

pub mod era;
pub mod call;
pub mod mcp;
