//! Calls that are answered with an event stream.
//!
//! A Modern client's stream is its call: it ends with its connection. A Legacy
//! session's stream outlives its connections. What it carries is kept in an
//! outbox, so that it can be resumed by GET, and the call goes on while nobody
//! reads (2025-11-25, Streamable HTTP, "Sending Messages to the Server").

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderValue, Response, StatusCode};

use crate::call::Event;
use crate::codec::sse;

use super::answer::{self, AnswerWriter};
use super::caller::{AccessWatch, VerifiedCaller};
use super::outbox::{EventId, Outbox, OutboxReader, Piece, ReplayStart, Sent};
use super::session::ClientSession;
use super::{Body, McpService};

/// Something that brings a call's steps one by one.
pub(super) trait Steps: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<StreamStep>> + Send;
}

/// What a call's stream is made of.
pub(super) enum StreamStep {
    /// What came of the call.
    Event(Event),
    /// A message of the gateway's own, whole, such as a request to the client.
    Frame(Bytes),
}

/// What a stream begins with.
pub(super) enum First {
    /// It is opened to keep a connection alive, or to be resumed.
    Nothing,
    /// A message.
    Message(Bytes),
    /// The server wants to be asked again after this time.
    Pause(Duration),
}

/// Answers with a stream of what came first and all that follows.
pub(super) fn open(first: First, steps: impl Steps, mut writer: AnswerWriter) -> Response<Body> {
    let keep_alive = writer.keep_alive;
    let session = writer.session.take();
    let rest = stream::unfold(Some((steps, writer)), piece);
    match (session, first) {
        (Some((session, standing)), first) => {
            let first = match first {
                First::Nothing => None,
                First::Message(message) => Some(Piece::Message(message)),
                First::Pause(wait) => Some(Piece::Pause(wait)),
            };
            let outbox = session.open_stream(Box::pin(stream::iter(first).chain(rest)));
            connect((&session, standing), &outbox, ReplayStart::Unsent, keep_alive)
        }
        (None, First::Message(message)) => passing_by(sse::message(&message), rest, keep_alive),
        (None, _) => passing_by(sse::comment(), rest, keep_alive),
    }
}

impl McpService {
    /// Resumes the stream whose connection ended after the event `last`
    /// (2025-11-25, Streamable HTTP, "Resumability and Redelivery").
    pub(super) fn resume(
        &self,
        session: &Arc<ClientSession>,
        last: &HeaderValue,
        caller: &VerifiedCaller,
    ) -> Response<Body> {
        let id = last.to_str().ok().and_then(EventId::parse);
        let Some((id, outbox)) = id.and_then(|id| Some((id, session.stream(id)?))) else {
            return answer::plain(
                StatusCode::BAD_REQUEST,
                "the stream of this Last-Event-ID is no longer kept, or never was",
            );
        };
        let start = ReplayStart::Behind(id.number);
        if Arc::ptr_eq(&outbox, session.outbox()) {
            return self.outside(session, start, caller);
        }
        connect((session, self.watch_access(caller)), &outbox, start, self.limits().1)
    }
}

/// A connection that carries a stream of a session from `start` on, as long as
/// whoever opened it may come in.
fn connect(
    (session, standing): (&ClientSession, AccessWatch),
    outbox: &Arc<Outbox>,
    start: ReplayStart,
    keep_alive: Duration,
) -> Response<Body> {
    let reader = outbox.read(start);
    let first = Some(opening(session, &reader));
    let polls = session.client().version.sends_priming_event();
    let left = Some((reader, standing));
    let events = stream::unfold((first, left), move |(first, left)| async move {
        if let Some(first) = first {
            return Some((first, (None, left)));
        }
        let (mut reader, mut standing) = left?;
        loop {
            let sent = tokio::select! {
                sent = reader.next() => sent?,
                () = standing.revoked() => return None,
                () = tokio::time::sleep(keep_alive) => {
                    return Some((sse::comment(), (None, Some((reader, standing)))));
                }
            };
            match sent {
                Sent::Event(event) => {
                    return Some((event, (None, Some((reader, standing)))));
                }
                Sent::Pause(wait) if polls => {
                    return Some((sse::retry(wait), (None, None)));
                }
                Sent::Pause(_) => {}
            }
        }
    });
    answer::with_events(Body::stream(events))
}

/// What opens a connection: the place to resume from, for clients that know of
/// such events, or else a mere sign of life.
pub(super) fn opening(session: &ClientSession, reader: &OutboxReader) -> Bytes {
    if session.client().version.sends_priming_event() {
        reader.priming(RETRY)
    } else {
        sse::comment()
    }
}

/// A stream that cannot be resumed.
fn passing_by(
    first: Bytes,
    pieces: impl Stream<Item = Piece> + Send + 'static,
    keep_alive: Duration,
) -> Response<Body> {
    let state = (Some(first), Box::pin(pieces));
    let events = stream::unfold(state, move |(first, mut pieces)| async move {
        if let Some(first) = first {
            return Some((first, (None, pieces)));
        }
        loop {
            let piece = tokio::select! {
                piece = pieces.next() => piece?,
                () = tokio::time::sleep(keep_alive) => {
                    return Some((sse::comment(), (None, pieces)));
                }
            };
            if let Piece::Message(message) = piece {
                return Some((sse::message(&message), (None, pieces)));
            }
        }
    });
    answer::with_events(Body::stream(events))
}

/// The next piece of a call's stream, and what is left of the call.
async fn piece<S: Steps>(
    left: Option<(S, AnswerWriter)>,
) -> Option<(Piece, Option<(S, AnswerWriter)>)> {
    let (mut steps, writer) = left?;
    let step = loop {
        match steps.next().await? {
            // Server requests reach this point as a result that asks for input.
            StreamStep::Event(Event::Asks(..) | Event::TookBack(_)) => {}
            step => break step,
        }
    };
    let message = match step {
        StreamStep::Frame(frame) => return Some((Piece::Message(frame), Some((steps, writer)))),
        StreamStep::Event(Event::Notice(notice)) => {
            let message = writer.notice(&notice);
            return Some((Piece::Message(message), Some((steps, writer))));
        }
        StreamStep::Event(Event::Pause(wait)) => {
            return Some((Piece::Pause(wait), Some((steps, writer))));
        }
        StreamStep::Event(Event::Answer(answer)) => writer.message(answer).1,
        StreamStep::Event(Event::Passing(passing)) => {
            writer.message(answer::collected(passing).await).1
        }
        StreamStep::Event(Event::Asks(..) | Event::TookBack(_)) => return None,
    };
    Some((Piece::Message(message), None))
}

/// How long a client is to wait before it resumes a stream.
const RETRY: Duration = Duration::from_secs(1);
