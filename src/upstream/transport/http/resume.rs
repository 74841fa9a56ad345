//! Response streams that are resumed when their connection ends early
//! (2025-11-25, Streamable HTTP, "Resumability and Redelivery").
//!
//! A Legacy server that sent an event id may close the connection, or lose it:
//! the stream is then requested again with GET, after the last event received,
//! once the server's reconnection delay has passed. Without an event id, or
//! from a Modern server, the stream ends with its connection. The caller bounds
//! the total time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method as HttpMethod};

use crate::jsonrpc::{Frame, Id};
use crate::mcp::{Era, header};
use crate::upstream::UpstreamError;

use super::HttpShared;
use super::reply::{HttpReply, MessageStream};

/// The event stream of one response, over as many connections as necessary.
pub(super) struct Resumable {
    shared: Arc<HttpShared>,
    /// The id of the request.
    id: Id,
    /// The headers of resumptions, besides `Last-Event-ID`.
    headers: HeaderMap,
    stage: ResumeStage,
    /// The reconnection delay that the server requested, if any.
    retry: Option<Duration>,
    /// Attempts in a row that brought no event.
    vain: u32,
}

enum ResumeStage {
    /// A connection is open.
    Open(Box<MessageStream>),
    /// The connection has ended, and another is being opened.
    Resuming { next: Pin<Box<dyn Future<Output = ResumeAttempt> + Send>>, behind: Bytes },
    /// The connection has ended, and the stream is not resumed.
    Over,
}

/// The result of an attempt to resume.
enum ResumeAttempt {
    Open(Box<MessageStream>),
    /// The attempt failed, and may be repeated.
    Later(UpstreamError),
    /// The server refuses to resume.
    Never(UpstreamError),
}

/// An item of a stream.
pub(super) enum StreamItem {
    /// A message.
    Frame(Frame),
    /// The server closed the connection and wants to be asked again after this
    /// time.
    Pause(Duration),
}

impl Resumable {
    /// A stream whose first connection is open. Resumptions carry `headers`.
    pub(super) fn new(
        shared: &Arc<HttpShared>,
        id: &Id,
        events: Box<MessageStream>,
        headers: HeaderMap,
    ) -> Self {
        let stage = ResumeStage::Open(events);
        Self { shared: Arc::clone(shared), id: id.clone(), headers, stage, retry: None, vain: 0 }
    }

    /// The next item; `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn next(&mut self) -> Result<Option<StreamItem>, UpstreamError> {
        loop {
            match &mut self.stage {
                ResumeStage::Open(events) => match events.next().await {
                    Ok(Some(frame)) => {
                        self.vain = 0;
                        if !self.is_anothers(&frame) {
                            return Ok(Some(StreamItem::Frame(frame)));
                        }
                    }
                    Ok(None) => {
                        if !self.begin_to_resume() {
                            return Ok(None);
                        }
                        if let Some(wait) = self.retry {
                            return Ok(Some(StreamItem::Pause(wait)));
                        }
                    }
                    Err(fault @ UpstreamError::Broken(_)) => {
                        if !self.begin_to_resume() {
                            return Err(fault);
                        }
                    }
                    Err(fault) => return Err(fault),
                },
                ResumeStage::Resuming { next, behind } => {
                    let attempt = poll_fn(|cx| next.as_mut().poll(cx)).await;
                    let behind = behind.clone();
                    self.judge(attempt, behind)?;
                }
                ResumeStage::Over => return Ok(None),
            }
        }
    }

    /// Finishes a stream whose response has arrived.
    pub(super) fn finish(self) {
        if let ResumeStage::Open(events) = self.stage {
            events.finish();
        }
    }

    /// Whether the frame is the response to another request: a server that
    /// takes the GET for a stream outside of calls may send such responses on
    /// it.
    fn is_anothers(&self, frame: &Frame) -> bool {
        let Frame::Response { id: Some(id), .. } = frame else { return false };
        self.headers.contains_key(&header::LAST_EVENT_ID) && *id != self.id
    }

    /// Starts to resume the stream, if possible.
    fn begin_to_resume(&mut self) -> bool {
        let stage = std::mem::replace(&mut self.stage, ResumeStage::Over);
        let ResumeStage::Open(events) = stage else { return false };
        let legacy = self.shared.peer.era() == Era::Legacy;
        let Some(behind) = events.last_id.filter(|_| legacy) else { return false };
        self.retry = events.retry;
        self.vain = if events.has_ids { 0 } else { self.vain + 1 };
        self.attempt(behind)
    }

    fn judge(&mut self, attempt: ResumeAttempt, behind: Bytes) -> Result<(), UpstreamError> {
        match attempt {
            ResumeAttempt::Open(mut events) => {
                events.last_id = Some(behind);
                events.retry = self.retry;
                self.stage = ResumeStage::Open(events);
                return Ok(());
            }
            ResumeAttempt::Later(fault) => {
                tracing::debug!(server = %self.shared.server, fault = %fault.chain(), "a stream cannot be resumed yet");
                self.vain += 1;
                if self.attempt(behind) {
                    return Ok(());
                }
            }
            ResumeAttempt::Never(fault) => {
                tracing::debug!(server = %self.shared.server, fault = %fault.chain(), "a stream cannot be resumed");
            }
        }
        self.stage = ResumeStage::Over;
        Err(UpstreamError::NoAnswer)
    }

    /// Schedules a request for the stream after the event `behind`: after the
    /// server's reconnection delay, with backoff for failed attempts. Returns
    /// false if there were too many, or the event id is no valid header value.
    fn attempt(&mut self, behind: Bytes) -> bool {
        let value = HeaderValue::from_bytes(&behind).ok();
        let Some(value) = value.filter(|_| self.vain < ATTEMPTS) else { return false };
        self.headers.insert(header::LAST_EVENT_ID, value);
        let patience = match (self.retry, self.vain) {
            (Some(retry), 0) => retry.max(LEAST_WAIT),
            (retry, vain) => retry.unwrap_or_default().max(FIRST_WAIT * 2_u32.pow(vain)),
        };
        let (shared, headers) = (Arc::clone(&self.shared), self.headers.clone());
        let next = Box::pin(async move {
            tokio::time::sleep(patience).await;
            resume(&shared, headers).await
        });
        self.stage = ResumeStage::Resuming { next, behind };
        true
    }
}

async fn resume(shared: &HttpShared, mut headers: HeaderMap) -> ResumeAttempt {
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let response = match shared.client.send(&HttpMethod::GET, &headers, Bytes::new()).await {
        Ok(response) => response,
        Err(fault @ (UpstreamError::Connect(_) | UpstreamError::Broken(_))) => {
            return ResumeAttempt::Later(fault);
        }
        Err(fault) => return ResumeAttempt::Never(fault),
    };
    let status = response.status();
    match HttpReply::read(response, shared.limit).await {
        Ok(HttpReply::Events(events)) => ResumeAttempt::Open(events),
        Ok(_) if status.is_server_error() => ResumeAttempt::Later(UpstreamError::Status { status }),
        Ok(_) => ResumeAttempt::Never(UpstreamError::Status { status }),
        Err(fault) => ResumeAttempt::Never(fault),
    }
}

/// The most failed attempts in a row.
const ATTEMPTS: u32 = 6;
/// The first backoff, and the delay for a server that requested none.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The shortest delay, whatever the server requests.
const LEAST_WAIT: Duration = Duration::from_millis(20);
