//! Bytes that a server sends before its response.
//!
//! Interim responses (1xx), which hyper reads and drops one by one, are bounded. Bytes that arrive
//! on a used connection before a request is written, such as a surplus response, close it.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use rustix::net::{RecvFlags, recv};

use super::{HEAD_LIMIT, ServerStream};

/// A connection's bytes, counted while a response is awaited.
#[derive(Debug)]
pub(super) struct GuardedStream {
    inner: ServerStream,
    count: Arc<AwaitedBytes>,
}

/// Number of bytes since the request, [`NOT_AWAITED`] or [`UNSENT_REQUEST`].
#[derive(Debug)]
pub(super) struct AwaitedBytes(AtomicUsize);

/// The server sends interim responses without end.
#[derive(Debug, thiserror::Error)]
#[error("more than {limit} bytes came before the response")]
struct InterimSizeError {
    limit: usize,
}

/// Bytes, or the end of the stream, arrived before the request was written.
#[derive(Debug, thiserror::Error)]
#[error("the server closed the connection or sent data before the request")]
struct UnaskedDataError;

impl AwaitedBytes {
    /// Starts to count for a connection's first request.
    pub(super) fn begin(&self) {
        self.0.store(0, Relaxed);
    }

    /// Starts to count for a further request, which is sent only if nothing has arrived.
    pub(super) fn begin_again(&self) {
        self.0.store(UNSENT_REQUEST, Relaxed);
    }

    /// Ends the count when the head of the response has arrived.
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
        if before == UNSENT_REQUEST {
            self.count.0.store(0, Relaxed);
            if has_unread_data(&self.inner) {
                return Poll::Ready(Err(io::Error::other(UnaskedDataError)));
            }
            return Pin::new(&mut self.inner).poll_read(cx, buffer);
        }
        if before > MAX_BYTES_BEFORE_HEAD_END {
            return Poll::Ready(Err(io::Error::other(InterimSizeError {
                limit: MAX_BYTES_BEFORE_HEAD_END,
            })));
        }
        // Read through a separate buffer, because hyper's does not report the number of bytes read.
        let mut space = [MaybeUninit::uninit(); MAX_HEAD_READ_BYTES];
        let room = buffer.remaining().min(MAX_HEAD_READ_BYTES);
        let mut piece = ReadBuf::uninit(space.get_mut(..room).unwrap_or_default());
        ready!(Pin::new(&mut self.inner).poll_read(cx, piece.unfilled()))?;
        buffer.put_slice(piece.filled());
        self.count.0.store(before + piece.filled().len(), Relaxed);
        Poll::Ready(Ok(()))
    }
}

/// Returns true if the kernel holds unread bytes of the stream, or its end.
///
/// Asks the kernel, because the runtime notices new bytes only when it polls the socket's events,
/// which may be after the next request. With TLS, a record without data also closes the connection.
fn has_unread_data(stream: &ServerStream) -> bool {
    let socket = match stream {
        MaybeHttpsStream::Http(tcp) => tcp.inner(),
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
    };
    recv(socket, &mut [0_u8], RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok()
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

/// No request is in flight.
const NOT_AWAITED: usize = usize::MAX;
/// A request waits to be written on a connection that has served another.
const UNSENT_REQUEST: usize = usize::MAX - 1;
/// Maximum number of bytes before the end of a response's head: twice the limit of the head itself.
const MAX_BYTES_BEFORE_HEAD_END: usize = 2 * HEAD_LIMIT;
/// Maximum number of bytes per read until the head is complete.
const MAX_HEAD_READ_BYTES: usize = 8 * 1024;
