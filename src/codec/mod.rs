//! Bounded readers for network and pipe input: HTTP bodies, lines and server-sent events.
//!
//! Every reader takes a limit and reports the violation once the limit is passed, so that no peer
//! decides how much memory it gets. `jsonrpc` parses what these readers return; this module knows
//! no messages and no protocol eras.

pub mod body;
pub mod lines;
pub mod sse;
