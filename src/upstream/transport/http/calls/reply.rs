//! HTTP responses: one JSON message, or an event stream.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::call::{Answer, StatusNote};
use crate::codec::body::collect;
use crate::codec::large_message::LARGE_MESSAGE;
use crate::codec::sse::SseReader;
use crate::http_client::{ResponseBody, decode_body};
use crate::jsonrpc::{
    Frame, FrameFault, Id, MAX_SERVER_DEPTH, Response as RpcResponse, ServerText, parse_from_server,
};
use crate::mcp::{MediaType, quote_content_type};
use crate::text::one_line;
use crate::upstream::UpstreamError;
use crate::upstream::response_memory::ResponseCharge;
use crate::upstream::transport::large_message::{
    ParsingMessage, begin_parsing, parse_message, work_on_message,
};

use super::large_result::{self, PartialAnswer, ReadBody};

/// A response with its head read.
pub(crate) enum HttpReply {
    /// A single message.
    Message(Frame),
    /// An event stream.
    Events(Box<MessageStream>),
    /// The beginning of a message that is too large to be buffered.
    Begun(PartialAnswer),
    /// Accepted, without content.
    Empty,
    /// A status of 400 or above.
    Refused {
        /// The status.
        status: StatusCode,
        /// The message in the body, if there is one.
        frame: Option<Frame>,
        /// The body, as far as it was read.
        body: Bytes,
        /// The value of `Retry-After`.
        retry_after: Option<HeaderValue>,
    },
}

impl HttpReply {
    /// Reads a response as far as its kind requires.
    pub(crate) async fn read(
        mut response: Response<ResponseBody>,
        limit: usize,
    ) -> Result<Self, UpstreamError> {
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            decode_body(&mut response)?;
            let retry_after = response.headers().get(RETRY_AFTER).cloned();
            let body = collect(response.into_body(), limit.min(MAX_ERROR_BODY_BYTES))
                .await
                .unwrap_or_default();
            let frame = parse_from_server(&body, MAX_SERVER_DEPTH);
            let frame = frame.and_then(ServerText::into_response).ok();
            return Ok(Self::Refused { status, frame, body, retry_after });
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(Self::Empty);
        }
        decode_body(&mut response)?;
        match MediaType::of(response.headers()) {
            MediaType::Json => {}
            MediaType::EventStream => {
                let events = SseReader::new(response.into_body(), limit);
                return Ok(Self::Events(Box::new(MessageStream::over(events))));
            }
            MediaType::Other => {
                return Err(UpstreamError::MediaType {
                    found: quote_content_type(response.headers()),
                });
            }
        }
        match large_result::read(response.into_body(), limit).await? {
            ReadBody::Whole(body) if body.len() <= LARGE_MESSAGE => {
                Self::from_text(parse_from_server(&body, MAX_SERVER_DEPTH)?, limit)
            }
            // Boxed, because it would enlarge the future of every call.
            ReadBody::Whole(body) => Self::from_text(Box::pin(parse_message(body)).await?, limit),
            ReadBody::Begun(begun) => Ok(Self::Begun(begun)),
        }
    }

    /// Converts a JSON body to a reply. A batch becomes a stream of its messages.
    fn from_text(text: ServerText, limit: usize) -> Result<Self, UpstreamError> {
        match text {
            ServerText::Message(frame) => Ok(Self::Message(frame)),
            ServerText::Batch(frames) => {
                let events = SseReader::new(ResponseBody::empty(), limit);
                let queued = frames.into();
                let stream = MessageStream { queued, ..MessageStream::over(events) };
                Ok(Self::Events(Box::new(stream)))
            }
            ServerText::Nothing => Err(FrameFault::Shape.into()),
        }
    }

    /// Returns the response to the gateway's own request `id`. Skips other messages on a stream.
    pub(crate) async fn answer(self, id: &Id) -> Result<Answer, UpstreamError> {
        match self {
            Self::Message(frame) => find_answer(frame, id).await,
            Self::Begun(begun) => {
                let text = parse_message(begun.rest(None).await?).await?;
                find_answer(text.into_response()?, id).await
            }
            Self::Empty => Err(UpstreamError::NoAnswer),
            Self::Refused { status, frame, body, retry_after } => refusal(status, frame, id)
                .map_err(|_| status_error(status, &body, retry_after.as_ref())),
            Self::Events(mut events) => loop {
                let frame = events.next().await?.ok_or(UpstreamError::NoAnswer)?;
                if matches!(frame, Frame::Response { .. }) {
                    events.finish();
                    return find_answer(frame, id).await;
                }
            },
        }
    }
}

/// Returns the response in a frame if it matches `id`. Parses a large one on another thread.
pub(crate) async fn find_answer(frame: Frame, id: &Id) -> Result<Answer, UpstreamError> {
    match response_size(&frame) {
        0..=LARGE_MESSAGE => answer_in(frame, id),
        size => {
            let id = id.clone();
            work_on_message(size, move || answer_in(frame, &id)).await?
        }
    }
}

/// Returns the size in bytes of a response's result or error.
pub(crate) fn response_size(frame: &Frame) -> usize {
    match frame {
        Frame::Response {
            response: RpcResponse::Result(raw) | RpcResponse::Error(raw), ..
        } => raw.len(),
        Frame::Request { .. } | Frame::Notification { .. } => 0,
    }
}

/// Returns the response in a frame if it matches `id`.
pub(crate) fn answer_in(frame: Frame, id: &Id) -> Result<Answer, UpstreamError> {
    match frame {
        // An error without an id means that the server could not read the request up to its id.
        Frame::Response { id: Some(other), .. } if !other.answers(id) => {
            Err(UpstreamError::WrongId)
        }
        Frame::Response { id: None, response: RpcResponse::Result(_) } => {
            Err(UpstreamError::WrongId)
        }
        Frame::Response { response, .. } => Ok(Answer::parse(response)?),
        _ => Err(UpstreamError::NoAnswer),
    }
}

/// Interprets an HTTP error: the JSON-RPC error in its body, or its bare status.
pub(crate) fn refusal(
    status: StatusCode,
    frame: Option<Frame>,
    id: &Id,
) -> Result<Answer, UpstreamError> {
    let answer = frame.and_then(|frame| answer_in(frame, id).ok());
    match answer {
        Some(error @ Answer::Error(_)) => Ok(error),
        _ => Err(UpstreamError::of_status(status)),
    }
}

/// Returns the error for a status, with the parts of the response that help the reader.
pub(crate) fn status_error(
    status: StatusCode,
    body: &[u8],
    retry_after: Option<&HeaderValue>,
) -> UpstreamError {
    // The texts of 401 and 403 concern the gateway's credentials, which no model can change.
    let is_of_credentials = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let is_helpful = status.is_client_error() && !is_of_credentials;
    let text = short_text(body).filter(|_| is_helpful);
    let retry_after = retry_after.and_then(|wait| wait.to_str().ok());
    let retry_after = retry_after.map(|wait| one_line(wait, MAX_WAIT_CHARACTERS));
    let is_empty = text.is_none() && retry_after.is_none();
    let note = (!is_empty).then(|| Box::new(StatusNote { text, retry_after }));
    UpstreamError::Status { status, note }
}

/// Returns the message in an error body, if it is short and not an HTML page.
fn short_text(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let message = match serde_json::from_str::<serde_json::Value>(text) {
        Ok(document) => {
            let places =
                ["/error_description", "/error/message", "/message", "/detail", "/title", "/error"];
            places.iter().find_map(|place| document.pointer(place)?.as_str().map(str::to_owned))?
        }
        Err(_) if text.starts_with('<') || text.len() > MAX_PLAIN_TEXT => return None,
        Err(_) => text.to_owned(),
    };
    Some(one_line(&message, MAX_TEXT_CHARACTERS)).filter(|text| !text.is_empty())
}

/// An event stream of messages.
pub(crate) struct MessageStream {
    pub(crate) events: SseReader<ResponseBody>,
    /// A large message that is being parsed.
    parsing: Option<ParsingMessage>,
    /// The rest of a batch.
    queued: VecDeque<Frame>,
    /// An event without a message was reported.
    has_warned: bool,
    /// Counts the memory of large events, on the stream of a client's call.
    charge: Option<ResponseCharge>,
}

impl MessageStream {
    fn over(events: SseReader<ResponseBody>) -> Self {
        Self { events, parsing: None, queued: VecDeque::new(), has_warned: false, charge: None }
    }

    /// Charges large events to a client.
    pub(crate) fn charge_to(&mut self, charge: ResponseCharge) {
        self.charge = Some(charge);
    }

    /// Returns the data of the next message, or `None` at the end of the stream.
    async fn next_data(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        loop {
            if let Some(data) = self.events.take_message()? {
                return Ok(Some(match &mut self.charge {
                    Some(charge) => charge.hold(data),
                    None => data,
                }));
            }
            if !self.events.read_more().await? {
                return Ok(None);
            }
            if let Some(charge) = &mut self.charge {
                charge.count(self.events.buffered())?;
            }
        }
    }

    /// Returns the next message, or `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, UpstreamError> {
        loop {
            if let Some(frame) = self.queued.pop_front() {
                return Ok(Some(frame));
            }
            if self.parsing.is_none() {
                let Some(data) = self.next_data().await? else { return Ok(None) };
                if data.len() <= LARGE_MESSAGE {
                    match parse_from_server(&data, MAX_SERVER_DEPTH)? {
                        ServerText::Message(frame) => return Ok(Some(frame)),
                        unusual => self.take(unusual),
                    }
                    continue;
                }
                self.parsing = Some(begin_parsing(data));
            }
            let Some(parsing) = &mut self.parsing else { return Ok(None) };
            let parsed = parsing.await;
            self.parsing = None;
            self.take(parsed?);
        }
    }

    /// Queues the messages of an event. Skips an event without a message, such as a keep-alive, as
    /// the official SDKs do.
    fn take(&mut self, text: ServerText) {
        match text {
            ServerText::Message(frame) => self.queued.push_back(frame),
            ServerText::Batch(frames) => self.queued.extend(frames),
            ServerText::Nothing => {
                self.events.count_skipped();
                if !std::mem::replace(&mut self.has_warned, true) {
                    tracing::warn!(
                        "an event of a server is not a JSON-RPC message, and is skipped"
                    );
                }
            }
        }
    }

    /// Finishes a stream after its response. The connection can be reused only if the stream is
    /// read to its end, which usually has arrived already.
    pub(crate) fn finish(self) {
        let mut body = self.events.into_body();
        if !matches!(body.frame().now_or_never(), Some(None | Some(Err(_)))) {
            tokio::spawn(timeout(STREAM_END_TIMEOUT, async move {
                while let Some(Ok(_)) = body.frame().await {}
            }));
        }
    }
}

/// Time limit for the rest of a stream after its response.
const STREAM_END_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum size in bytes of a plain text to forward. A longer one is an HTML page.
const MAX_PLAIN_TEXT: usize = 500;
/// Maximum number of characters of a message to forward, and of `Retry-After`.
const MAX_TEXT_CHARACTERS: usize = 200;
const MAX_WAIT_CHARACTERS: usize = 40;
/// Maximum number of bytes to read from an error body.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::large_message::leaves_its_thread;
    use crate::jsonrpc::parse;

    #[test]
    fn a_large_answer_is_read_away_from_the_serving_thread() {
        for (size, is_large) in [(100, false), (LARGE_MESSAGE, true)] {
            let text = "x".repeat(size);
            for member in ["result", "error"] {
                let message = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"{member}":{{"code":1,"message":"{text}"}}}}"#
                );
                let frame = parse(&message.into(), MAX_SERVER_DEPTH).unwrap();
                let id = Id::number(1);
                let (leaves, answer) = leaves_its_thread(find_answer(frame, &id));
                assert!(answer.is_ok());
                assert_eq!(leaves, is_large, "{member} {size}");
            }
        }
    }

    #[test]
    fn a_refusal_has_the_short_text_and_the_wait_of_the_response() {
        let long = "x".repeat(501);
        for (status, body, wait, shown) in [
            (429, "slow down", Some("30"), ": slow down (Retry-After: 30)"),
            (
                400,
                r#"{"error":{"code":7,"message":"no such repository"}}"#,
                None,
                ": no such repository",
            ),
            (
                400,
                r#"{"error":"invalid_request","error_description":"bad date"}"#,
                None,
                ": bad date",
            ),
            (400, r#"{"message":"quota is used up"}"#, None, ": quota is used up"),
            (422, r#"{"detail":"a\u001b[31m\nb"}"#, None, ": a[31m b"),
            (409, r#"{"error":"conflict"}"#, None, ": conflict"),
            (400, r#"{"detail":[{"msg":"x"}]}"#, None, ""),
            (400, "<!doctype html><p>no</p>", None, ""),
            (400, &long, None, ""),
            (400, "", None, ""),
            (503, "internal: host db-7 is down", Some("120"), " (Retry-After: 120)"),
            (500, "stack trace", None, ""),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let wait = wait.map(HeaderValue::from_static);
            let error = status_error(status, body.as_bytes(), wait.as_ref()).to_string();
            assert!(
                error.starts_with(&format!("it responded with HTTP {status}{shown}")),
                "{error}"
            );
            assert!(!shown.is_empty() || !error.contains(": "), "{error}");
        }
    }
}
