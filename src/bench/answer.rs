//! An answer taken off the wire, and judged: every one of them.
//!
//! Most servers give the same answer but for its id. So an answer that was
//! found right is kept, and the next one is compared with it byte for byte,
//! the number in it changed; only one that differs is read.

use std::time::{Duration, Instant};

use bytes::Bytes;
use memchr::memmem;
use serde_json::Value;

use super::request::Digits;
use super::wire::{Body, Connection, Head, Media, WireFault};
use crate::jsonrpc::sse::SseDecoder;
use crate::jsonrpc::{self, Frame, Id, Response};

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
    let mut body = Body::new(head.framing);
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

/// A right answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// A result.
    Result,
    /// A result of a tool that says `isError`.
    ToolError,
}

/// Judges answers of one kind.
#[derive(Default)]
pub struct Judge {
    /// The last right answer, its number's places, and what it was.
    known: Option<(Vec<u8>, Vec<usize>, Right)>,
    expect: Option<Expect>,
}

/// What each answer has to contain, before and behind the request's number.
#[derive(Debug, Clone)]
pub struct Expect(Vec<String>);

impl Expect {
    /// Reads a text in which `{{n}}` stands for the number.
    pub fn new(text: &str) -> Self {
        Self(text.split("{{n}}").map(str::to_owned).collect())
    }

    fn holds(&self, message: &[u8], number: Digits) -> bool {
        let digits = String::from_utf8_lossy(&number.0);
        memmem::find(message, self.0.join(&*digits).as_bytes()).is_some()
    }
}

impl Judge {
    /// One that wants to find a text in each answer.
    pub fn expecting(expect: Option<Expect>) -> Self {
        Self { known: None, expect }
    }

    /// Judges the answer to the request `number`.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn judge(&mut self, received: &Received, number: u64) -> Result<Right, Trouble> {
        let digits = Digits::of(number);
        let message = &received.message;
        if received.head.status == 200
            && let Some((known, places, right)) = &mut self.known
            && known.len() == message.len()
        {
            for place in places {
                if let Some(into) = known.get_mut(*place..*place + digits.0.len()) {
                    into.copy_from_slice(&digits.0);
                }
            }
            if known == message {
                return Ok(*right);
            }
        }
        let right = read(received, number)?;
        if let Some(expect) = &self.expect
            && !expect.holds(message, digits)
        {
            return Err(Trouble::Unexpected { text: excerpt(message) });
        }
        if message.len() <= MOST_KNOWN {
            let places = memmem::find_iter(message, &digits.0).collect();
            self.known = Some((message.to_vec(), places, right));
        }
        Ok(right)
    }
}

fn read(received: &Received, number: u64) -> Result<Right, Trouble> {
    let (head, message) = (&received.head, &received.message);
    if let Some(what) = &received.asked {
        return Err(Trouble::Asks { what: what.clone() });
    }
    if !(200..300).contains(&head.status) {
        return Err(Trouble::Status { status: head.status, body: excerpt(message) });
    }
    if let Media::Other(media) = &head.media {
        return Err(Trouble::Media { media: media.clone() });
    }
    let text = || excerpt(message);
    match jsonrpc::parse(message, MAX_DEPTH) {
        Ok(Frame::Response { id, .. }) if !is(id.as_ref(), number) => {
            Err(Trouble::WrongId { text: text() })
        }
        Ok(Frame::Response { response: Response::Result(result), .. }) => judge_result(&result),
        Ok(Frame::Response { response: Response::Error(error), .. }) => {
            let error: Value = serde_json::from_slice(&error).unwrap_or_default();
            let code = error.get("code").and_then(Value::as_i64).unwrap_or(0);
            Err(Trouble::Error { code, text: text() })
        }
        _ => Err(Trouble::Message { text: text() }),
    }
}

fn judge_result(result: &Bytes) -> Result<Right, Trouble> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Result<'a> {
        #[serde(default)]
        is_error: bool,
        #[serde(default, borrow)]
        result_type: Option<std::borrow::Cow<'a, str>>,
    }
    let read = serde_json::from_slice::<Result<'_>>(result);
    match read {
        Ok(Result { result_type: Some(kind), .. }) if kind == "input_required" => {
            Err(Trouble::Asks { what: "input".into() })
        }
        Ok(Result { is_error: true, .. }) => Ok(Right::ToolError),
        Ok(_) => Ok(Right::Result),
        Err(_) => Err(Trouble::Message { text: excerpt(result) }),
    }
}

fn is(id: Option<&Id>, number: u64) -> bool {
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
const MAX_DEPTH: usize = 128;
/// The largest answer that is kept to compare others with.
const MOST_KNOWN: usize = 4 * 1024 * 1024;
/// How long a stream may stay open once its answer is there.
const AFTERWARDS: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::request::FIRST;
    use super::super::wire::Framing;
    use super::*;

    fn received(status: u16, text: &str) -> Received {
        let head = Head {
            status,
            framing: Framing::Length(0),
            media: Media::Json,
            keep_alive: true,
            session: None,
            location: None,
        };
        let message = Bytes::copy_from_slice(text.as_bytes());
        Received { head, message, arrived: Instant::now(), asked: None, reusable: true }
    }

    fn kind(judge: &mut Judge, status: u16, text: &str) -> String {
        match judge.judge(&received(status, text), FIRST) {
            Ok(right) => format!("{right:?}"),
            Err(trouble) => trouble.kind(),
        }
    }

    #[test]
    fn every_answer_is_judged() {
        let judge = &mut Judge::default();
        for (status, text, expected) in [
            (200, r#"{"jsonrpc":"2.0","id":1000000000,"result":{"content":[]}}"#, "Result"),
            (200, r#"{"jsonrpc":"2.0","id":1000000000,"result":{"isError":true}}"#, "ToolError"),
            (200, r#"{"jsonrpc":"2.0","id":1000000001,"result":{}}"#, "wrong id"),
            (200, r#"{"jsonrpc":"2.0","id":"1000000000","result":{}}"#, "wrong id"),
            (200, r#"{"jsonrpc":"2.0","id":1000000000,"result":7}"#, "not JSON-RPC"),
            (
                200,
                r#"{"jsonrpc":"2.0","id":1000000000,"error":{"code":-32602,"message":"x"}}"#,
                "JSON-RPC -32602",
            ),
            (
                200,
                r#"{"jsonrpc":"2.0","id":1000000000,"result":{"resultType":"input_required"}}"#,
                "asks the client",
            ),
            (200, "hello", "not JSON-RPC"),
            (200, "", "not JSON-RPC"),
            (429, r#"{"jsonrpc":"2.0","id":1000000000,"result":{}}"#, "HTTP 429"),
        ] {
            assert_eq!(kind(judge, status, text), expected, "{text}");
        }
    }

    #[test]
    fn an_answer_like_the_last_is_right_and_one_with_another_id_is_not() {
        let answer = |id: u64, x: &str| {
            received(200, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"{x}"}}}}"#))
        };
        let mut judge = Judge::default();
        for number in FIRST..FIRST + 3 {
            assert_eq!(judge.judge(&answer(number, "a"), number).unwrap(), Right::Result);
        }
        assert!(judge.judge(&answer(FIRST, "a"), FIRST + 3).is_err());
        assert!(judge.judge(&answer(FIRST + 4, "b"), FIRST + 4).is_ok());
        assert!(judge.judge(&answer(FIRST + 4, "b"), FIRST + 5).is_err());
    }

    #[test]
    fn what_is_expected_has_to_be_in_every_answer() {
        let mut judge = Judge::expecting(Some(Expect::new("number {{n}} ")));
        let answer = |id: u64, n: u64| {
            received(
                200,
                &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"number {n} "}}}}"#),
            )
        };
        assert!(judge.judge(&answer(FIRST, FIRST), FIRST).is_ok());
        assert!(judge.judge(&answer(FIRST + 1, FIRST + 1), FIRST + 1).is_ok());
        let trouble = judge.judge(&answer(FIRST + 2, FIRST + 1), FIRST + 2).unwrap_err();
        assert_eq!(trouble.kind(), "not expected");
    }
}
