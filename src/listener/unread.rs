//! Responses over HTTP/2 that their client does not read.
//!
//! Each response waits for a window of its own, so the kernel does not see which of them are left
//! unread. A response that has a piece for its client is given so long until the client takes it,
//! and all of them together may hold so many bytes; then its stream is reset. The other streams of
//! the connection go on.

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

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{ConnectionLimits, PeerAddress};
use crate::call::Principal;
use crate::clock;
use crate::policy::{Holder, Share, ShareBounds, SharedAmount};

/// What a stream has for its client that the client has not taken.
#[derive(Debug)]
pub(super) struct UnreadPiece {
    began: Instant,
    /// Milliseconds from `began` to when the client was given a piece, and one more; zero while
    /// nothing waits for it.
    since: AtomicU64,
    /// The bytes of the piece, of the one before it, which may be on its way, and of what is ready
    /// behind it.
    bytes: AtomicUsize,
    /// The bytes of the last piece.
    last: AtomicUsize,
}

tokio::task_local! {
    /// The stream whose task is being polled.
    static CURRENT: Arc<UnreadPiece>;
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

    /// That of the stream whose task is being polled; `None` over HTTP/1.
    pub(super) fn of_this_stream() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Notes that a piece of so many bytes waits for the client, and so many behind it.
    pub(super) fn offer(&self, piece: usize, behind: usize) {
        let age = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let before = self.last.swap(piece, Relaxed);
        self.bytes.store(before.saturating_add(piece).saturating_add(behind), Relaxed);
        self.since.store(age.saturating_add(1), Relaxed);
    }

    /// Notes that the client has taken what it was offered.
    pub(super) fn clear(&self) {
        self.since.store(0, Relaxed);
    }

    /// Since when bytes wait for the client, and how many.
    fn offered(&self) -> Option<(Instant, usize)> {
        let age = self.since.load(Relaxed).checked_sub(1)?;
        Some((self.began + Duration::from_millis(age), self.bytes.load(Relaxed)))
    }
}

/// Runs the streams of one HTTP/2 connection, each in a task of its own.
#[derive(Debug, Clone)]
pub(super) struct StreamTasks(Arc<StreamBounds>);

/// What all streams of one connection are bounded by.
#[derive(Debug)]
struct StreamBounds {
    /// How long a piece may be left unread; zero for ever.
    stall: Duration,
    holder: Holder,
    unread: Arc<SharedAmount>,
    most: ShareBounds,
}

impl StreamTasks {
    /// Those of a connection from `peer`. `unread` counts the bytes of all connections.
    pub(super) fn new(
        limits: &ConnectionLimits,
        peer: PeerAddress,
        unread: &Arc<SharedAmount>,
    ) -> Self {
        Self(Arc::new(StreamBounds {
            stall: limits.stall,
            holder: Holder::identify(&Principal::Anonymous, peer.addr.ip()),
            unread: Arc::clone(unread),
            most: ShareBounds { all: limits.unread, each: limits.unread_each },
        }))
    }
}

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(StreamTask {
            stream,
            piece: UnreadPiece::new(),
            bounds: Arc::clone(&self.0),
            held: None,
            deadline: None,
        });
    }
}

pin_project! {
    /// A stream, which is dropped, and so reset, when its client leaves it unread.
    struct StreamTask<F> {
        #[pin]
        stream: F,
        piece: Arc<UnreadPiece>,
        bounds: Arc<StreamBounds>,
        // What it holds for its client while that does not read.
        held: Option<(usize, Share)>,
        #[pin]
        deadline: Option<Sleep>,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let current = Arc::clone(this.piece);
        if CURRENT.sync_scope(current, || this.stream.poll(cx)).is_ready() {
            return Poll::Ready(());
        }
        let Some((since, bytes)) = this.piece.offered() else {
            *this.held = None;
            this.deadline.set(None);
            return Poll::Pending;
        };
        if this.held.as_ref().is_none_or(|(held, _)| *held != bytes) {
            *this.held = None;
            match this.bounds.unread.take(&this.bounds.holder, bytes, this.bounds.most) {
                Ok(share) => *this.held = Some((bytes, share)),
                Err(reached) => {
                    tracing::debug!(%reached, "a stream is reset: too much is left unread");
                    return Poll::Ready(());
                }
            }
        }
        if this.bounds.stall.is_zero() {
            return Poll::Pending;
        }
        let end = since + this.bounds.stall;
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
