//! Streams of change notifications for Modern clients: `subscriptions/listen`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::call::{Drain, Failure, Params};
use crate::jsonrpc::{self, Id, sse};
use crate::mcp::{Era, Method, meta, notification};
use crate::telemetry::metrics::Entered;

use super::answer::{self, Wants, Writer};
use super::caller::{Caller, Standing};
use super::{Body, Front};

/// Counts the open streams.
pub(super) struct Streams(Arc<AtomicUsize>);

impl Streams {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn enter(&self, limit: usize) -> Result<Place, Failure> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&self.0));
        if before < limit { Ok(place) } else { Err(Failure::TooManyStreams { limit }) }
    }
}

pub(super) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one stream tells, and how it ends.
struct Told {
    /// Said at once.
    first: Option<Bytes>,
    /// Told with each change; `None` where the client wants to hear of none.
    change: Option<Bytes>,
    /// Said at a graceful end.
    last: Option<Bytes>,
    changes: watch::Receiver<u64>,
    keep_alive: Duration,
    drain: Drain,
    standing: Standing,
    _held: (Place, Entered),
}

impl Told {
    async fn step(told: Option<Self>) -> Option<(Bytes, Option<Self>)> {
        let mut told = told?;
        if let Some(first) = told.first.take() {
            return Some((first, Some(told)));
        }
        tokio::select! {
            biased;
            () = told.standing.lost() => None,
            () = told.drain.started() => told.last.take().map(|last| (last, None)),
            Ok(()) = told.changes.changed(), if told.change.is_some() => {
                told.changes.mark_unchanged();
                let change = told.change.clone()?;
                Some((change, Some(told)))
            }
            () = tokio::time::sleep(told.keep_alive) => Some((sse::comment(), Some(told))),
        }
    }
}

impl Front {
    /// Opens a `subscriptions/listen` stream. Of what can be asked for, only
    /// changes of the tools happen here so far: the acknowledgement says so.
    pub(super) fn listen(
        &self,
        id: &Id,
        params: &Params,
        caller: &Caller,
    ) -> Result<Response<Body>, Failure> {
        let wants_tools = wants_tools(params)?;
        let limits = self.limits();
        let place = self.streams.enter(limits.0)?;
        let tag = json!({ meta::SUBSCRIPTION_ID: serde_json::from_slice::<Value>(id.raw()).unwrap_or_default() });
        let agreed = if wants_tools { json!({ "toolsListChanged": true }) } else { json!({}) };
        let acknowledged = json!({ "_meta": tag, "notifications": agreed });
        let ended = json!({ "resultType": "complete", "_meta": tag });
        let message = |method, params: Value| {
            sse::message(&jsonrpc::notification(method, Some(params.to_string().as_bytes())))
        };
        let told = Told {
            first: Some(message(notification::ACKNOWLEDGED, acknowledged)),
            change: wants_tools
                .then(|| message(notification::TOOLS_CHANGED, json!({ "_meta": tag }))),
            last: Some(sse::message(&jsonrpc::response(id, ended.to_string().as_bytes()))),
            changes: self.gateway.changes(),
            keep_alive: limits.1,
            drain: self.drain.clone(),
            standing: self.standing(caller),
            _held: (place, self.gateway.metrics.streams().enter()),
        };
        Ok(answer::with_events(Body::stream(stream::unfold(Some(told), Told::step))))
    }

    pub(super) fn writer(&self, id: Id, era: Era, token: Option<Bytes>, wants: Wants) -> Writer {
        let keep_alive = self.limits().1;
        let (method, info) = (Method::ToolsCall, self.gateway.info.clone());
        Writer { id, era, method, token, wants, keep_alive, info, session: None }
    }

    /// How many streams may be open, and how often a quiet one is kept alive.
    pub(super) fn limits(&self) -> (usize, Duration) {
        let snapshot = self.gateway.snapshots.load();
        let gateway = &snapshot.config.gateway;
        (gateway.limits.streams, gateway.keep_alive)
    }
}

fn wants_tools(params: &Params) -> Result<bool, Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Filter {
        #[serde(default)]
        tools_list_changed: bool,
    }
    let invalid = |detail: String| Failure::InvalidParams { detail };
    let filter = params
        .notifications()
        .ok_or_else(|| invalid("invalid params: `notifications` is missing".into()))?;
    let filter: Filter = jsonrpc::object(filter)
        .map_err(|error| invalid(format!("invalid params: notifications: {error}")))?;
    Ok(filter.tools_list_changed)
}
