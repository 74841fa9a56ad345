//! Calls that are answered with an event stream.
//!
//! A Modern client's stream is its call: it ends with its connection. A Legacy session's stream
//! outlives its connections. Its messages are kept in an outbox, so that it can be resumed by GET,
//! and the call continues without a reader (2025-11-25, Streamable HTTP, "Sending Messages to the
//! Server").

use std::pin::pin;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::stream::iter;
use futures_util::{Stream, StreamExt};
use http::Response;

use crate::call::Event;
use crate::codec::sse;

use super::body::frames;
use super::response::{self, AnswerWriter};
use crate::downstream::Body;
use crate::downstream::legacy::{Piece, answer_resumable};

/// A source of a call's steps.
pub(crate) trait Steps: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<StreamStep>> + Send;
}

/// One step of a call's stream.
pub(crate) enum StreamStep {
    /// An event of the call.
    Event(Event),
    /// A message of the gateway's own, whole, such as a request to the client.
    Frame(Bytes),
}

/// Answers with a stream of its first piece and all that follow. A stream without a first piece is
/// opened to keep a connection alive, or to be resumed.
pub(crate) fn open(
    first: Option<Piece>,
    steps: impl Steps,
    mut writer: AnswerWriter,
) -> Response<Body> {
    let keep_alive = writer.keep_alive;
    let (session, request) = (writer.session.take(), writer.id.clone());
    let rest = pieces(steps, writer);
    match (session, first) {
        (Some(in_session), first) => {
            let pieces = Box::pin(iter(first).chain(rest));
            answer_resumable(*in_session, request, pieces, keep_alive)
        }
        (None, Some(Piece::Message(message))) => {
            not_resumable(vec![sse::message(&message)], rest, keep_alive)
        }
        (None, Some(Piece::Event(event))) => not_resumable(event.finish(None), rest, keep_alive),
        (None, _) => not_resumable(vec![sse::comment()], rest, keep_alive),
    }
}

/// Builds a stream that cannot be resumed.
fn not_resumable(
    first: Vec<Bytes>,
    pieces: impl Stream<Item = Piece> + Send + 'static,
    keep_alive: Duration,
) -> Response<Body> {
    let events = stream! {
        for frame in frames(first) {
            yield frame;
        }
        let mut pieces = pin!(pieces);
        loop {
            tokio::select! {
                piece = pieces.next() => match piece {
                    Some(Piece::Message(message)) => yield sse::message(&message),
                    Some(Piece::Event(event)) => for frame in frames(event.finish(None)) {
                        yield frame;
                    },
                    Some(Piece::Pause(_)) => {}
                    None => return,
                },
                () = tokio::time::sleep(keep_alive) => yield sse::comment(),
            }
        }
    };
    response::with_events(Body::stream(events))
}

/// Streams the messages of a call, including its answer.
fn pieces(mut steps: impl Steps, writer: AnswerWriter) -> impl Stream<Item = Piece> + Send {
    stream! {
        while let Some(step) = steps.next().await {
            let answer = match step {
                StreamStep::Frame(frame) => {
                    yield Piece::Message(frame);
                    continue;
                }
                StreamStep::Event(Event::Notice(notice)) => {
                    yield Piece::Message(writer.notice(&notice));
                    continue;
                }
                StreamStep::Event(Event::Pause(wait)) => {
                    yield Piece::Pause(wait);
                    continue;
                }
                // Server requests reach this point as an `InputRequiredResult`.
                StreamStep::Event(Event::Asks(..) | Event::TookBack(_)) => continue,
                StreamStep::Event(Event::Answer(answer)) => answer,
                StreamStep::Event(Event::Passing(passing)) => response::collected(passing).await,
            };
            drop(steps);
            yield writer.write_piece(answer).await;
            return;
        }
    }
}
