//! What a request passes between its connection and the service that answers it.
//!
//! Both stacks are lists of tower layers, outermost first. A layer decides and nothing else:
//! [`answer_refusal`] and [`answer_failure`] turn what layers refuse into responses.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{Either, Map};
use http::{HeaderValue, Request, Response, header};
use http_body::Body;
use http_body_util::Full;
use tower::{Layer, Service, ServiceBuilder, service_fn};

use super::cors::CorsForPages;
use super::{BoxError, GuardRefusal, LiveSettings};
use crate::call::PeerAddress;
use crate::call::{Failure, InternalFault};
use crate::downstream::{self, McpService};
use crate::mcp::{self, MediaType};

/// The stack for clients of the gateway: MCP behind authentication.
pub fn clients<B>(
    settings: LiveSettings,
    peer: PeerAddress,
    mcp: Arc<McpService>,
) -> impl Edge<B, downstream::Body>
where
    B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
{
    let (gate, reader) = (Arc::clone(&mcp), Arc::clone(&mcp));
    let stack = ServiceBuilder::new()
        // Inside CORS, so that a page may read why it was refused.
        .layer_fn(|inner| AnswerErrors { inner, answer: answer_failure })
        // Before the body is read: a client without a key costs no more than its head. It also
        // bounds how often an address may guess keys.
        .filter(move |request| gate.authenticate(request, peer))
        // Size and time of the body: MCP has the whole of it, or nothing.
        .filter_async(move |request| reader.read_body(request))
        .service(service_fn(move |request| {
            Arc::clone(&mcp).serve(request).map(Ok::<_, Infallible>)
        }));
    guarded(settings, peer, stack)
}

/// The stack for operators: the admin pages, which `respond` knows.
pub fn operators<B: Send + 'static>(
    settings: LiveSettings,
    peer: PeerAddress,
    respond: impl Fn(&Request<B>) -> Response<Full<Bytes>> + Clone + Send + 'static,
) -> impl Edge<B, Full<Bytes>> {
    let pages = service_fn(move |request| ready(Ok::<_, Infallible>(respond(&request))));
    guarded(settings, peer, pages)
}

/// The layers that every request passes before anything acts on it, on either listener.
pub fn guarded<B, R>(
    settings: LiveSettings,
    peer: PeerAddress,
    inner: impl Edge<B, R>,
) -> impl Edge<B, R>
where
    B: Send + 'static,
    R: From<Bytes> + Default + Send + 'static,
{
    let (bound, guard) = (settings.clone(), settings);
    ServiceBuilder::new()
        // First, because every layer behind it reads headers.
        .layer(RefuseLayer::new(peer, move |request: &Request<B>| bound_head(request, &bound)))
        // Before the guard: a request whose end is unclear cannot be judged.
        .layer(RefuseLayer::new(peer, refuse_ambiguous_framing::<B>))
        // Before CORS and the service: neither may act for a foreign host or page.
        .layer(RefuseLayer::new(peer, move |request: &Request<B>| {
            admit_host_and_origin(request, &guard, peer)
        }))
        // Only pages that the guard admitted get this far. Their preflights end here; requests
        // that no page sent pass by.
        .layer_fn(CorsForPages::new)
        .service(inner)
}

/// A service at the edge: it answers every request, and its connection may clone it.
pub trait Edge<B, R>:
    Service<Request<B>, Response = Response<R>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S, B, R> Edge<B, R> for S where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// A layer that refuses what a check refuses.
struct RefuseLayer<C> {
    peer: PeerAddress,
    check: C,
}

impl<C> RefuseLayer<C> {
    fn new(peer: PeerAddress, check: C) -> Self {
        Self { peer, check }
    }
}

impl<S, C: Clone> Layer<S> for RefuseLayer<C> {
    type Service = Refusing<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Refusing { inner, peer: self.peer, check: self.check.clone() }
    }
}

/// Passes a request on, or answers it with the refusal of a check.
#[derive(Clone)]
struct Refusing<S, C> {
    inner: S,
    peer: PeerAddress,
    check: C,
}

impl<S, C, B, R> Service<Request<B>> for Refusing<S, C>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    C: Fn(&Request<B>) -> Result<(), GuardRefusal>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response<R>, Infallible>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match (self.check)(&request) {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(refusal) => {
                tracing::debug!(client = %self.peer.addr, %refusal, "request refused");
                Either::Left(ready(Ok(answer_refusal(&refusal))))
            }
        }
    }
}

/// Turns the errors of the layers below into responses.
#[derive(Clone)]
struct AnswerErrors<S, A> {
    inner: S,
    answer: A,
}

impl<S, A, B, R> Service<Request<B>> for AnswerErrors<S, A>
where
    S: Service<Request<B>, Response = Response<R>>,
    A: FnOnce(Result<Response<R>, S::Error>) -> Response<R> + Clone,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = Map<Map<S::Future, A>, fn(Response<R>) -> Result<Response<R>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Layers refuse requests, never readiness.
        self.inner.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.inner.call(request).map(self.answer.clone()).map(Ok)
    }
}

/// Refuses a head that is larger than [`super::ConnectionLimits::header`], or has more lines than
/// [`super::ConnectionLimits::header_lines`].
fn bound_head<B>(request: &Request<B>, settings: &LiveSettings) -> Result<(), GuardRefusal> {
    let settings = settings.current();
    let (limit, most) = (settings.limits.header, settings.limits.header_lines);
    let (size, count) = (head_size(request), request.headers().len());
    if size > limit {
        return Err(GuardRefusal::HeadersTooLarge { size, limit });
    }
    if count > most {
        return Err(GuardRefusal::TooManyHeaders { count, limit: most });
    }
    Ok(())
}

/// The bytes of the target and of every header's name and value, as HTTP/1 writes them.
fn head_size<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |it| it.as_str().len());
    let lines = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    target + lines.sum::<usize>()
}

/// Refuses transfer codings that hyper takes and another reader of the same bytes may not: more
/// than one line of them, and any coding but `chunked` (RFC 9112, 6.1 and 11.2). What else is
/// ambiguous hyper refuses, or answers and closes (a Content-Length beside a transfer coding).
fn refuse_ambiguous_framing<B>(request: &Request<B>) -> Result<(), GuardRefusal> {
    let codings = mcp::header::single_value(request.headers(), &header::TRANSFER_ENCODING);
    match codings.map_err(|_| GuardRefusal::AmbiguousFraming)? {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Err(GuardRefusal::UnknownCoding)
        }
        _ => Ok(()),
    }
}

/// Refuses requests for hosts and from pages that [`super::Guard`] does not admit.
fn admit_host_and_origin<B>(
    request: &Request<B>,
    settings: &LiveSettings,
    peer: PeerAddress,
) -> Result<(), GuardRefusal> {
    settings.current().guard.admit(request, peer.local).map(drop)
}

/// Answers a refused request: a JSON-RPC error without an id, since no body has been read.
fn answer_refusal<R: From<Bytes>>(refusal: &GuardRefusal) -> Response<R> {
    let mut response = Response::new(R::from(refusal.body()));
    *response.status_mut() = refusal.status();
    response.extensions_mut().insert(downstream::Refused);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, MediaType::JSON);
    if matches!(refusal, GuardRefusal::AmbiguousFraming | GuardRefusal::UnknownCoding) {
        // Where the next request begins cannot be told.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Answers what authentication or the bounds of the body refuse.
fn answer_failure(
    result: Result<Response<downstream::Body>, BoxError>,
) -> Response<downstream::Body> {
    result.unwrap_or_else(|error| match error.downcast::<Failure>() {
        Ok(failure) => downstream::refusal(&failure),
        Err(error) => {
            tracing::error!(%error, "a layer of the listener failed");
            downstream::refusal(&InternalFault::Layer.into())
        }
    })
}
