//! The reply to a call: notifications as they arrive, then one answer.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::jsonrpc::{Id, Response, Splice, object, span_of};
use crate::mcp::LogLevel;

use super::{Answer, Failure, Passing, Question};

/// A notification that belongs to one call.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The notification's method.
    pub method: String,
    /// Its raw params.
    pub params: Bytes,
    /// Where the progress token stands in them, if this is a progress notice.
    pub token: Option<Range<usize>>,
}

impl Notice {
    /// Reads a `notifications/progress`; gives the token's raw text beside it.
    pub fn progress(method: String, params: Bytes) -> Option<(Self, Bytes)> {
        #[derive(Deserialize)]
        struct ProgressParams<'a> {
            #[serde(borrow, rename = "progressToken")]
            token: &'a RawValue,
        }
        let progress: ProgressParams<'_> = object(&params).ok()?;
        let span = span_of(&params, progress.token.get().as_bytes())?;
        let token = params.slice(span.clone());
        Some((Self { method, params, token: Some(span) }, token))
    }

    /// Reads a `notifications/message`, a line of a server's log, if it is at
    /// least so severe.
    pub fn line(method: String, params: Bytes, least: LogLevel) -> Option<Self> {
        #[derive(Deserialize)]
        struct LogParams {
            level: String,
        }
        let line: LogParams = object(&params).ok()?;
        let level = LogLevel::parse(&line.level)?;
        (level >= least).then_some(Self { method, params, token: None })
    }

    /// The same in other words.
    #[must_use]
    pub fn with(self, params: Bytes) -> Self {
        if self.token.is_none() {
            return Self { params, ..self };
        }
        let again = Self::progress(self.method.clone(), params);
        again.map_or(self, |(again, _)| again)
    }

    /// Its params under another raw token, where it is a progress notice.
    pub fn with_token(&self, token: Option<&Bytes>) -> Bytes {
        match (&self.token, token) {
            (Some(span), Some(token)) => {
                Splice::new(&self.params).replace(span.clone(), token.clone()).finish()
            }
            _ => self.params.clone(),
        }
    }
}

/// One step of a reply.
#[derive(Debug)]
pub enum Event {
    /// Something on the way.
    Notice(Notice),
    /// The server wants to know something before it goes on; the answer goes
    /// back by this id ([`Reply::answer_question`]).
    Asks(Id, Question),
    /// The server no longer wants to know.
    TookBack(Id),
    /// The server has let go of its connection, and wants to be asked again
    /// after this time: a client may do the same.
    Pause(Duration),
    /// The end. Nothing follows.
    Answer(Result<Answer, Failure>),
    /// The end, too: a large result that is still coming.
    Passing(Passing),
}

impl Event {
    /// Whether nothing follows.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::Passing(_))
    }
}

/// A place among a server's calls in flight, given back when dropped.
#[derive(Debug)]
pub struct InFlightSlot(#[allow(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl InFlightSlot {
    /// Holds the permit.
    pub fn new(permit: OwnedSemaphorePermit) -> Self {
        Self(permit)
    }
}

/// What comes back for a call. Dropping it before its answer cancels the call
/// at the server, in the server's own way.
pub struct Reply {
    source: ReplySource,
    answers: Option<Answers>,
    held: Option<Box<dyn Send>>,
}

/// The way of answers to what a server asks in the middle of a call.
pub type Answers = mpsc::Sender<(Id, Response)>;

enum ReplySource {
    Ready(Option<Result<Answer, Failure>>),
    Passing(Option<Passing>),
    Stream(Pin<Box<dyn Stream<Item = Event> + Send>>),
    Done,
}

impl Reply {
    /// A reply that is there whole.
    pub fn ready(answer: Result<Answer, Failure>) -> Self {
        Self { source: ReplySource::Ready(Some(answer)), answers: None, held: None }
    }

    /// A reply whose result is passed on as it comes.
    pub fn passing(passing: Passing) -> Self {
        Self { source: ReplySource::Passing(Some(passing)), answers: None, held: None }
    }

    /// A reply that is still coming. The stream ends with an
    /// [`Event::Answer`].
    pub fn stream(events: impl Stream<Item = Event> + Send + 'static) -> Self {
        Self { source: ReplySource::Stream(Box::pin(events)), answers: None, held: None }
    }

    /// The way for answers to what the server asks.
    #[must_use]
    pub fn with_answers(mut self, answers: Option<Answers>) -> Self {
        self.answers = answers;
        self
    }

    /// The way for answers, for a reply that this one is a part of.
    pub fn answers(&self) -> Option<Answers> {
        self.answers.clone()
    }

    /// Answers what the server asked by this id; the reply sends it when it is
    /// next asked for a step.
    pub fn answer_question(&self, id: Id, response: Response) {
        if let Some(answers) = &self.answers {
            // There is room for as many as a call may have open.
            let _ = answers.try_send((id, response));
        }
    }

    /// Holds `what`, such as the call's [`InFlightSlot`], for as long as the reply is
    /// on its way.
    #[must_use]
    pub fn with_slot(mut self, what: impl Send + 'static) -> Self {
        self.held = Some(Box::new(what));
        self
    }

    /// The next step; `None` after the answer.
    ///
    /// # Cancel safety
    /// Safe: no step is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        let mut event = match &mut self.source {
            ReplySource::Ready(answer) => answer.take().map(Event::Answer),
            ReplySource::Passing(passing) => passing.take().map(Event::Passing),
            ReplySource::Stream(events) => poll_fn(|cx| events.as_mut().poll_next(cx)).await,
            ReplySource::Done => None,
        };
        if event.as_ref().is_none_or(Event::is_last) {
            self.source = ReplySource::Done;
            let held = self.held.take();
            if let (Some(Event::Passing(passing)), Some(held)) = (&mut event, held) {
                passing.hold(held);
            }
        }
        event
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            ReplySource::Ready(_) => "Reply::Ready",
            ReplySource::Passing(_) => "Reply::Passing",
            ReplySource::Stream(_) => "Reply::Stream",
            ReplySource::Done => "Reply::Done",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_for_those_who_want_to_know() {
        let line = |params: &'static str| {
            let params = Bytes::from_static(params.as_bytes());
            Notice::line("notifications/message".into(), params, LogLevel::Warning).is_some()
        };
        assert!(line(r#"{"level":"warning","data":1}"#) && line(r#"{"level":"alert"}"#));
        for params in [r#"{"level":"info"}"#, r#"{"level":"loud"}"#, "{}", "[]"] {
            assert!(!line(params), "{params}");
        }
    }

    #[test]
    fn a_progress_notice_knows_its_token() {
        let params = Bytes::from_static(br#"{"progress":1,"progressToken": "a b"}"#);
        let (notice, token) = Notice::progress("notifications/progress".into(), params).unwrap();
        assert_eq!(&token[..], br#""a b""#);
        assert_eq!(&notice.params[notice.token.unwrap()], br#""a b""#);
    }
}
