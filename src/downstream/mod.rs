//! The downstream side: MCP clients of both eras, on one URL.
//!
//! [`McpService::serve`] takes an authenticated HTTP request and detects its era. [`modern`] and
//! [`legacy`] are siblings that turn requests into calls, and replies into responses; code that
//! both share is beside them. [`stdio`] and [`http_sse`] are bridges that turn messages of other
//! transports into such requests. `connect` has the pages for people who log in to servers, and
//! `login` the endpoints of relayed logins. This module differs from `listener`, which parses no
//! MCP message, and from `pipeline`, which knows no HTTP.

mod access;
mod connect;
mod forwarding;
mod http_sse;
mod legacy;
mod login;
mod modern;
mod requests;
mod responses;
pub mod stdio;

pub use access::caller::{Refused, Unauthenticated, WaitingRequest, refusal};
pub use legacy::SessionOverview;
pub use modern::stream_register::ListenOverview;
pub use requests::dispatch::PendingResponse;
pub use responses::body::Body;
pub(crate) use responses::response::with_events;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method as HttpMethod, Request, Response, StatusCode};

use crate::call::{Client, Drain, Failure, PeerAddress, RequestFault, boxed};
use crate::cluster::Cluster;
use crate::identity::ClientCertificate;
use crate::jsonrpc::{self, Frame};
use crate::mcp::header::MessageHeaders;
use crate::mcp::{self, Era};
use crate::pipeline::Gateway;
use crate::shares::SharedAmount;
use crate::telemetry::log::SharedFaultLog;

use access::caller::{EntryRefusal, RequestSender, VerifiedCaller};
use forwarding::{OtherPlace, ServerServices, keep_credentials};
use http_sse::{OldTransport, SsePipes};
use legacy::{ReplayStart, Sessions};
use modern::stream_register::ListenStreams;
use requests::budget::{CountedAtStream, CountedEarly};
use requests::dispatch::answered;
use requests::era;
use requests::refused_requests::{AuditedRequest, RefusedMessage};
use requests::request::{self, Posted};
use responses::open_streams::OpenStreams;
use responses::response::{self, AcceptedForm};

/// A request with a known sender.
pub struct Authenticated<B> {
    head: Parts,
    body: B,
    from: RequestSender,
    /// The kind of request to the transport of 2024-11-05, if it is for that.
    old: Option<Box<OldTransport>>,
}

/// The MCP endpoint that clients connect to.
pub struct McpService {
    gateway: Arc<Gateway>,
    sessions: Arc<Sessions>,
    pipes: SsePipes,
    streams: OpenStreams,
    /// The streams of Modern clients, for operators.
    listeners: ListenStreams,
    /// Memory of request bodies, by client.
    bodies: Arc<SharedAmount>,
    drain: Drain,
    /// The other replicas; `None` without `[cluster]`.
    cluster: Option<Arc<Cluster>>,
    /// Servers whose child runs here, for the other replicas.
    services: ServerServices,
    /// Refused requests of the listener for replicas, in the log.
    peer_faults: SharedFaultLog,
    /// Ids of sessions that their senders have not opened, in the log.
    session_faults: SharedFaultLog,
}

impl McpService {
    /// Creates the endpoint of a gateway, open until `drain` starts. Needs a runtime.
    pub fn new(gateway: Arc<Gateway>, drain: Drain) -> Arc<Self> {
        Self::in_cluster(gateway, drain, None)
    }

    /// Creates the endpoint of one of several replicas.
    pub fn in_cluster(
        gateway: Arc<Gateway>,
        drain: Drain,
        cluster: Option<Arc<Cluster>>,
    ) -> Arc<Self> {
        if let Some(cluster) = &cluster {
            gateway.join_replicas(cluster.id());
        }
        let sessions = Sessions::start(&gateway, cluster.clone());
        let (streams, pipes) = (OpenStreams::default(), SsePipes::default());
        let (listeners, bodies) = (ListenStreams::default(), Arc::default());
        let peer_faults = SharedFaultLog::holding(MAX_PEER_FAULTS);
        let session_faults = SharedFaultLog::holding(MAX_PEER_FAULTS);
        Arc::new(Self {
            gateway,
            sessions,
            pipes,
            streams,
            listeners,
            bodies,
            drain,
            cluster,
            services: ServerServices::default(),
            peer_faults,
            session_faults,
        })
    }

    /// Returns the cluster that this gateway is a replica of.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// Returns the signal for the end of streams.
    pub fn drain(&self) -> &Drain {
        &self.drain
    }

    /// Returns the number of open Legacy sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the clients of a principal's open Legacy sessions, by the principal's name.
    pub fn clients_of(&self, principal: &str) -> Vec<Arc<Client>> {
        self.sessions.clients_of(principal)
    }

    /// Returns every open Legacy session, the oldest first.
    pub fn session_overviews(&self) -> Vec<SessionOverview> {
        self.sessions.overviews()
    }

    /// Ends the session with this digest. Returns it; `None` if there is no such session.
    pub fn end_session(&self, digest: &str) -> Option<SessionOverview> {
        self.sessions.end_by_digest(digest)
    }

    /// Returns every Modern client with open streams, the one with the oldest stream first.
    pub fn listening_clients(&self) -> Vec<ListenOverview> {
        self.listeners.overviews()
    }

    /// Ends the streams of the Modern client with this digest. Returns them; `None` if it has none.
    pub fn end_streams(&self, digest: &str) -> Option<ListenOverview> {
        self.listeners.end_by_digest(digest)
    }

    /// Identifies the sender of a request by its head alone, before anything else is read. The
    /// sender is admitted to the profile that the path names, and its key or token is removed from
    /// the headers.
    ///
    /// # Errors
    /// [`Unauthenticated`]: the refusal, or the request itself while the keys to verify its token
    /// are being fetched.
    pub fn authenticate<B>(
        &self,
        request: Request<B>,
        peer: PeerAddress,
    ) -> Result<Authenticated<B>, Unauthenticated<B>> {
        let (mut head, body) = request.into_parts();
        let old = self.old_transport(&head.uri).map(Box::new);
        let endpoint = old.as_ref().map_or(&head.uri, |old| old.endpoint());
        // The listener has verified it in the handshake of the connection.
        let certificate = head.extensions.get::<Arc<ClientCertificate>>();
        let shown = self.cluster.as_ref().and_then(|_| keep_credentials(&head, old.as_deref()));
        match self.identify_sender(endpoint, &mut head.headers, peer, certificate) {
            Ok(from) => {
                if let Some(shown) = shown {
                    head.extensions.insert(shown.removed_from(&head.headers));
                }
                if let Some(OldTransport::Message { .. }) = old.as_deref() {
                    head.extensions.insert(CountedAtStream);
                }
                Ok(Authenticated { head, body, from, old })
            }
            Err(EntryRefusal::Refused(response)) => Err(Unauthenticated::Refused(response)),
            Err(EntryRefusal::Pending(wait)) => {
                let request = Request::from_parts(head, body);
                Err(Unauthenticated::Waiting(Box::new(WaitingRequest { request, wait })))
            }
        }
    }

    /// Reads the body of a request within its limits of size, time and memory, and answers it. MCP
    /// gets the whole body, or nothing. Never fails, so the layers above pass the response on as it
    /// is.
    pub fn receive<B>(
        self: Arc<Self>,
        authenticated: Authenticated<B>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        // Destructured outside of the future: inside, the parts would be stored twice.
        let Authenticated { mut head, body, from, old } = authenticated;
        Box::into_pin(boxed(|| async move {
            self.prepare_rates(&head, &from, old.as_deref()).await;
            Ok(match self.collect_body(&mut head, body, &from).await {
                Ok(body) => self.serve(Authenticated { head, body, from, old }).await,
                Err(failure) => {
                    self.record_refused_body(&head, &from, &failure);
                    refusal(&failure)
                }
            })
        }))
    }

    /// Records a request whose body was refused, in the access log and in the audit log.
    fn record_refused_body(&self, head: &Parts, from: &RequestSender, failure: &Failure) {
        if failure.limit().is_some() {
            self.log_refused_message(&RefusedMessage::unread(head, from), failure);
        }
        if self.gateway.audit.is_on() {
            let unread = Bytes::new();
            AuditedRequest::new(&head.headers, &unread, &from.caller, from.peer).audit_failure(
                &self.gateway,
                &unread,
                failure,
            );
        }
    }

    /// Provides the permits of rates that replicas share, unless another replica may count the request.
    async fn prepare_rates(&self, head: &Parts, from: &RequestSender, old: Option<&OldTransport>) {
        let may_count_elsewhere = || match old {
            Some(old) => old.is_for_absent_stream(),
            None => self.is_counted_later(&head.headers, &from.caller),
        };
        let shares_rates = from.snapshot.policy.shares_request_rates(from.caller.principal());
        if shares_rates && !may_count_elsewhere() {
            self.prepare_rates_here(head, from).await;
        }
    }

    /// Provides the permits of a request that this replica counts, if it has not counted it yet.
    async fn prepare_rates_here(&self, head: &Parts, from: &RequestSender) {
        let is_counted = head.extensions.get::<CountedEarly>().is_some();
        if head.method == HttpMethod::POST && !is_counted {
            let (who, address) = (from.caller.principal(), from.peer.addr.ip());
            if let Some(prepared) = from.snapshot.policy.prepare_request(who, address) {
                prepared.await;
            }
        }
    }

    /// Answers one request. Decides about it before the response is awaited.
    pub fn serve(self: Arc<Self>, authenticated: Authenticated<Bytes>) -> PendingResponse {
        let Authenticated { head, body, from, old } = authenticated;
        match old {
            Some(old) => {
                let gateway = Arc::clone(&self.gateway);
                let audited = gateway
                    .audit
                    .is_on()
                    .then(|| AuditedRequest::new(&head.headers, &body, &from.caller, from.peer));
                let request = Request::from_parts(head, body);
                Box::pin(async move {
                    let response = self.serve_old_transport(request, from, *old).await;
                    if let Some(audited) = audited {
                        audited.audit_response(&gateway, &response);
                    }
                    response
                })
            }
            None => self.answer(head, body, from),
        }
    }

    /// Answers a request to the MCP endpoint.
    fn answer(self: Arc<Self>, head: Parts, body: Bytes, from: RequestSender) -> PendingResponse {
        if !self.gateway.audit.is_on() {
            return self.answer_request(head, body, from);
        }
        let request = AuditedRequest::new(&head.headers, &body, &from.caller, from.peer);
        let gateway = Arc::clone(&self.gateway);
        let pending = self.answer_request(head, body, from);
        Box::pin(async move {
            let response = pending.await;
            request.audit_response(&gateway, &response);
            response
        })
    }

    fn answer_request(
        self: Arc<Self>,
        head: Parts,
        body: Bytes,
        from: RequestSender,
    ) -> PendingResponse {
        // Before anything is counted: the owner counts it.
        match self.find_other_place(&head, &body, &from) {
            OtherPlace::None => self.answer_here(head, body, from),
            OtherPlace::Sought(cluster) => self.place_and_answer(cluster, (head, body), from),
            OtherPlace::Replica(replica) => self.continue_at(replica, (head, body), from),
        }
    }

    fn answer_here(
        self: Arc<Self>,
        head: Parts,
        body: Bytes,
        from: RequestSender,
    ) -> PendingResponse {
        match head.method {
            HttpMethod::POST => self.post(head, body, from),
            HttpMethod::GET => answered(self.get(&head.headers, &from.caller)),
            HttpMethod::DELETE => answered(self.delete(&head.headers, &from.caller)),
            _ => answered(response::method_not_allowed()),
        }
    }

    fn post(self: Arc<Self>, head: Parts, body: Bytes, from: RequestSender) -> PendingResponse {
        let refuse = |id, failure: &Failure| answered(response::refusal(id, failure));
        let wants = AcceptedForm::of(&head.headers);
        let posted = match Posted::new(head, body, from) {
            Ok(posted) => posted,
            Err(refused) => return refuse(None, &refused),
        };
        if posted.is_batch() {
            return Box::pin(async move { self.batch(posted).await });
        }
        let parsed = jsonrpc::parse(&posted.body, posted.limits().depth);
        if let Err(failure) = self.admit(parsed.as_ref().ok(), &posted) {
            return answered(self.refuse_over_rate(parsed.as_ref().ok(), &posted, &failure));
        }
        match parsed {
            Ok(frame) => self.dispatch(frame, &posted, wants),
            Err(fault) => refuse(None, &fault.into()),
        }
    }

    /// Counts a message towards its client's rate and the gateway's. Notifications and responses
    /// always pass: a client over its limit may still cancel.
    fn admit(&self, frame: Option<&Frame>, posted: &Posted) -> Result<(), Failure> {
        match frame {
            Some(Frame::Notification { .. } | Frame::Response { .. }) => Ok(()),
            Some(Frame::Request { .. }) | None => posted.counted_early().unwrap_or_else(|| {
                let principal = posted.caller.principal();
                self.gateway.admit_request(&posted.snapshot, principal, posted.address())
            }),
        }
    }

    /// Builds the response to a message over a rate. A request in a Legacy session keeps the
    /// session.
    fn refuse_over_rate(
        &self,
        frame: Option<&Frame>,
        posted: &Posted,
        failure: &Failure,
    ) -> Response<Body> {
        self.log_refused_message(&RefusedMessage::of_posted(posted, frame), failure);
        let id = frame.and_then(request::id_of);
        if let (Some(frame), Some(id)) = (frame, id)
            && self.is_in_session(frame, posted)
        {
            return response::refusal_in_session(id, failure);
        }
        response::refusal(id, failure)
    }

    /// Returns true if a message belongs to an open Legacy session of its sender.
    fn is_in_session(&self, frame: &Frame, posted: &Posted) -> bool {
        let headers = MessageHeaders::read(&posted.headers);
        matches!(era::of(&posted.headers, &headers, frame), Ok(Era::Legacy))
            && self.session_of(&posted.headers, &posted.caller).is_ok()
    }

    fn dispatch(&self, frame: Frame, posted: &Posted, wants: AcceptedForm) -> PendingResponse {
        let headers = MessageHeaders::read(&posted.headers);
        match era::of(&posted.headers, &headers, &frame) {
            Ok(Era::Modern) => self.modern(frame, &headers, posted, wants),
            Ok(Era::Legacy) => self.legacy(frame, posted, wants),
            Err(failure) => {
                let id = request::id_of(&frame);
                answered(response::refusal(id, &failure))
            }
        }
    }

    /// Opens the stream of a Legacy session's notifications. Modern clients have none and are
    /// refused (2026-07-28, "Earlier Streamable HTTP Revisions").
    fn get(self: Arc<Self>, headers: &HeaderMap, caller: &VerifiedCaller) -> Response<Body> {
        match self.session_of(headers, caller) {
            Ok(_) if !AcceptedForm::of(headers).stream() => {
                response::refuse_request(StatusCode::NOT_ACCEPTABLE, RequestFault::NotAcceptable)
            }
            Ok(session) => match headers.get(mcp::header::LAST_EVENT_ID) {
                Some(id) if !id.is_empty() => self.resume(&session, id, caller),
                _ => self.open_session_stream(&session, ReplayStart::Unsent, caller),
            },
            Err(Failure::SessionRequired) => response::method_not_allowed(),
            Err(failure) => response::refusal(None, &failure),
        }
    }

    fn delete(&self, headers: &HeaderMap, caller: &VerifiedCaller) -> Response<Body> {
        match self.session_of(headers, caller) {
            Ok(session) => {
                self.sessions.close(&session);
                response::empty(StatusCode::NO_CONTENT)
            }
            Err(Failure::SessionRequired) => response::method_not_allowed(),
            Err(failure) => response::refusal(None, &failure),
        }
    }
}

/// Maximum number of addresses, and of faults of requests of replicas, that are counted in the log.
const MAX_PEER_FAULTS: usize = 64;
/// Empty result of a request.
const EMPTY_RESULT: Bytes = Bytes::from_static(b"{}");
