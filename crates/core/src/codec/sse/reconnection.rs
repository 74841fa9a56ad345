//! The pace and the position of a stream that its client opens again and again, such as the stream
//! of a session for messages outside of requests.
//!
//! A [`ResumePoint`](super::ResumePoint) continues the response to one request and gives up after a
//! few attempts. A [`Reconnection`] has no end: its caller decides when the stream is not needed.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;

use crate::backoff::Backoff;

use super::SseReader;

/// The state of a stream between its connections.
#[derive(Debug)]
pub struct Reconnection {
    /// Id of the last event; empty if the server has reset it.
    last_id: Option<Bytes>,
    /// The server's reconnection delay.
    retry: Option<Duration>,
    backoff: Backoff,
    /// True if the connection that has just ended had an event with another id.
    advanced: bool,
    /// Duration of the connection that has just ended; `None` after an attempt without one.
    ran: Option<Duration>,
}

impl Reconnection {
    /// Creates the state of a stream before its first connection.
    pub fn new() -> Self {
        let backoff = Backoff::new(FIRST_WAIT, LAST_WAIT);
        Self { last_id: None, retry: None, backoff, advanced: false, ran: None }
    }

    /// Returns the value of `Last-Event-ID` for the next connection, if there is one.
    pub fn last_event_id(&self) -> Option<HeaderValue> {
        let id = self.last_id.as_ref().filter(|id| !id.is_empty())?;
        HeaderValue::from_bytes(id).ok()
    }

    /// Begins the next connection without `Last-Event-ID`: the server does not accept it, or the
    /// session has changed. Returns false if there was none.
    pub fn forget_last_event(&mut self) -> bool {
        self.last_id.take().is_some()
    }

    /// Notes the end of a connection that lasted for `ran`.
    pub fn connection_ended<B>(&mut self, events: &SseReader<B>, ran: Duration) {
        let id = events.last_id();
        self.advanced = id.is_some_and(|id| self.last_id.as_ref().is_none_or(|last| last != id));
        if let Some(id) = id {
            // A copy, because the id is a part of the last bytes of the connection.
            self.last_id = Some(Bytes::copy_from_slice(id));
        }
        self.retry = events.retry().or(self.retry);
        self.ran = Some(ran);
    }

    /// Returns the wait before the next attempt.
    ///
    /// A server that ends its connections with a new id and a delay is polled in this way, so its delay
    /// is the wait. It has no upper bound: a client must not reconnect sooner (2025-11-25,
    /// Transports, "Sending Messages to the Server"). Other waits grow, up to a minute, until a
    /// connection lasts that long, and are at least the delay.
    pub fn next_wait(&mut self) -> Duration {
        match (self.ran.take(), self.retry) {
            (Some(_), Some(retry)) if self.advanced && self.last_event_id().is_some() => {
                self.backoff.reset();
                retry.max(MIN_RECONNECT_DELAY)
            }
            (ran, retry) => {
                let wait = self.backoff.wait_after(ran.unwrap_or_default());
                wait.max(retry.unwrap_or_default())
            }
        }
    }
}

impl Default for Reconnection {
    fn default() -> Self {
        Self::new()
    }
}

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_mins(1);
/// Lower bound of the server's delay.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Passes through a connection with these events, and returns the wait after it.
    async fn connection(stream: &mut Reconnection, text: &'static str) -> Duration {
        let mut events = SseReader::new(Full::new(Bytes::from_static(text.as_bytes())), 100);
        while events.next_message().await.unwrap().is_some() {}
        stream.connection_ended(&events, Duration::ZERO);
        stream.next_wait()
    }

    #[tokio::test]
    async fn a_server_that_ends_its_connections_sets_the_wait_without_an_upper_bound() {
        let mut stream = Reconnection::new();
        assert_eq!(stream.last_event_id(), None);
        for _ in 0..3 {
            let wait = connection(&mut stream, "id: 1\nretry: 7200000\ndata:\n\n").await;
            assert_eq!(wait, 7200 * SECOND);
            assert_eq!(stream.last_event_id().unwrap(), "1");
        }
        assert_eq!(connection(&mut stream, "").await, 7200 * SECOND, "kept across connections");
        assert_eq!(stream.last_event_id().unwrap(), "1");
        assert_eq!(connection(&mut stream, "id: 2\nretry: 0\n\n").await, MIN_RECONNECT_DELAY);
        assert_eq!(stream.last_event_id().unwrap(), "2");
        assert_eq!(connection(&mut stream, "id: 2\nretry: 0\n\n").await, SECOND, "nothing new");
    }

    #[tokio::test]
    async fn failed_attempts_and_streams_that_cannot_be_resumed_are_repeated_ever_more_rarely() {
        let mut stream = Reconnection::new();
        assert_eq!(connection(&mut stream, "id: 1\nretry: 1500\n\n").await, 1500 * SECOND / 1000);
        let waits = [0; 3].map(|_| stream.next_wait().as_millis());
        assert_eq!(waits, [1500, 2000, 4000], "failed attempts");
        assert_eq!(connection(&mut stream, "id:\n\n").await, 8 * SECOND, "the id was reset");
        assert_eq!(stream.last_event_id(), None);
        assert_eq!(connection(&mut stream, "data: 1\n\n").await, 16 * SECOND);
        let events = SseReader::new(Full::new(Bytes::new()), 100);
        stream.connection_ended(&events, LAST_WAIT);
        assert_eq!(stream.next_wait(), 1500 * SECOND / 1000, "a stream that lasted");
    }

    #[tokio::test]
    async fn an_id_that_the_server_refuses_is_forgotten_once() {
        let mut stream = Reconnection::new();
        assert!(!stream.forget_last_event());
        connection(&mut stream, "id: 1\nretry: 0\n\n").await;
        assert!(stream.forget_last_event());
        assert_eq!(stream.last_event_id(), None);
        assert!(!stream.forget_last_event());
    }
}
