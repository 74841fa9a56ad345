//! Envelopes around raw payloads.

use bytes::{BufMut, Bytes, BytesMut};

use super::Id;

/// A request.
pub fn request(id: &Id, method: &str, params: &[u8]) -> Bytes {
    envelope(Some(id), b",\"method\":", Some(method), b",\"params\":", params)
}

/// A notification, with or without params.
pub fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    match params {
        Some(params) => envelope(None, b",\"method\":", Some(method), b",\"params\":", params),
        None => envelope(None, b",\"method\":", Some(method), b"", b""),
    }
}

/// An answer that succeeded.
pub fn response(id: &Id, result: &[u8]) -> Bytes {
    envelope(Some(id), b"", None, b",\"result\":", result)
}

/// An answer that failed; `None` where the request's id could not be read.
pub fn error(id: Option<&Id>, error: &[u8]) -> Bytes {
    envelope(id, b"", None, b",\"error\":", error)
}

/// A JSON string.
pub fn string(text: &str) -> String {
    // Serialising a `str` fails for no text.
    serde_json::to_string(text).unwrap_or_default()
}

fn envelope(id: Option<&Id>, key: &[u8], method: Option<&str>, member: &[u8], raw: &[u8]) -> Bytes {
    let id_len = id.map_or(0, |id| id.raw().len());
    let mut out = BytesMut::with_capacity(64 + id_len + method.map_or(0, str::len) + raw.len());
    out.put_slice(b"{\"jsonrpc\":\"2.0\"");
    if let Some(id) = id {
        out.put_slice(b",\"id\":");
        out.put_slice(id.raw());
    }
    if let Some(method) = method {
        out.put_slice(key);
        out.put_slice(string(method).as_bytes());
    }
    out.put_slice(member);
    out.put_slice(raw);
    out.put_u8(b'}');
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_wrap_raw_payloads() {
        let id = Id::number(7);
        for (bytes, text) in [
            (request(&id, "a/b", b"{}"), r#"{"jsonrpc":"2.0","id":7,"method":"a/b","params":{}}"#),
            (notification("n", None), r#"{"jsonrpc":"2.0","method":"n"}"#),
            (notification("n", Some(b"{}")), r#"{"jsonrpc":"2.0","method":"n","params":{}}"#),
            (response(&id, b"{}"), r#"{"jsonrpc":"2.0","id":7,"result":{}}"#),
            (error(None, b"{}"), r#"{"jsonrpc":"2.0","error":{}}"#),
        ] {
            assert_eq!(bytes, text);
        }
    }
}
