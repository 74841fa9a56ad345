//! Lists of one instance that may have changed since they were last requested.

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::catalog::{ByKind, Kind};
use crate::clock;

/// Lists that may have changed, each with the time of its first unrequested change.
#[derive(Debug, Default)]
pub(crate) struct ChangedLists {
    since: Mutex<ByKind<Option<Instant>>>,
    /// Notified of each change.
    changed: Notify,
    /// True from a change until its lists were requested.
    is_due: watch::Sender<bool>,
}

impl ChangedLists {
    /// Records that these lists may have changed.
    pub(crate) fn mark(&self, kinds: &[Kind]) {
        let now = clock::now();
        {
            let mut since = self.since.lock();
            for kind in kinds {
                since.get_mut(*kind).get_or_insert(now);
            }
        }
        self.is_due.send_replace(true);
        self.changed.notify_one();
    }

    /// Records that all lists may have changed.
    pub(crate) fn mark_all(&self) {
        self.mark(&Kind::ALL);
    }

    /// Returns the lists that may have changed, with the times of the changes.
    pub(crate) fn pending(&self) -> ByKind<Option<Instant>> {
        *self.since.lock()
    }

    /// Takes these lists, because they are requested now.
    pub(crate) fn take(&self, kinds: ByKind<bool>) {
        let mut since = self.since.lock();
        for kind in Kind::ALL.into_iter().filter(|kind| *kinds.get(*kind)) {
            *since.get_mut(kind) = None;
        }
    }

    /// Records the end of a request. Others may be due.
    pub(crate) fn settle(&self) {
        let is_due = self.pending() != ByKind::default();
        self.is_due.send_if_modified(|due| std::mem::replace(due, is_due) != is_due);
    }

    /// Forgets all changes, because opening the next connection requests all lists.
    pub(crate) fn clear(&self) {
        self.take(ByKind::from_fn(|_| true));
        self.settle();
    }

    /// Waits for the next change.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn notified(&self) {
        self.changed.notified().await;
    }

    /// Returns the state of the requests: true while one is due or in progress.
    pub(crate) fn watch_due(&self) -> watch::Receiver<bool> {
        self.is_due.subscribe()
    }
}
