//! The task that writes the records of own sessions, and finds those that another replica owns now.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, sleep_until, timeout};

use super::record::{RecordPlace, SessionRecord};
use super::{HeldRecord, RemovedRecord, SessionRecords};
use crate::clock;
use crate::cluster::store::{RecordVersion, SessionWrite, SessionWritten, session_key, version_of};
use crate::cluster::{ClusterStoreError, STORE_TIMEOUT, ValueFault};
use crate::telemetry::metrics::RevivalResult;
use crate::text::error_chain;

/// A write of the record of an own session, or of one that has ended.
struct PendingWrite {
    /// The session; `None` for the removal of a record.
    id: Option<Arc<str>>,
    write: SessionWrite,
    place: RecordPlace,
    /// True if no earlier write of the session was sent.
    is_first: bool,
}

impl SessionRecords {
    /// Writes changes, and prolongs the records, until it is dropped.
    pub async fn keep(&self) {
        let mut prolonged = clock::now();
        loop {
            let period = self.lifetime() / RECORD_PROLONGATIONS;
            tokio::select! {
                () = self.wake.notified() => {
                    if self.write_changes().await.is_err() {
                        sleep(RETRY_PAUSE).await;
                        self.wake.notify_one();
                    }
                }
                () = sleep_until(prolonged + period) => {
                    // A failure is repeated when the store can be reached again.
                    let _ = self.verify().await;
                    prolonged = clock::now();
                }
            }
        }
    }

    /// Writes all changes.
    ///
    /// # Errors
    /// [`ClusterStoreError`]: the changes stay, to be written later.
    pub async fn write_changes(&self) -> Result<(), ClusterStoreError> {
        let _turn = self.turn.lock().await;
        loop {
            let Some(batch) = self.take_batch() else { return Ok(()) };
            if batch.is_empty() {
                continue;
            }
            let writes: Vec<_> = batch.iter().map(|pending| pending.write.clone()).collect();
            let written = timeout(STORE_TIMEOUT, self.store.write_sessions(&writes)).await;
            match written.unwrap_or(Err(ClusterStoreError::Timeout)) {
                Ok(outcomes) => {
                    self.is_failing.store(false, Ordering::Relaxed);
                    self.faults.lock().clear();
                    let mut fault = None;
                    for (pending, outcome) in batch.into_iter().zip(outcomes) {
                        fault = self.apply(pending, outcome).await.err().or(fault);
                    }
                    if let Some(fault) = fault {
                        return Err(fault);
                    }
                }
                Err(error) => {
                    self.note_fault(&error);
                    for pending in batch {
                        self.put_back(pending);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Prolongs the records of all sessions, and ends the sessions that another replica owns now.
    /// Records that are gone are written again.
    ///
    /// # Errors
    /// [`ClusterStoreError`]: it is not known who owns the sessions.
    pub async fn verify(&self) -> Result<(), ClusterStoreError> {
        let turn = self.turn.lock().await;
        let sent = |(id, held): (&Arc<str>, &HeldRecord)| {
            held.is_sent.then(|| (Arc::clone(id), held.place.name.clone()))
        };
        let held: Vec<_> = self.table().held.iter().filter_map(sent).collect();
        let lifetime = self.lifetime();
        for chunk in held.chunks(MAX_BATCH) {
            let names: Vec<_> = chunk.iter().map(|(_, name)| name.clone()).collect();
            let found = timeout(STORE_TIMEOUT, self.store.prolong_sessions(&names, lifetime)).await;
            let found = found.unwrap_or(Err(ClusterStoreError::Timeout));
            let found = found.inspect_err(|error| self.note_fault(error))?;
            for ((id, _), version) in chunk.iter().zip(found) {
                let known = self.table().held.get(id).map(|held| held.version);
                if known.is_some_and(|known| known != version) {
                    self.reconcile(id).await?;
                }
            }
        }
        drop(turn);
        self.wake.notify_one();
        Ok(())
    }

    /// Takes the next changes; `None` if there are none.
    fn take_batch(&self) -> Option<Vec<PendingWrite>> {
        let mut table = self.table();
        if table.changed.is_empty() && table.removed.is_empty() {
            return None;
        }
        let count = table.changed.len().min(MAX_BATCH);
        let changed: Vec<_> = table.changed.drain(..count).collect();
        let removed: Vec<_> = table.removed.values().take(MAX_BATCH).cloned().collect();
        drop(table);
        let removal = |RemovedRecord { place, version }| PendingWrite {
            id: None,
            write: self.new_write(place.name.clone(), version),
            place,
            is_first: false,
        };
        let mut batch: Vec<_> = removed.into_iter().map(removal).collect();
        batch.extend(changed.into_iter().filter_map(|id| self.prepare(id)));
        Some(batch)
    }

    /// Seals the record of a session; `None` if it has ended or cannot be recorded.
    fn prepare(&self, id: Arc<str>) -> Option<PendingWrite> {
        let mut table = self.table();
        let held = table.held.get_mut(&id)?;
        // Before the state is read: a later change is another one.
        held.is_changed = false;
        let is_first = !std::mem::replace(&mut held.is_sent, true);
        let (place, generation, expected) = (held.place.clone(), held.generation, held.version);
        drop(table);
        let state = self.sessions().and_then(|sessions| sessions.describe(&id));
        let record = state.map(|state| SessionRecord { generation, owner: self.own, state });
        let sealed = record.and_then(|record| record.seal(&self.sealer, &place).ok());
        let Some(bytes) = sealed else {
            self.remove_session(&id);
            return None;
        };
        let write = SessionWrite { bytes, ..self.new_write(place.name.clone(), expected) };
        Some(PendingWrite { id: Some(id), write, place, is_first })
    }

    async fn apply(
        &self,
        pending: PendingWrite,
        outcome: SessionWritten,
    ) -> Result<(), ClusterStoreError> {
        let Some(id) = pending.id.clone() else {
            return self.apply_removal(pending, outcome).await;
        };
        match outcome {
            SessionWritten::Done => {
                let version = version_of(&pending.write.bytes);
                let mut table = self.table();
                match table.held.get_mut(&id) {
                    Some(held) => {
                        held.version = version;
                        held.first = None;
                    }
                    // It has ended meanwhile.
                    None => table.remove_later(pending.place, version),
                }
            }
            SessionWritten::Changed | SessionWritten::Absent => {
                let reconciled = self.reconcile(&id).await;
                return reconciled.inspect_err(|_| self.put_back(pending));
            }
            SessionWritten::NoLease | SessionWritten::OwnerLives => {
                if pending.is_first
                    && let Some(held) = self.table().held.get_mut(&id)
                {
                    // The store has refused it: no other replica knows the session.
                    held.is_sent = false;
                }
                self.put_back(pending);
                return Err(ClusterStoreError::NoLease);
            }
        }
        Ok(())
    }

    /// Forgets a removed record, unless another write of this replica has changed it.
    async fn apply_removal(
        &self,
        pending: PendingWrite,
        outcome: SessionWritten,
    ) -> Result<(), ClusterStoreError> {
        let PendingWrite { place, .. } = pending;
        let mut own = None;
        if outcome == SessionWritten::Changed {
            let sealed = self.read_own(&place).await?;
            own = sealed.filter(|sealed| self.owns(&place, sealed)).as_deref().and_then(version_of);
        }
        let mut table = self.table();
        match (own, table.removed.get_mut(&place.name)) {
            (Some(version), Some(removed)) => removed.version = Some(version),
            // A claim of this replica has made the removal needless meanwhile.
            (Some(_), None) => {}
            (None, _) => _ = table.removed.remove(&place.name),
        }
        Ok(())
    }

    /// Returns true if a record names this replica.
    fn owns(&self, place: &RecordPlace, sealed: &[u8]) -> bool {
        let record = SessionRecord::open(&self.sealer, place, sealed);
        record.is_some_and(|record| record.owner == self.own)
    }

    /// Marks the session of a write that failed as changed.
    fn put_back(&self, pending: PendingWrite) {
        let Some(id) = pending.id else { return };
        let mut table = self.table();
        if let Some(held) = table.held.get_mut(&id) {
            // `initialize` does not wait for a store that fails.
            held.first = None;
        }
        table.mark_changed(&id);
    }

    /// Compares an own session with its record, which is not the one that was written last.
    async fn reconcile(&self, id: &Arc<str>) -> Result<(), ClusterStoreError> {
        let held = self.table().held.get(id).map(|held| (held.place.clone(), held.generation));
        let Some((place, generation)) = held else { return Ok(()) };
        let Some(sealed) = self.read_own(&place).await? else {
            self.rewrite_over(id, None);
            return Ok(());
        };
        if self.is_moved(&place, generation, &sealed) {
            self.lose(id);
        } else if let Some(version) = version_of(&sealed) {
            self.rewrite_over(id, Some(version));
        }
        // A value without a version cannot be written over: the session stays here, and has no record.
        Ok(())
    }

    /// Reads the record of an own session. One whose bytes are refused is empty.
    async fn read_own(&self, place: &RecordPlace) -> Result<Option<Vec<u8>>, ClusterStoreError> {
        let reading = timeout(STORE_TIMEOUT, self.store.read_record(session_key(&place.name)));
        match reading.await.unwrap_or(Err(ClusterStoreError::Timeout)) {
            Err(ClusterStoreError::Value(fault)) => {
                self.note_value(fault);
                Ok(Some(Vec::new()))
            }
            read => read,
        }
    }

    /// Returns true if a record shows another owner. A record that is refused does not: one that is not
    /// sealed for the session, and one of an earlier generation, which the store has restored.
    fn is_moved(&self, place: &RecordPlace, generation: u64, sealed: &[u8]) -> bool {
        match SessionRecord::open(&self.sealer, place, sealed) {
            Some(record) if record.generation < generation => {
                self.note_value(ValueFault::Outdated);
                false
            }
            Some(record) => record.owner != self.own,
            None if sealed.is_empty() => false,
            None => {
                self.note_value(ValueFault::Unsealed);
                false
            }
        }
    }

    /// Ends a session that another replica owns. It ends before its record is forgotten: in between, it
    /// would be a session that this replica alone knows.
    fn lose(&self, id: &Arc<str>) {
        if let Some(held) = self.table().held.get_mut(id) {
            held.has_moved = true;
        }
        self.counts.count_revival(RevivalResult::Moved);
        tracing::info!("a session ends here, because another replica has revived it");
        if let Some(sessions) = self.sessions() {
            sessions.end_moved(id);
        }
        self.table().held.remove(id);
    }

    fn rewrite_over(&self, id: &Arc<str>, version: Option<RecordVersion>) {
        let mut table = self.table();
        if let Some(held) = table.held.get_mut(id) {
            held.version = version;
        }
        table.mark_changed(id);
    }

    pub(super) fn note_fault(&self, error: &ClusterStoreError) {
        self.is_failing.store(true, Ordering::Relaxed);
        self.counts.count_session_error();
        let line = format!(
            "sessions cannot be recorded in {}, and end with this replica: {}",
            self.store.place(),
            error_chain(error)
        );
        if let Some(line) = self.faults.lock().note_about(SESSION_STORE, &line, clock::now()) {
            tracing::warn!("{line}");
        }
    }
}

/// Writes of one request to the store.
const MAX_BATCH: usize = 64;
/// Prolongations of a record within its lifetime.
const RECORD_PROLONGATIONS: u32 = 3;
/// Time until the next attempt after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Subject of the log lines about the store.
const SESSION_STORE: &str = "the store of sessions";
