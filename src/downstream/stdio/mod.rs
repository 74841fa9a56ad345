//! The gateway as a stdio server: lines in, lines out.
//!
//! A host that can only start a process gets what HTTP clients get, by a
//! bridge: each message that comes as a line becomes an HTTP-shaped request to
//! an [`McpPeer`], and what comes back, as JSON or as events, becomes lines.
//! The endpoint is the one of this process ([`Here`]) or a gateway elsewhere
//! ([`There`]); the bridge does not know which. The bridge answers no MCP
//! request itself, so every host receives what HTTP clients receive.
//!
//! What stands in HTTP's headers the bridge adds: for a Modern message what
//! its body says ([`headers`]), for a Legacy one the session that `initialize`
//! opened ([`session`]). What HTTP says by closing a stream is said by
//! `notifications/cancelled` here, in both directions.
//!
//! Requests are under way side by side and answered as they come. Bounded are
//! the line, the answer, and how many requests are under way; a host that does
//! not read makes the bridge stop reading in turn.

mod bridge;
mod endpoint;
mod exchange;
mod headers;
mod mirror;
mod output;
mod reply;
mod session;
mod session_stream;

use crate::jsonrpc::MAX_CLIENT_DEPTH;
pub(super) use bridge::Bridge;
pub use bridge::serve;
pub use endpoint::{Here, McpPeer, Mirroring, There};
pub(super) use output::{OutputBudget, OutputLines};

/// The limits of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeBounds {
    /// The most bytes of a line that comes.
    pub line: usize,
    /// The most bytes of an answer, or of one event.
    pub answer: usize,
    /// How many requests may be under way.
    pub in_flight: usize,
}

impl Default for BridgeBounds {
    fn default() -> Self {
        Self { line: 16 << 20, answer: 128 << 20, in_flight: 256 }
    }
}

/// Why a bridge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeEnd {
    /// The host closed the input. What was under way has been answered, or
    /// had its time.
    Input,
    /// Nobody reads the output.
    Output,
}

/// How deep a message may nest, in either direction. The endpoint may allow less.
const MAX_DEPTH: usize = MAX_CLIENT_DEPTH as usize;
