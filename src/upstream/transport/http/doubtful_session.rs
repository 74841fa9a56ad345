//! Sessions that a server may have lost without saying so.
//!
//! Some servers answer a request of a lost session with 500, with 202 and nothing, or with 401. None of
//! these means that the session is lost: a `ping` in the same session decides.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::timeout;

use crate::clock;
use crate::jsonrpc::{self, Frame, Id};
use crate::mcp::Method;
use crate::upstream::UpstreamError;

use super::headers::RequestHeaders as _;
use super::reply::HttpReply;
use super::session::{OpenSession, is_session_error};
use super::{ASIDE, HttpShared};

impl HttpShared {
    /// Has the session checked, or opened again by the next call, if the reply to a request in it gives
    /// reason to. The request itself is not sent again: it may have been carried out.
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

    /// Returns true, and notes the time, if there was no `ping` for a while.
    fn may_ping(&self) -> bool {
        let (mut pinged, now) = (self.pinged.lock(), clock::now());
        if pinged.is_some_and(|at| now - at < BETWEEN_PINGS) {
            return false;
        }
        *pinged = Some(now);
        true
    }

    /// Sends a `ping` in the session, and has the next call open another if it is not answered.
    async fn ping_session(&self, used: &Arc<OpenSession>) {
        let id = self.number();
        match timeout(ASIDE, self.ping(&id, used)).await {
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

    /// Any answer to the `ping` shows that the session is known, an error as well.
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

/// The least time between two pings.
const BETWEEN_PINGS: Duration = Duration::from_mins(1);
