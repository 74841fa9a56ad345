//! Limits that all streams to clients share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::call::Failure;
use crate::jsonrpc::Id;
use crate::mcp::{Era, Method};
use crate::policy::{Holder, Share, ShareBounds, SharedAmount};

use super::McpService;
use super::response::{AcceptedForm, AnswerWriter};

/// Counts the open streams, in all and of each client.
#[derive(Default)]
pub(super) struct OpenStreams(Arc<SharedAmount>);

impl OpenStreams {
    pub(super) fn enter(&self, holder: &Holder, bounds: ShareBounds) -> Result<Share, Failure> {
        let entered = self.0.take(holder, 1, bounds);
        entered.map_err(|reached| Failure::TooManyStreams { limit: bounds.reached(reached) })
    }
}

impl McpService {
    pub(super) fn writer(
        &self,
        id: Id,
        era: Era,
        token: Option<Bytes>,
        wants: AcceptedForm,
    ) -> AnswerWriter {
        let keep_alive = self.limits().1;
        let (method, info) = (Method::ToolsCall, self.gateway.info.clone());
        AnswerWriter { id, era, method, token, wants, keep_alive, info, session: None }
    }

    /// How many streams may be open, and how often a quiet one is kept alive.
    pub(super) fn limits(&self) -> (ShareBounds, Duration) {
        let snapshot = self.gateway.snapshots.load();
        let gateway = &snapshot.config.gateway;
        let all = gateway.limits.streams;
        (ShareBounds { all, each: snapshot.config.share_of(all) }, gateway.keep_alive)
    }
}
