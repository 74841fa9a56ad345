//! Sessions that a server may have lost without reporting it.
//!
//! Some servers respond to a request in a lost session with 500, with 202 and no content, or with
//! 401. None of these proves that the session is lost, so the gateway sends a `ping` in the same
//! session to find out.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::timeout;

use crate::clock;
use crate::http_client::RequestHeaders as _;
use crate::jsonrpc::{self, Frame, Id};
use crate::mcp::Method;
use crate::upstream::UpstreamError;

use super::calls::reply::HttpReply;
use super::session::{OpenSession, is_session_error};
use super::{ASIDE_TIMEOUT, HttpShared};

impl HttpShared {
    /// Checks the session if a reply gives reason to doubt it, or lets the next call reopen it. The
    /// request itself is not repeated, because the server may have executed it.
    pub(super) fn note_doubtful_session(
        self: &Arc<Self>,
        used: &Arc<OpenSession>,
        reply: &HttpReply,
    ) {
        match reply {
            HttpReply::Message(Frame::Response { response, .. }) if is_session_error(response) => {
                used.mark_lost();
            }
            HttpReply::Empty
            | HttpReply::Refused {
                status: StatusCode::INTERNAL_SERVER_ERROR | StatusCode::UNAUTHORIZED,
                ..
            } if self.may_ping() => {
                let (shared, used) = (Arc::clone(self), Arc::clone(used));
                tokio::spawn(async move { shared.ping_session(&used).await });
            }
            _ => {}
        }
    }

    /// Returns true if no `ping` was sent recently, and notes the time.
    fn may_ping(&self) -> bool {
        let (mut pinged, now) = (self.pinged.lock(), clock::now());
        if pinged.is_some_and(|at| now - at < BETWEEN_PINGS) {
            return false;
        }
        *pinged = Some(now);
        true
    }

    /// Sends a `ping` in the session. If it is not answered, the next call opens another session.
    async fn ping_session(&self, used: &Arc<OpenSession>) {
        let id = self.number();
        match timeout(ASIDE_TIMEOUT, self.ping(&id, used)).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                let fault = fault.chain();
                tracing::info!(server = %self.server, fault, "the session does not answer a ping, the next call opens another");
                used.mark_lost();
            }
            Err(_) => {
                tracing::info!(server = %self.server, "the session does not answer a ping in time, the next call opens another");
                used.mark_lost();
            }
        }
    }

    /// Sends the `ping`. Any response shows that the server knows the session, even an error.
    async fn ping(&self, id: &Id, used: &OpenSession) -> Result<(), UpstreamError> {
        let mut headers = HeaderMap::new();
        used.add_to(&mut headers);
        let body = jsonrpc::request(id, Method::Ping.as_str(), b"{}");
        let response = self.client.post(&headers, body).await?;
        let reply = HttpReply::read(response, self.limit).await?;
        match reply {
            HttpReply::Message(Frame::Response { response, .. }) if is_session_error(&response) => {
                Err(UpstreamError::NoAnswer)
            }
            reply => reply.answer(id).await.map(drop),
        }
    }
}

/// Minimum time between two pings.
const BETWEEN_PINGS: Duration = Duration::from_mins(1);
