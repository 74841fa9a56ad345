//! The stream of a Legacy session for messages outside of requests.

use std::sync::Arc;

use tokio::time::sleep;

use crate::clock;
use crate::codec::sse::{Reconnection, SseReader};
use crate::jsonrpc::{self, Frame};

use super::MAX_DEPTH;
use super::bridge::Bridge;
use super::endpoint::McpPeer;
use super::headers;
use super::reply::PipedReply;
use super::session::OpenPipeSession;

impl<E: McpPeer> Bridge<E> {
    /// Keeps the stream open for as long as the session is. Ends if the endpoint offers none.
    pub(super) async fn news(self: &Arc<Self>, open: &Arc<OpenPipeSession>) {
        let mut reconnection = Reconnection::new();
        loop {
            let request = headers::get(open.headers.clone(), reconnection.last_event_id());
            if let Ok(response) = self.endpoint.send(request).await {
                let status = response.status();
                match PipedReply::read(response, self.bounds.answer).await {
                    Ok(PipedReply::Events(mut events)) => {
                        let since = clock::now();
                        self.pass_on(&mut events).await;
                        reconnection.connection_ended(&events, since.elapsed());
                    }
                    Ok(reply) if reply.is_session_lost(None) => {
                        // The new session has a stream of its own.
                        if open.has_id() && self.reopen_later(open).await {
                            return;
                        }
                    }
                    Ok(PipedReply::Whole(..)) if status.is_client_error() => {
                        // The endpoint may only refuse the id of an event that it has dropped.
                        if !reconnection.forget_last_event() {
                            return;
                        }
                    }
                    Ok(PipedReply::Whole(..)) | Err(_) => {}
                }
            }
            sleep(reconnection.next_wait()).await;
        }
    }

    /// Opens a session in place of a lost one, in a task of its own: this one ends with the lost
    /// session.
    async fn reopen_later(self: &Arc<Self>, lost: &Arc<OpenPipeSession>) -> bool {
        let (bridge, lost) = (Arc::clone(self), Arc::clone(lost));
        let reopened = tokio::spawn(async move { bridge.reopen(&lost).await });
        matches!(reopened.await, Ok(Ok(())))
    }

    async fn pass_on(&self, events: &mut SseReader<E::Body>) {
        while let Ok(Some(data)) = events.next_message().await {
            match jsonrpc::parse(&data, MAX_DEPTH) {
                // Answers arrive on the stream of their own request.
                Ok(Frame::Response { .. }) => {}
                Ok(_) => self.output.message(data).await,
                Err(fault) => self.warn(&format!("the gateway sent no message: {fault}")),
            }
        }
    }
}
