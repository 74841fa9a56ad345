//! Messages between parent and child, each one line of JSON.
//!
//! The parent sends the script after the child has reported that it is ready, and then an answer
//! for each call. Both sides bound the lines that they read.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::ScriptLimits;
use super::fault::ScriptFault;

/// Message of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerMessage {
    /// The child is confined, and waits for the script.
    Ready,
    /// A piece of printed text, at most [`MAX_PIECE`] bytes.
    Printed(String),
    /// Further text beyond the limit is dropped.
    Cut,
    /// The script calls a tool.
    Call(CallMessage),
    /// The last message.
    Ended(EndMessage),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallMessage {
    pub(super) id: u64,
    /// The tool, as an index into [`ScriptRequest::tools`].
    pub(super) tool: usize,
    pub(super) arguments: Box<RawValue>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct EndMessage {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub(super) returned: Option<Box<RawValue>>,
    pub(super) fault: Option<ScriptFault>,
}

/// A returned `null` is a value.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Message of the parent after the script, which comes first as the line of a
/// [`ScriptRequest`](super::ScriptRequest).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AnswerMessage {
    pub(super) id: u64,
    pub(super) answer: CallAnswer,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum CallAnswer {
    /// Resolves the promise of the call to this value.
    Value(Box<RawValue>),
    /// Rejects the promise of the call with an error that has this message.
    Error(String),
}

/// Returns a message as a line, including its terminator.
///
/// # Errors
/// None in practice: the messages have no maps with keys other than strings.
pub(super) fn write_line(message: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line.into())
}

/// Returns the length of the longest line that the child sends.
pub(super) fn longest_from_worker(limits: &ScriptLimits) -> usize {
    // A character takes up to six bytes in a JSON string.
    let piece = MAX_PIECE * 6;
    limits.arguments.max(limits.returned).max(piece).saturating_add(ENVELOPE_BYTES)
}

/// Returns the length of the longest line that the parent sends after the script.
#[cfg(feature = "code-mode")]
pub(super) fn longest_answer(limits: &ScriptLimits) -> u64 {
    let longest = limits.result.max(MAX_PIECE * 6).saturating_add(ENVELOPE_BYTES);
    u64::try_from(longest).unwrap_or(u64::MAX)
}

/// Maximum bytes of a piece of printed text, and of an error message.
pub(super) const MAX_PIECE: usize = 4096;
/// Maximum bytes of the line of a script: names and code, escaped.
#[cfg(feature = "code-mode")]
pub(super) const MAX_SCRIPT_LINE: u64 = 64 << 20;
/// Bytes of a message besides its content.
const ENVELOPE_BYTES: usize = 4096;
