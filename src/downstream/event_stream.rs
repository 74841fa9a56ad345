//! Calls that are answered with an event stream.
//!
//! A Modern client's stream is its call: it ends with its connection. A Legacy
//! session's stream outlives its connections. What it carries is kept in an
//! outbox, so that it can be resumed by GET, and the call goes on while nobody
//! reads (2025-11-25, Streamable HTTP, "Sending Messages to the Server").

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::Response;

use crate::call::Event;
use crate::codec::sse;

use super::Body;
use super::legacy::{Piece, answer_resumable};
use super::response::{self, AnswerWriter};

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
            let pieces = stream::iter(first).chain(rest);
            answer_resumable((&session, standing), Box::pin(pieces), keep_alive)
        }
        (None, First::Message(message)) => not_resumable(sse::message(&message), rest, keep_alive),
        (None, _) => not_resumable(sse::comment(), rest, keep_alive),
    }
}

/// A stream that cannot be resumed.
fn not_resumable(
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
    response::with_events(Body::stream(events))
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
            writer.message(response::collected(passing).await).1
        }
        StreamStep::Event(Event::Asks(..) | Event::TookBack(_)) => return None,
    };
    Some((Piece::Message(message), None))
}
