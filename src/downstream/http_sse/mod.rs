//! The HTTP with SSE transport of 2024-11-05, for clients without a newer one.
//!
//! A client opens one stream, `/sse`. Its first event contains the address for the client's
//! messages ([`addresses`]), and every response arrives on the stream. Together they are a pipe of two
//! HTTP halves, so the bridge that serves standard streams ([`super::stdio`]) serves them as well. The
//! session lasts as long as the stream. Of several replicas, the one with the stream has the session:
//! the others forward messages to it ([`super::forwarding`]).

mod addresses;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;
use http::request::Parts;
use http::{HeaderMap, Method as HttpMethod, Request, Response, StatusCode, Uri, header};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};

use crate::call::PeerAddress;
use crate::call::{Drain, Failure, InternalFault};
use crate::codec::large_message::work_on;
use crate::codec::sse;
use crate::jsonrpc;
use crate::mcp;
use crate::shares::{Holder, ShareBounds, SharedAmount};

use super::access::caller::{AccessWatch, RequestSender, VerifiedCaller};
use super::requests::refused_requests::RefusedMessage;
use super::requests::request::{EndsWithStream, Posted};
use super::responses::open_streams::StreamPlace;
use super::responses::response;
use super::{Body, McpService};
use crate::downstream::legacy::unguessable;
use crate::downstream::stdio::{
    Bridge, BridgeBounds, McpPeer, Mirroring, OutputBudget, OutputLines,
};
use addresses::OldAddress;

/// Open streams, by the ids that their clients post under.
#[derive(Default)]
pub(super) struct SsePipes {
    open: Mutex<HashMap<Arc<str>, Arc<SsePipe>>>,
    /// Bytes that wait for clients to read them.
    unread: Arc<SharedAmount>,
}

impl SsePipes {
    fn find(&self, id: &str) -> Option<Arc<SsePipe>> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<SsePipe>>> {
        self.open.lock()
    }
}

/// State shared by an open stream and the messages posted to it.
pub(super) struct SsePipe {
    caller: VerifiedCaller,
    /// The endpoint of the stream.
    uri: Uri,
    bridge: Arc<Bridge<Inside>>,
}

/// Kinds of requests to this transport.
pub(super) enum OldTransport {
    /// Opens a stream for this endpoint.
    Stream { endpoint: Uri },
    /// Posts a message to a stream; `pipe` is `None` if that is not here.
    Message { endpoint: Uri, pipe: Option<Arc<SsePipe>> },
}

impl OldTransport {
    /// Returns the endpoint of the request, which its sender is identified for.
    pub(super) fn endpoint(&self) -> &Uri {
        match self {
            Self::Stream { endpoint } | Self::Message { endpoint, .. } => endpoint,
        }
    }

    /// Returns true for a message to a stream that is not here.
    pub(super) fn is_for_absent_stream(&self) -> bool {
        matches!(self, Self::Message { pipe: None, .. })
    }
}

/// An open stream's entry in the table. Dropping it ends the session.
struct Registered {
    mcp: Arc<McpService>,
    id: Arc<str>,
    pipe: Arc<SsePipe>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.mcp.pipes.lock().remove(&self.id);
        self.pipe.bridge.cut.cancel();
        let pipe = Arc::clone(&self.pipe);
        tokio::spawn(async move { pipe.bridge.close_session().await });
    }
}

/// The endpoint of this process, for an identified caller.
struct Inside {
    mcp: Arc<McpService>,
    caller: VerifiedCaller,
    peer: PeerAddress,
    /// Headers of the request that opened the stream.
    headers: HeaderMap,
}

impl McpPeer for Inside {
    type Body = Body;

    async fn send(&self, posted: http::Request<Bytes>) -> Result<Response<Body>, Failure> {
        let mut posted = posted;
        let own = std::mem::replace(posted.headers_mut(), self.headers.clone());
        for (name, value) in own {
            // `None` for a further value of the previous name.
            let Some(name) = name else { continue };
            posted.headers_mut().insert(name, value);
        }
        let (mut head, body) = posted.into_parts();
        head.extensions.insert(EndsWithStream);
        let snapshot = self.mcp.gateway.snapshots.load_full();
        let from = RequestSender { caller: self.caller.clone(), peer: self.peer, snapshot };
        Ok(Arc::clone(&self.mcp).answer(head, body, from).await)
    }

    fn mirroring(&self) -> Mirroring {
        Mirroring::Wanted
    }
}

/// An open stream.
struct Streaming {
    /// The address for the client's messages.
    address: String,
    lines: OutputLines,
    keep_alive: Duration,
    drain: Drain,
    /// Pending requests may still be answered.
    draining: bool,
    standing: AccessWatch,
    registered: Registered,
    /// The session's own stream holds another place.
    _place: StreamPlace,
}

impl Streaming {
    fn events(self) -> impl Stream<Item = Bytes> + Send {
        stream! {
            // Moved as a whole, with the guards that it holds until its end.
            let mut this = self;
            yield addresses::endpoint_event(&this.address);
            loop {
                tokio::select! {
                    biased;
                    () = this.standing.revoked() => return,
                    () = this.drain.started(), if !this.draining => {
                        this.draining = true;
                        let bridge = Arc::clone(&this.registered.pipe.bridge);
                        // The end of the drain time cuts the connection.
                        tokio::spawn(async move { bridge.finish(Duration::MAX).await });
                    }
                    line = this.lines.next() => match line {
                        Some(line) => yield encode_line(line).await,
                        None => return,
                    },
                    () = sleep(this.keep_alive) => yield sse::comment(),
                }
            }
        }
    }
}

impl McpService {
    /// Recognizes a request to the old transport.
    pub(super) fn old_transport(&self, uri: &Uri) -> Option<OldTransport> {
        let address = OldAddress::parse(uri.path())?;
        if !self.gateway.snapshots.load().config.gateway.sse {
            return None;
        }
        if address == OldAddress::Stream {
            return Some(OldTransport::Stream { endpoint: addresses::endpoint_of_stream(uri) });
        }
        let pipe = addresses::stream_id(uri).and_then(|id| self.pipes.find(id));
        let endpoint = match (&self.cluster, &pipe) {
            // The same at each replica.
            (Some(_), _) => addresses::endpoint_of_messages(uri),
            (None, _) if address == OldAddress::MessagesAtProfile => return None,
            (None, Some(pipe)) => pipe.uri.clone(),
            // Known and unknown streams are refused in the same way before any lookup.
            (None, None) => addresses::default_endpoint(),
        };
        Some(OldTransport::Message { endpoint, pipe })
    }

    /// Answers a request to the old transport.
    pub(super) async fn serve_old_transport(
        self: Arc<Self>,
        request: Request<Bytes>,
        from: RequestSender,
        at: OldTransport,
    ) -> Response<Body> {
        match (at, request.method()) {
            (OldTransport::Stream { endpoint }, &HttpMethod::GET) => {
                self.open_pipe(endpoint, &request.into_parts().0, from)
            }
            (OldTransport::Message { pipe: Some(pipe), .. }, &HttpMethod::POST)
                if pipe.caller.is(&from.caller) =>
            {
                self.post_to_pipe(&pipe, request, from).await
            }
            (OldTransport::Message { .. }, &HttpMethod::POST) => {
                let (head, body) = request.into_parts();
                let id = addresses::stream_id(&head.uri);
                self.forward_message(id, (&head, &body), &from).await
            }
            // A client of a newer transport posts here first: this status leads it to the old
            // transport.
            _ => response::method_not_allowed(),
        }
    }

    fn open_pipe(self: &Arc<Self>, uri: Uri, head: &Parts, from: RequestSender) -> Response<Body> {
        let (limit, keep_alive) = self.limits();
        let holder = Holder::identify(from.caller.principal(), from.peer.addr.ip());
        let entered = self.streams.enter(&holder, None, limit);
        let entered = entered.and_then(|place| Ok((place, self.new_stream_id(&from.caller)?)));
        let (place, id) = match entered {
            Ok(entered) => entered,
            Err(failure) => {
                if failure.limit().is_some() {
                    self.log_refused_message(&RefusedMessage::unread(head, &from), &failure);
                }
                return response::refusal(None, &failure);
            }
        };
        let RequestSender { caller, peer, .. } = from;
        let headers = kept(&head.headers);
        let inside = Inside { mcp: Arc::clone(self), caller: caller.clone(), peer, headers };
        // Answers of servers are bounded at the upstream side.
        let bounds = BridgeBounds { answer: usize::MAX, ..BridgeBounds::default() };
        let unread = Arc::clone(&self.pipes.unread);
        let budget = OutputBudget { unread, holder, bounds: self.unread_bounds() };
        let (bridge, lines) = Bridge::new(inside, bounds, Some(budget));
        let standing = self.watch_access(&caller);
        let address = match &self.cluster {
            Some(_) => addresses::address_of_messages(&uri, &id),
            None => addresses::address_of_messages(&addresses::default_endpoint(), &id),
        };
        let pipe = Arc::new(SsePipe { caller, uri, bridge });
        self.pipes.lock().insert(Arc::clone(&id), Arc::clone(&pipe));
        let streaming = Streaming {
            address,
            lines,
            keep_alive,
            drain: self.drain.clone(),
            draining: false,
            standing,
            registered: Registered { mcp: Arc::clone(self), id, pipe },
            _place: place,
        };
        response::with_events(Body::stream(streaming.events()))
    }

    /// Creates the unguessable id of a stream, which names this replica if there are several.
    fn new_stream_id(&self, owner: &VerifiedCaller) -> Result<Arc<str>, Failure> {
        let Some(cluster) = &self.cluster else { return unguessable() };
        let id = cluster.new_stream_id(owner.principal(), owner.endpoint());
        Ok(id.map_err(|_| InternalFault::Random)?)
    }

    /// Returns the limits of the bytes that wait for clients to read.
    fn unread_bounds(&self) -> ShareBounds {
        let snapshot = self.gateway.snapshots.load();
        let limits = &snapshot.config.gateway.limits;
        ShareBounds { all: limits.unread, each: limits.unread_each }
    }

    async fn post_to_pipe(
        &self,
        pipe: &SsePipe,
        request: Request<Bytes>,
        from: RequestSender,
    ) -> Response<Body> {
        let refuse = |failure: &Failure| response::refusal(None, failure);
        let (head, body) = request.into_parts();
        let posted = match Posted::new(head, body, from) {
            Ok(posted) => posted,
            Err(failure) => return refuse(&failure),
        };
        if !posted.is_batch()
            && let Err(fault) = jsonrpc::parse(&posted.body, posted.limits().depth)
        {
            return refuse(&fault.into());
        }
        if timeout(UNREAD_TIMEOUT, pipe.bridge.take(posted.body.clone())).await.is_err() {
            let limit = "sse:unread".to_owned();
            let failure = Failure::OverLimit { limit, retry_after: UNREAD_TIMEOUT };
            self.log_refused_message(&RefusedMessage::of_posted(&posted, None), &failure);
            return refuse(&failure);
        }
        response::empty(StatusCode::ACCEPTED)
    }
}

/// Encodes a message as an event, on another thread if it is large.
async fn encode_line(line: Bytes) -> Bytes {
    let encoded = work_on(line.len(), move || sse::message(&line)).await;
    encoded.unwrap_or_else(|_| sse::comment())
}

/// Returns the headers of the stream's own request that apply to posted messages, too.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    let not = [
        header::ACCEPT,
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        mcp::header::LAST_EVENT_ID,
        mcp::header::SESSION_ID,
        mcp::header::PROTOCOL_VERSION,
        mcp::header::METHOD,
        mcp::header::NAME,
        mcp::header::TRACEPARENT,
        mcp::header::TRACESTATE,
    ];
    for name in not {
        kept.remove(name);
    }
    kept
}

/// Limit of a message's wait for a client that does not read its responses.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(10);
