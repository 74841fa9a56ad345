//! Small parts without a protocol, which every other crate may use.
//!
//! Nothing here knows JSON-RPC, MCP or the configuration. A module uses those listed after it, never
//! one before it.

#![warn(unreachable_pub)]

pub mod shared_records;
pub mod codec;
pub mod crypto;
pub mod backoff;
pub mod clock;
pub mod text;
