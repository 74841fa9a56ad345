//! Bytes to frames and back; knows no method names.

/// Newline framing: one message a line, as stdio carries them.
pub mod lines;
/// Server-sent events: an incremental, bounded decoder, and encoders.
pub mod sse;
