//! Waiting for a due list request, for a call of a name that is not listed yet.

use std::sync::Arc;

use tokio::sync::watch;

use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::state::LifeState;

/// A list request of a server that is due or in progress.
pub struct DueListing(watch::Receiver<bool>);

impl DueListing {
    /// Returns the due request of an instance that can make it now, or `None` if there is none.
    pub(in crate::upstream) fn find(instance: &Arc<Instance>) -> Option<Self> {
        let due = instance.changes().watch_due();
        let is_due = *due.borrow() && instance.life().is_in(&LifeState::Ready);
        is_due.then_some(Self(due))
    }

    /// Waits until the lists were returned, or are no longer requested. The caller sets a time
    /// limit.
    pub async fn ended(mut self) {
        // An instance that has ended requests nothing.
        let _ = self.0.wait_for(|is_due| !is_due).await;
    }
}
