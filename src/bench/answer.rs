//! An answer, taken off the wire; and what may stand in the place of one.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::wire::{Connection, Framed, Head, Media, WireFault};
use crate::codec::sse::SseDecoder;
use crate::jsonrpc::{self, Frame, Id};

/// What came back for a request.
pub struct Received {
    /// The head.
    pub head: Head,
    /// The message, or whatever stood in its place.
    pub message: Bytes,
    /// When the whole of the message was there.
    pub arrived: Instant,
    /// What the server wanted to know instead of answering.
    pub asked: Option<String>,
    /// Whether the connection may be used for the next request.
    pub reusable: bool,
}

/// What is wrong with an answer, or stands in the place of one.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    /// The connection broke.
    #[error(transparent)]
    Wire(#[from] WireFault),
    /// Nothing came in time.
    #[error("no answer in time")]
    Timeout,
    /// An HTTP status that is no success.
    #[error("HTTP {status}: {body}")]
    Status {
        /// The status.
        status: u16,
        /// The beginning of what came with it.
        body: String,
    },
    /// Neither JSON nor events.
    #[error("neither JSON nor events but {media:?}")]
    Media {
        /// What it says it is.
        media: String,
    },
    /// No JSON-RPC response.
    #[error("no JSON-RPC response: {text}")]
    Message {
        /// The beginning of it.
        text: String,
    },
    /// The answer to something else.
    #[error("the answer to another request: {text}")]
    WrongId {
        /// The beginning of it.
        text: String,
    },
    /// A JSON-RPC error.
    #[error("JSON-RPC error: {text}")]
    Error {
        /// Its code.
        code: i64,
        /// The error.
        text: String,
    },
    /// The server wants to know something first, which nobody is there to tell.
    #[error("the server asks for {what} in the middle of the call")]
    Asks {
        /// What.
        what: String,
    },
    /// The answer lacks what `--expect` says.
    #[error("what was expected is not in the answer: {text}")]
    Unexpected {
        /// The beginning of it.
        text: String,
    },
}

impl Trouble {
    /// What troubles of one kind are counted under.
    pub fn kind(&self) -> String {
        match self {
            Self::Connect(_) => "connect".into(),
            Self::Wire(_) => "connection".into(),
            Self::Timeout => "timeout".into(),
            Self::Status { status, .. } => format!("HTTP {status}"),
            Self::Media { .. } => "media type".into(),
            Self::Message { .. } => "not JSON-RPC".into(),
            Self::WrongId { .. } => "wrong id".into(),
            Self::Error { code, .. } => format!("JSON-RPC {code}"),
            Self::Asks { .. } => "asks the client".into(),
            Self::Unexpected { .. } => "not expected".into(),
        }
    }
}

/// Reads the answer to the request `number`.
///
/// # Errors
/// [`WireFault`]; the connection is of no use then.
pub async fn receive(connection: &mut Connection, number: u64) -> Result<Received, WireFault> {
    let head = connection.head().await?;
    if head.media != Media::Events {
        let message = connection.whole(&head).await?;
        let reusable = head.keep_alive;
        return Ok(Received { head, message, arrived: Instant::now(), asked: None, reusable });
    }
    let mut body = Framed::new(head.framing);
    let mut events = SseDecoder::new(MOST_EVENT);
    let mut received = Received {
        message: Bytes::new(),
        arrived: Instant::now(),
        asked: None,
        reusable: false,
        head,
    };
    while let Some(piece) = connection.piece(&mut body).await? {
        events.push(piece);
        loop {
            let event =
                events.next_event().map_err(|_| WireFault::TooLarge { limit: MOST_EVENT })?;
            let Some(event) = event else { break };
            if event.is_message() && received.take(event.data, number) {
                // What comes behind the answer is not waited for for long.
                let rest = async { while let Ok(Some(_)) = connection.piece(&mut body).await {} };
                let ended = tokio::time::timeout(AFTERWARDS, rest).await.is_ok();
                received.reusable = received.head.keep_alive && ended;
                return Ok(received);
            }
        }
    }
    // A stream without its answer: an empty message is none.
    received.arrived = Instant::now();
    Ok(received)
}

impl Received {
    /// Takes a message of a stream; true where it is the last that matters.
    fn take(&mut self, message: Bytes, number: u64) -> bool {
        match jsonrpc::parse(&message, MAX_DEPTH) {
            Ok(Frame::Notification { .. }) => return false,
            Ok(Frame::Request { method, .. }) => self.asked = Some(method.as_str().to_owned()),
            Ok(Frame::Response { ref id, .. }) if !is(id.as_ref(), number) => return false,
            _ => {}
        }
        self.message = message;
        self.arrived = Instant::now();
        true
    }

    /// The beginning of the message, for people.
    pub fn text(&self) -> String {
        excerpt(&self.message)
    }
}

/// Whether an id is the number.
pub fn is(id: Option<&Id>, number: u64) -> bool {
    id.and_then(Id::as_number) == Some(number)
}

/// The beginning of something, for people.
pub fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..2048).unwrap_or(bytes));
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() {
        return "(nothing)".into();
    }
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// The largest event that is read.
const MOST_EVENT: usize = 256 * 1024 * 1024;
/// How deep an answer may nest.
pub const MAX_DEPTH: usize = 128;
/// How long a stream may stay open once its answer is there.
const AFTERWARDS: Duration = Duration::from_secs(1);
