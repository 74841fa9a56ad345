//! The client's socket: what was read from it, and what is to be written.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::timeout;

use super::Fault;
use super::coming::{Coming, passage};
use super::head::{Head, Heads};
use super::output::Output;
use super::response::{Reply, Writing, status};
use crate::listener::activity::Activity;
use crate::listener::{BodyFault, BoxError, ConnectionLimits, Incoming};
use crate::wire::{Framed, Framing, Piece};

/// A socket and what is between it and the requests.
pub(super) struct Socket<I> {
    io: I,
    /// What was read and not yet used.
    input: BytesMut,
    /// How much room that was given at most.
    room: usize,
    output: Output,
    heads: Heads,
    rest: Rest,
}

/// What is still to come of the request's body.
enum Rest {
    Nothing,
    Coming {
        to: Coming,
        framed: Framed,
        /// The client waits to be told to send it.
        held_back: bool,
    },
    /// It broke off: nothing behind it can be understood.
    Broken,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Socket<I> {
    pub(super) fn new(io: I, limits: &ConnectionLimits) -> Self {
        Self {
            io,
            input: BytesMut::new(),
            room: 0,
            output: Output::default(),
            heads: Heads::new(limits),
            rest: Rest::Nothing,
        }
    }

    /// The next head; `None` where the client has no more requests, or is to have no more.
    ///
    /// # Errors
    /// [`Fault::Head`] where the head has to be refused.
    pub(super) async fn head(&mut self, activity: &Activity) -> Result<Option<Head>, Fault> {
        poll_fn(|cx| {
            loop {
                // Robust servers pass over empty lines before a head (RFC 9112, 2.2).
                while self.input.starts_with(b"\r\n") {
                    self.input.advance(2);
                    self.heads.begin();
                }
                if !self.input.is_empty()
                    && let Some(head) = self.heads.take(&mut self.input)?
                {
                    return Poll::Ready(Ok(Some(head)));
                }
                if self.input.is_empty() && activity.is_closing() {
                    return Poll::Ready(Ok(None));
                }
                let Poll::Ready(read) = self.poll_read(READ, cx) else {
                    self.release(KEPT);
                    return Poll::Pending;
                };
                if read? == 0 {
                    let whole = self.input.is_empty();
                    return Poll::Ready(if whole { Ok(None) } else { Err(Fault::Gone) });
                }
            }
        })
        .await
    }

    /// The body that follows a head.
    pub(super) fn body(&mut self, framing: Framing, expects: bool) -> Incoming {
        let mut framed = Framed::new(framing);
        if let (left, true) = framed.left()
            && left <= self.input.len() as u64
        {
            let body = framed.next(&mut self.input);
            self.rest = Rest::Nothing;
            return Incoming::here(match body {
                Ok(Piece::Data(body)) => body,
                _ => Bytes::new(),
            });
        }
        let (to, pieces) = passage(framed.left());
        let held_back = expects && self.input.is_empty();
        self.rest = Rest::Coming { to, framed, held_back };
        Incoming::coming(pieces)
    }

    /// Whether another request can follow on this one: its body was read to its end, or what is
    /// left of it is soon passed over.
    pub(super) fn may_go_on(&self) -> bool {
        match &self.rest {
            Rest::Nothing => true,
            Rest::Coming { framed, held_back, .. } => {
                let (left, is_all) = framed.left();
                is_all && left <= ONE_PIECE && !held_back
            }
            Rest::Broken => false,
        }
    }

    /// Passes over what nobody read of the request's body.
    pub(super) async fn pass_over(&mut self) -> Result<(), Fault> {
        let Rest::Coming { mut framed, .. } = std::mem::replace(&mut self.rest, Rest::Nothing)
        else {
            return Ok(());
        };
        poll_fn(|cx| {
            loop {
                match framed.next(&mut self.input) {
                    Ok(Piece::End) => return Poll::Ready(Ok(())),
                    Ok(Piece::Data(_)) => {}
                    Ok(Piece::More(_)) => {
                        if ready!(self.poll_read(READ, cx))? == 0 {
                            return Poll::Ready(Err(Fault::Gone));
                        }
                    }
                    Err(_) => return Poll::Ready(Err(Fault::Chunks)),
                }
            }
        })
        .await
    }

    /// Waits for an answer while the client stays.
    ///
    /// # Errors
    /// [`Fault::Gone`] as soon as it goes away.
    pub(super) async fn attend<F: Future>(
        &mut self,
        mut answer: Pin<&mut F>,
    ) -> Result<F::Output, Fault> {
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                    return Poll::Ready(Ok(answer));
                }
                let Poll::Ready(client) = self.poll_client(cx) else {
                    self.release(KEPT);
                    return Poll::Pending;
                };
                client?;
            }
        })
        .await
    }

    /// Writes an answer.
    ///
    /// # Errors
    /// [`Fault`]: the connection is of no use any more.
    pub(super) async fn respond<B>(
        &mut self,
        response: Response<B>,
        reply: &mut Reply,
    ) -> Result<(), Fault>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        let mut writing = Writing::begin(response, reply, &mut self.output);
        reply.keep_alive &= !writing.ends_connection();
        if let Rest::Coming { held_back, .. } = &mut self.rest {
            // Too late to tell it: the answer has begun.
            *held_back = false;
        }
        poll_fn(|cx| {
            loop {
                let filled = writing.poll_fill(&mut self.output, cx);
                let waits = filled.is_pending();
                let broken = match filled {
                    Poll::Ready(Err(fault)) => Some(fault),
                    _ => None,
                };
                // What came before it broke off still goes out.
                let written = self.output.poll_write(&mut self.io, cx)?;
                if let Some(fault) = broken {
                    return Poll::Ready(Err(fault));
                }
                match written {
                    Poll::Ready(()) if writing.is_over() => return Poll::Ready(Ok(())),
                    Poll::Ready(()) if !waits => continue,
                    Poll::Ready(()) => self.release(0),
                    Poll::Pending => {}
                }
                ready!(self.poll_client(cx))?;
            }
        })
        .await
    }

    /// Looks after what the client sends while it is being served. `Ready` when whoever serves it
    /// has something to look at.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let Rest::Coming { to, framed, held_back } = &mut self.rest else {
            return self.poll_gone(cx);
        };
        if !matches!(to.poll_wanted(cx), Poll::Ready(true)) {
            return self.poll_gone(cx);
        }
        if std::mem::take(held_back) {
            self.output.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        // An answer that is being written has its own place in line: this only helps it along.
        if self.output.poll_write(&mut self.io, cx)?.is_pending() {
            return Poll::Pending;
        }
        // A body of moderate size is handed over in one piece, and never copied.
        let (left, is_all) = framed.left();
        let here = self.input.len() as u64;
        let end = if is_all && left <= ONE_PIECE && here < left {
            Ok(Piece::More(left - here))
        } else {
            framed.next(&mut self.input)
        };
        match end {
            Ok(Piece::Data(piece)) => {
                to.piece(piece, framed.left(), cx);
                if matches!(framed.is_over(&mut self.input), Ok(true)) {
                    to.end(Ok(()), cx);
                    self.rest = Rest::Nothing;
                }
            }
            Ok(Piece::End) => {
                to.end(Ok(()), cx);
                self.rest = Rest::Nothing;
            }
            Ok(Piece::More(missing)) => {
                let missing = usize::try_from(missing).unwrap_or(usize::MAX);
                if ready!(self.poll_read(missing.clamp(READ, MOST_READ), cx))? == 0 {
                    return Poll::Ready(Err(Fault::Gone));
                }
            }
            Err(_) => {
                to.end(Err(BodyFault::Chunks), cx);
                self.rest = Rest::Broken;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for the client to go away. What it asks meanwhile is kept for later; one that asks
    /// for more than is kept is served no more behind this request.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        loop {
            // A body that nobody wants yet waits in the socket.
            if matches!(self.rest, Rest::Coming { .. }) && self.input.len() >= READ {
                return Poll::Pending;
            }
            let mut space = [const { MaybeUninit::uninit() }; GLANCE];
            let mut room = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Err(Fault::Gone));
            }
            if self.input.len() + room.filled().len() <= MOST_AHEAD {
                self.input.extend_from_slice(room.filled());
            } else {
                self.rest = Rest::Broken;
            }
        }
    }

    /// Lets go of memory that is larger than `kept` and has nothing in it.
    fn release(&mut self, kept: usize) {
        if self.input.is_empty() && self.room > kept {
            self.input = BytesMut::new();
            self.room = 0;
        }
        if self.output.capacity() > kept {
            self.output.release();
        }
    }

    /// Reads something more: how many bytes.
    fn poll_read(&mut self, room: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.reserve(room);
        self.room = self.room.max(room);
        tokio_util::io::poll_read_buf(Pin::new(&mut self.io), cx, &mut self.input)
    }

    /// Says why no request can be read, and closes.
    pub(super) async fn refuse(&mut self, why: StatusCode) -> Result<(), Fault> {
        let out = self.output.text();
        status(out, why, true);
        out.extend_from_slice(b"connection: close\r\ncontent-length: 0\r\n\r\n");
        poll_fn(|cx| self.output.poll_write(&mut self.io, cx)).await?;
        self.linger().await
    }

    /// Closes while the client may still be writing: closing on bytes unread would reset the
    /// connection, and the client would lose the answer.
    pub(super) async fn linger(&mut self) -> Result<(), Fault> {
        self.io.shutdown().await?;
        let passed = async {
            let mut left = MOST_LINGERED;
            while left > 0 {
                let read = poll_fn(|cx| {
                    let mut space = [const { MaybeUninit::uninit() }; READ];
                    let mut room = ReadBuf::uninit(&mut space);
                    ready!(Pin::new(&mut self.io).poll_read(cx, &mut room))?;
                    Poll::Ready(io::Result::Ok(room.filled().len()))
                });
                match read.await {
                    Ok(0) | Err(_) => break,
                    Ok(read) => left = left.saturating_sub(read),
                }
            }
        };
        let _ = timeout(LINGER, passed).await;
        Ok(())
    }

    /// Closes when everything has been said.
    pub(super) async fn close(&mut self) -> Result<(), Fault> {
        Ok(self.io.shutdown().await?)
    }
}

/// How much room there is for one read, at least: most requests come in one.
const READ: usize = 4 * 1024;
/// How much room there is for one read, at most.
const MOST_READ: usize = 256 * 1024;
/// A body up to this size is handed over in one piece.
const ONE_PIECE: u64 = 64 * 1024;
/// How much is read at once of what comes unasked, and how much of it is kept.
const GLANCE: usize = 512;
const MOST_AHEAD: usize = 256 * 1024;
/// How much memory a connection keeps for its next request.
const KEPT: usize = 8 * 1024;
/// How long, and for how many bytes, a client that was refused may go on writing.
const LINGER: Duration = Duration::from_secs(1);
const MOST_LINGERED: usize = 256 * 1024;
