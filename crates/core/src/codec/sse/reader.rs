//! Reads events from an HTTP body, and tracks the state to resume the stream on another connection.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep};

use crate::backoff::Backoff;
use crate::clock;
use crate::codec::body::BodyError;
use crate::codec::large_message::share_thread;

use super::{SseDecoder, SseError, SseEvent};

/// The events of one response body.
pub struct SseReader<B> {
    body: B,
    decoder: SseDecoder,
    /// Empty if the server has reset it.
    last_id: Option<Bytes>,
    retry: Option<Duration>,
    backoff: Backoff,
    /// True if events have advanced the stream since it was resumed.
    has_advanced: bool,
    /// Number of lines without an event and events without a message, and the start of the second
    /// in which they arrived.
    chatter: Option<(Instant, usize)>,
    /// Events without a message that have not been counted.
    skipped: usize,
}

impl<B: Body<Data = Bytes> + Unpin> SseReader<B> {
    /// Creates a reader of events of at most `limit` bytes.
    pub fn new(body: B, limit: usize) -> Self {
        let (decoder, backoff) = (SseDecoder::new(limit), Backoff::new(FIRST_WAIT, LAST_WAIT));
        Self {
            body,
            decoder,
            last_id: None,
            retry: None,
            backoff,
            has_advanced: false,
            chatter: None,
            skipped: 0,
        }
    }

    /// Notes that the stream continues from `point`, which another connection has reached.
    pub fn continue_from(&mut self, point: ResumePoint) {
        self.last_id = Some(point.last_id);
        self.retry = point.retry;
        self.backoff = point.backoff;
    }

    /// Returns the next event; `None` at the end of the body.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] for an event over the limit, [`BodyError::Chatter`] for too many
    /// lines without an event, [`BodyError::Broken`] if the connection fails.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn next_event(&mut self) -> Result<Option<SseEvent>, BodyError<B::Error>> {
        loop {
            if let Some(event) = self.take_event()? {
                return Ok(Some(event));
            }
            if !self.read_more().await? {
                return Ok(None);
            }
        }
    }

    /// Takes an event out of the bytes that were read.
    fn take_event(&mut self) -> Result<Option<SseEvent>, BodyError<B::Error>> {
        let event = self.decoder.next_event();
        let event = event.map_err(|SseError::TooLarge { limit }| BodyError::TooLarge { limit })?;
        match &event {
            Some(event) => self.note(event),
            None => self.bound_chatter()?,
        }
        Ok(event)
    }

    /// Reads further bytes. Returns false at the end of the body.
    ///
    /// # Errors
    /// [`BodyError::Broken`] if the connection fails.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn read_more(&mut self) -> Result<bool, BodyError<B::Error>> {
        // Yields regularly: a connection with endless data must not keep its thread.
        consume_budget().await;
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        if let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() {
            let bytes = data.len();
            self.decoder.push(data);
            share_thread(bytes).await;
        }
        Ok(true)
    }

    /// Returns the number of bytes that were read and belong to no event yet.
    pub fn buffered(&self) -> usize {
        self.decoder.buffered()
    }

    /// Returns the data of the next message; `None` at the end of the body. Events without a
    /// message, such as priming events with empty data, are skipped.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn next_message(&mut self) -> Result<Option<Bytes>, BodyError<B::Error>> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(Some(message));
            }
            if !self.read_more().await? {
                return Ok(None);
            }
        }
    }

    /// Takes the data of a message out of the bytes that were read.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub fn take_message(&mut self) -> Result<Option<Bytes>, BodyError<B::Error>> {
        while let Some(event) = self.take_event()? {
            if event.is_message() {
                self.backoff.reset();
                return Ok(Some(event.data));
            }
            self.skipped += 1;
        }
        Ok(None)
    }

    /// Counts an event with data that is not a message, as one of those that [`next_message`]
    /// skips: the next event is an error if there are too many.
    ///
    /// [`next_message`]: Self::next_message
    pub fn count_skipped(&mut self) {
        self.skipped += 1;
    }

    /// Limits the lines without an event and the events without a message: each costs time, and
    /// none reaches a reader.
    fn bound_chatter(&mut self) -> Result<(), BodyError<B::Error>> {
        let lines = self.decoder.take_chatter() + std::mem::take(&mut self.skipped);
        if lines == 0 {
            return Ok(());
        }
        let now = clock::now();
        let (since, lines) = match self.chatter {
            Some((since, before)) if now - since < ONE_SECOND => (since, before + lines),
            _ => (now, lines),
        };
        self.chatter = Some((since, lines));
        if lines > MAX_CHATTER_PER_SECOND {
            return Err(BodyError::Chatter { limit: MAX_CHATTER_PER_SECOND });
        }
        Ok(())
    }

    fn note(&mut self, event: &SseEvent) {
        if let Some(id) = &event.id {
            self.has_advanced = true;
            self.last_id = Some(id.clone());
        }
        self.retry = event.retry.map(Duration::from_millis).or(self.retry);
    }

    /// Returns the point to resume from after the connection; `None` if no event had an id.
    pub fn resume_point(mut self) -> Option<ResumePoint> {
        if self.has_advanced {
            self.backoff.reset();
        } else {
            self.backoff.next_wait();
        }
        // An empty id resets the last one (WHATWG HTML, "Server-sent events").
        let last_id = self.last_id.filter(|id| !id.is_empty())?;
        Some(ResumePoint { last_id, retry: self.retry, backoff: self.backoff })
    }

    /// Returns the body after the events that were read.
    pub fn into_body(self) -> B {
        self.body
    }
}

impl<B> SseReader<B> {
    /// Returns the id of the last event that had one. It is empty if the server has reset it.
    pub(super) fn last_id(&self) -> Option<&Bytes> {
        self.last_id.as_ref()
    }

    /// Returns the reconnection delay that the server requested, if any.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }
}

/// The position in a stream from which another connection continues (2025-11-25, Streamable HTTP,
/// "Resumability and Redelivery").
#[derive(Debug, Clone)]
pub struct ResumePoint {
    last_id: Bytes,
    retry: Option<Duration>,
    backoff: Backoff,
}

impl ResumePoint {
    /// Returns the value of `Last-Event-ID`, if the id is a valid header value.
    pub fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(&self.last_id).ok()
    }

    /// Returns the reconnection delay that the server requested, if any.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Returns the wait before the next attempt: the server's reconnection delay, with backoff
    /// after attempts that failed or brought no event. `None` after too many of them in a row.
    pub fn wait(&self) -> Option<Duration> {
        let (retry, wait) = (self.retry.unwrap_or_default(), self.backoff.wait());
        match self.retry {
            _ if wait >= LAST_WAIT => None,
            Some(retry) if wait == FIRST_WAIT => Some(retry.max(MIN_RECONNECT_DELAY)),
            _ => Some(retry.max(wait)),
        }
    }

    /// Notes an attempt that failed.
    fn attempt_failed(&mut self) {
        self.backoff.next_wait();
    }

    /// Returns true if the stream can be opened again: there were not too many attempts in a row,
    /// and the id is a valid header value.
    pub fn can_reopen(&self) -> bool {
        self.wait().is_some() && self.header().is_some()
    }

    /// Opens the stream again by `attempt`, which receives the value of `Last-Event-ID`. Waits
    /// before each attempt. Returns the stream, which continues from the returned point, or `None`
    /// if it cannot be opened again.
    pub async fn reopen<S, F>(
        mut self,
        mut attempt: impl FnMut(HeaderValue) -> F,
    ) -> Option<(S, Self)>
    where
        F: Future<Output = ReopenAttempt<S>>,
    {
        loop {
            sleep(self.wait()?).await;
            match attempt(self.header()?).await {
                ReopenAttempt::Open(stream) => return Some((stream, self)),
                ReopenAttempt::Later => self.attempt_failed(),
                ReopenAttempt::Never => return None,
            }
        }
    }
}

/// The result of an attempt to open a stream again.
#[derive(Debug)]
pub enum ReopenAttempt<S> {
    /// The stream.
    Open(S),
    /// The attempt failed, and may be repeated.
    Later,
    /// A repetition would get the same response.
    Never,
}

/// Limit of the lines without an event, and events without a message, in a second: a server keeps a
/// stream alive by one in many seconds.
const MAX_CHATTER_PER_SECOND: usize = 1000;
const ONE_SECOND: Duration = Duration::from_secs(1);
/// The first backoff, and the delay for a server that requested none.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The backoff at which the reader gives up a stream, after six attempts in a row.
const LAST_WAIT: Duration = Duration::from_secs(32);
/// Minimum delay, regardless of the server's request.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    async fn read(text: &'static str, from: Option<ResumePoint>) -> Option<ResumePoint> {
        let mut reader = SseReader::new(Full::new(Bytes::from_static(text.as_bytes())), 100);
        if let Some(point) = from {
            reader.continue_from(point);
        }
        while reader.next_message().await.unwrap().is_some() {}
        reader.resume_point()
    }

    #[tokio::test]
    async fn a_stream_is_resumed_behind_its_last_id_after_the_servers_delay() {
        assert!(read("data: 1\n\n", None).await.is_none(), "no id");
        assert!(read("id: 1\n\nid:\n\n", None).await.is_none(), "the id was reset");
        let point = read("id: 1\nretry: 7\ndata: 1\n\nid: 2\ndata:\n\n", None).await.unwrap();
        assert_eq!(point.header().unwrap(), "2");
        assert_eq!(point.retry(), Some(Duration::from_millis(7)));
        assert_eq!(point.wait(), Some(MIN_RECONNECT_DELAY));
        let point = read("data: 1\n\n", Some(point)).await.unwrap();
        assert_eq!(point.header().unwrap(), "2", "kept across connections");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_opened_again_until_an_attempt_is_final() {
        let point = read("id: 1\n\n", None).await.unwrap();
        assert!(point.can_reopen());
        let mut attempts = 0;
        let opened = point.clone().reopen(|id| {
            assert_eq!(id, "1");
            attempts += 1;
            let third = attempts == 3;
            async move { if third { ReopenAttempt::Open("stream") } else { ReopenAttempt::Later } }
        });
        let (stream, next) = opened.await.unwrap();
        assert_eq!(
            (stream, next.wait()),
            ("stream", Some(Duration::from_secs(2))),
            "after two failures"
        );
        let mut attempts = 0;
        let never = point.clone().reopen(|_| {
            attempts += 1;
            async { ReopenAttempt::<()>::Never }
        });
        assert!(never.await.is_none());
        assert_eq!(attempts, 1);
        let later = point.reopen(|_| {
            attempts += 1;
            async { ReopenAttempt::<()>::Later }
        });
        assert!(later.await.is_none());
        assert_eq!(attempts, 1 + 6);
        assert!(!read("id: \x01\n\n", None).await.unwrap().can_reopen(), "no header value");
    }

    #[tokio::test]
    async fn connections_that_bring_nothing_are_asked_for_ever_more_rarely_and_at_last_no_more() {
        let mut point = read("id: 1\n\n", None).await.unwrap();
        let mut waits = Vec::new();
        while let Some(wait) = point.wait() {
            waits.push(wait.as_millis());
            point = read("", Some(point)).await.unwrap();
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000]);
        point.attempt_failed();
        assert_eq!(point.wait(), None);
        assert_eq!(read("id: 2\n\n", Some(point)).await.unwrap().wait(), Some(FIRST_WAIT));
    }
}
