//! Streams of a session that outlive their connections: sent messages are kept in an outbox, and a
//! GET with `Last-Event-ID` resumes after that event (2025-11-25, Streamable HTTP, "Resumability
//! and Redelivery").

use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::future::ready;
use futures_util::stream::once;
use http::{HeaderValue, Response, StatusCode};

use crate::call::{Failure, RequestFault};
use crate::codec::sse;
use crate::downstream::access::caller::{AccessWatch, VerifiedCaller};
use crate::downstream::responses::body::frames;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};
use crate::jsonrpc::{self, Id};

use super::outbox::{EventId, Outbox, OutboxReader, ReplayStart, Sent, Source, named_request};
use super::session::ClientSession;

impl McpService {
    /// Resumes a stream after a connection that ended with the event `last` (2025-11-25, Streamable
    /// HTTP, "Resumability and Redelivery").
    pub(in crate::downstream) fn resume(
        &self,
        session: &Arc<ClientSession>,
        last: &HeaderValue,
        caller: &VerifiedCaller,
    ) -> Response<Body> {
        let id = last.to_str().ok().and_then(EventId::parse);
        if id.is_some_and(|id| session.inherited().has_event(id)) {
            if let Some(request) = last.to_str().ok().and_then(named_request) {
                return answer_lost(&request);
            }
            // Its messages were lost with its owner: the client goes on from now.
            return self.open_session_stream(session, ReplayStart::Unsent, caller);
        }
        let Some((id, outbox)) = id.and_then(|id| Some((id, session.stream(id)?))) else {
            return response::refuse_request(StatusCode::BAD_REQUEST, RequestFault::UnknownEvent);
        };
        let start = ReplayStart::Behind(id.number);
        if Arc::ptr_eq(&outbox, session.outbox()) {
            return self.open_session_stream(session, start, caller);
        }
        let session = Arc::clone(session);
        let resuming = ResumingSession { session, standing: self.watch_access(caller) };
        connect(resuming, &outbox, start, self.limits().1)
    }
}

/// A session whose client may resume a stream, for as long as the client has access.
pub(crate) struct ResumingSession {
    pub(crate) session: Arc<ClientSession>,
    pub(crate) standing: AccessWatch,
}

/// Answers a request with a stream of its messages that its client can resume.
pub(crate) fn answer_resumable(
    resuming: ResumingSession,
    request: Id,
    source: Source,
    keep_alive: Duration,
) -> Response<Body> {
    let outbox = resuming.session.open_stream(source, request);
    connect(resuming, &outbox, ReplayStart::Unsent, keep_alive)
}

/// Answers a call that was lost with an earlier owner of its session, on the stream that its client
/// resumes.
fn answer_lost(request: &Id) -> Response<Body> {
    let error = jsonrpc::error(Some(request), &Failure::ReplicaLost.to_error());
    let event = sse::message_with(&error, None, None);
    response::with_events(Body::stream(once(ready(event))))
}

/// Opens a connection to a stream of a session from `start` on, for as long as its client has
/// access.
fn connect(
    resuming: ResumingSession,
    outbox: &Arc<Outbox>,
    start: ReplayStart,
    keep_alive: Duration,
) -> Response<Body> {
    let ResumingSession { session, mut standing } = resuming;
    let mut reader = outbox.read(start);
    let opening = opening(&session, &reader);
    let polls = session.client().version.sends_priming_event();
    let events = stream! {
        yield opening;
        loop {
            let sent = tokio::select! {
                sent = reader.next() => sent,
                () = standing.revoked() => None,
                () = tokio::time::sleep(keep_alive) => {
                    yield sse::comment();
                    continue;
                }
            };
            match sent {
                Some(Sent::Event(event)) => for frame in frames(event) {
                    yield frame;
                },
                Some(Sent::Pause(wait)) if polls => {
                    drop(reader);
                    yield sse::retry(wait);
                    return;
                }
                Some(Sent::Pause(_)) => {}
                None => return,
            }
        }
    };
    response::with_events(Body::stream(events))
}

/// Returns the first bytes of a connection: a priming event, for clients that support it, or a
/// comment.
pub(super) fn opening(session: &ClientSession, reader: &OutboxReader) -> Bytes {
    if session.client().version.sends_priming_event() {
        reader.priming(RECONNECT_DELAY)
    } else {
        sse::comment()
    }
}

/// Reconnection delay of clients.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
