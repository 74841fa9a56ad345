//! Responses: a JSON message, or events one by one.

use std::fmt;

use http::{HeaderMap, Response, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use super::wire::Wire;
use crate::support::within;

/// A response with an unread body. Dropping it closes its connection, or its stream of a shared
/// connection.
pub struct Reply {
    head: http::response::Parts,
    body: Incoming,
    unread: Vec<u8>,
    /// The ids of the events so far.
    pub ids: Vec<String>,
    /// The newest `retry`.
    pub retry: Option<u64>,
    _wire: Option<Wire>,
}

/// A piece of an event stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Comment,
    Message(Value),
    /// Address for messages, on the transport of 2024-11-05.
    Endpoint(String),
}

impl Reply {
    pub(super) fn new(response: Response<Incoming>, wire: Option<Wire>) -> Self {
        let (head, body) = response.into_parts();
        Self { head, body, unread: Vec::new(), ids: Vec::new(), retry: None, _wire: wire }
    }

    pub fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    pub fn version(&self) -> Version {
        self.head.version
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    pub fn header(&self, name: &str) -> Option<String> {
        self.head.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    pub fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|media| media.starts_with("text/event-stream"))
    }

    /// Returns the next piece of an event stream; `None` at its end.
    #[track_caller]
    pub fn piece(&mut self) -> impl Future<Output = Option<Piece>> {
        within(self.next_piece())
    }

    async fn next_piece(&mut self) -> Option<Piece> {
        self.next_event().await.expect("a whole stream").as_deref().map(read_event)
    }

    async fn next_event(&mut self) -> hyper::Result<Option<String>> {
        assert!(self.is_stream(), "an event stream, not {:?}", self.head);
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.unread.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
                };
                self.ids.extend(field("id: "));
                self.retry = field("retry: ").map(|it| it.parse().unwrap()).or(self.retry);
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await.transpose()? else { return Ok(None) };
            if let Ok(data) = frame.into_data() {
                self.unread.extend_from_slice(&data);
            }
        }
    }

    /// Returns the next message, past comments; `None` at the end.
    pub async fn message(&mut self) -> Option<Value> {
        loop {
            match self.piece().await? {
                Piece::Comment | Piece::Endpoint(_) => {}
                Piece::Message(message) => return Some(message),
            }
        }
    }

    /// Returns the next message, past comments; `None` at the end. Fails if the stream breaks.
    /// Waits as long as the stream is silent.
    pub async fn try_message(&mut self) -> hyper::Result<Option<Value>> {
        loop {
            let Some(event) = self.next_event().await? else { return Ok(None) };
            if let Piece::Message(message) = read_event(&event) {
                return Ok(Some(message));
            }
        }
    }

    /// Returns the id of the last event, to resume after it.
    #[track_caller]
    pub fn last_id(&self) -> &str {
        self.ids.last().expect("an event with an id")
    }

    /// Reads to the end.
    #[track_caller]
    pub fn said(self) -> impl Future<Output = Said> {
        within(async { self.read_all().await.expect("a whole body") })
    }

    /// Reads to the end, if the connection does not break.
    #[track_caller]
    pub fn try_said(self) -> impl Future<Output = hyper::Result<Said>> {
        within(self.read_all())
    }

    async fn read_all(mut self) -> hyper::Result<Said> {
        let status = self.status();
        let headers = self.head.headers.clone();
        if self.is_stream() {
            let (mut messages, mut body) = (Vec::new(), String::new());
            while let Some(event) = self.next_event().await? {
                if let Piece::Message(message) = read_event(&event) {
                    messages.push(message);
                    body = data_of(&event);
                }
            }
            return Ok(Said { status, headers, messages, body, streamed: true });
        }
        let mut body = std::mem::take(&mut self.unread);
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame?.into_data() {
                body.extend_from_slice(&data);
            }
        }
        let body = String::from_utf8(body).unwrap();
        let messages = serde_json::from_str(&body).into_iter().collect();
        Ok(Said { status, headers, messages, body, streamed: false })
    }
}

/// Returns the data of an event.
fn data_of(event: &str) -> String {
    let data: Vec<&str> =
        event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
    data.join("\n")
}

fn read_event(event: &str) -> Piece {
    match data_of(event) {
        data if data.is_empty() => Piece::Comment,
        data if event.starts_with("event: endpoint") => Piece::Endpoint(data),
        data => Piece::Message(serde_json::from_str(&data).unwrap()),
    }
}

/// A complete response.
pub struct Said {
    pub status: u16,
    pub headers: HeaderMap,
    /// All messages, ending with the answer.
    pub messages: Vec<Value>,
    /// Text of the body, or of the last message of an event stream: a call that takes a second on a
    /// busy machine gets a stream.
    pub body: String,
    pub streamed: bool,
}

impl Said {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Returns the whole answer.
    #[track_caller]
    pub fn answer(&self) -> &Value {
        self.messages.last().unwrap_or_else(|| panic!("no answer: {self:?}"))
    }

    /// Returns the body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        self.answer().clone()
    }

    /// Returns the answer's result.
    #[track_caller]
    pub fn result(&self) -> &Value {
        self.answer().get("result").unwrap_or_else(|| panic!("no result: {self:?}"))
    }

    /// Returns the answer's error.
    #[track_caller]
    pub fn error(&self) -> &Value {
        self.answer().get("error").unwrap_or_else(|| panic!("no error: {self:?}"))
    }

    /// Returns the code of the answer's error.
    #[track_caller]
    pub fn code(&self) -> i64 {
        self.error()["code"].as_i64().unwrap()
    }

    /// Returns the first text of a tool's result.
    #[track_caller]
    pub fn text(&self) -> &str {
        self.result()["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {self:?}"))
    }

    /// Returns true for a tool result that reports an error.
    #[track_caller]
    pub fn is_error(&self) -> bool {
        self.result()["isError"] == true
    }

    /// Returns the messages before the answer.
    pub fn notices(&self) -> &[Value] {
        &self.messages[..self.messages.len().saturating_sub(1)]
    }
}

impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.status)?;
        if self.messages.is_empty() {
            return write!(f, "{:?}", self.body);
        }
        f.debug_list().entries(self.messages.iter().map(Value::to_string)).finish()
    }
}
