//! Bounded readers for network, pipe and file input: HTTP bodies, lines, server-sent events and
//! the files that the configuration names.
//!
//! Every reader takes a limit and reports the violation once the limit is passed, so that no peer
//! decides how much memory it gets. `jsonrpc` parses what these readers return; this module knows
//! no messages and no protocol eras.

pub mod body;
pub mod file;
pub mod large_message;
pub mod lines;
pub mod own_folder;
pub mod sse;
