//! Legacy sessions that have called an instance.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::upstream::notifications::SubscriptionHub;

/// Sessions that have called an instance other than the main one. A server may keep state for them,
/// such as a browser. So the instance is kept while one of them keeps a stream open, as it would be
/// with a direct connection.
#[derive(Debug, Default)]
pub(super) struct Callers(Mutex<HashSet<Arc<str>>>);

impl Callers {
    /// Records the session of a call.
    pub(super) fn add(&self, session: &Arc<str>, hub: &SubscriptionHub) {
        let mut sessions = self.0.lock();
        if sessions.contains(session) {
            return;
        }
        if sessions.len() >= MAX_CALLER_SESSIONS {
            sessions.retain(|session| hub.is_listening(session));
        }
        if sessions.len() < MAX_CALLER_SESSIONS {
            sessions.insert(Arc::clone(session));
        }
    }

    /// Returns true if the client of one of them keeps a stream open.
    pub(super) fn are_listening(&self, hub: &SubscriptionHub) -> bool {
        self.0.lock().iter().any(|session| hub.is_listening(session))
    }
}

/// Maximum number of sessions that are recorded for one instance.
const MAX_CALLER_SESSIONS: usize = 1024;
