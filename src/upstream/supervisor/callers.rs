//! The Legacy sessions that have called an instance.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::upstream::notifications::SubscriptionHub;

/// The sessions that have called an instance besides the main one. A server may
/// keep something for them, such as a browser, so the instance is worth keeping
/// while one of them keeps a stream open: with a direct connection it would stay
/// for as long.
#[derive(Debug, Default)]
pub(super) struct Callers(Mutex<HashSet<Arc<str>>>);

impl Callers {
    /// Records the session of a call.
    pub(super) fn add(&self, session: &Arc<str>, hub: &SubscriptionHub) {
        let mut sessions = self.0.lock();
        if sessions.contains(session) {
            return;
        }
        if sessions.len() >= MOST {
            sessions.retain(|session| hub.is_listening(session));
        }
        if sessions.len() < MOST {
            sessions.insert(Arc::clone(session));
        }
    }

    /// Whether the client of one of them keeps a stream open.
    pub(super) fn are_listening(&self, hub: &SubscriptionHub) -> bool {
        self.0.lock().iter().any(|session| hub.is_listening(session))
    }
}

/// The most sessions that are recorded for one instance.
const MOST: usize = 1024;
