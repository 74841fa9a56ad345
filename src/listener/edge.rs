//! What a request passes between its connection and the service that answers it.
//!
//! Both stacks are lists of tower layers, outermost first. A layer that refuses a request returns
//! the reason as an error; [`answer_refusal`] is the one place where such an error becomes a
//! response, so that a layer decides and nothing else.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::Map;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;
use tower::{Service, ServiceBuilder, service_fn};

use super::cors::CorsForPages;
use super::{BoxError, GuardRefusal, LiveSettings};
use crate::call::Failure;
use crate::call::PeerAddress;
use crate::downstream::{self, McpService};
use crate::mcp;

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
        .filter_async(move |request| Arc::clone(&reader).read_body(request))
        .service(service_fn(move |request| {
            let mcp = Arc::clone(&mcp);
            async move { Ok::<_, Infallible>(mcp.serve(request).await) }
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

/// What every request passes before anything acts on it, whoever it is for.
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
        // Outermost, so that every refusal below is answered.
        .layer_fn(move |inner| AnswerErrors {
            inner,
            answer: move |result| answer_refusal(result, peer),
        })
        // First, because every layer behind it reads headers.
        .filter(move |request| bound_head(request, &bound))
        // Before the guard: a request whose end is unclear cannot be judged.
        .filter(refuse_ambiguous_framing)
        // Before CORS and the service: neither may act for a foreign host or page.
        .filter(move |request| admit_host_and_origin(request, &guard, peer))
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

/// Turns what the layers below refuse into responses.
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

/// Refuses a head that is larger than [`super::ConnectionLimits::header`].
fn bound_head<B>(request: Request<B>, settings: &LiveSettings) -> Result<Request<B>, GuardRefusal> {
    let limit = settings.load().limits.header;
    let size = head_size(&request);
    if size > limit { Err(GuardRefusal::HeadersTooLarge { size, limit }) } else { Ok(request) }
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
fn refuse_ambiguous_framing<B>(request: Request<B>) -> Result<Request<B>, GuardRefusal> {
    let codings = mcp::header::single_value(request.headers(), &header::TRANSFER_ENCODING);
    match codings.map_err(|_| GuardRefusal::AmbiguousFraming)? {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Err(GuardRefusal::UnknownCoding)
        }
        _ => Ok(request),
    }
}

/// Refuses requests for hosts and from pages that [`super::Guard`] does not admit.
fn admit_host_and_origin<B>(
    request: Request<B>,
    settings: &LiveSettings,
    peer: PeerAddress,
) -> Result<Request<B>, GuardRefusal> {
    settings.load().guard.admit(&request, peer.local)?;
    Ok(request)
}

/// Answers what the guard refuses: a JSON-RPC error without an id, since no body has been read.
fn answer_refusal<R: From<Bytes>>(
    result: Result<Response<R>, BoxError>,
    peer: PeerAddress,
) -> Response<R> {
    let error = match result {
        Ok(response) => return response,
        Err(error) => error,
    };
    tracing::debug!(client = %peer.addr, %error, "request refused");
    let (status, body) = match error.downcast_ref::<GuardRefusal>() {
        Some(refusal) => (refusal.status(), refusal.body()),
        None => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()),
    };
    let mut response = Response::new(R::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(GuardRefusal::AmbiguousFraming | GuardRefusal::UnknownCoding) = error.downcast_ref()
    {
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
        Err(error) => downstream::refusal(&Failure::Internal { detail: error.to_string() }),
    })
}
