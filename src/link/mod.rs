//! The server's side: the adapters between the inside and each kind of server.

/// When to start again what has failed, and when to stop trying.
pub mod backoff;
/// A server that is a child process: its life from spawn to reaping.
pub mod child;
