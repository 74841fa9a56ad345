//! The reply to a call: notifications as they arrive, then one answer.

pub(crate) mod answer;
pub(crate) mod input;
pub(crate) mod passing;
pub(crate) mod sent_results;

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use trunkline_jsonrpc::{Id, Response, Splice, object, span_of};

use crate::mcp::LogLevel;

use super::{Answer, Failure, Passing, Question};

/// A notification that belongs to one call.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The notification's method.
    pub method: String,
    /// Its raw params.
    pub params: Bytes,
    /// The span of the progress token in the params, for a progress notification.
    pub token: Option<Range<usize>>,
}

impl Notice {
    /// Parses a `notifications/progress`. Also returns the raw text of its token.
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

    /// Parses a `notifications/message` (a log message of the server), if its level is at least
    /// `least`.
    pub fn line(method: String, params: Bytes, least: LogLevel) -> Option<Self> {
        #[derive(Deserialize)]
        struct LogParams {
            level: String,
        }
        let line: LogParams = object(&params).ok()?;
        let level = LogLevel::parse(&line.level)?;
        (level >= least).then_some(Self { method, params, token: None })
    }

    /// Returns the bytes of its method and params.
    #[inline]
    pub fn size(&self) -> usize {
        self.method.len() + self.params.len()
    }

    /// Replaces the params.
    #[must_use]
    pub fn with(self, params: Bytes) -> Self {
        if self.token.is_none() {
            return Self { params, ..self };
        }
        let again = Self::progress(self.method.clone(), params);
        again.map_or(self, |(again, _)| again)
    }

    /// Returns the params with another raw token, for a progress notification.
    pub fn with_token(&self, token: Option<&Bytes>) -> Bytes {
        match (&self.token, token) {
            (Some(span), Some(token)) => {
                Splice::new(&self.params).replace(span.clone(), token.clone()).finish()
            }
            _ => self.params.clone(),
        }
    }
}

/// One event of a reply.
#[derive(Debug)]
pub enum Event {
    /// A notification.
    Notice(Notice),
    /// The server requests input before it continues; the response is sent with this id
    /// ([`Reply::answer_question`]).
    Asks(Id, Question),
    /// The server has cancelled its request for input.
    TookBack(Id),
    /// The server has closed its stream, and wants the gateway to reconnect after this time. A
    /// client may get the same request.
    Pause(Duration),
    /// The answer, and the last event.
    Answer(Result<Answer, Failure>),
    /// The answer, as a large result that is still arriving, and the last event.
    Passing(Passing),
}

impl Event {
    /// Returns true for the last event of a reply.
    #[inline]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::Passing(_))
    }
}

/// A slot among a server's calls in flight, released when dropped.
#[derive(Debug)]
#[allow(dead_code, reason = "held for its drop")]
pub struct InFlightSlot(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl InFlightSlot {
    /// Holds the server's permit, and the one from its client's share.
    #[inline]
    pub fn new(permit: OwnedSemaphorePermit, own: Option<OwnedSemaphorePermit>) -> Self {
        Self(permit, own)
    }
}

/// Observer of a reply's end, or of a server's request for input. Dropped if neither happens.
pub trait ReplyWatch: Send {
    /// Called once, with the failure if there is one.
    fn ended(self: Box<Self>, ended: Result<(), &Failure>);
}

/// The reply to a call. Dropping it before its answer cancels the call at the server, in the way of
/// the server's era and transport.
pub struct Reply {
    source: ReplySource,
    answers: Option<Answers>,
    held: Option<Box<dyn Send>>,
    watch: Option<Box<dyn ReplyWatch>>,
}

/// The channel for responses to a server's input requests in the middle of a call.
pub type Answers = mpsc::Sender<(Id, Response)>;

enum ReplySource {
    Ready(Option<Result<Answer, Failure>>),
    Passing(Option<Passing>),
    Stream(Pin<Box<dyn Stream<Item = Event> + Send>>),
    /// A reply that has not begun.
    Starting(Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>),
    Done,
}

impl Reply {
    /// Creates a reply with an available answer.
    #[inline]
    pub fn ready(answer: Result<Answer, Failure>) -> Self {
        Self { source: ReplySource::Ready(Some(answer)), answers: None, held: None, watch: None }
    }

    /// Creates a reply with a streamed result.
    #[inline]
    pub fn passing(passing: Passing) -> Self {
        Self { source: ReplySource::Passing(Some(passing)), answers: None, held: None, watch: None }
    }

    /// Creates a reply from a stream of events. The stream ends with an [`Event::Answer`].
    pub fn stream(events: impl Stream<Item = Event> + Send + 'static) -> Self {
        Self {
            source: ReplySource::Stream(Box::pin(events)),
            answers: None,
            held: None,
            watch: None,
        }
    }

    /// Creates a reply that can be read before it has begun.
    pub fn starting(begun: impl Future<Output = Result<Self, Failure>> + Send + 'static) -> Self {
        Self {
            source: ReplySource::Starting(Box::pin(begun)),
            answers: None,
            held: None,
            watch: None,
        }
    }

    /// Puts the first event of a reply back in front of it.
    pub fn beginning_with(first: Event, mut rest: Self) -> Self {
        let answers = rest.answers();
        let events = stream! {
            let mut event = Some(first);
            while let Some(next) = event {
                let is_last = next.is_last();
                yield next;
                event = if is_last { None } else { rest.next().await };
            }
        };
        Self::stream(events).with_answers(answers)
    }

    /// Continues as a reply that has begun.
    fn continue_as(&mut self, begun: Result<Self, Failure>) {
        let Self { source, answers, held, watch } =
            begun.unwrap_or_else(|failure| Self::ready(Err(failure)));
        self.source = source;
        self.answers = answers;
        self.held = held;
        // This reply may be watched itself: it is the same call.
        self.watch = watch.or(self.watch.take());
    }

    /// Maps the failure of a reply that fails before it begins.
    #[must_use]
    pub fn map_failure<F>(self, other: impl FnOnce(Failure) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Failure> + Send + 'static,
    {
        let source = match self.source {
            ReplySource::Ready(Some(Err(failure))) => {
                ReplySource::Starting(Box::pin(async { Err(other(failure).await) }))
            }
            ReplySource::Starting(begun) => ReplySource::Starting(Box::pin(async {
                match begun.await {
                    Ok(begun) => Ok(begun),
                    Err(failure) => Err(other(failure).await),
                }
            })),
            begun => begun,
        };
        Self { source, ..self }
    }

    /// Sets the channel for responses to the server's input requests.
    #[must_use]
    #[inline]
    pub fn with_answers(mut self, answers: Option<Answers>) -> Self {
        self.answers = answers;
        self
    }

    /// Returns the channel for responses, for a reply that wraps this one.
    #[inline]
    pub fn answers(&self) -> Option<Answers> {
        self.answers.clone()
    }

    /// Answers the server's input request with this id; the response is sent when the reply is next
    /// polled.
    pub fn answer_question(&self, id: Id, response: Response) {
        if let Some(answers) = &self.answers {
            // The channel has room for all pending requests of a call.
            let _ = answers.try_send((id, response));
        }
    }

    /// Sets the watch that is notified of the reply's end.
    #[must_use]
    #[inline]
    pub fn watched_by(mut self, watch: Box<dyn ReplyWatch>) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Holds a guard, such as the call's [`InFlightSlot`], until the reply ends.
    #[must_use]
    pub fn with_slot(mut self, what: impl Send + 'static) -> Self {
        self.held = Some(Box::new(what));
        self
    }

    /// Returns the next event; `None` after the answer.
    ///
    /// # Cancel safety
    /// Safe: no event is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        while let ReplySource::Starting(begun) = &mut self.source {
            let begun = begun.await;
            self.continue_as(begun);
        }
        let mut event = match &mut self.source {
            ReplySource::Ready(answer) => answer.take().map(Event::Answer),
            ReplySource::Passing(passing) => passing.take().map(Event::Passing),
            ReplySource::Stream(events) => poll_fn(|cx| events.as_mut().poll_next(cx)).await,
            // A reply begins once.
            ReplySource::Starting(_) | ReplySource::Done => None,
        };
        if event.as_ref().is_none_or(Event::is_last) {
            self.source = ReplySource::Done;
            let held = self.held.take();
            if let (Some(Event::Passing(passing)), Some(held)) = (&mut event, held) {
                passing.hold(held);
            }
        }
        if self.watch.is_some() {
            self.tell_watch(&mut event);
        }
        event
    }
}

impl Reply {
    fn tell_watch(&mut self, event: &mut Option<Event>) {
        let told = match event {
            Some(Event::Answer(answer)) => answer.as_ref().map(|_| ()),
            Some(Event::Passing(passing)) => return passing.set_watch(self.watch.take()),
            Some(Event::Asks(..)) => Ok(()),
            Some(Event::Notice(_) | Event::TookBack(_) | Event::Pause(_)) => return,
            None => return self.watch = None,
        };
        if let Some(watch) = self.watch.take() {
            watch.ended(told);
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            ReplySource::Ready(_) => "Reply::Ready",
            ReplySource::Passing(_) => "Reply::Passing",
            ReplySource::Stream(_) => "Reply::Stream",
            ReplySource::Starting(_) => "Reply::Starting",
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
