//! Trunkline: one URL in front of many MCP servers, of both protocol eras.
//!
//! The modules below are listed in the order in which a call travels, from the person at the
//! terminal to the bytes on the wire. A module may use those listed after it, never one before it;
//! `tests/architecture` enforces that.
//!
//! Start with [`pipeline`], which shows a call from beginning to end.

// Set here and not in Cargo.toml: the crates under tests/ share modules with unreachable `pub`
// items.
#![warn(unreachable_pub)]

pub mod cli;
pub mod admin;
pub mod listener;
pub mod downstream;
pub mod pipeline;
pub mod snapshot;
pub mod upstream;
pub mod policy;
pub mod identity;
pub mod cluster;
#[cfg(test)]
#[path = "../tests/support/captured_log.rs"]
mod captured_log;

// The crates below the gateway, under the names that its modules use.
pub use trunkline_bench as bench;
pub use trunkline_catalog as catalog;
pub use trunkline_config as config;
pub use trunkline_core::{backoff, clock, codec, crypto, shared_records, text};
pub use trunkline_http_client as http_client;
pub use trunkline_jsonrpc as jsonrpc;
pub use trunkline_oauth as oauth;
pub use trunkline_openapi as openapi;
pub use trunkline_protocol::{call, era, mcp};
pub use trunkline_sandbox::{child, code_mode};
pub use trunkline_shares as shares;
pub use trunkline_telemetry as telemetry;
