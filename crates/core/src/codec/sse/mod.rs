//! Server-sent events, as in the WHATWG HTML standard ("Interpreting an event stream"), in both
//! directions.
//!
//! The decoder is pure: bytes in, events out, without I/O. It is bounded: events, and lines without
//! an end, have a maximum size. It copies as little as possible: the data of an event that is on
//! one line within one chunk is a slice of that chunk.
//!
//! One rule differs from the standard, which drops every event without data: an event with an `id`
//! or a `retry` is returned even if its data is empty or absent. MCP servers open a stream with
//! such a priming event, and a client needs its id to resume the stream. Its data is never a
//! message: read it only if [`SseEvent::is_message`] is true.

mod encode;
mod reader;
mod reconnection;

use bytes::{Bytes, BytesMut};

use crate::text::skip_byte_order_mark;

use super::large_message::{make_room, take_first};

pub use encode::{DataEncoder, OpenMessage, comment, message, message_with, priming, retry};
pub use reader::{ReopenAttempt, ResumePoint, SseReader};
pub use reconnection::Reconnection;

/// One event of the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The last `event` field, if there was one.
    pub event: Option<Bytes>,
    /// The `data` lines, joined by `\n`. As sent: nothing checks for UTF-8 here.
    pub data: Bytes,
    /// The last `id` field of this event, if there was one. Unlike a browser,
    /// the decoder does not carry it over to later events.
    pub id: Option<Bytes>,
    /// The last valid `retry` field, in milliseconds.
    pub retry: Option<u64>,
}

impl SseEvent {
    /// Returns true for a non-empty message: its data is not empty, and its type is `message`,
    /// explicitly or by default.
    #[inline]
    pub fn is_message(&self) -> bool {
        let kind = self.event.as_deref().unwrap_or_default();
        !self.data.is_empty() && (kind.is_empty() || kind == b"message")
    }
}

/// Reasons that the stream cannot be decoded further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// An event, or a line without an end, has more bytes than allowed.
    #[error("an event is longer than {limit} bytes")]
    TooLarge {
        /// Limit of an event's bytes, field names included.
        limit: usize,
    },
}

/// Decodes events from chunks: [`push`](Self::push) a chunk, then call
/// [`next_event`](Self::next_event) until it returns `None`.
#[derive(Debug)]
pub struct SseDecoder {
    limit: usize,
    /// The rest of the chunks pushed.
    input: Bytes,
    /// The beginning of a line that has not ended yet.
    partial: BytesMut,
    /// The last byte read was a `\r`: a `\n` right after it belongs to it.
    after_cr: bool,
    /// No line was read yet: the first may start with a byte order mark.
    at_start: bool,
    pending: PendingEvent,
    /// Number of comments, and of ends of events without content.
    chatter: usize,
    failed: Option<SseError>,
}

/// The event before its empty line.
#[derive(Debug, Default)]
struct PendingEvent {
    fields: SseEvent,
    data: EventData,
    /// The size of all its lines so far, in bytes.
    size: usize,
}

#[derive(Debug, Default)]
enum EventData {
    #[default]
    Absent,
    Line(Bytes),
    Lines(BytesMut),
}

impl SseDecoder {
    /// Creates a decoder of events of at most `limit` bytes, field names included.
    #[inline]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            input: Bytes::new(),
            partial: BytesMut::new(),
            after_cr: false,
            at_start: true,
            pending: PendingEvent::default(),
            chatter: 0,
            failed: None,
        }
    }

    /// Adds the next chunk of the stream.
    #[inline]
    pub fn push(&mut self, chunk: Bytes) {
        if self.input.is_empty() {
            self.input = chunk;
        } else {
            let mut joined = BytesMut::from(std::mem::take(&mut self.input));
            joined.extend_from_slice(&chunk);
            self.input = joined.freeze();
        }
    }

    /// Returns the next complete event of the pushed chunks, or `None` if more bytes are needed.
    /// Lines after the last empty line of the stream form no event.
    ///
    /// # Errors
    /// [`SseError::TooLarge`], repeated by every later call.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        while let Some(line) = self.next_line()? {
            if line.is_empty() {
                if let Some(event) = std::mem::take(&mut self.pending).finish() {
                    return Ok(Some(event));
                }
                self.chatter += 1;
            } else if line.starts_with(b":") {
                // A comment: keeps the connection alive and adds nothing to the event.
                self.chatter += 1;
            } else {
                self.pending.take(&line);
            }
        }
        Ok(None)
    }

    /// Returns the bytes of the event that has not ended yet, and of those after it.
    #[inline]
    pub fn buffered(&self) -> usize {
        self.input.len() + self.partial.len() + self.pending.size
    }

    /// Returns the number of lines since the last call that were comments, or ends of events
    /// without content.
    #[inline]
    pub fn take_chatter(&mut self) -> usize {
        std::mem::take(&mut self.chatter)
    }

    fn next_line(&mut self) -> Result<Option<Bytes>, SseError> {
        if self.after_cr && !self.input.is_empty() {
            self.after_cr = false;
            if self.input.first() == Some(&b'\n') {
                let _line_feed = self.input.split_to(1);
            }
        }
        let Some(end) = memchr::memchr2(b'\r', b'\n', &self.input) else {
            self.check(self.input.len())?;
            make_room(&mut self.partial, self.input.len());
            self.partial.extend_from_slice(&self.input);
            self.input.clear();
            return Ok(None);
        };
        self.check(end)?;
        let mut line = self.input.split_to(end);
        self.after_cr = self.input.split_to(1).as_ref() == b"\r";
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(&line);
            let whole = self.partial.len();
            line = take_first(&mut self.partial, whole).freeze();
        }
        if std::mem::take(&mut self.at_start) {
            line = line.slice_ref(skip_byte_order_mark(&line));
        }
        Ok(Some(line))
    }

    /// Fails if `more` bytes in addition to those held exceed the limit.
    fn check(&mut self, more: usize) -> Result<(), SseError> {
        if self.pending.size + self.partial.len() + more > self.limit {
            let error = SseError::TooLarge { limit: self.limit };
            *self = Self { failed: Some(error), ..Self::new(self.limit) };
            return Err(error);
        }
        Ok(())
    }
}

impl PendingEvent {
    /// Adds a line, which is not empty.
    fn take(&mut self, line: &Bytes) {
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let space = usize::from(line.get(colon + 1) == Some(&b' '));
                (line.slice(..colon), line.slice(colon + 1 + space..))
            }
            None => (line.clone(), Bytes::new()),
        };
        self.size += line.len();
        match name.as_ref() {
            b"data" => self.data = std::mem::take(&mut self.data).and(value),
            b"event" => self.fields.event = Some(value),
            // An id that contains a NUL is ignored, as the standard requires.
            b"id" if !value.contains(&0) => self.fields.id = Some(value),
            b"retry" => self.fields.retry = milliseconds(&value).or(self.fields.retry),
            _ => {}
        }
    }

    fn finish(self) -> Option<SseEvent> {
        let (data, has_data) = match self.data {
            EventData::Absent => (Bytes::new(), false),
            EventData::Line(line) => (line, true),
            EventData::Lines(lines) => (lines.freeze(), true),
        };
        let event = SseEvent { data, ..self.fields };
        (has_data || event.id.is_some() || event.retry.is_some()).then_some(event)
    }
}

impl EventData {
    fn and(self, line: Bytes) -> Self {
        let mut lines = match self {
            Self::Absent => return Self::Line(line),
            Self::Line(first) => BytesMut::from(first.as_ref()),
            Self::Lines(lines) => lines,
        };
        lines.extend_from_slice(b"\n");
        lines.extend_from_slice(&line);
        Self::Lines(lines)
    }
}

/// Parses ASCII digits only; a number that is too large is ignored.
fn milliseconds(value: &[u8]) -> Option<u64> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
