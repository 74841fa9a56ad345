//! The transport of 2024-11-05, HTTP with SSE, for clients that know no other.
//!
//! A client opens one stream, `/sse`, which names the address that it posts its
//! messages to; all that comes back, comes on the stream. That is a pipe whose
//! two halves are HTTP requests, and so it is served as a pipe is: by the same
//! bridge that serves standard streams ([`super::stdio`]), to this front itself.
//! The session lasts as long as the stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::{Method as HttpMethod, Response, StatusCode, Uri, header};
use http_body_util::Full;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};

use crate::call::PeerAddress;
use crate::call::{Drain, Failure};
use crate::codec::sse;
use crate::jsonrpc;
use crate::mcp::{self, Era};
use crate::wire::{Headers, Received};

use super::caller::{Caller, Standing};
use super::request::{self, Posted};
use super::sessions::unguessable;
use super::stdio::{Bounds, Bridge, Endpoint, Lines, Mirroring};
use super::stream::Place;
use super::{Body, Front, answer};

/// The open streams, by the ids that their clients post under.
#[derive(Default)]
pub(super) struct Pipes(Mutex<HashMap<Arc<str>, Arc<Pipe>>>);

impl Pipes {
    fn find(&self, id: &str) -> Option<Arc<Pipe>> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Pipe>>> {
        self.0.lock()
    }
}

/// What an open stream and the messages posted to it share.
struct Pipe {
    caller: Caller,
    /// The endpoint that it leads to.
    uri: Uri,
    bridge: Arc<Bridge<Inside>>,
}

/// A place among the open streams. With it goes the session.
struct Registered {
    front: Arc<Front>,
    id: Arc<str>,
    pipe: Arc<Pipe>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.front.pipes.lock().remove(&self.id);
        self.pipe.bridge.cut.cancel();
        let pipe = Arc::clone(&self.pipe);
        tokio::spawn(async move { pipe.bridge.close_session().await });
    }
}

/// This front, for one who has been identified.
struct Inside {
    front: Arc<Front>,
    caller: Caller,
    peer: PeerAddress,
    /// Those of the request that opened the stream.
    headers: Headers,
}

impl Endpoint for Inside {
    type Body = Body;

    async fn send(&self, posted: http::Request<Bytes>) -> Result<Response<Body>, Failure> {
        let mut headers = self.headers.clone();
        for (name, value) in posted.headers() {
            headers.set(name, value.as_bytes());
        }
        let request = Received { headers, ..Received::from(posted.map(Full::new)) };
        Ok(Arc::clone(&self.front).answer(request, (self.caller.clone(), self.peer)).await)
    }

    fn mirroring(&self) -> Mirroring {
        Mirroring::Wanted
    }
}

/// An open stream.
struct Streaming {
    /// Where to post messages; said first.
    first: Option<Bytes>,
    lines: Lines,
    keep_alive: Duration,
    drain: Drain,
    /// What is under way may still be answered.
    draining: bool,
    standing: Standing,
    registered: Registered,
    /// The session's own stream has another.
    _place: Place,
}

impl Streaming {
    async fn step(streaming: Option<Self>) -> Option<(Bytes, Option<Self>)> {
        let mut this = streaming?;
        if let Some(first) = this.first.take() {
            return Some((first, Some(this)));
        }
        loop {
            tokio::select! {
                biased;
                () = this.standing.lost() => return None,
                () = this.drain.started(), if !this.draining => {
                    this.draining = true;
                    let bridge = Arc::clone(&this.registered.pipe.bridge);
                    // The end of the drain time cuts the connection.
                    tokio::spawn(async move { bridge.finish(Duration::MAX).await });
                }
                line = this.lines.next() => return Some((sse::message(&line?), Some(this))),
                () = sleep(this.keep_alive) => return Some((sse::comment(), Some(this))),
            }
        }
    }
}

impl Front {
    /// Whether a request is one to the old transport.
    pub(super) fn is_old_transport<B>(&self, request: &Received<B>) -> bool {
        let path = request.uri.path();
        (is_stream(path) || path == MESSAGES) && self.gateway.snapshots.load().config.gateway.sse
    }

    /// Answers one.
    pub(super) async fn old_transport<B>(
        self: Arc<Self>,
        request: Received<B>,
        peer: PeerAddress,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Unpin + Send,
    {
        match (is_stream(request.uri.path()), &request.method) {
            (true, &HttpMethod::GET) => self.open_pipe(request, peer),
            (false, &HttpMethod::POST) => self.post_to_pipe(request, peer).await,
            // What a client of a newer transport posts here first tells it
            // that this is the old one.
            _ => answer::method_not_allowed(),
        }
    }

    fn open_pipe<B>(
        self: &Arc<Self>,
        mut request: Received<B>,
        peer: PeerAddress,
    ) -> Response<Body> {
        let uri = inner(&request.uri);
        request.uri = uri.clone();
        let caller = match self.caller(&mut request, peer) {
            Ok(caller) => caller,
            Err(failure) => return super::caller::refusal(&failure),
        };
        let (limit, keep_alive) = self.limits();
        let entered = self.streams.enter(limit).and_then(|place| Ok((place, unguessable()?)));
        let (place, id) = match entered {
            Ok(entered) => entered,
            Err(failure) => return answer::refusal(None, &failure, Era::Legacy),
        };
        let inside = Inside {
            front: Arc::clone(self),
            caller: caller.clone(),
            peer,
            headers: kept(&request.headers),
        };
        // What servers answer is bounded where it comes in.
        let bounds = Bounds { answer: usize::MAX, ..Bounds::default() };
        let (bridge, lines) = Bridge::new(inside, bounds);
        let standing = self.standing(&caller);
        let pipe = Arc::new(Pipe { caller, uri, bridge });
        self.pipes.lock().insert(Arc::clone(&id), Arc::clone(&pipe));
        let streaming = Streaming {
            first: Some(endpoint(&id)),
            lines,
            keep_alive,
            drain: self.drain.clone(),
            draining: false,
            standing,
            registered: Registered { front: Arc::clone(self), id, pipe },
            _place: place,
        };
        answer::with_events(Body::stream(stream::unfold(Some(streaming), Streaming::step)))
    }

    async fn post_to_pipe<B>(
        self: &Arc<Self>,
        mut request: Received<B>,
        peer: PeerAddress,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Send> + Unpin + Send,
    {
        let refuse = |failure: &Failure| answer::refusal(None, failure, Era::Legacy);
        let query = request.uri.query().unwrap_or_default();
        let id = query.split('&').find_map(|part| part.strip_prefix("session="));
        let pipe = id.and_then(|id| self.pipes.find(id));
        // To a stranger it is not there, whatever they lack.
        let uri = pipe.as_ref().map_or_else(|| inner(&request.uri), |pipe| pipe.uri.clone());
        request.uri = uri;
        let caller = match self.caller(&mut request, peer) {
            Ok(caller) => caller,
            Err(failure) => return super::caller::refusal(&failure),
        };
        let Some(pipe) = pipe.filter(|pipe| pipe.caller.is(&caller)) else {
            return refuse(&Failure::SessionLost);
        };
        let settings = Arc::clone(&self.gateway.snapshots.load().config);
        let limits = &settings.gateway.limits;
        let posted = match Posted::read(request, (caller, peer), limits).await {
            Ok(posted) => posted,
            Err(failure) => return refuse(&failure),
        };
        if !posted.is_batch()
            && let Err(fault) = jsonrpc::parse(&posted.body, limits.depth)
        {
            return refuse(&request::failure(&fault));
        }
        if timeout(UNREAD, pipe.bridge.take(posted.body)).await.is_err() {
            let limit = "sse:unread".to_owned();
            return refuse(&Failure::OverLimit { limit, retry_after: UNREAD });
        }
        answer::empty(StatusCode::ACCEPTED)
    }
}

/// The endpoint that a stream's address stands for: `/sse/x?y` for `/mcp/x?y`.
fn inner(uri: &Uri) -> Uri {
    let all = uri.path_and_query().map_or(STREAM, |all| all.as_str());
    let rest = all.strip_prefix(STREAM).unwrap_or_default();
    format!("/mcp{rest}").parse().unwrap_or(Uri::from_static("/mcp"))
}

fn is_stream(path: &str) -> bool {
    path.strip_prefix(STREAM).is_some_and(is_end_of_segment)
}

fn is_end_of_segment(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// The headers of the stream's own request that say something of the messages
/// that are posted, too.
fn kept(headers: &Headers) -> Headers {
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
        kept.remove(&name);
    }
    kept
}

/// The event that opens a stream (2024-11-05, Transports, "HTTP with SSE").
fn endpoint(id: &str) -> Bytes {
    let mut event = BytesMut::with_capacity(96);
    event.put_slice(b"event: endpoint\ndata: ");
    event.put_slice(MESSAGES.as_bytes());
    event.put_slice(b"?session=");
    event.put_slice(id.as_bytes());
    event.put_slice(b"\n\n");
    event.freeze()
}

/// Where streams are opened.
const STREAM: &str = "/sse";
/// Where messages are posted.
const MESSAGES: &str = "/message";
/// How long a message waits for a client that does not read what it asked for.
const UNREAD: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streams_address_stands_for_an_endpoint() {
        for (old, new) in [
            ("/sse", "/mcp"),
            ("/sse?servers=a", "/mcp?servers=a"),
            ("/sse/team?tools=x*", "/mcp/team?tools=x*"),
            ("/message?session=1", "/mcp"),
        ] {
            assert_eq!(inner(&Uri::from_static(old)).to_string(), new, "{old}");
        }
    }
}
