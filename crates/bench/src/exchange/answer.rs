//! Receives an answer, and detects all its faults.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;

use trunkline_core::clock;
use trunkline_core::codec::sse::SseDecoder;
use trunkline_jsonrpc::{self as jsonrpc, Frame, Id, MAX_SERVER_DEPTH};

use super::connection::{BenchConnection, BenchConnectionError};

/// The answer to a request.
pub(crate) struct ReceivedAnswer {
    /// The head of the response.
    pub head: Parts,
    /// The media type of the body.
    pub media: AnswerMedia,
    /// The JSON-RPC message, or the body that was received instead.
    pub message: Bytes,
    /// Time at which the message was complete.
    pub arrived: Instant,
    /// The method of a request that the server sent instead of an answer.
    pub asked: Option<String>,
    /// True if the connection can carry the next request.
    pub reusable: bool,
}

/// Error of an operation.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The connection could not be opened.
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    /// The connection broke.
    #[error(transparent)]
    Connection(#[from] BenchConnectionError),
    /// The answer did not arrive in time.
    #[error("no answer in time")]
    Timeout,
    /// The HTTP status is not a success.
    #[error("HTTP {}: {body}", status.as_u16())]
    Status {
        /// The status.
        status: StatusCode,
        /// The beginning of the body.
        body: String,
    },
    /// The body is not JSON and not a stream of server-sent events.
    #[error("expected JSON or an event stream, got {media:?}")]
    Media {
        /// The declared media type.
        media: String,
    },
    /// The message is not a JSON-RPC response.
    #[error("expected a JSON-RPC response, got {text}")]
    Message {
        /// The beginning of the message.
        text: String,
    },
    /// The response has the id of another request.
    #[error("the response has the id of another request: {text}")]
    WrongId {
        /// The beginning of the message.
        text: String,
    },
    /// A JSON-RPC error.
    #[error("JSON-RPC error: {text}")]
    Error {
        /// The error code.
        code: i64,
        /// The error.
        text: String,
    },
    /// The server asks for input, which a load test cannot give.
    #[error("the server requested {what} during the call")]
    Asks {
        /// The kind of input.
        what: String,
    },
    /// The answer does not contain the text of `--expect`.
    #[error("the answer does not contain the expected text: {text}")]
    Unexpected {
        /// The beginning of the message.
        text: String,
    },
}

impl AnswerError {
    /// Returns the label for counting errors of this kind.
    pub fn kind(&self) -> String {
        match self {
            Self::Connect(_) => "connect".into(),
            Self::Connection(_) => "connection".into(),
            Self::Timeout => "timeout".into(),
            Self::Status { status, .. } => format!("HTTP {}", status.as_u16()),
            Self::Media { .. } => "media type".into(),
            Self::Message { .. } => "not JSON-RPC".into(),
            Self::WrongId { .. } => "wrong id".into(),
            Self::Error { code, .. } => format!("JSON-RPC {code}"),
            Self::Asks { .. } => "asks the client".into(),
            Self::Unexpected { .. } => "not expected".into(),
        }
    }
}

/// The media type of a response's body, from its `Content-Type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerMedia {
    /// One JSON message.
    Json,
    /// Server-sent events.
    Events,
    /// Another media type; empty without one.
    Other(String),
}

impl AnswerMedia {
    fn of(head: &Parts) -> Self {
        let value = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let value = String::from_utf8_lossy(value.unwrap_or_default());
        let media = value.split(';').next().unwrap_or_default().trim();
        if media.eq_ignore_ascii_case("application/json") {
            Self::Json
        } else if media.eq_ignore_ascii_case("text/event-stream") {
            Self::Events
        } else {
            Self::Other(media.chars().take(60).collect())
        }
    }
}

/// Sends the request `number` and reads its answer.
///
/// # Errors
/// [`BenchConnectionError`]; the connection is unusable then.
pub(crate) async fn exchange(
    connection: &mut BenchConnection,
    request: Request<Full<Bytes>>,
    number: u64,
) -> Result<ReceivedAnswer, BenchConnectionError> {
    let (head, mut body) = connection.send(request).await?.into_parts();
    let mut received = ReceivedAnswer {
        media: AnswerMedia::of(&head),
        head,
        message: Bytes::new(),
        arrived: clock::real_now(),
        asked: None,
        reusable: true,
    };
    if received.media != AnswerMedia::Events {
        received.message = connection.read_body(body).await?;
        received.arrived = clock::real_now();
        return Ok(received);
    }
    let mut events = SseDecoder::new(MAX_EVENT_BYTES);
    while let Some(piece) = connection.read_piece(&mut body).await? {
        events.push(piece);
        loop {
            let event = events
                .next_event()
                .map_err(|_| BenchConnectionError::TooLarge { limit: MAX_EVENT_BYTES })?;
            let Some(event) = event else { break };
            if event.is_message() && received.take(event.data, number) {
                // The rest of the stream may delay the next request only briefly.
                let rest =
                    async { while let Ok(Some(_)) = connection.read_piece(&mut body).await {} };
                received.reusable = tokio::time::timeout(STREAM_END_TIMEOUT, rest).await.is_ok();
                return Ok(received);
            }
        }
    }
    // A stream that ends without its answer: the empty message fails the check.
    received.arrived = clock::real_now();
    Ok(received)
}

impl ReceivedAnswer {
    /// Receives a message of a stream. Returns true for the last relevant one.
    fn take(&mut self, message: Bytes, number: u64) -> bool {
        match jsonrpc::parse(&message, MAX_SERVER_DEPTH) {
            Ok(Frame::Notification { .. }) => return false,
            Ok(Frame::Request { method, .. }) => self.asked = Some(method.as_str().to_owned()),
            Ok(Frame::Response { ref id, .. }) if !is(id.as_ref(), number) => return false,
            _ => {}
        }
        self.message = message;
        self.arrived = clock::real_now();
        true
    }

    /// Returns the beginning of the message, for people.
    pub(crate) fn text(&self) -> String {
        excerpt(&self.message)
    }
}

/// Returns true if the id is this number.
pub(crate) fn is(id: Option<&Id>, number: u64) -> bool {
    id.and_then(Id::as_number) == Some(number)
}

/// Returns the beginning of a text, for people.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..2048).unwrap_or(bytes));
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        return "(nothing)".into();
    }
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Maximum bytes of an event.
const MAX_EVENT_BYTES: usize = 256 * 1024 * 1024;
/// Time limit for the end of a stream after its answer.
const STREAM_END_TIMEOUT: Duration = Duration::from_secs(1);
