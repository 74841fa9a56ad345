//! Encodes events.

use std::time::Duration;

use bytes::{Buf as _, BufMut, Bytes, BytesMut};

/// Encodes a `message` event. Line breaks in `data`, which JSON has only between its tokens, split
/// it into several data lines.
pub fn message(data: &[u8]) -> Bytes {
    message_with(data, None, None)
}

/// Encodes a `message` event with an `id` to resume after, and a `retry`.
pub fn message_with(data: &[u8], id: Option<&str>, retry: Option<Duration>) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + FIELD_NAME_BYTES);
    out.put_slice(b"event: message\n");
    put_tags(&mut out, id, retry);
    put_data(&mut out, data);
    out.put_u8(b'\n');
    out.freeze()
}

/// A large `message` event in pieces, without its id, which is added when it is sent.
#[derive(Debug)]
pub struct OpenMessage(Vec<Bytes>);

impl OpenMessage {
    /// Encodes a message. The event shares the memory of a message without line breaks.
    pub fn new(message: impl IntoIterator<Item = Bytes>) -> Self {
        let mut data = DataEncoder::default();
        let mut pieces = vec![DataEncoder::START];
        pieces.extend(message.into_iter().map(|piece| data.encode(piece)));
        Self(pieces)
    }

    /// Returns the pieces of the event, with an `id` to resume after.
    pub fn finish(self, id: Option<&str>) -> Vec<Bytes> {
        let Self(mut pieces) = self;
        let mut end = BytesMut::with_capacity(FIELD_NAME_BYTES);
        end.put_u8(b'\n');
        put_tags(&mut end, id, None);
        end.put_u8(b'\n');
        pieces.push(end.freeze());
        pieces
    }
}

/// Encodes the data of a `message` event that is sent in pieces, between [`DataEncoder::START`] and
/// [`DataEncoder::END`].
#[derive(Debug, Default)]
pub struct DataEncoder {
    /// The last piece ended with a carriage return: a line feed at the beginning of the next one
    /// belongs to the same line break.
    is_after_cr: bool,
}

impl DataEncoder {
    /// The event before its data.
    pub const START: Bytes = Bytes::from_static(b"event: message\ndata: ");
    /// The event after its data.
    pub const END: Bytes = Bytes::from_static(b"\n\n");

    /// Encodes the next piece. A piece without line breaks is returned unchanged, and not copied.
    pub fn encode(&mut self, mut piece: Bytes) -> Bytes {
        let Some(last) = piece.last().copied() else { return piece };
        if std::mem::replace(&mut self.is_after_cr, last == b'\r') && piece.starts_with(b"\n") {
            piece.advance(1);
        }
        if memchr::memchr2(b'\r', b'\n', &piece).is_none() {
            return piece;
        }
        let mut out = BytesMut::with_capacity(piece.len() + FIELD_NAME_BYTES);
        put_lines(&mut out, &piece);
        out.freeze()
    }
}

fn put_data(out: &mut BytesMut, data: &[u8]) {
    out.put_slice(b"data: ");
    put_lines(out, data);
    out.put_u8(b'\n');
}

/// Begins a new data line at each line break.
fn put_lines(out: &mut BytesMut, data: &[u8]) {
    let mut rest = data;
    while let Some(end) = memchr::memchr2(b'\r', b'\n', rest) {
        let (line, after) = rest.split_at(end);
        out.put_slice(line);
        out.put_slice(b"\ndata: ");
        rest = after.strip_prefix(b"\r\n").or(after.get(1..)).unwrap_or_default();
    }
    out.put_slice(rest);
}

/// Encodes the event that opens a stream: no message, only the `id` to resume after and the
/// `retry`.
pub fn priming(id: &str, retry: Option<Duration>) -> Bytes {
    let mut out = BytesMut::with_capacity(id.len() + FIELD_NAME_BYTES);
    put_tags(&mut out, Some(id), retry);
    put_field(&mut out, b"data:", b"");
    out.put_u8(b'\n');
    out.freeze()
}

/// Encodes the last event before a connection is closed while its stream continues, with the delay
/// before resuming.
pub fn retry(after: Duration) -> Bytes {
    let mut out = BytesMut::with_capacity(FIELD_NAME_BYTES);
    put_tags(&mut out, None, Some(after));
    out.put_u8(b'\n');
    out.freeze()
}

/// Encodes a comment: keeps an idle connection open, and is ignored by the client.
#[inline]
pub fn comment() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// Omits an id that its field cannot contain (a line break or a NUL in it).
fn put_tags(out: &mut BytesMut, id: Option<&str>, retry: Option<Duration>) {
    if let Some(id) = id.filter(|id| !id.contains(['\r', '\n', '\0'])) {
        put_field(out, b"id: ", id.as_bytes());
    }
    if let Some(retry) = retry {
        put_field(out, b"retry: ", milliseconds(retry).to_string().as_bytes());
    }
}

fn put_field(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    out.put_slice(name);
    out.put_slice(value);
    out.put_u8(b'\n');
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Space for the field names around a message.
const FIELD_NAME_BYTES: usize = 64;
