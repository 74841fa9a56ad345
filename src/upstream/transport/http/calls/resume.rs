//! Response streams that are resumed when their connection ends early (2025-11-25, Streamable HTTP,
//! "Resumability and Redelivery").
//!
//! A Legacy server that sent an event id may close the connection, or lose it. The gateway then
//! waits for the server's reconnection delay and requests the stream again with GET, after the last
//! event received. Without an event id, or from a Modern server, the stream ends with its
//! connection. The caller limits the total time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method as HttpMethod};

use crate::codec::sse::{ReopenAttempt, ResumePoint};
use crate::jsonrpc::{Frame, Id};
use crate::mcp::{Era, add_stream_headers, header};
use crate::shares::Holder;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::sizes::admit;

use super::reply::{HttpReply, MessageStream};
use crate::upstream::transport::http::HttpShared;
use crate::upstream::transport::http::session::is_session_error;

/// The event stream of one response, over as many connections as necessary.
pub(crate) struct Resumable {
    shared: Arc<HttpShared>,
    /// The id of the request.
    id: Id,
    /// The headers of resumptions, besides `Last-Event-ID`.
    headers: HeaderMap,
    stage: ResumeStage,
    /// The client of the call, to which the memory of large events is charged.
    holder: Option<Holder>,
}

enum ResumeStage {
    /// A connection is open.
    Open(Box<MessageStream>),
    /// The connection has ended, and another is being opened.
    Resuming(Pin<Box<dyn Future<Output = Option<ReopenedStream>> + Send>>),
    /// The connection has ended, and the stream is not resumed.
    Over,
}

/// A stream, and the point that it continues from.
type ReopenedStream = (Box<MessageStream>, ResumePoint);

/// An item of a stream.
pub(crate) enum StreamItem {
    /// A message.
    Frame(Frame),
    /// The server closed the connection and expects the next request after this time.
    Pause(Duration),
}

impl Resumable {
    /// Creates a stream from its first open connection. Resumptions carry `headers`.
    pub(crate) fn new(
        shared: &Arc<HttpShared>,
        id: &Id,
        events: Box<MessageStream>,
        headers: HeaderMap,
    ) -> Self {
        let stage = ResumeStage::Open(events);
        Self { shared: Arc::clone(shared), id: id.clone(), headers, stage, holder: None }
    }

    /// Charges the memory of large events to a client.
    pub(crate) fn charged_to(mut self, holder: &Holder) -> Self {
        self.holder = Some(holder.clone());
        self.charge_events();
        self
    }

    /// Makes the open connection count the memory of its events.
    fn charge_events(&mut self) {
        if let (ResumeStage::Open(events), Some(holder)) = (&mut self.stage, &self.holder) {
            events.charge_to(self.shared.charge(holder));
        }
    }

    /// Returns the next item, or `None` at the end of the stream.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn next(&mut self) -> Result<Option<StreamItem>, UpstreamError> {
        loop {
            match &mut self.stage {
                ResumeStage::Open(events) => match events.next().await {
                    Ok(Some(frame)) if self.is_anothers(&frame) => {}
                    Ok(Some(frame)) => {
                        self.note_session_error(&frame);
                        if let Some(frame) = admit(&self.shared, frame) {
                            return Ok(Some(StreamItem::Frame(frame)));
                        }
                    }
                    ended @ (Ok(None) | Err(UpstreamError::Broken(_))) => {
                        let Some(point) = self.resume_point() else { return ended.map(|_| None) };
                        if !point.can_reopen() {
                            return ended.map(|_| None);
                        }
                        let retry = point.retry();
                        self.begin_resuming(point);
                        if let (Ok(_), Some(wait)) = (ended, retry) {
                            return Ok(Some(StreamItem::Pause(wait)));
                        }
                    }
                    Err(fault) => return Err(fault),
                },
                ResumeStage::Resuming(next) => {
                    let Some((mut events, point)) = poll_fn(|cx| next.as_mut().poll(cx)).await
                    else {
                        self.stage = ResumeStage::Over;
                        return Err(UpstreamError::NoAnswer);
                    };
                    events.events.continue_from(point);
                    self.stage = ResumeStage::Open(events);
                    self.charge_events();
                }
                ResumeStage::Over => return Ok(None),
            }
        }
    }

    /// Finishes a stream after its response.
    pub(crate) fn finish(self) {
        if let ResumeStage::Open(events) = self.stage {
            events.finish();
        }
    }

    /// Marks the session as lost if the response is the error of a lost session. The next call then
    /// opens another.
    fn note_session_error(&self, frame: &Frame) {
        if let Frame::Response { response, .. } = frame
            && is_session_error(response)
            && let Some(session) = self.shared.session.current()
        {
            session.mark_lost();
        }
    }

    /// Returns true if the frame is the response to another request. A server that mistakes the GET
    /// for a stream outside calls may send such responses on it.
    fn is_anothers(&self, frame: &Frame) -> bool {
        let Frame::Response { id: Some(id), .. } = frame else { return false };
        self.headers.contains_key(&header::LAST_EVENT_ID) && !id.answers(&self.id)
    }

    /// Returns the point at which to resume the stream, if it can be resumed. Its connection has
    /// ended.
    fn resume_point(&mut self) -> Option<ResumePoint> {
        let stage = std::mem::replace(&mut self.stage, ResumeStage::Over);
        let ResumeStage::Open(events) = stage else { return None };
        events.events.resume_point().filter(|_| self.shared.peer.era() == Era::Legacy)
    }

    fn begin_resuming(&mut self, point: ResumePoint) {
        // Responses on the following connections may be those of other requests.
        add_stream_headers(&mut self.headers, point.header());
        let (shared, headers) = (Arc::clone(&self.shared), self.headers.clone());
        self.stage = ResumeStage::Resuming(Box::pin(async move {
            point.reopen(|_| resume(&shared, &headers)).await
        }));
    }
}

async fn resume(shared: &HttpShared, headers: &HeaderMap) -> ReopenAttempt<Box<MessageStream>> {
    let response = match shared.client.send_empty(&HttpMethod::GET, headers).await {
        Ok(response) => response,
        Err(fault @ (UpstreamError::Connect(_) | UpstreamError::Broken(_))) => {
            return retry_later(shared, &fault);
        }
        Err(fault) => return give_up(shared, &fault),
    };
    let status = response.status();
    match HttpReply::read(response, shared.limit).await {
        Ok(HttpReply::Events(events)) => ReopenAttempt::Open(events),
        Ok(_) if status.is_server_error() => retry_later(shared, &UpstreamError::of_status(status)),
        Ok(_) => give_up(shared, &UpstreamError::of_status(status)),
        Err(fault) => give_up(shared, &fault),
    }
}

fn retry_later<S>(shared: &HttpShared, fault: &UpstreamError) -> ReopenAttempt<S> {
    tracing::debug!(server = %shared.server, fault = shared.inbox.describe(fault), "a stream cannot be resumed yet");
    ReopenAttempt::Later
}

fn give_up<S>(shared: &HttpShared, fault: &UpstreamError) -> ReopenAttempt<S> {
    tracing::debug!(server = %shared.server, fault = shared.inbox.describe(fault), "a stream cannot be resumed");
    ReopenAttempt::Never
}
