//! The head of a request.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Uri, Version};

use super::Fault;
use crate::listener::ConnectionLimits;
use crate::wire::{Framing, Headers, Received, digits};

/// A request whose body is yet to come.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) request: Received<()>,
    /// How many bytes it took.
    pub(super) size: usize,
    /// Where its body ends.
    pub(super) framing: Framing,
    /// Whether another request may follow on this connection.
    pub(super) keep_alive: bool,
    /// The client holds its body back until it is told to go on (RFC 9110, 10.1.1).
    pub(super) expects: bool,
}

/// Reads heads, one after the other.
#[derive(Debug)]
pub(super) struct Heads {
    most_bytes: usize,
    most_lines: usize,
    /// The last target: most clients ask for the same one again.
    target: Option<Uri>,
    /// How much of the input holds no end of a head.
    searched: usize,
}

impl Heads {
    pub(super) fn new(limits: &ConnectionLimits) -> Self {
        Self {
            // Twice the bound, so that what is a little over gets an answer that names the bound,
            // and only what is far over a bare 431.
            most_bytes: limits.header.saturating_mul(2),
            most_lines: limits.header_lines,
            target: None,
            searched: 0,
        }
    }

    /// Begins with another input.
    pub(super) fn begin(&mut self) {
        self.searched = 0;
    }

    /// Takes a head from the start of `input`, if the whole of it is there.
    ///
    /// # Errors
    /// [`Fault::Head`] with the status that says what is wrong with it.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<Option<Head>, Fault> {
        let Some(size) = self.end(input)? else { return Ok(None) };
        if size > self.most_bytes {
            return Err(Fault::Head(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        self.begin();
        let text = input.split_to(size).freeze();
        if self.most_lines <= LINES {
            let mut lines = [const { std::mem::MaybeUninit::uninit() }; LINES];
            self.read(&text, &mut lines).map(Some)
        } else {
            let mut lines = vec![std::mem::MaybeUninit::uninit(); self.most_lines];
            self.read(&text, &mut lines).map(Some)
        }
    }

    /// Where the head at the start of `input` ends.
    fn end(&mut self, input: &[u8]) -> Result<Option<usize>, Fault> {
        let from = self.searched.saturating_sub(END.len());
        let new = input.get(from..).unwrap_or_default();
        if let Some(at) = memchr::memmem::find(new, END) {
            return Ok(Some(from + at + END.len()));
        }
        let is_first = self.searched == 0;
        self.searched = input.len();
        if input.len() > self.most_bytes {
            return Err(Fault::Head(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        // What begins as no head ever does is not waited for. Looked at once: a head that comes in
        // drops is not read from its start with every one of them.
        if !is_first {
            return Ok(None);
        }
        let mut lines = vec![httparse::EMPTY_HEADER; self.most_lines];
        match httparse::Request::new(&mut lines).parse(input) {
            // Its lines end without a CR: lines of such are no HTTP/1.1, though many read them.
            Ok(httparse::Status::Complete(_)) => Err(Fault::Head(StatusCode::BAD_REQUEST)),
            Ok(httparse::Status::Partial) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn read<'a>(
        &mut self,
        text: &'a Bytes,
        lines: &mut [std::mem::MaybeUninit<httparse::Header<'a>>],
    ) -> Result<Head, Fault> {
        const BAD: Fault = Fault::Head(StatusCode::BAD_REQUEST);
        let mut parsed = httparse::Request::new(&mut []);
        let read = httparse::ParserConfig::default()
            .parse_request_with_uninit_headers(&mut parsed, text, lines)
            .map_err(refused)?;
        // A line that ends without a CR is one to us, and to whoever stands in front of us it may
        // be a part of another.
        let mut ends = memchr::memchr_iter(b'\n', text);
        let has_cr = |at: usize| at.checked_sub(1).and_then(|at| text.get(at)) == Some(&b'\r');
        if read != httparse::Status::Complete(text.len()) || !ends.all(has_cr) {
            return Err(BAD);
        }
        if parsed.headers.len() > self.most_lines {
            return Err(Fault::Head(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        let is_11 = parsed.version == Some(1);
        let mut says = Says::default();
        for line in parsed.headers.iter() {
            says.take(line.name, line.value)?;
        }
        let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
        let lines = parsed.headers.iter().map(|line| (line.name.as_bytes(), line.value));
        let request = Received {
            method: method.map_err(|_| BAD)?,
            uri: self.target(parsed.path.unwrap_or_default(), text).ok_or(BAD)?,
            version: if is_11 { Version::HTTP_11 } else { Version::HTTP_10 },
            headers: Headers::parts(text, lines),
            body: (),
        };
        Ok(Head {
            request,
            size: text.len(),
            framing: says.framing(is_11)?,
            keep_alive: (is_11 || says.connection.keep_alive) && !says.connection.close,
            expects: is_11 && says.expects,
        })
    }

    fn target(&mut self, target: &str, text: &Bytes) -> Option<Uri> {
        if let Some(last) = &self.target
            && last.path() == target
            && last.query().is_none()
            && last.authority().is_none()
        {
            return Some(last.clone());
        }
        let uri = Uri::from_maybe_shared(text.slice_ref(target.as_bytes())).ok()?;
        // A copy of its own, for one that is kept keeps what it is a part of.
        self.target = Uri::try_from(target).ok();
        Some(uri)
    }
}

/// The status for what is no head.
fn refused(error: httparse::Error) -> Fault {
    Fault::Head(match error {
        httparse::Error::TooManyHeaders => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        httparse::Error::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        _ => StatusCode::BAD_REQUEST,
    })
}

/// What the lines say of the body's end and of the connection's.
#[derive(Default)]
struct Says {
    length: Option<u64>,
    chunked: bool,
    expects: bool,
    connection: Connection,
}

/// What it says of the connection.
#[derive(Default)]
struct Connection {
    keep_alive: bool,
    close: bool,
}

impl Says {
    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), Fault> {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        // The lengths of the names come first: most lines are none of these.
        match name.len() {
            14 if is("content-length") => {
                let length = digits(value).ok_or(Fault::Head(StatusCode::BAD_REQUEST))?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(Fault::Head(StatusCode::BAD_REQUEST));
                }
                self.length = Some(length);
            }
            // No other coding is undone here, and one line of it is all that there may be.
            17 if is("transfer-encoding") => {
                if self.chunked {
                    return Err(Fault::Head(StatusCode::BAD_REQUEST));
                }
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Fault::Head(StatusCode::NOT_IMPLEMENTED));
                }
                self.chunked = true;
            }
            10 if is("connection") => {
                for one in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.connection.close |= one.eq_ignore_ascii_case(b"close");
                    self.connection.keep_alive |= one.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            6 if is("expect") => self.expects |= value.eq_ignore_ascii_case(b"100-continue"),
            _ => {}
        }
        Ok(())
    }

    /// RFC 9112, 6.3. What says it in two ways is refused (11.2): whoever stands in front of us
    /// may have believed the other.
    fn framing(&self, is_11: bool) -> Result<Framing, Fault> {
        match (self.chunked, self.length) {
            (true, None) if is_11 => Ok(Framing::Chunked),
            (true, _) => Err(Fault::Head(StatusCode::BAD_REQUEST)),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

const END: &[u8] = b"\r\n\r\n";
/// So many lines of a head are read without memory of their own.
const LINES: usize = 100;
