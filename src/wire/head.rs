//! The head of a response, and how its body is framed.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::WireFault;

/// A response's head.
#[derive(Debug)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the connection may be used again, as far as the server says.
    pub keep_alive: bool,
    /// Its fields.
    pub fields: Fields,
}

/// Where a body ends (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// How much of a head was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) status: StatusCode,
    pub(super) framing: Framing,
    pub(super) keep_alive: bool,
    /// How many bytes the head has.
    pub(super) length: usize,
}

/// Reads a head, if the whole of it is there.
///
/// # Errors
/// [`WireFault::Http`] for what is no HTTP/1.1 response, [`WireFault::Framing`]
/// where it contradicts itself about its body's end, [`WireFault::Head`] for one
/// that does not end.
pub(super) fn parse(input: &[u8]) -> Result<Option<Found>, WireFault> {
    let mut headers = [const { std::mem::MaybeUninit::uninit() }; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut response, input, &mut headers);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() <= MOST_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(WireFault::Head { limit: MOST_HEAD }),
        Err(error) => return Err(WireFault::Http(error)),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(WireFault::Http(httparse::Error::Status))?;
    let mut says = Says::default();
    for header in response.headers.iter() {
        says.take(header.name, header.value)?;
    }
    let is_11 = response.version == Some(1);
    // No body whatever the fields say.
    let framing = if matches!(status.as_u16(), 100..=199 | 204 | 304) {
        Framing::Length(0)
    } else {
        says.framing()
    };
    let keep_alive = (is_11 || says.keep_alive) && !says.close && framing != Framing::Close;
    Ok(Some(Found { status, framing, keep_alive, length }))
}

/// What the fields say of the body's end and of the connection's.
#[derive(Default)]
struct Says {
    length: Option<u64>,
    /// There is a transfer coding; whether the last one is `chunked`.
    coded: Option<bool>,
    keep_alive: bool,
    close: bool,
}

impl Says {
    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), WireFault> {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        let entries = || {
            let text = std::str::from_utf8(value).unwrap_or_default();
            text.split(',').map(str::trim)
        };
        // The lengths of the names come first: most fields are none of these.
        match name.len() {
            14 if is("content-length") => {
                let length = digits(value).ok_or(WireFault::Framing)?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(WireFault::Framing);
                }
                self.length = Some(length);
            }
            17 if is("transfer-encoding") => {
                let last = entries().next_back();
                self.coded = Some(last.is_some_and(|last| last.eq_ignore_ascii_case("chunked")));
            }
            10 if is("connection") => {
                for one in entries() {
                    self.close |= one.eq_ignore_ascii_case("close");
                    self.keep_alive |= one.eq_ignore_ascii_case("keep-alive");
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn framing(&self) -> Framing {
        match (self.coded, self.length) {
            (Some(true), _) => Framing::Chunked,
            (None, Some(length)) => Framing::Length(length),
            _ => Framing::Close,
        }
    }
}

/// A number and nothing else: neither sign nor list (RFC 9110, 8.6).
pub fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// The fields of a head.
#[derive(Debug)]
pub struct Fields(Kept);

#[derive(Debug)]
enum Kept {
    /// The head as it came; its lines were seen to be in order.
    Text(Bytes),
    Map(HeaderMap),
}

impl Fields {
    /// Those of a whole head that was read.
    pub(super) fn text(head: Bytes) -> Self {
        Self(Kept::Text(head))
    }

    /// Those of HTTP/2.
    pub(super) fn map(map: HeaderMap) -> Self {
        Self(Kept::Map(map))
    }

    /// A field's value, the first where there are several; `name` in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let text = match &self.0 {
            Kept::Map(map) => return map.get(name).map(HeaderValue::as_bytes),
            Kept::Text(text) => text,
        };
        // The first line is the status.
        let mut lines = text.split(|byte| *byte == b'\n').skip(1);
        lines.find_map(|line| {
            let (found, rest) = line.split_at_checked(name.len())?;
            let value = rest.strip_prefix(b":")?;
            found.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
        })
    }

    /// All of them; those whose value cannot be one are left out.
    pub fn into_map(self) -> HeaderMap {
        let text = match self.0 {
            Kept::Map(map) => return map,
            Kept::Text(text) => text,
        };
        let mut map = HeaderMap::new();
        for line in text.split(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            {
                map.append(name, value);
            }
        }
        map
    }

    /// The same where it is text, and empty where it is not or is missing.
    pub fn get_text(&self, name: &str) -> &str {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default()
    }
}

const MOST_FIELDS: usize = 100;
const MOST_HEAD: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Found, WireFault> {
        let text = text.replace('\n', "\r\n");
        let found = parse(text.as_bytes())?.unwrap();
        assert_eq!(found.length, text.len());
        Ok(found)
    }

    #[test]
    fn a_body_ends_where_the_head_says() {
        for (text, framing, keep_alive) in [
            ("HTTP/1.1 200 OK\ncontent-length: 12\n\n", Framing::Length(12), true),
            ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", Framing::Chunked, true),
            (
                "HTTP/1.1 200 OK\nContent-Length: 3\nTransfer-Encoding: gzip, Chunked\n\n",
                Framing::Chunked,
                true,
            ),
            ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\n", Framing::Close, false),
            ("HTTP/1.1 200 OK\n\n", Framing::Close, false),
            ("HTTP/1.1 202 Accepted\nContent-Length: 0\n\n", Framing::Length(0), true),
            ("HTTP/1.1 204 No Content\n\n", Framing::Length(0), true),
            (
                "HTTP/1.1 200 OK\nConnection: close\nContent-Length: 3\n\n",
                Framing::Length(3),
                false,
            ),
            ("HTTP/1.0 200 OK\nContent-Length: 3\n\n", Framing::Length(3), false),
            (
                "HTTP/1.0 200 OK\nConnection: keep-alive\nContent-Length: 3\n\n",
                Framing::Length(3),
                true,
            ),
            ("HTTP/1.1 200 OK\nContent-Length: 3\nContent-Length: 3\n\n", Framing::Length(3), true),
        ] {
            let found = head(text).unwrap();
            assert_eq!((found.framing, found.keep_alive), (framing, keep_alive), "{text}");
        }
    }

    #[test]
    fn a_head_that_contradicts_itself_is_refused() {
        for length in ["3\nContent-Length: 4", "+3", "-1", "3, 3", "", "x", "99999999999999999999"]
        {
            let text = format!("HTTP/1.1 200 OK\nContent-Length: {length}\n\n");
            assert!(matches!(head(&text), Err(WireFault::Framing)), "{text}");
        }
    }

    #[test]
    fn half_a_head_is_waited_for_and_what_is_none_is_refused() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\ncontent-le").unwrap(), None);
        assert!(matches!(parse(b"SSH-2.0-x\r\n"), Err(WireFault::Http(_))));
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MOST_HEAD));
        assert!(matches!(parse(endless.as_bytes()), Err(WireFault::Head { .. })));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(MOST_FIELDS + 1));
        assert!(matches!(parse(many.as_bytes()), Err(WireFault::Http(_))));
    }

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let text: &[u8] = b"HTTP/1.1 200 a: b\r\nContent-Type-X: no\r\nContent-Type:  text/x \r\n\
            mcp-session-id:abc\r\nempty:\r\n\r\nx: body";
        let length = parse(text).unwrap().unwrap().length;
        let fields = Fields::text(Bytes::from_static(&text[..length]));
        assert_eq!(fields.get_text("content-type"), "text/x");
        assert_eq!(fields.get("mcp-session-id"), Some(&b"abc"[..]));
        assert_eq!(fields.get("empty"), Some(&b""[..]));
        for missing in ["x", "http/1.1 200 a", "content", "session-id"] {
            assert_eq!(fields.get(missing), None, "{missing}");
        }
    }
}
