//! The lists of one instance that may have changed since they were last requested.

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::catalog::{ByKind, Kind};
use crate::clock;

/// The lists that may have changed, each with the time at which that became known.
#[derive(Debug, Default)]
pub(in crate::upstream) struct ChangedLists {
    since: Mutex<ByKind<Option<Instant>>>,
    /// Notified of each change.
    changed: Notify,
    /// True from a change until its lists were requested.
    is_due: watch::Sender<bool>,
}

impl ChangedLists {
    /// Notes that these lists may have changed.
    pub(in crate::upstream) fn mark(&self, kinds: &[Kind]) {
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

    /// Notes that all lists may have changed.
    pub(in crate::upstream) fn mark_all(&self) {
        self.mark(&Kind::ALL);
    }

    /// The lists that may have changed, and since when.
    pub(super) fn pending(&self) -> ByKind<Option<Instant>> {
        *self.since.lock()
    }

    /// Takes these lists, because they are requested now.
    pub(super) fn take(&self, kinds: ByKind<bool>) {
        let mut since = self.since.lock();
        for kind in Kind::ALL.into_iter().filter(|kind| *kinds.get(*kind)) {
            *since.get_mut(kind) = None;
        }
    }

    /// Notes the end of a request. Others may be due.
    pub(in crate::upstream) fn settle(&self) {
        let is_due = self.pending() != ByKind::default();
        self.is_due.send_if_modified(|due| std::mem::replace(due, is_due) != is_due);
    }

    /// Forgets all changes: the lists are requested when the next connection is opened.
    pub(in crate::upstream) fn clear(&self) {
        self.take(ByKind::from_fn(|_| true));
        self.settle();
    }

    /// Waits for the next change.
    ///
    /// # Cancel safety
    /// Safe.
    pub(in crate::upstream) async fn notified(&self) {
        self.changed.notified().await;
    }

    /// The state of the requests: true while one is due or under way.
    pub(in crate::upstream) fn watch_due(&self) -> watch::Receiver<bool> {
        self.is_due.subscribe()
    }
}
