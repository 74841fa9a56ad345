//! Waiting for the first list of a server that is still starting.
//!
//! Many agents start together with the gateway and list once. Their list request waits for each
//! server that has neither listed nor failed since it began to start. Later nothing waits: a server
//! that restarts keeps its last list, and one that failed joins when it is ready, announced by a
//! list-changed notification.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;

use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::state::LifeState;

/// Time at which list requests last waited for servers in vain. Servers that were starting by then
/// are not waited for again, so a client's successive list requests wait only once together. Each
/// Legacy session has its own patience. Modern clients have no sessions, so they share the patience
/// of each server.
#[derive(Debug, Default)]
pub struct ListPatience(Mutex<Option<Instant>>);

impl ListPatience {
    fn is_spent_on(&self, starting_since: Instant) -> bool {
        self.0.lock().is_some_and(|spent_at| starting_since <= spent_at)
    }

    fn spend(&self) {
        *self.0.lock() = Some(clock::now());
    }
}

/// The first list of a server that is starting. While this is held, the server starts before those
/// that no client waits for.
pub struct FirstList(Arc<Instance>);

impl FirstList {
    /// Returns the list, unless it is known or not worth waiting for. Starts a lazy server for it.
    pub(in crate::upstream) fn pending(
        main: &Arc<Instance>,
        patience: Option<&ListPatience>,
    ) -> Option<Self> {
        if has_verdict(main) {
            return None;
        }
        if main.life().is_in(&LifeState::Idle) {
            main.start_unlisted();
        }
        let since = main.life().history().first_start.unwrap_or_else(clock::now);
        let is_spent = patience.unwrap_or(main.shared().patience()).is_spent_on(since);
        (!is_spent).then(|| {
            main.demand().begin_list_request();
            Self(Arc::clone(main))
        })
    }

    /// Waits until the server has listed or failed. The caller sets a time limit.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn known(&self) {
        let mut state = self.0.life().watch_state();
        // The sender is part of the instance, so it cannot be dropped.
        let _ = state.wait_for(|_| has_verdict(&self.0)).await;
    }

    /// Records that a request has waited in vain, with this patience or otherwise with the server's
    /// own.
    pub fn spend(&self, patience: Option<&ListPatience>) {
        if !has_verdict(&self.0) {
            patience.unwrap_or(self.0.shared().patience()).spend();
        }
    }
}

impl Drop for FirstList {
    fn drop(&mut self) {
        self.0.demand().end_list_request();
    }
}

/// Returns true if the server has listed, or has failed for the first time.
fn has_verdict(main: &Instance) -> bool {
    if main.shared().lists().base.load().is_some() {
        return true;
    }
    // A server that required a login may list now, or require another one.
    let is_on_its_way = match main.life().state() {
        LifeState::AwaitsLogin => main.has_logged_in(),
        LifeState::Connecting => main.shared().authorizer().is_some(),
        _ => false,
    };
    main.life().history().first_verdict.is_some() && !is_on_its_way
}
