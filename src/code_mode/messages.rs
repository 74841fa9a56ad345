//! What parent and child tell each other: one line of JSON a message.
//!
//! The parent's first message is the script, once the child has said that it is ready; then it sends
//! an answer for each call. Both sides bound the lines that they read.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::ScriptLimits;
use super::fault::ScriptFault;

/// A message of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerMessage {
    /// It is confined, and waits for the script.
    Ready,
    /// A piece of printed text, at most [`MAX_PIECE`] bytes.
    Printed(String),
    /// What was printed beyond the limit is left out.
    Cut,
    /// A tool is called.
    Call(CallMessage),
    /// The last message.
    Ended(EndMessage),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallMessage {
    pub(super) id: u64,
    /// The tool, by its place in [`ScriptRequest::tools`].
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

/// A message of the parent, but for the script, which comes first and is the line of a [`Script`](super::ScriptRequest).
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AnswerMessage {
    pub(super) id: u64,
    pub(super) answer: CallAnswer,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum CallAnswer {
    /// The promise of the call resolves to this value.
    Value(Box<RawValue>),
    /// The promise of the call is rejected with an error that has this message.
    Error(String),
}

/// A message as a line, its end included.
///
/// # Errors
/// None in practice: the messages have no maps with keys that are not strings.
pub(super) fn write_line(message: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line.into())
}

/// The longest line that the child sends.
pub(super) fn longest_from_worker(limits: &ScriptLimits) -> usize {
    // A character takes up to six bytes in a JSON string.
    let piece = MAX_PIECE * 6;
    limits.arguments.max(limits.returned).max(piece).saturating_add(ENVELOPE)
}

/// The longest line that the parent sends after the script.
pub(super) fn longest_answer(limits: &ScriptLimits) -> u64 {
    let longest = limits.result.max(MAX_PIECE * 6).saturating_add(ENVELOPE);
    u64::try_from(longest).unwrap_or(u64::MAX)
}

/// The most bytes of a piece of printed text, and of the message of an error.
pub(super) const MAX_PIECE: usize = 4096;
/// The most bytes of the line of a script: names and code, escaped.
pub(super) const MAX_SCRIPT_LINE: u64 = 64 << 20;
/// What a message has besides its content.
const ENVELOPE: usize = 4096;
