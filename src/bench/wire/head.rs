//! The head of a response, and how its body is framed.

use super::{Framing, WireFault};

/// What matters of a response's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// Where the body ends.
    pub framing: Framing,
    /// What the body is.
    pub media: Media,
    /// Whether the connection may be used again.
    pub keep_alive: bool,
    /// Legacy: the session that the server opened.
    pub session: Option<String>,
    /// Where a redirect leads.
    pub location: Option<String>,
}

/// What a body is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Media {
    /// One JSON message.
    Json,
    /// Server-sent events.
    Events,
    /// Something else, by its name; empty where there is none.
    Other(String),
}

/// Reads a head, if the whole of it is there; gives its length, too.
///
/// # Errors
/// [`WireFault::Http`] for what is no HTTP/1.1 response.
pub fn parse(input: &[u8]) -> Result<Option<(Head, usize)>, WireFault> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() <= MOST_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(WireFault::TooLarge { limit: MOST_HEAD }),
        Err(error) => return Err(WireFault::Http(error)),
    };
    let status = response.code.unwrap_or(0);
    let mut head = Head {
        status,
        framing: Framing::Close,
        media: Media::Other(String::new()),
        keep_alive: response.version == Some(1),
        session: None,
        location: None,
    };
    for header in response.headers.iter() {
        head.take(header.name, header.value);
    }
    // No body whatever the headers say.
    if matches!(status, 100..=199 | 204 | 304) {
        head.framing = Framing::Length(0);
    }
    head.keep_alive &= head.framing != Framing::Close;
    Ok(Some((head, length)))
}

impl Head {
    fn take(&mut self, name: &str, value: &[u8]) {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        let text = || std::str::from_utf8(value).unwrap_or_default().trim();
        // The lengths of the names come first: most headers are none of these.
        match name.len() {
            14 if is("content-length") && self.framing != Framing::Chunked => {
                self.framing = text().parse().map_or(self.framing, Framing::Length);
            }
            17 if is("transfer-encoding") && contains(text(), "chunked") => {
                self.framing = Framing::Chunked;
            }
            12 if is("content-type") => self.media = Media::of(text()),
            10 if is("connection") => {
                self.keep_alive = (self.keep_alive || contains(text(), "keep-alive"))
                    && !contains(text(), "close");
            }
            14 if is("mcp-session-id") => self.session = Some(text().to_owned()),
            8 if is("location") => self.location = Some(text().to_owned()),
            _ => {}
        }
    }
}

impl Media {
    fn of(value: &str) -> Self {
        let kind = value.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/json") {
            Self::Json
        } else if kind.eq_ignore_ascii_case("text/event-stream") {
            Self::Events
        } else {
            Self::Other(kind.chars().take(60).collect())
        }
    }
}

fn contains(list: &str, wanted: &str) -> bool {
    list.split(',').any(|one| one.trim().eq_ignore_ascii_case(wanted))
}

const MOST_HEADERS: usize = 64;
const MOST_HEAD: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        let text = text.replace('\n', "\r\n");
        let (head, length) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        head
    }

    #[test]
    fn a_body_ends_where_the_head_says() {
        for (text, framing, keep_alive) in [
            ("HTTP/1.1 200 OK\ncontent-length: 12\n\n", Framing::Length(12), true),
            ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", Framing::Chunked, true),
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
        ] {
            let head = head(text);
            assert_eq!((head.framing, head.keep_alive), (framing, keep_alive), "{text}");
        }
    }

    #[test]
    fn the_media_type_and_the_session_are_read() {
        let text = "HTTP/1.1 200 OK\nContent-Type: Text/Event-Stream; charset=utf-8\n\
                    Mcp-Session-Id: abc\nContent-Length: 0\n\n";
        let head = head(text);
        assert_eq!(head.media, Media::Events);
        assert_eq!(head.session.as_deref(), Some("abc"));
    }

    #[test]
    fn half_a_head_is_waited_for_and_what_is_none_is_refused() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\ncontent-le").unwrap(), None);
        assert!(matches!(parse(b"SSH-2.0-x\r\n"), Err(WireFault::Http(_))));
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MOST_HEAD));
        assert!(matches!(parse(endless.as_bytes()), Err(WireFault::TooLarge { .. })));
    }
}
