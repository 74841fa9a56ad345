//! A stream whose connection ends before its answer, and goes on with the next
//! (2025-11-25, Streamable HTTP, "Resumability and Redelivery").
//!
//! A Legacy server that gave an event id may close the connection, or lose it:
//! the stream is asked for again by GET, behind the last event that came, after
//! as long as the server wants. Where it gave no id, or is Modern, the end is
//! the end. The caller bounds the time in all.

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
use super::reception::{HttpReply, MessageStream};

/// The events of one request's answer, over as many connections as it takes.
pub(super) struct Resumable {
    shared: Arc<HttpShared>,
    /// The request.
    id: Id,
    /// What resumptions carry, besides the place to resume from.
    headers: HeaderMap,
    stage: ResumeStage,
    /// How long the server wants to be left alone, once it has said so.
    retry: Option<Duration>,
    /// Connections in a row that brought nothing.
    vain: u32,
}

enum ResumeStage {
    /// A connection is open.
    Open(Box<MessageStream>),
    /// There is none: the next is on its way.
    Resuming { next: Pin<Box<dyn Future<Output = ResumeAttempt> + Send>>, behind: Bytes },
    /// There is none, and there will be none.
    Over,
}

/// What came of an attempt to resume.
enum ResumeAttempt {
    Open(Box<MessageStream>),
    /// Not now.
    Later(UpstreamError),
    /// The server will not.
    Never(UpstreamError),
}

/// What comes on a stream.
pub(super) enum StreamItem {
    /// A message.
    Frame(Frame),
    /// The server closed the connection and wants to be asked again later.
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

    /// What comes next; `None` at the end of the stream.
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

    /// Lets go of a stream whose answer has come.
    pub(super) fn finish(self) {
        if let ResumeStage::Open(events) = self.stage {
            events.finish();
        }
    }

    /// Whether it answers another request: a server that takes the GET for a
    /// stream outside of calls may send such on it.
    fn is_anothers(&self, frame: &Frame) -> bool {
        let Frame::Response { id: Some(id), .. } = frame else { return false };
        self.headers.contains_key(&header::LAST_EVENT_ID) && *id != self.id
    }

    /// Begins to resume, if that can be done.
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

    /// Asks for the stream behind that event, after as long as the server
    /// wants, and longer the more often it was asked in vain.
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

/// How often in a row a stream is resumed in vain.
const ATTEMPTS: u32 = 6;
/// How long a server is left alone that does not say how long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How long any server is left alone.
const LEAST_WAIT: Duration = Duration::from_millis(20);
