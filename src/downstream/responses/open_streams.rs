//! Limits that all streams to clients share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::call::Failure;
use crate::jsonrpc::Id;
use crate::mcp::{Era, Method};
use crate::shares::{Holder, Share, ShareBounds, SharedAmount};
use crate::snapshot::Snapshot;

use super::response::{AcceptedForm, AnswerWriter};
use crate::downstream::McpService;

/// Counts the open streams, in total and by client.
#[derive(Default)]
pub(crate) struct OpenStreams {
    all: Arc<SharedAmount>,
    /// The queries of narrowed streams, by client. Every published list builds the view of each.
    narrowed: Arc<Mutex<NarrowedStreams>>,
}

/// Numbers of a client's streams by query.
type NarrowedStreams = HashMap<Holder, HashMap<Arc<str>, usize>>;

/// A stream among the open ones, until it is dropped.
pub(crate) struct StreamPlace {
    share: Share,
    narrowing: Option<(Arc<str>, Arc<Mutex<NarrowedStreams>>)>,
}

impl OpenStreams {
    /// Takes a place for a stream, and registers its narrowing query, if there is one.
    pub(crate) fn enter(
        &self,
        holder: &Holder,
        narrowing: Option<&Arc<str>>,
        bounds: ShareBounds,
    ) -> Result<StreamPlace, Failure> {
        let entered = self.all.take(holder, 1, bounds);
        let share = entered
            .map_err(|reached| Failure::TooManyStreams { limit: bounds.reached(reached) })?;
        let mut place = StreamPlace { share, narrowing: None };
        let Some(query) = narrowing else { return Ok(place) };
        let mut narrowed = self.narrowed.lock();
        let own = narrowed.entry(holder.clone()).or_default();
        let distinguished = bounds.each < bounds.all;
        if distinguished && own.len() >= MAX_QUERIES_PER_CLIENT && !own.contains_key(query) {
            return Err(Failure::TooManyStreams { limit: MAX_QUERIES_PER_CLIENT });
        }
        *own.entry(Arc::clone(query)).or_default() += 1;
        drop(narrowed);
        place.narrowing = Some((Arc::clone(query), Arc::clone(&self.narrowed)));
        Ok(place)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let Some((query, narrowed)) = &self.narrowing else { return };
        let mut narrowed = narrowed.lock();
        let Some(own) = narrowed.get_mut(self.share.holder()) else { return };
        if let Some(count) = own.get_mut(query) {
            *count -= 1;
            if *count == 0 {
                own.remove(query);
            }
        }
        if own.is_empty() {
            narrowed.remove(self.share.holder());
        }
    }
}

impl McpService {
    pub(crate) fn writer(
        &self,
        id: Id,
        era: Era,
        wants: AcceptedForm,
        snapshot: &Snapshot,
    ) -> AnswerWriter {
        let keep_alive = snapshot.config.gateway.keep_alive;
        let (method, info) = (Method::ToolsCall, self.gateway.info.clone());
        AnswerWriter { id, era, method, token: None, wants, keep_alive, info, session: None }
    }

    /// Returns the limits of open streams, and the keep-alive interval.
    pub(crate) fn limits(&self) -> (ShareBounds, Duration) {
        let snapshot = self.gateway.snapshots.load();
        let gateway = &snapshot.config.gateway;
        let all = gateway.limits.streams;
        (ShareBounds { all, each: snapshot.config.share_of(all) }, gateway.keep_alive)
    }
}

/// Limit of the queries among the streams of one client, where clients can be distinguished.
const MAX_QUERIES_PER_CLIENT: usize = 16;
