//! Responses that their client does not read.
//!
//! Over HTTP/2 each response waits for a window of its own, so the kernel does not see which of
//! them are left unread. A client has a limited time to take a piece of a response; then the stream
//! is reset, and the other streams of the connection continue. Over HTTP/1.1 the kernel closes the
//! connection of a client that does not read.
//!
//! The bytes that wait for clients, over both, are limited. Over the limit, a stream is reset or a
//! connection closed.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::{ConnectionLimits, PeerAddress};
use crate::call::Principal;
use crate::clock;
use crate::shares::{Holder, Share, ShareBoundError, ShareBounds, SharedAmount};

/// A stream's bytes that the client has not taken.
#[derive(Debug)]
pub(super) struct UnreadPiece {
    began: Instant,
    /// Milliseconds from `began` to the time when the piece was offered, plus one; zero while no
    /// piece waits.
    since: AtomicU64,
    /// Bytes of the piece, of the previous one, which may be on its way, and of ready ones after
    /// it.
    bytes: AtomicUsize,
    /// The bytes of the last piece.
    last: AtomicUsize,
}

tokio::task_local! {
    /// The stream of the task that is being polled.
    static CURRENT_PIECE: Arc<UnreadPiece>;
}

impl UnreadPiece {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            began: clock::now(),
            since: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            last: AtomicUsize::new(0),
        })
    }

    /// Returns that of the stream with the task being polled; `None` over HTTP/1.
    pub(super) fn of_this_stream() -> Option<Arc<Self>> {
        CURRENT_PIECE.try_with(Arc::clone).ok()
    }

    /// Notes that a piece of this size waits for the client, and this many bytes after it.
    pub(super) fn offer(&self, piece: usize, behind: usize) {
        let age = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = self.last.swap(piece, Relaxed);
        self.bytes.store(before.saturating_add(piece).saturating_add(behind), Relaxed);
        self.since.store(age.saturating_add(1), Relaxed);
    }

    /// Notes that the client has taken the offered piece.
    pub(super) fn clear(&self) {
        self.since.store(0, Relaxed);
    }

    /// Returns the time since which bytes wait for the client, and their number.
    fn offered(&self) -> Option<(Instant, usize)> {
        let age = self.since.load(Relaxed).checked_sub(1)?;
        Some((self.began + Duration::from_millis(age), self.bytes.load(Relaxed)))
    }
}

/// The bytes of large responses that a connection over HTTP/1.1 has not written yet.
#[derive(Debug, Default)]
pub(super) struct UnwrittenBytes(AtomicUsize);

/// Counted bytes of one response, until it has been written or dropped.
#[derive(Debug)]
pub(super) struct UnwrittenResponse {
    all: Arc<UnwrittenBytes>,
    bytes: usize,
}

/// A piece of such a response.
struct UnwrittenPiece {
    piece: Bytes,
    _response: Arc<UnwrittenResponse>,
}

impl UnwrittenBytes {
    /// Counts the ready bytes of a response, if it is large.
    pub(super) fn count(self: &Arc<Self>, bytes: usize) -> Option<Arc<UnwrittenResponse>> {
        (bytes > MAX_UNCOUNTED_BYTES).then(|| {
            self.0.fetch_add(bytes, Relaxed);
            Arc::new(UnwrittenResponse { all: Arc::clone(self), bytes })
        })
    }

    /// Returns the number of bytes.
    pub(super) fn total(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl UnwrittenResponse {
    /// Wraps a piece so that the response stays counted until the piece is dropped.
    pub(super) fn hold(self: &Arc<Self>, piece: Bytes) -> Bytes {
        Bytes::from_owner(UnwrittenPiece { piece, _response: Arc::clone(self) })
    }
}

impl Drop for UnwrittenResponse {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Relaxed);
    }
}

impl AsRef<[u8]> for UnwrittenPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// Limits of one connection's unread responses.
#[derive(Debug)]
pub(super) struct UnreadBounds {
    /// Time limit for a piece to be read; zero disables it.
    stall: Duration,
    holder: Holder,
    unread: Arc<SharedAmount>,
    most: ShareBounds,
}

impl UnreadBounds {
    /// Creates the limits of a connection from `peer`. `unread` counts the bytes of all
    /// connections.
    pub(super) fn new(
        limits: &ConnectionLimits,
        peer: PeerAddress,
        unread: &Arc<SharedAmount>,
    ) -> Arc<Self> {
        Arc::new(Self {
            stall: limits.stall,
            holder: Holder::identify(&Principal::Anonymous, peer.addr.ip()),
            unread: Arc::clone(unread),
            most: ShareBounds { all: limits.unread, each: limits.unread_each },
        })
    }
}

/// Bytes that wait for the client of one HTTP/1.1 connection, or of one HTTP/2 stream.
#[derive(Debug)]
pub(super) struct UnreadShare {
    bounds: Arc<UnreadBounds>,
    held: Option<(usize, Share)>,
    /// Ends the time in which the limit may be exceeded.
    overdue: Option<Pin<Box<Sleep>>>,
}

impl UnreadShare {
    pub(super) fn new(bounds: &Arc<UnreadBounds>) -> Self {
        Self { bounds: Arc::clone(bounds), held: None, overdue: None }
    }

    /// Holds this number of bytes in place of the previous ones. A single response always fits if
    /// nothing else waits.
    fn hold(&mut self, bytes: usize) -> Result<(), ShareBoundError> {
        if self.held.as_ref().map_or(0, |(held, _)| *held) == bytes {
            return Ok(());
        }
        self.held = None;
        if bytes > 0 {
            let UnreadBounds { holder, unread, most, .. } = &*self.bounds;
            let most = ShareBounds { all: most.all.max(bytes), each: most.each.max(bytes) };
            self.held = Some((bytes, unread.take(holder, bytes, most)?));
        }
        Ok(())
    }

    /// Holds this number of bytes. Ready once they have exceeded the limit for a while: a client
    /// that reads takes them in less.
    pub(super) fn poll_exceeded(
        &mut self,
        bytes: usize,
        cx: &mut Context<'_>,
    ) -> Poll<ShareBoundError> {
        let Err(reached) = self.hold(bytes) else {
            self.overdue = None;
            return Poll::Pending;
        };
        let overdue = self.overdue.get_or_insert_with(|| Box::pin(sleep(OVER_LIMIT_GRACE)));
        overdue.as_mut().poll(cx).map(|()| reached)
    }
}

/// Runs the streams of one HTTP/2 connection, each in a task of its own.
#[derive(Debug, Clone)]
pub(super) struct StreamTasks(pub(super) Arc<UnreadBounds>);

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(StreamTask {
            stream,
            piece: UnreadPiece::new(),
            unread: UnreadShare::new(&self.0),
            deadline: None,
        });
    }
}

pin_project! {
    /// A stream that is dropped, and thus reset, if its client leaves it unread.
    struct StreamTask<F> {
        #[pin]
        stream: F,
        piece: Arc<UnreadPiece>,
        unread: UnreadShare,
        #[pin]
        deadline: Option<Sleep>,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let current = Arc::clone(this.piece);
        if CURRENT_PIECE.sync_scope(current, || this.stream.poll(cx)).is_ready() {
            return Poll::Ready(());
        }
        let Some((since, bytes)) = this.piece.offered() else {
            this.unread.held = None;
            this.deadline.set(None);
            return Poll::Pending;
        };
        if let Err(reached) = this.unread.hold(bytes) {
            tracing::debug!(%reached, "a stream is reset: too much is left unread");
            return Poll::Ready(());
        }
        let stall = this.unread.bounds.stall;
        if stall.is_zero() {
            return Poll::Pending;
        }
        let end = since + stall;
        if this.deadline.as_ref().as_pin_ref().is_none_or(|timer| timer.deadline() != end) {
            this.deadline.set(Some(sleep_until(end)));
        }
        let stalled = this.deadline.as_mut().as_pin_mut().is_some_and(|it| it.poll(cx).is_ready());
        if stalled {
            tracing::debug!("a stream is reset: its client does not read it");
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// Limit of the bytes of a response over HTTP/1.1 that are not counted.
pub(super) const MAX_UNCOUNTED_BYTES: usize = 64 * 1024;
/// Time for which the responses of an HTTP/1.1 connection may exceed the limit.
const OVER_LIMIT_GRACE: Duration = Duration::from_secs(1);
