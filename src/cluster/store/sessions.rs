//! Records of sessions in the store, which replicas write under their leases.
//!
//! A record is written only while its writer has a lease in the store, and taken over only when the
//! replica that it names has none. One script checks both and writes, so that there is no moment in
//! between: the store alone decides who owns a session.

use std::time::Duration;

use async_trait::async_trait;
use redis::{Pipeline, RedisResult};

use super::memory::MemoryStore;
use super::records::{
    LAST_VERSION_BYTE, RecordKey, RecordStore, RecordVersion, StoredRecord, version_of,
};
use super::redis::{RedisStore, read_reply};
use super::{ClusterStoreError, MAX_RECORD_BYTES};
use crate::clock;
use crate::cluster::membership::REPLICA_COLLECTION;
use crate::telemetry::metrics::StoreOperation;

/// A write of a session's record.
#[derive(Debug, Clone)]
pub struct SessionWrite {
    /// The name of the record.
    pub name: String,
    /// The version to replace; `None` if there should be no record.
    pub expected: Option<RecordVersion>,
    /// The new record, sealed, of at most [`MAX_RECORD_BYTES`]; empty to remove it.
    pub bytes: Vec<u8>,
    /// The time until it expires.
    pub lifetime: Duration,
    /// The writer, whose lease has to be in the store.
    pub writer: String,
    /// The replica from which the session is taken, whose lease must not be in the store.
    pub lost: Option<String>,
}

/// The outcome of a [`SessionWrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionWritten {
    /// The record was written or removed.
    Done,
    /// It has another version.
    Changed,
    /// There is none, and one was expected.
    Absent,
    /// The writer has no lease.
    NoLease,
    /// The replica from which the session was to be taken has a lease.
    OwnerLives,
}

/// A store of sessions' records.
#[async_trait]
pub trait SessionStore: RecordStore {
    /// Writes records, each for itself. Returns the outcomes in the same order.
    async fn write_sessions(
        &self,
        writes: &[SessionWrite],
    ) -> Result<Vec<SessionWritten>, ClusterStoreError>;

    /// Prolongs records. Returns their versions in the same order; `None` for those that are absent.
    async fn prolong_sessions(
        &self,
        names: &[String],
        lifetime: Duration,
    ) -> Result<Vec<Option<RecordVersion>>, ClusterStoreError>;
}

impl SessionWritten {
    fn read(reply: i64) -> Option<Self> {
        Some(match reply {
            0 => Self::Done,
            1 => Self::Changed,
            2 => Self::Absent,
            3 => Self::NoLease,
            4 => Self::OwnerLives,
            _ => return None,
        })
    }
}

#[async_trait]
impl SessionStore for RedisStore {
    async fn write_sessions(
        &self,
        writes: &[SessionWrite],
    ) -> Result<Vec<SessionWritten>, ClusterStoreError> {
        let mut commands = Pipeline::new();
        for write in writes {
            commands.cmd("EVAL").arg(WRITE_SCRIPT).arg(if write.lost.is_some() { 3 } else { 2 });
            commands.arg(self.record_key(SESSION_COLLECTION, &write.name));
            commands.arg(self.member_key(REPLICA_COLLECTION, &write.writer));
            if let Some(lost) = &write.lost {
                commands.arg(self.member_key(REPLICA_COLLECTION, lost));
            }
            let lifetime = u64::try_from(write.lifetime.as_millis()).unwrap_or(u64::MAX).max(1);
            let expected = write.expected.as_ref().map_or(&[][..], |version| version);
            commands.arg(expected).arg(&write.bytes).arg(lifetime);
        }
        let replies: Vec<i64> = self.run(StoreOperation::WriteSessions, &commands).await?;
        let outcomes: Option<Vec<_>> = replies.into_iter().map(SessionWritten::read).collect();
        outcomes.filter(|read| read.len() == writes.len()).ok_or(ClusterStoreError::Reply)
    }

    async fn prolong_sessions(
        &self,
        names: &[String],
        lifetime: Duration,
    ) -> Result<Vec<Option<RecordVersion>>, ClusterStoreError> {
        let lifetime = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX).max(1);
        let mut commands = Pipeline::new();
        // A value of another type has no version, and does not concern the other records.
        commands.ignore_errors();
        for name in names {
            let key = self.record_key(SESSION_COLLECTION, name);
            commands.getrange(&key, 0, LAST_VERSION_BYTE).pexpire(&key, lifetime).ignore();
        }
        let versions: Vec<RedisResult<redis::Value>> =
            self.run(StoreOperation::ProlongSessions, &commands).await?;
        if versions.len() != names.len() {
            return Err(ClusterStoreError::Reply);
        }
        let read = |version| read_reply::<Vec<u8>>(version).as_deref().and_then(version_of);
        Ok(versions.iter().map(read).collect())
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn write_sessions(
        &self,
        writes: &[SessionWrite],
    ) -> Result<Vec<SessionWritten>, ClusterStoreError> {
        self.access()?;
        Ok(writes.iter().map(|write| self.write_session(write)).collect())
    }

    async fn prolong_sessions(
        &self,
        names: &[String],
        lifetime: Duration,
    ) -> Result<Vec<Option<RecordVersion>>, ClusterStoreError> {
        self.access()?;
        let mut records = self.records.lock();
        let mut prolong = |name: &String| {
            let record = records.get_mut(&(SESSION_COLLECTION, name.clone()))?;
            let version = version_of(record.current()?);
            record.until = Some(clock::now() + lifetime);
            version
        };
        Ok(names.iter().map(&mut prolong).collect())
    }
}

impl MemoryStore {
    /// Returns the names of the records of sessions.
    #[cfg(test)]
    pub(crate) fn session_names(&self) -> Vec<String> {
        let records = self.records.lock();
        let names = records.keys().filter(|(collection, _)| *collection == SESSION_COLLECTION);
        names.map(|(_, name)| name.clone()).collect()
    }

    /// Does the work of the script.
    fn write_session(&self, write: &SessionWrite) -> SessionWritten {
        if !write.bytes.is_empty() && !self.has_value(REPLICA_COLLECTION, &write.writer) {
            return SessionWritten::NoLease;
        }
        if write.lost.as_ref().is_some_and(|lost| self.has_value(REPLICA_COLLECTION, lost)) {
            return SessionWritten::OwnerLives;
        }
        let mut records = self.records.lock();
        let key = (SESSION_COLLECTION, write.name.clone());
        let current = records.get(&key).and_then(StoredRecord::current);
        let version = current.and_then(|bytes| version_of(bytes));
        if version != write.expected {
            let is_absent = version.is_none();
            return if is_absent { SessionWritten::Absent } else { SessionWritten::Changed };
        }
        if write.bytes.is_empty() {
            records.remove(&key);
        } else {
            let until = Some(clock::now() + write.lifetime);
            records.insert(key, StoredRecord { bytes: write.bytes.clone(), until });
        }
        SessionWritten::Done
    }
}

/// Returns the key of a session's record.
pub(crate) fn session_key(name: &str) -> RecordKey<'_> {
    RecordKey::new(SESSION_COLLECTION, name)
}

/// The most bytes of a session's record.
pub(crate) const MAX_SESSION_RECORD: usize = MAX_RECORD_BYTES / 2;
/// The collection of sessions' records.
pub(super) const SESSION_COLLECTION: &str = "sessions";
/// The script of [`SessionStore::write_sessions`].
const WRITE_SCRIPT: &str = include_str!("scripts/write_session.lua");
