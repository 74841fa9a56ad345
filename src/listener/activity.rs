//! Activity of a connection, for its time limits.

use std::{
    convert::Infallible,
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::Service;

use super::unread::{MAX_UNCOUNTED_BYTES, UnreadPiece, UnwrittenBytes, UnwrittenResponse};
use crate::downstream::Refused;

/// The requests of one connection, as far as time limits are concerned.
///
/// Requests only set flags here and wake no task. The connection checks when its timer for the
/// earliest possible deadline fires, and sets the next one. A busy connection costs two atomic
/// writes per request and one timer per idle period.
#[derive(Debug)]
pub(super) struct Activity {
    begun: Instant,
    asked: AtomicBool,
    open: AtomicUsize,
    /// Milliseconds from `begun` to the end of the last request.
    quiet_since: AtomicU64,
    /// True once a request was served: until then an unknown client holds the connection.
    known: AtomicBool,
    /// Number of refused requests since the last one that was served.
    refusals: AtomicUsize,
    /// Number of answered preflights since then.
    preflights: AtomicUsize,
    /// Bytes of responses over HTTP/1.1.
    unwritten: Arc<UnwrittenBytes>,
}

/// Actions of a connection when its timer fires.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// No request came in time.
    Never,
    /// Nothing has been in flight for the idle period.
    Idle,
    /// Check again at this time.
    Look(Instant),
}

impl Activity {
    pub(super) fn new(begun: Instant) -> Arc<Self> {
        Arc::new(Self {
            begun,
            asked: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            quiet_since: AtomicU64::new(0),
            known: AtomicBool::new(false),
            refusals: AtomicUsize::new(0),
            preflights: AtomicUsize::new(0),
            unwritten: Arc::default(),
        })
    }

    /// Marks a request; it lasts until the [`Busy`] is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Busy {
        self.open.fetch_add(1, Relaxed);
        self.asked.store(true, Relaxed);
        Busy(Arc::clone(self))
    }

    /// Returns true if no request has arrived yet.
    pub(super) fn is_unused(&self) -> bool {
        !self.asked.load(Relaxed)
    }

    /// Returns the bytes of large responses over HTTP/1.1 that are not written yet.
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten.total()
    }

    /// Notes that a request was served.
    fn note_served(&self) {
        // These are nearly always set already; avoids the writes then.
        if !self.known.load(Relaxed) {
            self.known.store(true, Relaxed);
        }
        for count in [&self.refusals, &self.preflights] {
            if count.load(Relaxed) > 0 {
                count.store(0, Relaxed);
            }
        }
    }

    /// Notes that a request was refused.
    fn note_refused(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }

    /// Notes that a preflight was answered, which needs no key.
    fn note_preflight(&self) {
        self.preflights.fetch_add(1, Relaxed);
    }

    /// Returns true if so many requests in a row were not served that the connection has to be
    /// closed.
    fn is_used_up(&self) -> bool {
        self.refusals.load(Relaxed) >= MAX_REFUSALS
            || self.preflights.load(Relaxed) >= MAX_PREFLIGHTS
    }

    /// Returns the action that is due at `now`, with `first` for the first request and `idle`
    /// between requests. Until a request was served, `first` also bounds the idle time.
    pub(super) fn due(&self, now: Instant, first: Duration, idle: Duration) -> Due {
        let idle = if self.known.load(Relaxed) { idle } else { idle.min(first) };
        if self.is_used_up() && self.open.load(Relaxed) == 0 {
            return Due::Idle;
        }
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

    /// Returns the milliseconds since the connection began.
    fn age(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A request in flight: held until its response's last byte is handed over, or until it is refused:
/// an unread refusal does not keep its connection open.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.quiet_since.store(self.0.age(), Relaxed);
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// Marks its connection busy from each request to the last byte of its response.
#[derive(Clone)]
pub(super) struct TrackActivity<S> {
    inner: S,
    activity: Arc<Activity>,
}

impl<S> TrackActivity<S> {
    pub(super) fn new(inner: S, activity: &Arc<Activity>) -> Self {
        Self { inner, activity: Arc::clone(activity) }
    }
}

impl<S, B, R> Service<Request<B>> for TrackActivity<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: Body,
{
    type Response = Response<TrackedBody<R>>;
    type Error = Infallible;
    type Future = TrackedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let preflight = request.method() == Method::OPTIONS;
        let busy = Some(self.activity.request());
        TrackedFuture { inner: self.inner.call(request), busy, preflight }
    }
}

pin_project! {
    /// A request that is being served.
    pub(super) struct TrackedFuture<F> {
        #[pin]
        inner: F,
        busy: Option<Busy>,
        // A preflight is answered without a key, unless it is refused.
        preflight: bool,
    }
}

impl<F, R> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
    R: Body,
{
    type Output = Result<Response<TrackedBody<R>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.inner.poll(cx));
        let (mut busy, unread) = (this.busy.take(), UnreadPiece::of_this_stream());
        if let Some(Busy(activity)) = &busy {
            let refused = response.extensions().get::<Refused>().is_some();
            match (refused, *this.preflight) {
                (false, false) => activity.note_served(),
                (false, true) => activity.note_preflight(),
                (true, _) => activity.note_refused(),
            }
            // Over HTTP/2 the connection is closed at its next check.
            if activity.is_used_up() && unread.is_none() {
                response.headers_mut().insert(header::CONNECTION, CLOSE_CONNECTION);
            }
            if refused {
                busy = None;
            }
        }
        let unwritten = match (&busy, &unread) {
            (Some(Busy(activity)), None) => activity.unwritten.count(ready_bytes(response.body())),
            _ => None,
        };
        let track = |inner| TrackedBody { inner, busy, unread, unwritten, end: None };
        Poll::Ready(Ok(response.map(track)))
    }
}

pin_project! {
    /// A response body that keeps its connection busy while it lasts.
    pub(super) struct TrackedBody<B> {
        #[pin]
        inner: B,
        busy: Option<Busy>,
        // Over HTTP/2: the bytes that the client has not taken.
        unread: Option<Arc<UnreadPiece>>,
        // Over HTTP/1.1: the bytes of a large response that were ready at the start.
        unwritten: Option<Arc<UnwrittenResponse>>,
        // The end of the last piece, which is sent on its own.
        end: Option<Bytes>,
    }
}

impl<B: Body<Data = Bytes>> TrackedBody<B> {
    /// Polls the next frame over HTTP/1.1. The connection writes it as fast as the client reads.
    fn poll_unwritten(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let mut frame = ready!(this.inner.poll_frame(cx));
        if let (Some(Ok(frame)), Some(Busy(activity))) = (&mut frame, this.busy)
            && let Some(piece) = frame.data_mut().filter(|piece| piece.len() > MAX_UNCOUNTED_BYTES)
        {
            let response = this.unwritten.clone().or_else(|| activity.unwritten.count(piece.len()));
            if let Some(response) = response {
                *piece = response.hold(mem::take(piece));
            }
        }
        Poll::Ready(frame)
    }
}

impl<B: Body<Data = Bytes>> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.unread.is_none() {
            return self.poll_unwritten(cx);
        }
        let mut this = self.project();
        let Some(unread) = this.unread else { return Poll::Ready(None) };
        // hyper polls once the client has taken the previous piece.
        unread.clear();
        if let Some(end) = this.end.take() {
            unread.offer(end.len(), 0);
            return Poll::Ready(Some(Ok(Frame::data(end))));
        }
        let mut frame = ready!(this.inner.as_mut().poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame
            && let Some(piece) = frame.data_mut()
        {
            unread.offer(piece.len(), ready_bytes(&*this.inner));
            if this.inner.is_end_stream() && piece.len() > MAX_UNREAD_END_BYTES {
                // hyper is done with a stream once it has handed over the last piece, even if the
                // client takes little of it. This leaves only a small piece to hand over.
                *this.end = Some(piece.split_off(piece.len() - MAX_UNREAD_END_BYTES));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.inner.size_hint();
        if let Some(end) = &self.end {
            hint = SizeHint::with_exact(end.len() as u64);
        }
        hint
    }
}

/// Returns the number of ready bytes of a body.
fn ready_bytes(body: &impl Body) -> usize {
    usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX)
}

/// Limit of refused requests in a row before the connection is closed: a client may first send a
/// request without a key, and once more with an expired one.
const MAX_REFUSALS: usize = 3;
/// Limit of answered preflights in a row: a page sends each before a request, perhaps several at
/// once.
const MAX_PREFLIGHTS: usize = 10;
const CLOSE_CONNECTION: HeaderValue = HeaderValue::from_static("close");
/// Bytes of a response over HTTP/2 that may be left unread without a time limit.
const MAX_UNREAD_END_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full, StreamBody};

    use super::*;
    use crate::{clock, codec};

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
        activity.note_served();
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
        activity.note_served();
        let Due::Look(at) = activity.due(begun, FIRST, IDLE) else { panic!("not idle yet") };
        assert!(at >= begun + IDLE);
        assert_eq!(activity.due(at, FIRST, IDLE), Due::Idle);
    }

    #[test]
    fn a_stranger_is_given_less_time_between_requests_and_few_of_them() {
        let begun = clock::now();
        let activity = Activity::new(begun);
        drop(activity.request());
        let Due::Look(at) = activity.due(begun, FIRST, IDLE) else { panic!("not idle yet") };
        assert!(at < begun + IDLE);
        assert_eq!(activity.due(begun + IDLE, FIRST, IDLE), Due::Idle);
        let looks = |count, note: fn(&Activity)| {
            for _ in 1..count {
                note(&activity);
                assert!(matches!(activity.due(begun, FIRST, IDLE), Due::Look(_)));
            }
            note(&activity);
            assert_eq!(activity.due(begun, FIRST, IDLE), Due::Idle);
            activity.note_served();
            assert!(matches!(activity.due(begun + FIRST * 2, FIRST, IDLE), Due::Look(_)));
        };
        looks(MAX_REFUSALS, Activity::note_refused);
        looks(MAX_PREFLIGHTS, Activity::note_preflight);
    }
    /// Builds the body of a response over HTTP/1.1.
    async fn tracked<B: Body<Data = Bytes> + Send + 'static>(
        activity: &Arc<Activity>,
        body: B,
    ) -> TrackedBody<B> {
        let mut body = Some(body);
        let answer = tower::service_fn(move |_: Request<()>| {
            let response = Response::new(body.take().unwrap());
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let mut tracked = TrackActivity::new(answer, activity);
        tracked.call(Request::new(())).await.unwrap().into_body()
    }

    #[tokio::test]
    async fn large_responses_count_as_unwritten_from_their_beginning_to_their_last_byte() {
        const LARGE: usize = MAX_UNCOUNTED_BYTES + 1;
        let activity = Activity::new(clock::now());
        let small = Bytes::from(vec![0; MAX_UNCOUNTED_BYTES]);
        let large = Bytes::from(vec![0; LARGE]);
        let whole = tracked(&activity, Full::new(large.clone())).await;
        assert_eq!(activity.unwritten(), LARGE, "before it is asked for");
        let piece = codec::body::collect(whole, LARGE).await.unwrap();
        assert_eq!((activity.unwritten(), piece.len()), (LARGE, LARGE));
        drop(piece);
        let frames = [small, large].map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let stream = StreamBody::new(futures_util::stream::iter(frames));
        let mut stream = tracked(&activity, stream).await;
        let small = stream.frame().await.unwrap().unwrap();
        assert_eq!(activity.unwritten(), 0, "a small piece");
        let large = stream.frame().await.unwrap().unwrap();
        drop(stream);
        assert_eq!(activity.unwritten(), LARGE);
        drop((small, large));
        assert_eq!(activity.unwritten(), 0);
    }
}
