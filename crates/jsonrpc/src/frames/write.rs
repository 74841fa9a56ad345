//! Writes envelopes around raw payloads.

use std::borrow::Cow;

use bytes::Bytes;

use crate::{Id, Splice};

/// A request.
#[inline]
pub fn request(id: &Id, method: &str, params: &[u8]) -> Bytes {
    envelope(Some(id), Some(method), b",\"params\":", Raw::Whole(params))
}

/// A request with params that are edited while it is written.
#[inline]
pub fn request_with(id: &Id, method: &str, params: Splice<'_>) -> Bytes {
    envelope(Some(id), Some(method), b",\"params\":", Raw::Edited(params))
}

/// A notification, with or without params.
#[inline]
pub fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    match params {
        Some(params) => envelope(None, Some(method), b",\"params\":", Raw::Whole(params)),
        None => envelope(None, Some(method), b"", Raw::Whole(b"")),
    }
}

/// A successful response.
#[inline]
pub fn response(id: &Id, result: &[u8]) -> Bytes {
    envelope(Some(id), None, b",\"result\":", Raw::Whole(result))
}

/// A successful response with a result that is edited while it is written.
#[inline]
pub fn response_with(id: &Id, result: Splice<'_>) -> Bytes {
    envelope(Some(id), None, b",\"result\":", Raw::Edited(result))
}

/// An error response; the id is `None` if the request's could not be read.
#[inline]
pub fn error(id: Option<&Id>, error: &[u8]) -> Bytes {
    envelope(id, None, b",\"error\":", Raw::Whole(error))
}

/// The error object of a response, with a text and no data.
pub fn error_object(code: i64, message: &str) -> Bytes {
    format!("{{\"code\":{code},\"message\":{}}}", string(message)).into()
}

/// A JSON string.
#[inline]
pub fn string(text: &str) -> String {
    // Serializing a `str` cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}

/// An object of raw values.
pub fn object_of<'a>(members: impl IntoIterator<Item = (&'a str, Cow<'a, str>)>) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (name, value) in members {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(string(name).as_bytes());
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    out
}

/// The payload of an envelope.
enum Raw<'a> {
    Whole(&'a [u8]),
    Edited(Splice<'a>),
}

fn envelope(id: Option<&Id>, method: Option<&str>, member: &[u8], raw: Raw<'_>) -> Bytes {
    let id = id.map(|id| [b",\"id\":", id.raw()]);
    let size = match &raw {
        Raw::Whole(raw) => raw.len(),
        Raw::Edited(splice) => splice.size(),
    } + VERSION_MEMBER.len()
        + id.map_or(0, |[key, id]| key.len() + id.len())
        + method.map_or(0, |method| METHOD_MEMBER.len() + method.len() + 2)
        + member.len()
        + 1;
    // The exact size, except for a method with escapes: such bytes are shared without a copy.
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(VERSION_MEMBER);
    for part in id.into_iter().flatten() {
        out.extend_from_slice(part);
    }
    if let Some(method) = method {
        out.extend_from_slice(METHOD_MEMBER);
        put_string(&mut out, method);
    }
    out.extend_from_slice(member);
    match raw {
        Raw::Whole(raw) => out.extend_from_slice(raw),
        Raw::Edited(mut splice) => splice.put(&mut out),
    }
    out.push(b'}');
    out.into()
}

/// Writes a JSON string; most names need no escapes.
fn put_string(out: &mut Vec<u8>, text: &str) {
    if text.bytes().any(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
        out.extend_from_slice(string(text).as_bytes());
    } else {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    }
}

const VERSION_MEMBER: &[u8] = b"{\"jsonrpc\":\"2.0\"";
const METHOD_MEMBER: &[u8] = b",\"method\":";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_wrap_raw_payloads() {
        let id = Id::number(7);
        for (bytes, text) in [
            (request(&id, "a/b", b"{}"), r#"{"jsonrpc":"2.0","id":7,"method":"a/b","params":{}}"#),
            (notification("n\"", None), r#"{"jsonrpc":"2.0","method":"n\""}"#),
            (notification("n", None), r#"{"jsonrpc":"2.0","method":"n"}"#),
            (notification("n", Some(b"{}")), r#"{"jsonrpc":"2.0","method":"n","params":{}}"#),
            (response(&id, b"{}"), r#"{"jsonrpc":"2.0","id":7,"result":{}}"#),
            (error(None, b"{}"), r#"{"jsonrpc":"2.0","error":{}}"#),
        ] {
            assert_eq!(bytes, text);
        }
    }
}
