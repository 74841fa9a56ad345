//! Delays calls of unknown names until due lists have arrived: a server may have announced the name
//! a moment ago.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::call::Call;
use crate::snapshot::{Snapshot, View, ViewKey};
use crate::upstream::DueListing;

use super::active_call::ActiveCall;
use super::route;

/// The snapshot and view that route a call after the wait for due lists.
pub(super) struct LaterRoute {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) view: Arc<View>,
}

impl LaterRoute {
    /// Waits for the lists of the view's servers that are due; `None` if none are, or the call has
    /// no route afterwards.
    pub(super) async fn wait_for(
        (snapshot, view): (&Arc<Snapshot>, &Arc<View>),
        key: &ViewKey,
        call: &Call,
        active: &mut ActiveCall,
    ) -> Option<Self> {
        let servers = snapshot.servers_of(view);
        let due: Vec<_> = servers.flat_map(|member| member.server.due_listings()).collect();
        if due.is_empty() {
            return None;
        }
        let ended = join_all(due.into_iter().map(DueListing::ended));
        let _ = timeout(DUE_LISTING_PATIENCE, ended).await;
        let snapshots = Arc::clone(&active.asker().inputs.snapshots);
        snapshots.catch_up().await;
        let snapshot = snapshots.load_full();
        let view = snapshot.view(key, &call.context);
        route::exists(&snapshot, &view, call, active.asker()).then_some(Self { snapshot, view })
    }
}

/// Limit of the wait.
const DUE_LISTING_PATIENCE: Duration = Duration::from_secs(2);
