//! Responses to requests: as JSON, or as an event stream.

use std::pin::pin;
use std::time::Duration;

use async_stream::try_stream;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt as _};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::time::sleep;

use crate::call::{
    Answer, Event, Failure, InternalFault, Notice, Passing, RequestFault, ResultBody, boxed,
    tool_error,
};
use crate::codec::large_message::{LARGE_MESSAGE, work_on};
use crate::codec::sse::{self, DataEncoder, OpenMessage};
use crate::era::{lift, lower};
use crate::jsonrpc::{self, Id, Splice};
use crate::mcp::{Era, MediaType, Method, code, header};

use super::body::{Body, BrokenBodyError};
use super::event_stream::{self, Steps, StreamStep};
use crate::downstream::access::challenge::add_challenge;
use crate::downstream::legacy::{Piece, ResumingSession};
use crate::downstream::requests::dispatch::PendingResponse;
use crate::downstream::requests::refused_requests::mark_refusal;

/// The response formats that a client accepts, from its `Accept` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptedForm {
    /// JSON only. Such clients always receive JSON, never a 406.
    Json,
    /// Both, JSON preferred.
    Both,
    /// Event streams only, or preferred to JSON.
    Events,
}

impl AcceptedForm {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let (mut json, mut events) = (None, None);
        for (line, value) in headers.get_all(ACCEPT).iter().enumerate() {
            // The value that the specification requires of clients, as the SDKs write it.
            if value == MediaType::JSON_OR_EVENTS {
                return Self::Both;
            }
            let value = value.to_str().unwrap_or_default();
            let at = |kind: &str| value.find(kind).map(|place| (line, place));
            json = json.or_else(|| at("application/json").or_else(|| at("*/*")));
            events = events.or_else(|| at("text/event-stream"));
        }
        // The type listed first is preferred (RFC 9110 leaves the choice to the server).
        match (json, events) {
            (Some(json), Some(events)) if json < events => Self::Both,
            (_, Some(_)) => Self::Events,
            (_, None) => Self::Json,
        }
    }

    /// Returns true if a stream may be opened.
    pub(crate) fn stream(self) -> bool {
        self != Self::Json
    }
}

/// Writes the responses to one request.
pub(crate) struct AnswerWriter {
    pub(crate) id: Id,
    pub(crate) era: Era,
    /// The method of the request; `tools/call` by default.
    pub(crate) method: Method,
    /// The client's own progress token.
    pub(crate) token: Option<Bytes>,
    /// The gateway's raw `serverInfo`.
    pub(crate) info: Bytes,
    pub(crate) wants: AcceptedForm,
    pub(crate) keep_alive: Duration,
    /// The Legacy session of the request, and the watch on its client's access.
    pub(crate) session: Option<Box<ResumingSession>>,
}

impl AnswerWriter {
    /// Returns the time after which a silent call's stream is opened: before a proxy on the way
    /// might close the connection, or, for a client that can resume from a priming event, before
    /// the connection might break.
    fn patience(&self) -> Duration {
        if self.can_be_resumed() { self.keep_alive.min(PRIMED_AFTER) } else { self.keep_alive }
    }

    /// Returns true if the client accepts a stream and can resume it from a priming event.
    fn can_be_resumed(&self) -> bool {
        let session = self.session.as_ref().map(|in_session| &in_session.session);
        self.wants.stream() && session.is_some_and(|it| it.client().version.sends_priming_event())
    }

    /// Returns a whole message, with the HTTP status for a JSON response.
    pub(crate) fn message(&self, answer: Result<Answer, Failure>) -> (StatusCode, Bytes) {
        match answer {
            Ok(Answer::Result(result)) => (StatusCode::OK, self.result(&result)),
            Ok(Answer::Error(error)) => {
                let status = match self.era {
                    Era::Modern if code::is_modern_code(error.code()) => StatusCode::BAD_REQUEST,
                    Era::Modern if error.code() == code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
                    _ => StatusCode::OK,
                };
                (status, self.error(error.raw()))
            }
            Err(failure) => self.failure(&failure),
        }
    }

    /// Writes the last piece of a stream. A large one is written on another thread.
    pub(crate) async fn write_piece(self, answer: Result<Answer, Failure>) -> Piece {
        let (size, id) = (size_of(&answer), self.id.clone());
        if size <= LARGE_MESSAGE {
            return Piece::Message(self.message(answer).1);
        }
        let written = work_on(size, move || OpenMessage::new(self.message_in_pieces(answer).1));
        written.await.map_or_else(|_| Piece::Message(write_lost_answer(&id)), Piece::Event)
    }

    /// Writes the response with a large answer on another thread.
    async fn write_response(self, answer: Result<Answer, Failure>) -> Response<Body> {
        let (size, id) = (size_of(&answer), self.id.clone());
        let write = move || {
            let (status, message) = self.message_in_pieces(answer);
            respond(status, MessageBytes::Pieces(message), self.wants)
        };
        work_on(size, write).await.unwrap_or_else(|_| json(StatusCode::OK, write_lost_answer(&id)))
    }

    /// Like [`AnswerWriter::message`], but a result is not copied: the pieces share its memory, which
    /// stays counted until they are sent.
    fn message_in_pieces(&self, answer: Result<Answer, Failure>) -> (StatusCode, Vec<Bytes>) {
        let Ok(Answer::Result(result)) = answer else {
            let (status, message) = self.message(answer);
            return (status, vec![message]);
        };
        let (before, after) = around(&self.id);
        let mut pieces = vec![before];
        pieces.extend(self.splice(&result).pieces(result.raw()));
        pieces.push(after);
        (StatusCode::OK, pieces)
    }

    fn result(&self, result: &ResultBody) -> Bytes {
        jsonrpc::response_with(&self.id, self.splice(result))
    }

    /// The result in the form of the client's era.
    fn splice<'a>(&self, result: &'a ResultBody) -> Splice<'a> {
        match self.era {
            Era::Modern => lift::result(result, &self.info),
            Era::Legacy => lower::result(result),
        }
    }

    fn failure(&self, failure: &Failure) -> (StatusCode, Bytes) {
        let told = match (self.era, failure) {
            // The Legacy revisions have no code for it.
            (Era::Legacy, Failure::InputNeeded { .. }) => Some(tool_error(&failure.to_string())),
            _ => failure.to_tool_result(),
        };
        let told = told.filter(|_| self.method == Method::ToolsCall);
        if let Some(result) = told.and_then(|raw| ResultBody::parse(raw.into()).ok()) {
            return (StatusCode::OK, self.result(&result));
        }
        let status = match self.era {
            Era::Modern => status(failure),
            // A Legacy call is part of a session.
            Era::Legacy => status_in_session(failure),
        };
        (status, self.error(&failure.to_error()))
    }

    fn error(&self, error: &[u8]) -> Bytes {
        let lowers = self.era == Era::Legacy && self.method == Method::ResourcesRead;
        let lowered = lowers.then(|| lower::read_error(error)).flatten();
        jsonrpc::error(Some(&self.id), lowered.as_deref().unwrap_or(error))
    }

    /// Writes a notification under the client's own token.
    pub(crate) fn notice(&self, notice: &Notice) -> Bytes {
        jsonrpc::notification(&notice.method, Some(&notice.with_token(self.token.as_ref())))
    }
}

/// Answers a call: as JSON if the result arrives first, otherwise as a stream, for clients that
/// accept one. A stream is also opened when a call has been silent for so long that a proxy on the
/// way might close the connection.
pub(crate) fn call(mut steps: impl Steps, writer: AnswerWriter) -> PendingResponse {
    Box::into_pin(boxed(|| async move {
        match first(&mut steps, &writer).await {
            Comes::Stream(first) => event_stream::open(first, steps, writer),
            Comes::Answer(Err(failure)) => {
                let (status, message) = writer.failure(&failure);
                let mut response = respond(status, MessageBytes::Whole(message), writer.wants);
                if let Some(retry) = failure.retry_after() {
                    add_retry(response.headers_mut(), retry);
                }
                add_challenge(response.headers_mut(), &failure, None);
                response
            }
            Comes::Answer(answer) if size_of(&answer) > LARGE_MESSAGE => {
                // Boxed, because it would enlarge the future of every call.
                Box::pin(writer.write_response(answer)).await
            }
            Comes::Answer(answer) => {
                let (status, message) = writer.message(answer);
                respond(status, MessageBytes::Whole(message), writer.wants)
            }
            Comes::Passing(passing) => passed(passing, &writer),
            // No response is expected.
            Comes::Nothing if writer.wants.stream() => with_events(Body::empty()),
            Comes::Nothing => {
                let (status, message) = writer.message(Err(Failure::Cancelled));
                json(status, message)
            }
        }
    }))
}

/// The first event of a call.
enum Comes {
    /// The answer.
    Answer(Result<Answer, Failure>),
    /// A result that is too large to be buffered.
    Passing(Passing),
    /// A stream that begins with this piece, or is empty so far.
    Stream(Option<Piece>),
    /// No event: the client has cancelled the call.
    Nothing,
}

async fn first(steps: &mut impl Steps, writer: &AnswerWriter) -> Comes {
    loop {
        let step = tokio::select! {
            // A result that is already available needs no timer.
            biased;
            step = steps.next() => step,
            () = sleep(writer.patience()), if writer.wants.stream() => return Comes::Stream(None),
        };
        let event = match step {
            Some(StreamStep::Event(event)) => event,
            Some(StreamStep::Frame(frame)) if writer.wants.stream() => {
                return Comes::Stream(Some(Piece::Message(frame)));
            }
            Some(StreamStep::Frame(_)) => continue,
            None => return Comes::Nothing,
        };
        match event {
            Event::Notice(notice) if writer.wants.stream() => {
                return Comes::Stream(Some(Piece::Message(writer.notice(&notice))));
            }
            Event::Pause(wait) if writer.can_be_resumed() => {
                return Comes::Stream(Some(Piece::Pause(wait)));
            }
            // Server requests reach this point as an `InputRequiredResult`.
            Event::Notice(_) | Event::Pause(_) | Event::Asks(..) | Event::TookBack(_) => {}
            Event::Answer(answer) => return Comes::Answer(answer),
            Event::Passing(passing) => return Comes::Passing(passing),
        }
    }
}

/// A message of a response.
enum MessageBytes {
    /// In one piece, which is copied into an event.
    Whole(Bytes),
    /// In pieces that share the memory of a result.
    Pieces(Vec<Bytes>),
}

/// Builds the response with a message: an event stream if the client prefers it and the request
/// succeeded, otherwise JSON.
fn respond(status: StatusCode, message: MessageBytes, wants: AcceptedForm) -> Response<Body> {
    let is_event = wants == AcceptedForm::Events && status == StatusCode::OK;
    let body = match message {
        MessageBytes::Whole(message) if is_event => Body::Whole(sse::message(&message)),
        MessageBytes::Whole(message) => Body::Whole(message),
        MessageBytes::Pieces(pieces) if is_event => {
            Body::pieces(OpenMessage::new(pieces).finish(None))
        }
        MessageBytes::Pieces(pieces) => Body::pieces(pieces),
    };
    if is_event { with_events(body) } else { with_json(status, body) }
}

/// Returns the bytes of an answer, which decide if it is large.
fn size_of(answer: &Result<Answer, Failure>) -> usize {
    match answer {
        Ok(Answer::Result(result)) => result.raw().len(),
        Ok(Answer::Error(error)) => error.raw().len(),
        Err(_) => 0,
    }
}

/// Writes the error in place of a large answer that could not be written.
fn write_lost_answer(id: &Id) -> Bytes {
    jsonrpc::error(Some(id), &Failure::from(InternalFault::LargeWork).to_error())
}

pub(crate) async fn collected(passing: Passing) -> Result<Answer, Failure> {
    passing.whole().await.map(Answer::Result)
}

/// Streams a large result inside an envelope of its own. If it ends early, the connection is
/// closed, so that the client does not take the part for the whole.
fn passed(mut passing: Passing, writer: &AnswerWriter) -> Response<Body> {
    let (before, after) = around(&writer.id);
    let lifted = writer.era == Era::Modern && passing.era() == Era::Legacy;
    let pieces = try_stream! {
        yield before;
        let mut first = true;
        while let Some(piece) = passing.next().await.map_err(|_| BrokenBodyError)? {
            yield if lifted && first { with_type(&piece) } else { piece };
            first = false;
        }
        yield after;
    };
    if writer.wants == AcceptedForm::Events {
        return with_events(Body::fragile(as_event(pieces)));
    }
    with_json(StatusCode::OK, Body::fragile(pieces))
}

/// Sends a message that arrives in pieces as one event.
fn as_event(
    message: impl Stream<Item = Result<Bytes, BrokenBodyError>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, BrokenBodyError>> + Send {
    try_stream! {
        let (mut message, mut data) = (pin!(message), DataEncoder::default());
        yield DataEncoder::START;
        while let Some(piece) = message.try_next().await? {
            yield data.encode(piece);
        }
        yield DataEncoder::END;
    }
}

/// Adds a type to the beginning of a Legacy server's result.
fn with_type(beginning: &Bytes) -> Bytes {
    Splice::new(beginning).prepend(b"\"resultType\":\"complete\"").finish()
}

/// Returns the envelope before and after a result.
fn around(id: &Id) -> (Bytes, Bytes) {
    let mut before = BytesMut::with_capacity(48 + id.raw().len());
    before.put_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    before.put_slice(id.raw());
    before.put_slice(b",\"result\":");
    (before.freeze(), Bytes::from_static(b"}"))
}

/// Builds a response around shared bytes, which are not copied for JSON.
pub(crate) fn result(id: &Id, raw: Bytes, wants: AcceptedForm) -> Response<Body> {
    let (before, after) = around(id);
    respond(StatusCode::OK, MessageBytes::Pieces(vec![before, raw, after]), wants)
}

/// Builds an error response to a request, or to a message that could not be parsed as one.
pub(crate) fn refusal(id: Option<&Id>, failure: &Failure) -> Response<Body> {
    error(status(failure), id, failure)
}

/// Builds an error response to a request in a Legacy session.
pub(crate) fn refusal_in_session(id: &Id, failure: &Failure) -> Response<Body> {
    error(status_in_session(failure), Some(id), failure)
}

/// Returns the HTTP status of a failure in a Legacy session.
fn status_in_session(failure: &Failure) -> StatusCode {
    match failure {
        // Clients of both eras request more scopes on this status (2025-11-25, Authorization,
        // "Runtime Insufficient Scope Errors"), and keep their session.
        Failure::ScopesNeeded(_) => StatusCode::FORBIDDEN,
        _ => IN_SESSION,
    }
}

fn error(status: StatusCode, id: Option<&Id>, failure: &Failure) -> Response<Body> {
    let mut response = json(status, jsonrpc::error(id, &failure.to_error()));
    mark_refusal(response.extensions_mut(), failure);
    add_challenge(response.headers_mut(), failure, None);
    if let Some(retry) = failure.retry_after() {
        add_retry(response.headers_mut(), retry);
    }
    response
}

/// Returns the HTTP status of a failure, for a Modern client or outside of a session.
fn status(failure: &Failure) -> StatusCode {
    StatusCode::from_u16(failure.wire().status).unwrap_or(StatusCode::OK)
}

fn add_retry(headers: &mut HeaderMap, retry: Duration) {
    // Whole seconds, rounded up, so that the client does not retry too early.
    let seconds = retry.as_secs() + u64::from(retry.subsec_nanos() > 0);
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
}

pub(crate) fn json(status: StatusCode, message: Bytes) -> Response<Body> {
    with_json(status, Body::Whole(message))
}

pub(crate) fn with_json(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, MediaType::JSON);
    response
}

/// Builds an event stream. Its headers disable buffering by proxies.
pub(crate) fn with_events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, MediaType::EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

pub(crate) fn method_not_allowed() -> Response<Body> {
    let mut response = refuse_request(StatusCode::METHOD_NOT_ALLOWED, RequestFault::HttpMethod);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

/// Refuses a request with the HTTP status of its fault.
pub(crate) fn refuse_request(status: StatusCode, fault: RequestFault) -> Response<Body> {
    json(status, jsonrpc::error(None, &Failure::from(fault).to_error()))
}

/// The HTTP status of errors in a Legacy session: some clients treat a status of 400 or above as
/// the end of their connection, and would lose the session with the request.
const IN_SESSION: StatusCode = StatusCode::OK;
/// Time after which the stream of a silent call is opened for a client that can resume it.
const PRIMED_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
