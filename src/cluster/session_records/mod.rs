//! Records of this replica's sessions in the store, from which another one revives them.
//!
//! A record names the owner of a session. It is written when the session is opened and when its state
//! changes, by one task ([`keeper`]), so that changes that come together are one write; it expires when
//! the session would. A replica that finds a session without an owner claims it ([`claim`]). This module
//! does not know the state of sessions: [`RecordedSessions`] describes them.

mod claim;
mod keeper;
mod record;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use super::store::{RecordVersion, SessionWrite, ValueFaultLog};
use super::{ClusterStore, ReplicaId, ValueFault};
use crate::crypto::Sealer;
use crate::telemetry::log::FaultLog;
use crate::telemetry::metrics::ClusterCounts;

use record::RecordPlace;

pub use claim::{ClaimOutcome, ClaimedSession, FoundSession};
pub use record::{MAX_SESSION_STATE, SessionKey, SessionRecord};

/// The sessions of this replica.
pub trait RecordedSessions: Send + Sync {
    /// Returns the state that a new owner needs, of at most [`MAX_SESSION_STATE`]; `None` for a session
    /// that has ended, or whose state is larger.
    fn describe(&self, id: &str) -> Option<Vec<u8>>;

    /// Ends a session that another replica owns now.
    fn end_moved(&self, id: &str);

    /// Returns the time until an unused record expires.
    fn lifetime(&self) -> Duration;
}

/// The records of this replica's sessions.
pub struct SessionRecords {
    own: ReplicaId,
    sealer: Sealer,
    store: Arc<dyn ClusterStore>,
    counts: ClusterCounts,
    faults: Mutex<FaultLog>,
    value_faults: ValueFaultLog,
    sessions: Mutex<Option<Weak<dyn RecordedSessions>>>,
    table: Mutex<RecordTable>,
    /// Wakes the task that writes.
    wake: Notify,
    /// Held during an access to the records of own sessions, one at a time.
    turn: tokio::sync::Mutex<()>,
    is_failing: AtomicBool,
}

/// The parts of [`SessionRecords`].
pub(super) struct SessionRecordParts {
    pub(super) own: ReplicaId,
    pub(super) sealer: Sealer,
    pub(super) store: Arc<dyn ClusterStore>,
    pub(super) counts: ClusterCounts,
}

#[derive(Default)]
struct RecordTable {
    held: HashMap<Arc<str>, HeldRecord>,
    /// Sessions with changes, each once.
    changed: Vec<Arc<str>>,
    /// Records of ended sessions that are still in the store, by name.
    removed: HashMap<String, RemovedRecord>,
}

/// The record of an own session.
struct HeldRecord {
    place: RecordPlace,
    generation: u64,
    /// The version in the store; `None` before it was written.
    version: Option<RecordVersion>,
    /// True once a write was sent, whether its reply has arrived or not.
    is_sent: bool,
    is_changed: bool,
    /// True once the record shows another owner, which keeps it.
    has_moved: bool,
    /// Notified of the first write.
    first: Option<oneshot::Sender<()>>,
}

/// The record of a session that has ended here.
#[derive(Clone)]
struct RemovedRecord {
    place: RecordPlace,
    /// The last version that is known to be in the store.
    version: Option<RecordVersion>,
}

impl std::fmt::Debug for SessionRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionRecords({})", self.len())
    }
}

impl SessionRecords {
    pub(super) fn new(parts: SessionRecordParts) -> Self {
        let SessionRecordParts { own, sealer, store, counts } = parts;
        let value_faults = ValueFaultLog::new(store.place());
        Self {
            own,
            sealer,
            store,
            counts,
            faults: Mutex::default(),
            value_faults,
            sessions: Mutex::default(),
            table: Mutex::default(),
            wake: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Describes sessions by `sessions` from now on.
    pub fn describe_by(&self, sessions: Weak<dyn RecordedSessions>) {
        *self.sessions.lock() = Some(sessions);
    }

    /// Returns the number of own sessions.
    pub fn len(&self) -> usize {
        self.table().held.len()
    }

    /// Returns true if there are no own sessions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if another replica may know this session.
    pub fn is_recorded(&self, id: &str) -> bool {
        self.table().held.get(id).is_some_and(|held| held.is_sent)
    }

    /// Keeps the record of a session that was opened here. Returns a signal for its first write, which
    /// also ends when the write fails; `None` while the store fails.
    pub fn keep_session(&self, key: SessionKey<'_>) -> Option<oneshot::Receiver<()>> {
        let (first, written) = oneshot::channel();
        let place = RecordPlace::of(key);
        let id: Arc<str> = key.id.into();
        let held = HeldRecord {
            place,
            generation: FIRST_GENERATION,
            version: None,
            is_sent: false,
            is_changed: true,
            has_moved: false,
            first: Some(first),
        };
        let mut table = self.table();
        table.changed.push(Arc::clone(&id));
        table.held.insert(id, held);
        drop(table);
        self.wake.notify_one();
        (!self.is_failing.load(Ordering::Relaxed)).then_some(written)
    }

    /// Notes that the state of an own session has changed.
    pub fn note_change(&self, id: &str) {
        if self.table().mark_changed(id) {
            self.wake.notify_one();
        }
    }

    /// Removes the record of an own session that has ended.
    pub fn remove_session(&self, id: &str) {
        let mut table = self.table();
        let Some(held) = table.held.remove(id) else { return };
        if held.is_sent && !held.has_moved {
            table.remove_later(held.place, held.version);
            drop(table);
            self.wake.notify_one();
        }
    }

    /// Warns of a record that is refused.
    pub(super) fn note_value(&self, fault: ValueFault) {
        self.value_faults.note(SESSION_KIND, fault);
    }

    fn sessions(&self) -> Option<Arc<dyn RecordedSessions>> {
        self.sessions.lock().as_ref().and_then(Weak::upgrade)
    }

    fn lifetime(&self) -> Duration {
        self.sessions().map_or(MIN_LIFETIME, |sessions| sessions.lifetime()).max(MIN_LIFETIME)
    }

    fn table(&self) -> MutexGuard<'_, RecordTable> {
        self.table.lock()
    }

    /// Builds a write by this replica.
    fn new_write(&self, name: String, expected: Option<RecordVersion>) -> SessionWrite {
        SessionWrite {
            name,
            expected,
            bytes: Vec::new(),
            lifetime: self.lifetime(),
            writer: self.own.to_string(),
            lost: None,
        }
    }
}

impl RecordTable {
    /// Returns true if the session has no earlier change that is not written.
    fn mark_changed(&mut self, id: &str) -> bool {
        let Some((id, held)) = self.held.get_key_value(id) else { return false };
        if held.is_changed {
            return false;
        }
        let id = Arc::clone(id);
        if let Some(held) = self.held.get_mut(&id) {
            held.is_changed = true;
        }
        self.changed.push(id);
        true
    }

    /// Beyond the bound, a record stays until it expires.
    fn remove_later(&mut self, place: RecordPlace, version: Option<RecordVersion>) {
        if self.removed.len() < MAX_REMOVALS {
            self.removed.insert(place.name.clone(), RemovedRecord { place, version });
        }
    }
}

/// Kind of the records, in lines about refused ones.
const SESSION_KIND: &str = "sessions";
/// The generation of a session at the replica that opened it.
const FIRST_GENERATION: u64 = 1;
/// The shortest lifetime of a record: the lease of a lost owner is over sooner.
const MIN_LIFETIME: Duration = Duration::from_secs(30);
/// Limit of the records that wait to be removed.
const MAX_REMOVALS: usize = 10_000;

#[cfg(test)]
mod tests;
