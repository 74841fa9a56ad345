//! Delays calls of unknown names until due lists have arrived: a server may have announced the name
//! a moment ago.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::pipeline::client_view::ClientView;
use crate::snapshot::Snapshots;
use crate::upstream::DueListing;

/// Lists of a view's servers that are due.
pub(crate) struct DueLists(Vec<DueListing>);

impl DueLists {
    /// Returns the lists that a call of this client may wait for; `None` if there are none.
    pub(crate) fn pending(client: &ClientView) -> Option<Self> {
        let servers = client.snapshot.servers_of(&client.view);
        let due: Vec<_> = servers.flat_map(|member| member.server.due_listings()).collect();
        (!due.is_empty()).then_some(Self(due))
    }

    /// Waits until all of them have arrived, within a limit, and until the current snapshot has
    /// them.
    pub(crate) async fn wait(self, snapshots: &Snapshots) {
        let ended = join_all(self.0.into_iter().map(DueListing::ended));
        let _ = timeout(DUE_LISTING_PATIENCE, ended).await;
        snapshots.catch_up().await;
    }
}

/// Limit of the wait.
pub(crate) const DUE_LISTING_PATIENCE: Duration = Duration::from_secs(2);
