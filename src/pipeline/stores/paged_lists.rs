//! Lists that clients read page by page. They are kept for a time after a change, so that the last
//! page belongs to the same list as the first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::config::Config;
use crate::snapshot::{Snapshot, View, ViewKey};

/// Views with lists that clients are reading, the least recently read first.
#[derive(Default)]
pub(crate) struct PagedLists(Mutex<VecDeque<PagedList>>);

struct PagedList {
    /// Key of the view: only clients with the same key get its pages.
    key: ViewKey,
    /// Configuration of the view: a page from before a reload must not show elements that the new
    /// configuration hides.
    config: Arc<Config>,
    view: Arc<View>,
    until: Instant,
}

impl PagedLists {
    /// Keeps a view after a client has read a page that is not the last one.
    pub(crate) fn keep(&self, key: ViewKey, snapshot: &Snapshot, view: &Arc<View>) {
        let now = clock::now();
        let mut all = self.0.lock();
        all.retain(|one| one.until > now && !(one.key == key && Arc::ptr_eq(&one.view, view)));
        if all.len() >= MAX_PAGED_VIEWS {
            all.pop_front();
        }
        let (config, view) = (Arc::clone(&snapshot.config), Arc::clone(view));
        all.push_back(PagedList { key, config, view, until: now + PAGED_VIEW_LIFETIME });
    }

    /// Returns the views kept for clients with this key under the same configuration.
    pub(crate) fn find(&self, key: &ViewKey, snapshot: &Snapshot) -> Vec<Arc<View>> {
        let now = clock::now();
        let all = self.0.lock();
        let kept = all.iter().filter(|one| {
            one.until > now && one.key == *key && Arc::ptr_eq(&one.config, &snapshot.config)
        });
        kept.map(|one| Arc::clone(&one.view)).collect()
    }
}

/// Time limit between two page requests if the list changes meanwhile.
const PAGED_VIEW_LIFETIME: Duration = Duration::from_mins(1);
/// Limit of kept views.
const MAX_PAGED_VIEWS: usize = 16;
