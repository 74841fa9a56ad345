//! Messages to a Legacy server outside client calls: responses to its requests, notifications and
//! log levels.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use crate::call::Answer;
use crate::jsonrpc::{Id, Response};
use crate::mcp::{Era, LogLevel, Method};
use crate::upstream::UpstreamError;
use crate::upstream::interaction::questions::message;
use crate::upstream::notifications::levels;

use super::HttpShared;

impl HttpShared {
    /// Sets a Legacy server's log level to the most detailed one that its clients request.
    pub(super) async fn set_level(self: &Arc<Self>, wants: Option<LogLevel>) {
        if !self.peer.offers.has_capability("logging") || self.peer.era() == Era::Modern {
            return;
        }
        let Some(level) = self.levels.before(wants, self.session.number()) else { return };
        // Boxed to keep the usual call small: most calls set no level.
        let setting = Box::pin(self.request(&Method::SetLevel, levels::params(level)));
        // A call must not fail because its log lines are missing.
        match tokio::time::timeout(ASIDE_TIMEOUT, setting).await {
            Ok(Ok(Answer::Result(_))) => {}
            Ok(Ok(Answer::Error(error))) => {
                let code = error.code();
                tracing::debug!(server = %self.server, ?level, code, "the log level is refused");
            }
            Ok(Err(fault)) => {
                let fault = self.inbox.describe(&fault);
                tracing::debug!(server = %self.server, ?level, fault, "the log level is not set");
            }
            Err(_) => tracing::debug!(server = %self.server, ?level, "no answer to a log level"),
        }
    }

    /// Sends a Legacy server the response to its request, within [`ASIDE_TIMEOUT`].
    pub(super) async fn respond(&self, id: &Id, response: &Response) -> Result<(), UpstreamError> {
        let mut headers = HeaderMap::new();
        self.session.add_to(&mut headers);
        let post = self.client.post(&headers, message(id, response));
        match tokio::time::timeout(ASIDE_TIMEOUT, post).await {
            Ok(Ok(taken)) if taken.status().is_success() => Ok(()),
            Ok(Ok(refused)) => Err(UpstreamError::of_status(refused.status())),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(UpstreamError::Timeout { after: ASIDE_TIMEOUT }),
        }
    }

    /// Sends a message outside client calls. Drops it if [`MAX_ASIDES`] messages are in flight.
    pub(super) fn send_aside(self: &Arc<Self>, body: Bytes) {
        let Ok(place) = Arc::clone(&self.asides).try_acquire_owned() else {
            tracing::debug!(server = %self.server, "too many messages in flight outside calls: one is dropped");
            return;
        };
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let mut headers = HeaderMap::new();
            shared.session.add_to(&mut headers);
            let sent =
                tokio::time::timeout(ASIDE_TIMEOUT, shared.client.post(&headers, body)).await;
            if let Ok(Err(fault)) = sent {
                tracing::debug!(server = %shared.server, fault = shared.inbox.describe(&fault), "a message was lost");
            }
            drop(place);
        });
    }
}

/// Time limit for a message outside client calls.
pub(super) const ASIDE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of such messages in flight.
pub(super) const MAX_ASIDES: usize = 64;
