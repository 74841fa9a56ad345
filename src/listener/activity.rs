//! Whether a connection does anything: what its time limits are measured by.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::Service;

/// The requests of one connection, as far as time limits care.
///
/// Requests only leave marks here, they wake nobody: the connection looks when a timer that it
/// set for the earliest possible moment fires, and sets the next one. A busy connection pays two
/// atomic writes a request and one timer an idle period.
#[derive(Debug)]
pub(super) struct Activity {
    begun: Instant,
    asked: AtomicBool,
    open: AtomicUsize,
    /// Milliseconds from `begun` to the end of the last request.
    quiet_since: AtomicU64,
    /// Responses with a piece that waits for the client's flow control window. Over HTTP/1 always
    /// zero: there the kernel sees that a client does not read.
    untaken: AtomicUsize,
    /// Milliseconds from `begun` to the last time that the client took a piece, or that the first
    /// one began to wait.
    taken_at: AtomicU64,
}

/// What a connection does when its timer fires.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// No request came in time.
    Never,
    /// Nothing has been in flight for the idle period.
    Idle,
    /// The client has taken nothing of its responses for too long.
    Stalled,
    /// Look again then.
    Look(Instant),
}

impl Activity {
    pub(super) fn new(begun: Instant) -> Arc<Self> {
        Arc::new(Self {
            begun,
            asked: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            quiet_since: AtomicU64::new(0),
            untaken: AtomicUsize::new(0),
            taken_at: AtomicU64::new(0),
        })
    }

    /// Marks a request; it lasts until the [`Busy`] is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Busy {
        self.open.fetch_add(1, Relaxed);
        self.asked.store(true, Relaxed);
        Busy(Arc::clone(self))
    }

    /// Whether no request has come yet.
    pub(super) fn is_unused(&self) -> bool {
        !self.asked.load(Relaxed)
    }

    /// What is due at `now`, with `first` for the first request and `idle` between requests.
    pub(super) fn due(&self, now: Instant, first: Duration, idle: Duration) -> Due {
        let (deadline, verdict) = if self.is_unused() {
            (self.begun + first, Due::Never)
        } else if self.open.load(Relaxed) > 0 {
            (now + idle, Due::Idle)
        } else {
            let quiet = Duration::from_millis(self.quiet_since.load(Relaxed));
            (self.begun + quiet + idle, Due::Idle)
        };
        // A request may come and go before a long first limit: then the idle period ends sooner.
        if deadline <= now { verdict } else { Due::Look(deadline.min(now + idle)) }
    }

    /// What is due at `now` on a connection with flow control, where pieces of responses may wait
    /// for the client for so long. A client that takes some of any response is not stalled.
    pub(super) fn due_stall(&self, now: Instant, stall: Duration) -> Due {
        if self.untaken.load(Relaxed) == 0 {
            return Due::Look(now + stall);
        }
        let taken = Duration::from_millis(self.taken_at.load(Relaxed));
        let deadline = self.begun + taken + stall;
        if deadline <= now { Due::Stalled } else { Due::Look(deadline) }
    }

    /// Milliseconds since the connection began.
    fn age(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A request in flight: held until its response's last byte is handed over.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.quiet_since.store(self.0.age(), Relaxed);
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// A piece of a response that the client has not taken yet.
#[derive(Debug)]
struct UntakenPiece(Arc<Activity>);

impl UntakenPiece {
    fn new(activity: &Arc<Activity>) -> Self {
        if activity.untaken.fetch_add(1, Relaxed) == 0 {
            activity.taken_at.store(activity.age(), Relaxed);
        }
        Self(Arc::clone(activity))
    }
}

impl Drop for UntakenPiece {
    fn drop(&mut self) {
        self.0.taken_at.store(self.0.age(), Relaxed);
        self.0.untaken.fetch_sub(1, Relaxed);
    }
}

/// How what a client has not read yet is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backpressure {
    /// By the kernel: the connection's responses come one after the other.
    Socket,
    /// Here: each response waits for a window of its own.
    FlowControl,
}

/// Marks its connection busy from each request to the last byte of its response.
#[derive(Clone)]
pub(super) struct TrackActivity<S> {
    inner: S,
    activity: Arc<Activity>,
    backpressure: Backpressure,
}

impl<S> TrackActivity<S> {
    pub(super) fn new(inner: S, activity: &Arc<Activity>, backpressure: Backpressure) -> Self {
        Self { inner, activity: Arc::clone(activity), backpressure }
    }
}

impl<S, B, R> Service<Request<B>> for TrackActivity<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
{
    type Response = Response<TrackedBody<R>>;
    type Error = Infallible;
    type Future = TrackedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let busy = Some(self.activity.request());
        TrackedFuture { inner: self.inner.call(request), busy, backpressure: self.backpressure }
    }
}

pin_project! {
    /// A request that is being served.
    pub(super) struct TrackedFuture<F> {
        #[pin]
        inner: F,
        busy: Option<Busy>,
        backpressure: Backpressure,
    }
}

impl<F, R> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
{
    type Output = Result<Response<TrackedBody<R>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(response) = ready!(this.inner.poll(cx));
        let (busy, backpressure) = (this.busy.take(), *this.backpressure);
        Poll::Ready(Ok(response.map(|inner| TrackedBody {
            inner,
            untaken: None,
            busy,
            backpressure,
        })))
    }
}

pin_project! {
    /// A response body that keeps its connection busy while it lasts.
    pub(super) struct TrackedBody<B> {
        #[pin]
        inner: B,
        // The last piece, until the next one is asked for.
        untaken: Option<UntakenPiece>,
        busy: Option<Busy>,
        backpressure: Backpressure,
    }
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        if *this.backpressure == Backpressure::Socket {
            return this.inner.poll_frame(cx);
        }
        *this.untaken = None;
        let frame = ready!(this.inner.poll_frame(cx));
        if matches!(frame, Some(Ok(_))) {
            *this.untaken = this.busy.as_ref().map(|busy| UntakenPiece::new(&busy.0));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const FIRST: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_mins(1);

    #[test]
    fn a_connection_without_a_request_is_over_after_the_first_limit() {
        let begun = clock::now();
        let activity = Activity::new(begun);
        assert_eq!(activity.due(begun, FIRST, IDLE), Due::Look(begun + FIRST));
        assert_eq!(activity.due(begun + FIRST, FIRST, IDLE), Due::Never);
    }

    #[test]
    fn an_idle_period_shorter_than_the_first_limit_is_kept() {
        let begun = clock::now();
        let activity = Activity::new(begun);
        assert_eq!(activity.due(begun, IDLE, FIRST), Due::Look(begun + FIRST));
        assert_eq!(activity.due(begun + FIRST, IDLE, FIRST), Due::Look(begun + FIRST * 2));
        assert_eq!(activity.due(begun + IDLE, IDLE, FIRST), Due::Never);
    }

    #[test]
    fn a_request_in_flight_keeps_a_connection_however_long_it_takes() {
        let begun = clock::now();
        let activity = Activity::new(begun);
        let busy = activity.request();
        let late = begun + IDLE * 100;
        assert_eq!(activity.due(late, FIRST, IDLE), Due::Look(late + IDLE));
        drop(busy);
        assert_eq!(activity.due(late, FIRST, IDLE), Due::Idle);
    }

    #[test]
    fn the_idle_period_starts_when_the_last_request_ends() {
        let begun = clock::now();
        let activity = Activity::new(begun);
        drop(activity.request());
        let Due::Look(at) = activity.due(begun, FIRST, IDLE) else { panic!("not idle yet") };
        assert!(at >= begun + IDLE);
        assert_eq!(activity.due(at, FIRST, IDLE), Due::Idle);
    }

    #[test]
    fn a_client_that_takes_a_piece_of_any_response_is_not_stalled() {
        let begun = clock::now();
        let activity = Activity::new(begun);
        let late = begun + IDLE * 2;
        assert_eq!(activity.due_stall(late, IDLE), Due::Look(late + IDLE), "nothing waits");
        let (one, other) = (UntakenPiece::new(&activity), UntakenPiece::new(&activity));
        assert_eq!(activity.due_stall(late, IDLE), Due::Stalled);
        drop(one);
        let Due::Look(at) = activity.due_stall(clock::now(), IDLE) else { panic!("it was taken") };
        assert_eq!(activity.due_stall(at, IDLE), Due::Stalled, "the other one waits on");
        drop(other);
        assert_eq!(activity.due_stall(late, IDLE), Due::Look(late + IDLE));
    }
}
