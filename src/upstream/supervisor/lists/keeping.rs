//! Storage of a server's lists for the next run of the gateway.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::upstream::lists::store::{KeepOutcome, KnownServer, ListStore};
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
                () = self.follow_shared_lists(&store) => continue,
            }
            // Several lists arrive together.
            let _ = timeout(STORE_DELAY, self.stopped()).await;
            // A server that was replaced leaves the file to its replacement.
            if self.is_released() {
                return;
            }
            if let Some(known) = self.known_server() {
                let outcome = store.keep(self.config(), known).await;
                if outcome == KeepOutcome::TryAgain {
                    let _ = timeout(RETRY_DELAY, self.stopped()).await;
                    self.keep_soon();
                }
            }
        }
    }

    /// Completes when the lists of another replica are used, because the server has returned none yet.
    async fn follow_shared_lists(&self, store: &Arc<ListStore>) {
        while store.is_shared() && self.lists().base.load().is_none() {
            sleep(SHARED_LIST_INTERVAL).await;
            let Some(known) = store.find_shared(self.config()).await else { continue };
            if self.lists().restore(&known) {
                self.lists().wake_waiting();
                self.context().listed.notify_one();
                return;
            }
        }
        std::future::pending::<()>().await;
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
            listed_at: lists.listed_at.load(Ordering::Acquire),
            further: further.collect(),
        })
    }
}

/// Time after which the store of the replicas is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Interval at which lists of other replicas are looked for.
const SHARED_LIST_INTERVAL: Duration = Duration::from_secs(5);
/// Time that a change waits for further ones.
const STORE_DELAY: Duration = Duration::from_millis(200);
