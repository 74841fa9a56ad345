//! Reads the record of a session that is not here, and takes the session over from a lost replica.

use std::sync::Arc;

use tokio::time::timeout;

use super::record::{RecordPlace, SessionKey, SessionRecord};
use super::{HeldRecord, SessionRecords};
use crate::cluster::store::{RecordVersion, SessionWrite, SessionWritten, session_key, version_of};
use crate::cluster::{ClusterStoreError, ReplicaId, STORE_TIMEOUT, ValueFault};

/// A session in the store.
#[derive(Debug, Clone)]
pub struct FoundSession {
    place: RecordPlace,
    version: RecordVersion,
    record: SessionRecord,
}

/// A session that this replica has taken over, and has to open.
#[derive(Debug, Clone)]
pub struct ClaimedSession {
    /// Number of its owners.
    pub generation: u64,
    /// Its state at the earlier owner.
    pub state: Vec<u8>,
    place: RecordPlace,
    version: RecordVersion,
}

/// The outcome of an attempt to take a session over.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// The session is this replica's.
    Claimed(Box<ClaimedSession>),
    /// Another replica was faster, or the session has ended.
    Changed,
    /// The owner has its lease.
    OwnerLives,
    /// This replica has no lease.
    NoLease,
}

impl FoundSession {
    /// Returns the owner.
    pub fn owner(&self) -> ReplicaId {
        self.record.owner
    }

    /// Returns the number of owners so far.
    pub fn generation(&self) -> u64 {
        self.record.generation
    }
}

impl SessionRecords {
    /// Reads the record of a session; `None` if it has ended, or if the record is refused.
    ///
    /// # Errors
    /// [`ClusterStoreError`].
    pub async fn find(
        &self,
        key: SessionKey<'_>,
    ) -> Result<Option<FoundSession>, ClusterStoreError> {
        let place = RecordPlace::of(key);
        let has_ended_here = self.table().removed.contains_key(&place.name);
        let reading = timeout(STORE_TIMEOUT, self.store.read_record(session_key(&place.name)));
        let sealed = reading.await.unwrap_or(Err(ClusterStoreError::Timeout));
        if let Err(ClusterStoreError::Value(fault)) = sealed {
            self.note_value(fault);
            return Ok(None);
        }
        let Some(sealed) = sealed.inspect_err(|error| self.note_fault(error))? else {
            return Ok(None);
        };
        let record = SessionRecord::open(&self.sealer, &place, &sealed);
        if record.is_none() {
            self.note_value(ValueFault::Unsealed);
        }
        let version = version_of(&sealed);
        // A record that this replica is about to remove. One of another owner stays: that has revived the
        // session while this replica had no lease.
        let record = record.filter(|record| !has_ended_here || record.owner != self.own);
        let found = version.zip(record);
        Ok(found.map(|(version, record)| FoundSession { place, version, record }))
    }

    /// Takes a session over, if the replica that its record names has no lease.
    ///
    /// # Errors
    /// [`ClusterStoreError`]: the session may have been taken over all the same.
    ///
    /// # Cancel safety
    /// If the future is dropped, the record may name this replica without its having the session. It
    /// can be claimed again.
    pub async fn claim(&self, found: FoundSession) -> Result<ClaimOutcome, ClusterStoreError> {
        let FoundSession { place, version, record } = found;
        {
            let mut table = self.table();
            if record.owner == self.own && table.removed.contains_key(&place.name) {
                // It has ended here since the record was read.
                return Ok(ClaimOutcome::Changed);
            }
            // One that waits is of an earlier record, and would remove this one.
            table.removed.remove(&place.name);
        }
        let lost = (record.owner != self.own).then(|| record.owner.to_string());
        let generation = record.generation.saturating_add(1);
        let claimed = SessionRecord { generation, owner: self.own, state: record.state };
        let bytes = claimed.seal(&self.sealer, &place)?;
        let new = version_of(&bytes).ok_or(ClusterStoreError::Seal)?;
        let write = self.new_write(place.name.clone(), Some(version));
        let write = SessionWrite { bytes, lost, ..write };
        let writing =
            timeout(STORE_TIMEOUT, self.store.write_sessions(std::slice::from_ref(&write)));
        let outcome = writing.await.unwrap_or(Err(ClusterStoreError::Timeout));
        let outcome = outcome.inspect_err(|error| self.note_fault(error))?;
        Ok(match outcome.first().ok_or(ClusterStoreError::Reply)? {
            SessionWritten::Done => ClaimOutcome::Claimed(Box::new(ClaimedSession {
                generation,
                state: claimed.state,
                place,
                version: new,
            })),
            SessionWritten::Changed | SessionWritten::Absent => ClaimOutcome::Changed,
            SessionWritten::OwnerLives => ClaimOutcome::OwnerLives,
            SessionWritten::NoLease => ClaimOutcome::NoLease,
        })
    }

    /// Keeps the record of a session that was taken over and is open here.
    pub fn keep_claimed(&self, id: &Arc<str>, claimed: &ClaimedSession) {
        let held = HeldRecord {
            place: claimed.place.clone(),
            generation: claimed.generation,
            version: Some(claimed.version),
            is_sent: true,
            is_changed: false,
            has_moved: false,
            first: None,
        };
        self.table().held.insert(Arc::clone(id), held);
    }

    /// Forgets a session without removing its record: it can be claimed again.
    pub fn forget_session(&self, id: &str) {
        self.table().held.remove(id);
    }
}
