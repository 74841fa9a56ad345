//! The layers between a connection and the service that answers its requests.
//!
//! Both stacks are lists of tower layers, outermost first. A layer only decides: [`answer_refusal`]
//! and [`downstream::refusal`] turn refusals into responses. All layers answer with the same boxed
//! future ([`EdgeFuture`]).

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version, header};
use http_body::Body;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tower::{Layer, Service, ServiceBuilder, service_fn};

use super::cors::CorsForPages;
use super::guard::ConnectionGuard;
use super::{AdmissionError, Certificates, ConnectionLimits, LiveSettings, Settings};
use crate::call::PeerAddress;
use crate::downstream::{self, Authenticated, McpService, Unauthenticated, WaitingRequest};
use crate::identity::ClientCertificate;
use crate::mcp::{self, MediaType};

/// Builds the stack for clients of the gateway: MCP behind authentication.
pub fn clients<B>(
    settings: LiveSettings,
    peer: PeerAddress,
    mcp: Arc<McpService>,
) -> impl Edge<B, downstream::Body>
where
    B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
{
    let gate = Arc::clone(&mcp);
    let stack = ServiceBuilder::new()
        // Inside CORS, so that a page may read the reason of a refusal. Before the body is read: a
        // client without a key costs no more than its head. It also bounds the rate at which an
        // address may guess keys.
        .layer_fn(|inner| Authenticate { inner, mcp: Arc::clone(&gate), peer })
        // Limits the size and time of the body: MCP gets the whole body, or nothing.
        .service(service_fn(move |request| -> EdgeFuture<_> { Arc::clone(&mcp).receive(request) }));
    guarded(settings, peer, stack)
}

/// Builds the stack for operators, answered by `respond`, on the admin listener and on the private
/// socket; `refuse` answers requests that the guard refuses. Probes of orchestrators name the host as
/// they like, often an address that no setting knows: they are answered for a foreign host, too, with
/// the mark [`ForeignHost`].
pub fn operators<B, F>(
    settings: LiveSettings,
    peer: PeerAddress,
    respond: impl Fn(Request<B>) -> F + Clone + Send + 'static,
    refuse: fn(&AdmissionError) -> Response<downstream::Body>,
) -> impl Edge<B, downstream::Body>
where
    B: Send + 'static,
    F: Future<Output = Response<downstream::Body>> + Send + 'static,
{
    let service = service_fn(move |request: Request<B>| -> EdgeFuture<_> {
        let answer = respond(request);
        Box::pin(async move { Ok(answer.await) })
    });
    guarded_except(settings, peer, RefusalRules { pardon: admit_probe, refuse }, service)
}

/// Builds the stack for other replicas, which forward requests of their clients. There is no guard of
/// hosts and pages: the host is the one that the client named, and its replica has admitted it.
/// Certificates of clients have to be those that the listener for `clients` accepts.
pub fn replicas<B>(
    settings: LiveSettings,
    clients: LiveSettings,
    peer: PeerAddress,
    mcp: Arc<McpService>,
) -> impl Edge<B, downstream::Body>
where
    B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
{
    let (live, trust) = (settings.clone(), Arc::new(ReplicaTrust::default()));
    let gate = Arc::clone(&mcp);
    let service = service_fn(move |request: Request<B>| -> EdgeFuture<_> {
        if !trust.accepts(&live.current(), request.extensions().get()) {
            let refused = mcp.refuse_replica(request.uri(), peer);
            return Box::pin(std::future::ready(Ok(refused)));
        }
        let clients = clients.load();
        let accepts = move |chain: &[CertificateDer<'_>]| {
            clients.tls.as_ref().map_or(chain.is_empty(), |tls| tls.accepts_client(chain))
        };
        let answer = Arc::clone(&mcp).receive_forwarded(request, peer, accepts);
        Box::pin(async move { Ok(answer.await) })
    });
    ServiceBuilder::new()
        .layer(RefuseLayer::new(move |request: &mut Request<B>| {
            let bounded = bound_head(request, &settings.current().limits);
            let checked = bounded.and_then(|()| refuse_ambiguous_framing(request));
            checked.map_err(|refusal| {
                gate.refuse_peer_head(peer, request.uri(), &refusal.to_string());
                answer_refused(peer, json_rpc_refusal, &refusal).into()
            })
        }))
        .service(service)
}

/// The certificate of a replica on its connection. A connection outlives the CA that it was opened
/// under, so the certificate is verified again after each reload.
#[derive(Default)]
struct ReplicaTrust(Mutex<Option<Certificates>>);

impl ReplicaTrust {
    /// Returns true if the settings accept the replica's certificate; always without TLS.
    fn accepts(&self, settings: &Settings, shown: Option<&Arc<ClientCertificate>>) -> bool {
        let Some(tls) = &settings.tls else { return true };
        let mut verified = self.0.lock();
        if verified.as_ref().is_some_and(|verified| verified.is_same_load(tls)) {
            return true;
        }
        let chain = shown.iter().flat_map(|shown| shown.chain()).map(CertificateDer::from);
        let accepts = tls.accepts_client(&chain.collect::<Vec<_>>());
        *verified = accepts.then(|| tls.clone());
        accepts
    }
}

/// Extension of a request for a host that is not allowed: its answer must reveal no more than its
/// status code, because the page of a rebound name can read it.
#[derive(Debug, Clone, Copy)]
pub struct ForeignHost;

/// Admits a probe that was refused for its host alone. A page that sends its origin stays refused.
/// HTTP/1.0, which load balancers still use for probes, has no Host header (RFC 9112, 3.2).
fn admit_probe<B>(request: &mut Request<B>, refusal: AdmissionError) -> Result<(), AdmissionError> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_probe = reads && PROBE_PATHS.contains(&request.uri().path());
    let for_host_alone = match refusal {
        AdmissionError::ForeignHost(_) => true,
        AdmissionError::MissingHost => request.version() == Version::HTTP_10,
        _ => false,
    };
    if for_host_alone && is_probe && !request.headers().contains_key(header::ORIGIN) {
        request.extensions_mut().insert(ForeignHost);
        return Ok(());
    }
    Err(refusal)
}

/// Builds the layers that every request passes before anything acts on it, on either listener.
pub fn guarded<B, R>(
    settings: LiveSettings,
    peer: PeerAddress,
    inner: impl Edge<B, R, Future = EdgeFuture<R>>,
) -> impl Edge<B, R, Future = EdgeFuture<R>>
where
    B: Send + 'static,
    R: From<Bytes> + Default + Send + 'static,
{
    let rules = RefusalRules { pardon: |_, refusal| Err(refusal), refuse: json_rpc_refusal };
    guarded_except(settings, peer, rules, inner)
}

/// Treatment of the requests that the guard refuses.
struct RefusalRules<B, R> {
    /// Admits some of them all the same.
    pardon: fn(&mut Request<B>, AdmissionError) -> Result<(), AdmissionError>,
    /// Answers the others.
    refuse: fn(&AdmissionError) -> Response<R>,
}

/// Builds the layers of [`guarded`], with these rules.
fn guarded_except<B, R>(
    settings: LiveSettings,
    peer: PeerAddress,
    RefusalRules { pardon, refuse }: RefusalRules<B, R>,
    inner: impl Edge<B, R, Future = EdgeFuture<R>>,
) -> impl Edge<B, R, Future = EdgeFuture<R>>
where
    B: Send + 'static,
    R: From<Bytes> + Default + Send + 'static,
{
    let guard = ConnectionGuard::new(peer.local);
    let check = move |request: &mut Request<B>| {
        let settings = settings.current();
        // First, because every later check reads headers.
        bound_head(request, &settings.limits)?;
        // Before the guard: a request without a clear end cannot be judged.
        refuse_ambiguous_framing(request)?;
        // Before CORS and the service: neither may act for a foreign host or page.
        guard.admit(&settings, request).or_else(|refusal| pardon(request, refusal))
    };
    ServiceBuilder::new()
        .layer(RefuseLayer::new(move |request: &mut Request<B>| {
            check(request).map_err(|refusal| answer_refused(peer, refuse, &refusal).into())
        }))
        // Only pages that the guard admitted get this far. Their preflights end here; requests that
        // do not come from a page pass unchanged.
        .layer_fn(CorsForPages::new)
        .service(inner)
}

/// Logs a refused request, and returns its answer.
fn answer_refused<R>(
    peer: PeerAddress,
    refuse: fn(&AdmissionError) -> Response<R>,
    refusal: &AdmissionError,
) -> Response<R> {
    tracing::debug!(client = %peer.addr, %refusal, "request refused");
    answer_refusal(refuse(refusal), refusal)
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

/// The future of every layer in a stack. Boxed, so that a layer that rarely answers itself (a
/// refusal, a preflight) takes no room in the future of each request.
pub type EdgeFuture<R> = Pin<Box<dyn Future<Output = Result<Response<R>, Infallible>> + Send>>;

/// Answers without waiting.
fn answer_now<R: Send + 'static>(response: Response<R>) -> EdgeFuture<R> {
    Box::pin(ready(Ok(response)))
}

/// A layer that applies a check to requests.
struct RefuseLayer<C> {
    check: C,
}

impl<C> RefuseLayer<C> {
    fn new(check: C) -> Self {
        Self { check }
    }
}

impl<S, C: Clone> Layer<S> for RefuseLayer<C> {
    type Service = Refusing<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Refusing { inner, check: self.check.clone() }
    }
}

/// Forwards a request, or answers it with the refusal of a check.
#[derive(Clone)]
struct Refusing<S, C> {
    inner: S,
    check: C,
}

impl<S, C, B, R> Service<Request<B>> for Refusing<S, C>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible, Future = EdgeFuture<R>>,
    C: Fn(&mut Request<B>) -> Result<(), Box<Response<R>>>,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = EdgeFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match (self.check)(&mut request) {
            Ok(()) => self.inner.call(request),
            Err(response) => answer_now(*response),
        }
    }
}

/// Forwards a request with its authenticated sender, or refuses it. Before authentication, it
/// answers requests for metadata, which clients need to get a key or token, passed-on logins, and
/// the pages for people, as browsers have neither.
#[derive(Clone)]
struct Authenticate<S> {
    inner: S,
    mcp: Arc<McpService>,
    peer: PeerAddress,
}

impl<S, B> Service<Request<B>> for Authenticate<S>
where
    S: Service<
            Authenticated<B>,
            Response = Response<downstream::Body>,
            Error = Infallible,
            Future = EdgeFuture<downstream::Body>,
        > + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
{
    type Response = Response<downstream::Body>;
    type Error = Infallible;
    type Future = EdgeFuture<downstream::Body>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if let Some(metadata) = self.mcp.answer_metadata(&request, self.peer) {
            return answer_now(metadata);
        }
        // Four bytes recognize most requests.
        if !request.uri().path().starts_with("/mcp") {
            let (mcp, peer) = (Arc::clone(&self.mcp), self.peer);
            if mcp.has_page(request.uri().path()) {
                return Box::pin(async move { Ok(mcp.answer_page(request, peer).await) });
            }
            if mcp.has_login(request.uri().path()) {
                return Box::pin(async move { Ok(mcp.answer_login(request, peer).await) });
            }
        }
        match self.mcp.authenticate(request, self.peer) {
            Ok(authenticated) => self.inner.call(authenticated),
            Err(Unauthenticated::Refused(response)) => answer_now(*response),
            Err(Unauthenticated::Waiting(waiting)) => self.call_later(*waiting),
        }
    }
}

impl<S> Authenticate<S> {
    /// Forwards a request once the keys to verify its token have been fetched.
    fn call_later<B>(&self, waiting: WaitingRequest<B>) -> EdgeFuture<downstream::Body>
    where
        S: Service<
                Authenticated<B>,
                Response = Response<downstream::Body>,
                Error = Infallible,
                Future = EdgeFuture<downstream::Body>,
            > + Clone
            + Send
            + 'static,
        B: Send + 'static,
    {
        let (mut inner, mcp, peer) = (self.inner.clone(), Arc::clone(&self.mcp), self.peer);
        Box::pin(async move {
            match mcp.authenticate_later(waiting, peer).await {
                Ok(authenticated) => inner.call(authenticated).await,
                Err(response) => Ok(*response),
            }
        })
    }
}

/// Refuses a head that is larger than [`super::ConnectionLimits::header`], or has more lines than
/// [`super::ConnectionLimits::header_lines`].
fn bound_head<B>(request: &Request<B>, limits: &ConnectionLimits) -> Result<(), AdmissionError> {
    let (limit, most) = (limits.header, limits.header_lines);
    let (size, count) = (head_size(request), request.headers().len());
    if size > limit {
        return Err(AdmissionError::HeadersTooLarge { size, limit });
    }
    if count > most {
        return Err(AdmissionError::TooManyHeaders { count, limit: most });
    }
    Ok(())
}

/// Returns the bytes of the target and of every header's name and value, as HTTP/1 writes them.
fn head_size<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |it| it.as_str().len());
    let lines = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    target + lines.sum::<usize>()
}

/// Refuses transfer codings that hyper accepts but another reader of the same bytes may not: more
/// than one line of them, and any coding but `chunked` (RFC 9112, 6.1 and 11.2). hyper itself
/// refuses other ambiguities, or answers and closes (a Content-Length beside a transfer coding).
fn refuse_ambiguous_framing<B>(request: &Request<B>) -> Result<(), AdmissionError> {
    let codings = mcp::header::single_value(request.headers(), &header::TRANSFER_ENCODING);
    match codings.map_err(|_| AdmissionError::AmbiguousFraming)? {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            Err(AdmissionError::UnknownCoding)
        }
        _ => Ok(()),
    }
}

/// Answers a client's refused request: a JSON-RPC error without an id, since no body has been read.
fn json_rpc_refusal<R: From<Bytes>>(refusal: &AdmissionError) -> Response<R> {
    let mut response = Response::new(R::from(refusal.body()));
    *response.status_mut() = refusal.status();
    response.headers_mut().insert(header::CONTENT_TYPE, MediaType::JSON);
    response
}

/// Completes the answer to a refused request.
fn answer_refusal<R>(mut response: Response<R>, refusal: &AdmissionError) -> Response<R> {
    response.extensions_mut().insert(downstream::Refused);
    let headers = response.headers_mut();
    if matches!(refusal, AdmissionError::AmbiguousFraming | AdmissionError::UnknownCoding) {
        // The start of the next request is unclear.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Paths of the admin listener whose status codes do not depend on the host.
const PROBE_PATHS: [&str; 2] = ["/healthz", "/readyz"];
