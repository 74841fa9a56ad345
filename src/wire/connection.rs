//! One connection of HTTP/1.1, from a request to the end of its answer.
//!
//! It belongs to whoever uses it: no task stands between, and a request that
//! is given up takes its connection with it, by which the server notices.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::WireFault;
use super::framing::{Framed, Piece};
use super::head::{self, Fields, Head};
use super::stream::Stream;

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream<TokioIo<TokioIo<TcpStream>>>,
    /// What was read and not yet used.
    input: BytesMut,
    /// Where heads are written, kept for the next.
    output: Vec<u8>,
}

impl Connection {
    /// One that was opened.
    pub fn new(stream: MaybeHttpsStream<TokioIo<TcpStream>>) -> Self {
        let stream = match stream {
            MaybeHttpsStream::Http(stream) => Stream::Plain(stream.into_inner()),
            MaybeHttpsStream::Https(stream) => Stream::Tls(Box::new(stream.into_inner())),
        };
        Self { stream, input: BytesMut::new(), output: Vec::new() }
    }

    /// Whether a request may be sent on it: the server has neither closed it
    /// nor said anything unasked. Costs no system call while nothing came.
    pub fn is_fresh(&mut self) -> bool {
        if !self.input.is_empty() {
            return false;
        }
        let mut byte = [0];
        match &mut self.stream {
            Stream::Plain(stream) => matches!(
                stream.try_read(&mut byte),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock
            ),
            Stream::Tls(stream) => {
                let mut room = ReadBuf::new(&mut byte);
                let mut cx = Context::from_waker(Waker::noop());
                Pin::new(stream).poll_read(&mut cx, &mut room).is_pending()
            }
        }
    }

    /// Where the next request's head is written to.
    pub fn head_to_write(&mut self) -> &mut Vec<u8> {
        self.output.clear();
        &mut self.output
    }

    /// Sends the head that was written, and a body, and reads the head of the
    /// answer; interim answers are passed over. Small bodies go out in one
    /// write with their heads.
    ///
    /// # Errors
    /// [`WireFault::Unsent`] where the server has taken nothing of it, others
    /// where it is not known what it has taken.
    ///
    /// # Cancel safety
    /// Not: the connection is of no use after.
    pub async fn exchange(&mut self, mut body: Bytes) -> Result<Head, WireFault> {
        if body.len() <= ONE_PIECE {
            self.output.extend_from_slice(&body);
            body = Bytes::new();
        }
        let mut sending = Sending { written: 0, body, done: false };
        std::future::poll_fn(|cx| self.poll_exchange(&mut sending, cx)).await
    }

    fn poll_exchange(
        &mut self,
        sending: &mut Sending,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, WireFault>> {
        // A server may answer before it has read everything, and then read no
        // more: whether it takes what is written says nothing about whether
        // there is something to be read.
        let failed = match self.poll_send(sending, cx) {
            Poll::Ready(Err(error)) if sending.written == 0 => {
                return Poll::Ready(Err(WireFault::Unsent(error)));
            }
            Poll::Ready(Err(error)) => Some(error),
            Poll::Ready(Ok(())) | Poll::Pending => None,
        };
        loop {
            if let Some(mut head) = self.head()? {
                head.keep_alive &= sending.done;
                return Poll::Ready(Ok(head));
            }
            match (self.poll_read(READ, cx), &failed) {
                (Poll::Ready(Ok(())), _) => {}
                (Poll::Pending, None) => return Poll::Pending,
                (Poll::Ready(Err(fault)), None) => return Poll::Ready(Err(fault)),
                // What it said before it went away has been read.
                (_, Some(error)) => {
                    return Poll::Ready(Err(WireFault::Io(error.kind().into())));
                }
            }
        }
    }

    fn poll_send(&mut self, sending: &mut Sending, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if sending.done {
            return Poll::Ready(Ok(()));
        }
        let whole = self.output.len() + sending.body.len();
        while sending.written < whole {
            let head = self.output.get(sending.written..).unwrap_or_default();
            let passed = sending.written.saturating_sub(self.output.len());
            let body = sending.body.get(passed..).unwrap_or_default();
            let stream = Pin::new(&mut self.stream);
            let wrote = match (head, body) {
                (head, []) => stream.poll_write(cx, head),
                ([], body) => stream.poll_write(cx, body),
                (head, body) => {
                    stream.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(body)])
                }
            };
            match ready!(wrote)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                wrote => sending.written += wrote,
            }
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        sending.done = true;
        sending.body = Bytes::new();
        Poll::Ready(Ok(()))
    }

    /// The head of an answer, if it is there.
    fn head(&mut self) -> Result<Option<Head>, WireFault> {
        while !self.input.is_empty() {
            let Some(found) = head::parse(&self.input)? else { return Ok(None) };
            let text = self.input.split_to(found.length);
            let status = found.status;
            if status.is_informational() && status != http::StatusCode::SWITCHING_PROTOCOLS {
                continue;
            }
            let (framing, keep_alive) = (found.framing, found.keep_alive);
            let fields = Fields::text(text.freeze());
            return Ok(Some(Head { status, framing, keep_alive, fields }));
        }
        Ok(None)
    }

    /// The next piece of a body if it has been read already.
    ///
    /// # Errors
    /// [`WireFault::Chunk`].
    pub fn piece(&mut self, body: &mut Framed) -> Result<Piece, WireFault> {
        body.next(&mut self.input)
    }

    /// Whether nothing of a body is to come any more, as far as was read.
    ///
    /// # Errors
    /// [`WireFault::Chunk`].
    pub fn is_over(&mut self, body: &mut Framed) -> Result<bool, WireFault> {
        body.is_over(&mut self.input)
    }

    /// The next piece of a body; `None` at its end.
    ///
    /// # Errors
    /// [`WireFault`].
    pub fn poll_piece(
        &mut self,
        body: &mut Framed,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, WireFault>> {
        loop {
            match body.next(&mut self.input)? {
                Piece::Data(piece) => return Poll::Ready(Ok(Some(piece))),
                Piece::End => return Poll::Ready(Ok(None)),
                Piece::More(missing) => {
                    let missing = usize::try_from(missing).unwrap_or(usize::MAX);
                    match ready!(self.poll_read(missing, cx)) {
                        Err(WireFault::Closed) if body.ends_with_connection() => {
                            return Poll::Ready(Ok(None));
                        }
                        read => read?,
                    }
                }
            }
        }
    }

    /// Reads something more.
    fn poll_read(&mut self, missing: usize, cx: &mut Context<'_>) -> Poll<Result<(), WireFault>> {
        self.input.reserve(missing.clamp(READ, MOST_READ));
        let stream = Pin::new(&mut self.stream);
        match ready!(tokio_util::io::poll_read_buf(stream, cx, &mut self.input)) {
            Ok(0) => Poll::Ready(Err(WireFault::Closed)),
            Ok(_) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(WireFault::Io(error))),
        }
    }
}

/// A request on its way.
struct Sending {
    written: usize,
    body: Bytes,
    done: bool,
}

/// A body up to this size is copied behind its head.
const ONE_PIECE: usize = 4 * 1024;
/// How much room there is for one read, at least.
const READ: usize = 8 * 1024;
/// How much room there is for one read, at most.
const MOST_READ: usize = 256 * 1024;
