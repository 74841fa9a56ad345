//! The stream on which a Legacy session hears what belongs to no request.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep};

use crate::jsonrpc::{self, Frame};

use super::MAX_DEPTH;
use super::bridge::Bridge;
use super::endpoint::McpPeer;
use super::headers;
use super::reception::{PipedEvents, PipedResponse};
use super::session::OpenPipeSession;

impl<E: McpPeer> Bridge<E> {
    /// Keeps the stream open for as long as the session is. Ends where the
    /// endpoint offers none.
    pub(super) async fn news(self: &Arc<Self>, open: &Arc<OpenPipeSession>) {
        let mut wait = FIRST_WAIT;
        let mut last_id = None;
        loop {
            let request = headers::get(open.headers.clone(), last_id.as_ref());
            if let Ok(response) = self.endpoint.send(request).await {
                let status = response.status();
                match PipedResponse::read(response, self.bounds.answer).await {
                    Ok(PipedResponse::Events(mut events)) => {
                        let since = Instant::now();
                        self.pass_on(&mut events).await;
                        last_id = events.last_id.or(last_id);
                        if since.elapsed() >= LAST_WAIT {
                            wait = FIRST_WAIT;
                        }
                        if let Some(retry) = events.retry {
                            wait = Duration::from_millis(retry).clamp(SOONEST, LAST_WAIT);
                        }
                    }
                    Ok(PipedResponse::Whole(..)) if status == StatusCode::NOT_FOUND => {
                        // The new session has a stream of its own.
                        if open.has_id() && self.reopen_later(open).await {
                            return;
                        }
                    }
                    Ok(PipedResponse::Whole(..)) if status.is_client_error() => return,
                    Ok(PipedResponse::Whole(..)) | Err(_) => {}
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(LAST_WAIT);
        }
    }

    /// Opens a session in the place of a lost one, in a task of its own: this
    /// one ends with the lost session.
    async fn reopen_later(self: &Arc<Self>, lost: &Arc<OpenPipeSession>) -> bool {
        let (bridge, lost) = (Arc::clone(self), Arc::clone(lost));
        let reopened = tokio::spawn(async move { bridge.reopen(&lost).await });
        matches!(reopened.await, Ok(Ok(())))
    }

    async fn pass_on(&self, events: &mut PipedEvents<E::Body>) {
        while let Ok(Some(data)) = events.next().await {
            match jsonrpc::parse(&data, MAX_DEPTH) {
                // What answers a request comes on that request's own stream.
                Ok(Frame::Response { .. }) => {}
                Ok(_) => self.output.message(data).await,
                Err(fault) => tracing::warn!(%fault, "the gateway sent no message"),
            }
        }
    }
}

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_mins(1);
/// However soon the endpoint wants to be asked again.
const SOONEST: Duration = Duration::from_millis(50);
