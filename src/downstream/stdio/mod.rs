//! The gateway as a stdio server: lines in, lines out.
//!
//! A host that can only start a process gets the same service as HTTP clients, by a bridge. Each
//! message that arrives as a line becomes an HTTP-shaped request to an [`McpPeer`]; the response,
//! JSON or events, becomes lines. The endpoint is the one of this process ([`Here`]) or a remote
//! gateway ([`There`]); the bridge does not know which. The bridge answers no MCP request itself.
//!
//! The bridge adds the HTTP headers: for a Modern message they mirror its body ([`headers`]), for a
//! Legacy one they contain the session that `initialize` opened ([`session`]). Closing a stream in
//! HTTP corresponds to `notifications/cancelled` here, in both directions.
//!
//! Requests run concurrently and are answered as they complete. Lines, answers and the number of
//! pending requests are bounded. A host that does not read makes the bridge stop reading in turn.

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
pub use bridge::{ClientStreams, serve};
pub use endpoint::{Here, McpPeer, Mirroring, There};
pub(super) use output::{OutputBudget, OutputLines};

/// The limits of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeBounds {
    /// Limit of the bytes of an input line.
    pub line: usize,
    /// Limit of the bytes of an answer, or of one event.
    pub answer: usize,
    /// Limit of pending requests.
    pub in_flight: usize,
}

impl Default for BridgeBounds {
    fn default() -> Self {
        Self { line: 16 << 20, answer: 128 << 20, in_flight: 256 }
    }
}

/// Reasons for the end of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeEnd {
    /// The host closed the input. Pending requests were answered, or cut off after their time.
    Input,
    /// The host no longer reads the output.
    Output,
}

/// Limit of a message's nesting, in either direction. The endpoint may have a lower one.
const MAX_DEPTH: usize = MAX_CLIENT_DEPTH as usize;
