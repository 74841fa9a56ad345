//! Encodes events.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

/// Encodes a `message` event. Line breaks in `data`, which JSON has only between its tokens, split
/// it into several data lines.
pub fn message(data: &[u8]) -> Bytes {
    message_with(data, None, None)
}

/// Encodes a `message` event with an `id` to resume after, and a `retry`.
pub fn message_with(data: &[u8], id: Option<&str>, retry: Option<Duration>) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + ROOM);
    out.put_slice(b"event: message\n");
    put_tags(&mut out, id, retry);
    put_data(&mut out, data);
    out.put_u8(b'\n');
    out.freeze()
}

/// A `message` event without its id, which is added when it is sent.
#[derive(Debug)]
pub struct OpenMessage(BytesMut);

impl OpenMessage {
    /// Encodes a message. Copies it.
    pub fn new(data: &[u8]) -> Self {
        let mut out = BytesMut::with_capacity(data.len() + ROOM);
        out.put_slice(b"event: message\n");
        put_data(&mut out, data);
        Self(out)
    }

    /// Returns the event, with an `id` to resume after.
    pub fn finish(self, id: Option<&str>) -> Bytes {
        let Self(mut out) = self;
        put_tags(&mut out, id, None);
        out.put_u8(b'\n');
        out.freeze()
    }
}

fn put_data(out: &mut BytesMut, data: &[u8]) {
    let mut rest = data;
    while let Some(end) = memchr::memchr2(b'\r', b'\n', rest) {
        let (line, after) = rest.split_at(end);
        put_field(out, b"data: ", line);
        rest = after.strip_prefix(b"\r\n").or(after.get(1..)).unwrap_or_default();
    }
    put_field(out, b"data: ", rest);
}

/// Encodes the event that opens a stream: no message, only the `id` to resume after and the
/// `retry`.
pub fn priming(id: &str, retry: Option<Duration>) -> Bytes {
    let mut out = BytesMut::with_capacity(id.len() + ROOM);
    put_tags(&mut out, Some(id), retry);
    put_field(&mut out, b"data:", b"");
    out.put_u8(b'\n');
    out.freeze()
}

/// Encodes the last event before a connection is closed while its stream continues, with the delay
/// before resuming.
pub fn retry(after: Duration) -> Bytes {
    let mut out = BytesMut::with_capacity(ROOM);
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
const ROOM: usize = 64;
