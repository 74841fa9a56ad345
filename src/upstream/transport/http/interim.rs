//! A bound on what a server sends before its response: interim responses (1xx), which hyper reads
//! one after the other and drops.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};

use super::connection::{HEAD_LIMIT, ServerStream};

/// A connection's bytes, counted while a response is awaited.
#[derive(Debug)]
pub(super) struct GuardedStream {
    inner: ServerStream,
    count: Arc<AwaitedBytes>,
}

/// How many bytes have come since the request, or [`NOT_AWAITED`].
#[derive(Debug)]
pub(super) struct AwaitedBytes(AtomicUsize);

/// The server sends interim responses without end.
#[derive(Debug, thiserror::Error)]
#[error("more than {limit} bytes came before the response")]
struct TooMuchAhead {
    limit: usize,
}

impl AwaitedBytes {
    /// A request was sent.
    pub(super) fn begin(&self) {
        self.0.store(0, Relaxed);
    }

    /// The head of its response has come.
    pub(super) fn end(&self) {
        self.0.store(NOT_AWAITED, Relaxed);
    }
}

impl GuardedStream {
    pub(super) fn new(inner: ServerStream) -> (Self, Arc<AwaitedBytes>) {
        let count = Arc::new(AwaitedBytes(AtomicUsize::new(NOT_AWAITED)));
        (Self { inner, count: Arc::clone(&count) }, count)
    }
}

impl Read for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let before = self.count.0.load(Relaxed);
        if before == NOT_AWAITED {
            return Pin::new(&mut self.inner).poll_read(cx, buffer);
        }
        if before > MOST_AHEAD {
            return Poll::Ready(Err(io::Error::other(TooMuchAhead { limit: MOST_AHEAD })));
        }
        // Through a buffer of its own: hyper's does not tell how much was read.
        let mut space = [MaybeUninit::uninit(); PIECE];
        let room = buffer.remaining().min(PIECE);
        let mut piece = ReadBuf::uninit(space.get_mut(..room).unwrap_or_default());
        ready!(Pin::new(&mut self.inner).poll_read(cx, piece.unfilled()))?;
        buffer.put_slice(piece.filled());
        self.count.0.store(before + piece.filled().len(), Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl Write for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, pieces)
    }
}

const NOT_AWAITED: usize = usize::MAX;
/// The most bytes before the end of a response's head: as many again as the head may have.
const MOST_AHEAD: usize = 2 * HEAD_LIMIT;
/// The most bytes that are read at once until the head is complete.
const PIECE: usize = 8 * 1024;
