//! HTTP responses: one JSON message, or an event stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::call::Answer;
use crate::codec::body::{BodyError, collect};
use crate::codec::large_message::LARGE_MESSAGE;
use crate::codec::sse::SseReader;
use crate::jsonrpc::{self, Frame, Id, MAX_SERVER_DEPTH, Response as RpcResponse};
use crate::mcp::{MediaType, quote_content_type};
use crate::upstream::UpstreamError;
use crate::upstream::transport::large_message::{
    ParsingMessage, begin_parsing, finish_parsing, parse_message, work_on_message,
};

use super::headers::check_encoding;
use super::large_result::{self, PartialAnswer};
use super::{ResponseBody, TransportError};

/// A response whose head has been read.
pub(super) enum HttpReply {
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
    },
}

impl HttpReply {
    /// Reads a response as far as its kind requires.
    pub(super) async fn read(
        response: Response<ResponseBody>,
        limit: usize,
    ) -> Result<Self, UpstreamError> {
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            let body = collect(response.into_body(), limit.min(REFUSAL)).await.unwrap_or_default();
            let frame = jsonrpc::parse(&body, MAX_SERVER_DEPTH).ok();
            return Ok(Self::Refused { status, frame, body });
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(Self::Empty);
        }
        check_encoding(response.headers())?;
        match MediaType::of(response.headers()) {
            MediaType::Json => {}
            MediaType::EventStream => {
                let events = SseReader::new(response.into_body(), limit);
                return Ok(Self::Events(Box::new(MessageStream { events, parsing: None })));
            }
            MediaType::Other => {
                return Err(UpstreamError::MediaType {
                    found: quote_content_type(response.headers()),
                });
            }
        }
        match large_result::read(response.into_body(), limit).await? {
            Ok(body) if body.len() <= LARGE_MESSAGE => {
                Ok(Self::Message(jsonrpc::parse(&body, MAX_SERVER_DEPTH)?))
            }
            // Boxed, because it would enlarge the future of every call.
            Ok(body) => Ok(Self::Message(Box::pin(parse_message(body)).await?)),
            Err(begun) => Ok(Self::Begun(begun)),
        }
    }

    /// The response to the gateway's own request `id`; other messages on a
    /// stream are skipped.
    pub(super) async fn answer(self, id: &Id) -> Result<Answer, UpstreamError> {
        match self {
            Self::Message(frame) => find_answer(frame, id).await,
            Self::Begun(begun) => find_answer(parse_message(begun.rest().await?).await?, id).await,
            Self::Empty => Err(UpstreamError::NoAnswer),
            Self::Refused { status, frame, .. } => refusal(status, frame, id),
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

/// The response in a frame, if it matches `id`; read elsewhere if it is large.
pub(super) async fn find_answer(frame: Frame, id: &Id) -> Result<Answer, UpstreamError> {
    match response_size(&frame) {
        0..=LARGE_MESSAGE => answer_in(frame, id),
        size => {
            let id = id.clone();
            work_on_message(size, move || answer_in(frame, &id)).await?
        }
    }
}

/// The bytes of the result or error of a response.
pub(super) fn response_size(frame: &Frame) -> usize {
    match frame {
        Frame::Response {
            response: RpcResponse::Result(raw) | RpcResponse::Error(raw), ..
        } => raw.len(),
        Frame::Request { .. } | Frame::Notification { .. } => 0,
    }
}

/// The response in a frame, if it matches `id`.
pub(super) fn answer_in(frame: Frame, id: &Id) -> Result<Answer, UpstreamError> {
    match frame {
        // An error without an id means that the server could not read the
        // request as far as its id.
        Frame::Response { id: Some(other), .. } if other != *id => Err(UpstreamError::WrongId),
        Frame::Response { id: None, response: RpcResponse::Result(_) } => {
            Err(UpstreamError::WrongId)
        }
        Frame::Response { response, .. } => Ok(Answer::parse(response)?),
        _ => Err(UpstreamError::NoAnswer),
    }
}

/// The meaning of an HTTP error: the JSON-RPC error in its body, or its bare
/// status.
pub(super) fn refusal(
    status: StatusCode,
    frame: Option<Frame>,
    id: &Id,
) -> Result<Answer, UpstreamError> {
    let answer = frame.and_then(|frame| answer_in(frame, id).ok());
    match answer {
        Some(error @ Answer::Error(_)) => Ok(error),
        _ => Err(UpstreamError::Status { status }),
    }
}

/// An event stream of messages.
pub(super) struct MessageStream {
    pub(super) events: SseReader<ResponseBody>,
    /// A large message that is being parsed.
    parsing: Option<ParsingMessage>,
}

impl MessageStream {
    /// The next message; `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn next(&mut self) -> Result<Option<Frame>, UpstreamError> {
        if self.parsing.is_none() {
            let Some(data) = self.events.next_message().await? else { return Ok(None) };
            if data.len() <= LARGE_MESSAGE {
                return Ok(Some(jsonrpc::parse(&data, MAX_SERVER_DEPTH)?));
            }
            self.parsing = Some(begin_parsing(data));
        }
        let Some(parsing) = &mut self.parsing else { return Ok(None) };
        let parsed = finish_parsing(parsing).await;
        self.parsing = None;
        parsed.map(Some)
    }

    /// Finishes a stream whose response has arrived. The connection can be
    /// reused only if the stream is read to its end, which has usually been
    /// sent already.
    pub(super) fn finish(self) {
        let mut body = self.events.into_body();
        if !matches!(body.frame().now_or_never(), Some(None | Some(Err(_)))) {
            tokio::spawn(timeout(FAREWELL, async move {
                while let Some(Ok(_)) = body.frame().await {}
            }));
        }
    }
}

impl From<BodyError<TransportError>> for UpstreamError {
    fn from(error: BodyError<TransportError>) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::TooLarge { limit },
            BodyError::Chatter { limit } => Self::Chatter { limit },
            BodyError::Broken(error) => Self::Broken(Arc::new(error)),
        }
    }
}

/// How long a stream may continue after its response.
const FAREWELL: Duration = Duration::from_millis(500);
/// The most bytes of an error body that are read.
const REFUSAL: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::large_message::leaves_its_thread;

    #[test]
    fn a_large_answer_is_read_away_from_the_serving_thread() {
        for (size, is_large) in [(100, false), (LARGE_MESSAGE, true)] {
            let text = "x".repeat(size);
            for member in ["result", "error"] {
                let message = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"{member}":{{"code":1,"message":"{text}"}}}}"#
                );
                let frame = jsonrpc::parse(&message.into(), MAX_SERVER_DEPTH).unwrap();
                let id = Id::number(1);
                let (leaves, answer) = leaves_its_thread(find_answer(frame, &id));
                assert!(answer.is_ok());
                assert_eq!(leaves, is_large, "{member} {size}");
            }
        }
    }
}
