//! Answers that are event streams: records as they are made.
//!
//! Each record is an event of the type `message` with a JSON document. An observer that reads too
//! slowly gets an event of the type `missed` with the number of lost records. A stream ends when the
//! gateway stops, and when the operator loses its access.

use std::pin::pin;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::CACHE_CONTROL;
use http::{HeaderValue, Response};
use serde::Serialize;
use tokio::time::sleep;

use crate::codec::sse;
use crate::downstream::{Body, with_events};
use crate::telemetry::TooManyObserversError;

use super::problem::{ApiProblem, ProblemCode};
use super::request::EndpointRequest;

/// Answers with a stream of events.
pub(super) fn answer_events(
    request: &EndpointRequest,
    events: impl Stream<Item = Bytes> + Send + 'static,
) -> Response<Body> {
    let drain = request.report.mcp.drain().clone();
    let mut access = request.watch_access();
    let lasting = stream! {
        // The head is sent at once, and not with the first record.
        yield sse::comment();
        let mut events = pin!(events);
        loop {
            tokio::select! {
                biased;
                () = drain.started() => return,
                () = access.revoked() => return,
                event = events.next() => match event {
                    Some(event) => yield event,
                    None => return,
                },
                () = sleep(KEEP_ALIVE) => yield sse::comment(),
            }
        }
    };
    let mut response = with_events(Body::stream(lasting));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Encodes a record.
pub(super) fn record_event(record: &impl Serialize) -> Bytes {
    sse::message(&serde_json::to_vec(record).unwrap_or_default())
}

/// Encodes the number of records that were lost.
pub(super) fn missed_event(missed: u64) -> Bytes {
    format!("event: missed\ndata: {{\"missed\":{missed}}}\n\n").into()
}

/// Refuses an observer beyond the limit.
pub(super) fn too_many_observers(error: TooManyObserversError) -> ApiProblem {
    ApiProblem::new(ProblemCode::TooManyObservers, error.to_string())
}

/// Interval of comments in a quiet stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
