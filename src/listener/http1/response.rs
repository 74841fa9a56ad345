//! An answer's head, and how its body is framed.

use std::io::Write as _;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, StatusCode, header, response};
use http_body::Body;

use super::output::Output;
use super::{Fault, date};
use crate::listener::BoxError;

/// What an answer has to know of its request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) is_head: bool,
    pub(super) is_11: bool,
    pub(super) keep_alive: bool,
}

/// How a body goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// So many bytes are left of those that were promised.
    Left(u64),
    Chunked,
    /// Its end is the connection's.
    Close,
    /// There is none, whatever the service says.
    None,
}

/// A body that is being written.
#[derive(Debug)]
pub(super) struct Writing<B> {
    body: B,
    framing: Framing,
    over: bool,
}

impl<B> Writing<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    /// Writes the head.
    pub(super) fn begin(response: Response<B>, reply: &Reply, output: &mut Output) -> Self {
        let (head, body) = response.into_parts();
        let bodiless = matches!(head.status.as_u16(), 100..=199 | 204 | 304);
        let exact = body.size_hint().exact();
        let framing = match exact {
            _ if reply.is_head || bodiless => Framing::None,
            Some(length) => Framing::Left(length),
            None if reply.is_11 => Framing::Chunked,
            None => Framing::Close,
        };
        let out = output.text();
        status(out, head.status, reply.is_11);
        lines(out, &head);
        match framing {
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Framing::Close => {}
            Framing::None if bodiless => {}
            Framing::None | Framing::Left(_) => {
                if let Some(length) = exact {
                    out.extend_from_slice(b"content-length: ");
                    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
        if !reply.keep_alive || framing == Framing::Close {
            out.extend_from_slice(b"connection: close\r\n");
        } else if !reply.is_11 {
            out.extend_from_slice(b"connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"date: ");
        date::write(out);
        out.extend_from_slice(b"\r\n\r\n");
        Self { body, framing, over: matches!(framing, Framing::None | Framing::Left(0)) }
    }

    /// Whether all of it has been put out.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the connection has to end behind it.
    pub(super) fn ends_connection(&self) -> bool {
        self.framing == Framing::Close
    }

    /// Takes what is there of the body; `Pending` when there is nothing more for now.
    pub(super) fn poll_fill(
        &mut self,
        output: &mut Output,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        // The last few bytes behind a large piece go out with it.
        while !self.over && (output.left() < FULL || matches!(self.framing, Framing::Left(..=LAST)))
        {
            match std::pin::Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => self.end(output)?,
                Poll::Ready(Some(Err(fault))) => {
                    return Poll::Ready(Err(Fault::Answer(fault.into())));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        self.put(piece, output)?;
                    }
                    if self.body.is_end_stream() {
                        self.end(output)?;
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn put(&mut self, piece: Bytes, output: &mut Output) -> Result<(), Fault> {
        if piece.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            Framing::Left(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(Fault::Length)?;
                output.push(piece);
            }
            Framing::Chunked => {
                hex(output.text(), piece.len());
                output.push(piece);
                output.text().extend_from_slice(b"\r\n");
            }
            Framing::Close | Framing::None => output.push(piece),
        }
        Ok(())
    }

    fn end(&mut self, output: &mut Output) -> Result<(), Fault> {
        match self.framing {
            Framing::Left(1..) => return Err(Fault::Length),
            Framing::Chunked => output.text().extend_from_slice(b"0\r\n\r\n"),
            Framing::Left(0) | Framing::Close | Framing::None => {}
        }
        self.over = true;
        Ok(())
    }
}

/// The first line.
pub(super) fn status(out: &mut Vec<u8>, status: StatusCode, is_11: bool) {
    if status == StatusCode::OK && is_11 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    let version = if is_11 { "HTTP/1.1 " } else { "HTTP/1.0 " };
    let reason = status.canonical_reason().unwrap_or("Unknown");
    for piece in [version, status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// The service's headers, but for those that are the connection's.
fn lines(out: &mut Vec<u8>, head: &response::Parts) {
    for (name, value) in &head.headers {
        if matches!(
            *name,
            header::CONNECTION | header::CONTENT_LENGTH | header::DATE | header::TRANSFER_ENCODING
        ) {
            continue;
        }
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(piece);
        }
    }
}

/// A chunk's first line.
fn hex(out: &mut Vec<u8>, size: usize) {
    // Memory takes whatever is written.
    let _ = write!(out, "{size:x}\r\n");
}

/// How much is gathered before it is written.
const FULL: usize = 64 * 1024;
/// How little is gathered in any case.
const LAST: u64 = 4 * 1024;
