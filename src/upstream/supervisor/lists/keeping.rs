//! Storage of a server's lists for the next run of the gateway.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use crate::upstream::lists::store::{KnownServer, ListStore};
use crate::upstream::supervisor::shared::ServerShared;

impl ServerShared {
    /// Starts the task that keeps the lists, if there is a store for them.
    pub(crate) fn start_keeping(self: &Arc<Self>) {
        if let Some(store) = self.context().store.clone() {
            let keeping = Arc::clone(self).keep_lists(store);
            self.spawn(keeping);
        }
    }

    async fn keep_lists(self: Arc<Self>, store: Arc<ListStore>) {
        loop {
            tokio::select! {
                // Pending changes first, because the next run needs them.
                biased;
                () = self.keep_requested() => {}
                () = self.stopped() => return,
            }
            // Several lists arrive together.
            let _ = timeout(STORE_DELAY, self.stopped()).await;
            // A server that was replaced leaves the file to its replacement.
            if self.is_released() {
                return;
            }
            if let Some(known) = self.known_server() {
                store.keep(self.config(), known).await;
            }
        }
    }

    /// Returns the data of the server, once it has returned its lists in this run.
    fn known_server(&self) -> Option<KnownServer> {
        let lists = self.lists();
        let base = lists.base.load_full().filter(|_| lists.is_current.load(Ordering::Acquire))?;
        let (version, probed, info) = self.era().to_keep()?;
        let legacy_refused = self.legacy_side().refused_at();
        let further = lists.lists_to_keep().into_iter();
        let further =
            further.filter(|(told, _)| legacy_refused.is_none() || told.other_era.is_none());
        Some(KnownServer {
            version,
            probed,
            info,
            legacy_refused,
            dependence: lists.dependence_verdict(),
            base,
            further: further.collect(),
        })
    }
}

/// Time that a change waits for further ones.
const STORE_DELAY: Duration = Duration::from_millis(200);
