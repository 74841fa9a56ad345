//! Delays list requests, and calls without a route, until starting servers have listed.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::pipeline::client_view::ClientView;
use crate::snapshot::Snapshots;
use crate::upstream::{FirstList, ListPatience};

/// Servers of a view that have neither listed nor failed since they began to start.
pub(crate) struct FirstLists {
    pending: Vec<FirstList>,
    limit: Duration,
}

impl FirstLists {
    /// Returns the servers that a request with this patience still waits for; `None` if there are
    /// none and the snapshot has the newest lists.
    pub(crate) fn pending(client: &ClientView, patience: Option<&ListPatience>) -> Option<Self> {
        let ClientView { snapshot, view, .. } = client;
        let limit = snapshot.config.gateway.list_wait;
        if limit.is_zero() || !snapshot.lacks_lists() {
            return None;
        }
        let servers = snapshot.servers_of(view);
        let pending: Vec<_> =
            servers.filter_map(|member| member.server.first_list(patience)).collect();
        // A server that has just listed is not pending any more.
        (!pending.is_empty() || snapshot.is_outdated()).then_some(Self { pending, limit })
    }

    /// Waits until all of them have listed or failed, within the configured time, and until the
    /// current snapshot has their lists.
    pub(crate) async fn wait(self, snapshots: &Snapshots, patience: Option<&ListPatience>) {
        let known = join_all(self.pending.iter().map(FirstList::known));
        if timeout(self.limit, known).await.is_err() {
            self.pending.iter().for_each(|list| list.spend(patience));
        }
        snapshots.catch_up().await;
    }
}
