//! Streams of a session that outlive their connections: sent messages are kept in an outbox, and a
//! GET with `Last-Event-ID` resumes after that event (2025-11-25, Streamable HTTP, "Resumability
//! and Redelivery").

use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};

use crate::call::RequestFault;
use crate::codec::sse;
use crate::downstream::access::caller::{AccessWatch, VerifiedCaller};
use crate::downstream::responses::body::frames;
use crate::downstream::responses::response;
use crate::downstream::{Body, McpService};
use crate::jsonrpc::Id;

use super::outbox::{EventId, Outbox, OutboxReader, ReplayStart, Sent, Source};
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
