//! Limits that all streams to clients share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::call::Failure;
use crate::jsonrpc::Id;
use crate::mcp::{Era, Method};

use super::McpService;
use super::response::{AcceptedForm, AnswerWriter};

/// Counts the open streams.
pub(super) struct OpenStreams(Arc<AtomicUsize>);

impl OpenStreams {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn enter(&self, limit: usize) -> Result<StreamSlot, Failure> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let place = StreamSlot(Arc::clone(&self.0));
        if before < limit { Ok(place) } else { Err(Failure::TooManyStreams { limit }) }
    }
}

pub(super) struct StreamSlot(Arc<AtomicUsize>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
    pub(super) fn limits(&self) -> (usize, Duration) {
        let snapshot = self.gateway.snapshots.load();
        let gateway = &snapshot.config.gateway;
        (gateway.limits.streams, gateway.keep_alive)
    }
}
