//! Lists that clients read page by page: kept for a time after they have changed, so that the last page
//! belongs to the same list as the first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::config::Config;
use crate::snapshot::{Snapshot, View, ViewKey};

/// The views whose lists clients are reading, the one that was read last at the end.
#[derive(Default)]
pub(super) struct PagedLists(Mutex<VecDeque<PagedList>>);

struct PagedList {
    /// Who sees the view: nobody else is given a page of it.
    key: ViewKey,
    /// What another configuration hides must not be shown by a page of before.
    config: Arc<Config>,
    view: Arc<View>,
    until: Instant,
}

impl PagedLists {
    /// Keeps a view of which a client has a page that is not the last one.
    pub(super) fn keep(&self, key: ViewKey, snapshot: &Snapshot, view: &Arc<View>) {
        let now = clock::now();
        let mut all = self.0.lock();
        all.retain(|one| one.until > now && !(one.key == key && Arc::ptr_eq(&one.view, view)));
        if all.len() >= MOST_VIEWS {
            all.pop_front();
        }
        let (config, view) = (Arc::clone(&snapshot.config), Arc::clone(view));
        all.push_back(PagedList { key, config, view, until: now + LASTING });
    }

    /// The views that were kept for those who have this key, under the same configuration.
    pub(super) fn find(&self, key: &ViewKey, snapshot: &Snapshot) -> Vec<Arc<View>> {
        let now = clock::now();
        let all = self.0.lock();
        let kept = all.iter().filter(|one| {
            one.until > now && one.key == *key && Arc::ptr_eq(&one.config, &snapshot.config)
        });
        kept.map(|one| Arc::clone(&one.view)).collect()
    }
}

/// How long a client may take from one page to the next if the list changes meanwhile.
const LASTING: Duration = Duration::from_mins(1);
/// The most views that are kept.
const MOST_VIEWS: usize = 16;
