//! One request of a bridge, from its line to the lines of its answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::call::{Answer as Judged, Failure};
use crate::codec::sse::{ReopenAttempt, ResumePoint, SseReader};
use crate::jsonrpc::{self, Frame, Id, Response as Answer};
use crate::mcp::{Era, Method, code, meta, notification};

use super::MAX_DEPTH;
use super::bridge::{Bridge, BridgeSlot};
use super::endpoint::McpPeer;
use super::headers::{self, PipedRequest};
use super::reply::{
    PipedReply, ReceivedText, broken, find_answer, no_answer, parse_message, unreadable,
};

/// A request in flight.
pub(super) struct PipedCall<E> {
    pub(super) place: BridgeSlot<E>,
    /// The request as received.
    pub(super) line: Bytes,
    pub(super) asked: PipedRequest,
}

impl<E: McpPeer> PipedCall<E> {
    /// Runs until the request is answered or cancelled.
    pub(super) async fn run(self) {
        let withdrawal = &self.place.withdrawal;
        let mut answering = pin!(self.answer());
        tokio::select! {
            biased;
            () = withdrawal.told.cancelled() => {}
            () = &mut answering => return,
        }
        // A Modern request is cancelled by dropping it, which follows. In a Legacy session it runs
        // until the endpoint receives the cancellation. The cancellation may overtake the request,
        // so it is repeated.
        if let (Era::Legacy, Some(message)) = (self.asked.era(), withdrawal.message.get()) {
            for pause in CANCELLATION_WAITS {
                self.bridge().send_aside(message.clone(), None).await;
                if timeout(pause, &mut answering).await.is_ok() {
                    return;
                }
            }
        }
    }

    fn bridge(&self) -> &Arc<Bridge<E>> {
        &self.place.bridge
    }

    fn id(&self) -> &Id {
        &self.place.id
    }

    async fn answer(&self) {
        if let Err(failure) = self.exchange().await {
            self.give(jsonrpc::error(Some(self.id()), &failure.to_error())).await;
        }
    }

    /// Sends a message to the client, unless the client has cancelled the request.
    async fn give(&self, message: Bytes) {
        if !self.place.withdrawal.told.is_cancelled() {
            self.bridge().output.message(message).await;
        }
    }

    async fn exchange(&self) -> Result<(), Failure> {
        let mut reply = match self.asked.era() {
            Era::Legacy => self.bridge().send_in_session(&self.line, Some(self.id())).await?,
            Era::Modern => self.send_modern(&self.line).await?,
        };
        if self.misses_headers(&reply) && self.learn_headers().await {
            reply = self.send_modern(&self.line).await?;
        }
        match reply {
            PipedReply::Whole(status, body) => {
                let answer = find_answer(status, body, self.id()).await?;
                self.learn(&answer);
                self.give(answer).await;
                Ok(())
            }
            PipedReply::Events(events) => self.follow(events).await,
        }
    }

    async fn send_modern(&self, line: &Bytes) -> Result<PipedReply<E::Body>, Failure> {
        let mut headers = self.asked.mirrored();
        headers.extend(self.bridge().mirror.headers(&self.asked));
        self.bridge().post(headers, line).await
    }

    /// Forwards the messages of a stream, including the answer.
    async fn follow(&self, mut events: SseReader<E::Body>) -> Result<(), Failure> {
        loop {
            let ended = match events.next_message().await {
                Ok(Some(data)) => match parse_message(&data).await? {
                    ReceivedText::Message(Frame::Response { .. }) => {
                        let answer = find_answer(StatusCode::OK, data, self.id()).await?;
                        self.learn(&answer);
                        self.give(answer).await;
                        return Ok(());
                    }
                    ReceivedText::Message(_) => {
                        self.give(data).await;
                        continue;
                    }
                    ReceivedText::NoMessage(fault) => {
                        self.bridge().warn(&format!("the gateway sent no message: {fault}"));
                        continue;
                    }
                },
                Ok(None) => broken(),
                Err(error) => unreadable(error),
            };
            match self.resume(events.resume_point()).await {
                Some(resumed) => events = resumed,
                None => return self.break_off(ended).await,
            }
        }
    }

    /// Reopens a stream that ended before its answer, if it can be resumed (2025-11-25, Streamable
    /// HTTP, "Resumability and Redelivery").
    async fn resume(&self, point: Option<ResumePoint>) -> Option<SseReader<E::Body>> {
        let point = point.filter(|_| self.asked.era() == Era::Legacy)?;
        let reopening = point.reopen(|last_id| async move {
            let request = headers::get(self.bridge().session_headers(), Some(last_id));
            let Ok(response) = self.bridge().endpoint.send(request).await else {
                return ReopenAttempt::Later;
            };
            match PipedReply::read(response, self.bridge().bounds.answer).await {
                Ok(PipedReply::Events(events)) => ReopenAttempt::Open(events),
                Ok(PipedReply::Whole(..)) => ReopenAttempt::Never,
                Err(_) => ReopenAttempt::Later,
            }
        });
        let (mut events, point) = reopening.await?;
        events.continue_from(point);
        Some(events)
    }

    /// Handles the loss of the stream. A subscription that ends without its answer is reported by a
    /// notification (2026-07-28, Cancellation).
    async fn break_off(&self, why: Failure) -> Result<(), Failure> {
        if self.asked.method != Method::Listen {
            return Err(why);
        }
        self.give(notification::cancelled(self.id())).await;
        Ok(())
    }

    /// Learns the tools' mirrored parameters from the answer to a list request.
    fn learn(&self, answer: &Bytes) {
        if self.bridge().mirror.learns_from(&self.asked)
            && let Ok(Frame::Response { response: Answer::Result(raw), .. }) =
                jsonrpc::parse(answer, MAX_DEPTH)
        {
            self.bridge().mirror.learn(&raw);
        }
    }

    /// Returns true if the endpoint refused a call because its headers and body disagree.
    fn misses_headers(&self, reply: &PipedReply<E::Body>) -> bool {
        let PipedReply::Whole(StatusCode::BAD_REQUEST, body) = reply else { return false };
        if !self.bridge().mirror.concerns(&self.asked) {
            return false;
        }
        let Ok(Frame::Response { response, .. }) = jsonrpc::parse(body, MAX_DEPTH) else {
            return false;
        };
        matches!(Judged::parse(response), Ok(Judged::Error(error)) if error.code() == code::HEADER_MISMATCH)
    }

    /// Requests the list of tools to learn the mirrored parameters. Returns true if those of this
    /// call are known then.
    async fn learn_headers(&self) -> bool {
        let params = self.asked.params.as_ref();
        let meta = params.and_then(|params| params.raw().get(params.meta_span()?));
        let meta: Value = meta.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default();
        let mut cursor = None;
        for _ in 0..MAX_LIST_PAGES {
            let Ok(next) = self.learn_page(&meta, cursor.as_deref()).await else { return false };
            cursor = next;
            if cursor.is_none() || !self.bridge().mirror.headers(&self.asked).is_empty() {
                break;
            }
        }
        !self.bridge().mirror.headers(&self.asked).is_empty()
    }

    async fn learn_page(
        &self,
        client: &Value,
        cursor: Option<&str>,
    ) -> Result<Option<String>, Failure> {
        // Each POST is an exchange of its own: the id cannot collide.
        let own = Id::number(0);
        let mut params = json!({ meta::META: client });
        if let (Some(cursor), Some(params)) = (cursor, params.as_object_mut()) {
            params.insert("cursor".into(), cursor.into());
        }
        let params: Bytes = params.to_string().into();
        let line = jsonrpc::request(&own, Method::ToolsList.as_str(), &params);
        let asked = PipedRequest::new(Method::ToolsList.as_str(), Some(params));
        let request = headers::post(asked.mirrored(), line);
        let bridge = self.bridge();
        let answer = bridge.answer_to(bridge.endpoint.send(request).await?, &own).await?;
        match jsonrpc::parse(&answer, MAX_DEPTH) {
            Ok(Frame::Response { response: Answer::Result(raw), .. }) => {
                Ok(bridge.mirror.learn(&raw))
            }
            _ => Ok(None),
        }
    }
}

impl<E: McpPeer> Bridge<E> {
    /// Sends a message of the session, such as the request `id`. A session that the endpoint has
    /// lost is opened anew, once.
    async fn send_in_session(
        self: &Arc<Self>,
        line: &Bytes,
        id: Option<&Id>,
    ) -> Result<PipedReply<E::Body>, Failure> {
        let open = self.session.current();
        let headers = open.as_ref().map(|open| open.headers.clone()).unwrap_or_default();
        let reply = self.post(headers, line).await?;
        match open.filter(|open| open.has_id() && reply.is_session_lost(id)) {
            Some(lost) => {
                self.reopen(&lost).await?;
                self.post(self.session_headers(), line).await
            }
            None => Ok(reply),
        }
    }

    async fn post(&self, headers: HeaderMap, line: &Bytes) -> Result<PipedReply<E::Body>, Failure> {
        let response = self.endpoint.send(headers::post(headers, line.clone())).await?;
        PipedReply::read(response, self.bounds.answer).await
    }
}

/// An array of messages (2025-03-26).
pub(super) struct Batch<E> {
    pub(super) bridge: Arc<Bridge<E>>,
    pub(super) line: Bytes,
}

impl<E: McpPeer> Batch<E> {
    pub(super) async fn run(self) {
        if let Err(failure) = self.exchange().await {
            self.bridge.refuse(None, &failure).await;
        }
    }

    async fn exchange(&self) -> Result<(), Failure> {
        match self.bridge.send_in_session(&self.line, None).await? {
            PipedReply::Whole(_, body) if body.is_empty() => {}
            PipedReply::Whole(status, body) => {
                serde_json::from_slice::<&RawValue>(&body).map_err(|_| no_answer(status))?;
                self.bridge.output.message(body).await;
            }
            PipedReply::Events(mut events) => {
                while let Some(data) = events.next_message().await.map_err(unreadable)? {
                    if serde_json::from_slice::<&RawValue>(&data).is_ok() {
                        self.bridge.output.message(data).await;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Times for a cancelled request to end after each cancellation sent to the endpoint.
const CANCELLATION_WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];
/// Limit of the list pages that are read for one call.
const MAX_LIST_PAGES: usize = 100;
