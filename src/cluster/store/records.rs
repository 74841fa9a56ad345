//! Records in the store: values that are read one at a time, and written only over the expected value.
//!
//! Two replicas that write a record at once cannot both succeed: of those that read the same value, one
//! replaces it. A record that may be written once ([`RecordStore::replace_record`] over an absent one) is
//! the proof that something happened for the first time.

use std::time::Duration;

use async_trait::async_trait;
use redis::Pipeline;

use super::memory::MemoryStore;
use super::redis::RedisStore;
use super::{ClusterStoreError, ValueFault};
use crate::clock;
use crate::crypto::NONCE_LEN;
use crate::telemetry::metrics::StoreOperation;

/// The version of a sealed record: its first bytes, which are a random nonce.
pub type RecordVersion = [u8; NONCE_LEN];

/// The name of a record. Collections and names are not secret: a name is random or a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordKey<'a> {
    /// The collection.
    pub collection: &'static str,
    /// The name in it.
    pub name: &'a str,
    /// Limit of its bytes.
    pub max_bytes: usize,
}

impl<'a> RecordKey<'a> {
    /// Creates the name of a record of at most [`MAX_RECORD_BYTES`].
    pub const fn new(collection: &'static str, name: &'a str) -> Self {
        Self { collection, name, max_bytes: MAX_RECORD_BYTES }
    }
}

/// A change of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordChange<'a> {
    /// Writes these sealed bytes, which are at least one and at most [`RecordKey::max_bytes`].
    Write {
        /// The new value.
        bytes: &'a [u8],
        /// The time until it expires; `None` for a record that stays.
        lifetime: Option<Duration>,
    },
    /// Removes the record.
    Remove,
}

/// A store of records.
#[async_trait]
pub trait RecordStore: Send + Sync {
    /// Returns the value of a record; `None` if there is none.
    ///
    /// # Errors
    /// [`ClusterStoreError::Value`] for a value above [`RecordKey::max_bytes`], and one of another type.
    async fn read_record(&self, key: RecordKey<'_>) -> Result<Option<Vec<u8>>, ClusterStoreError>;

    /// Returns the version of a sealed record; `None` if there is none.
    async fn read_version(
        &self,
        key: RecordKey<'_>,
    ) -> Result<Option<RecordVersion>, ClusterStoreError> {
        Ok(self.read_record(key).await?.as_deref().and_then(version_of))
    }

    /// Changes a record if it has the expected value (`None`: if it is absent). The beginning of the
    /// value, such as its version, is enough. Returns false, and changes nothing, if it has another one.
    async fn replace_record(
        &self,
        key: RecordKey<'_>,
        expected: Option<&[u8]>,
        change: RecordChange<'_>,
    ) -> Result<bool, ClusterStoreError>;
}

#[async_trait]
impl RecordStore for RedisStore {
    async fn read_record(&self, key: RecordKey<'_>) -> Result<Option<Vec<u8>>, ClusterStoreError> {
        let mut commands = Pipeline::new();
        // One byte more than a record may have shows that it is too long.
        let end = isize::try_from(key.max_bytes).unwrap_or(isize::MAX);
        commands.getrange(self.record_key(key.collection, key.name), 0, end);
        let (bytes,): (Vec<u8>,) = self.run(StoreOperation::ReadRecord, &commands).await?;
        match bytes.len() {
            0 => Ok(None),
            length if length <= key.max_bytes => Ok(Some(bytes)),
            _ => Err(ClusterStoreError::Value(ValueFault::TooLong)),
        }
    }

    async fn read_version(
        &self,
        key: RecordKey<'_>,
    ) -> Result<Option<RecordVersion>, ClusterStoreError> {
        let mut commands = Pipeline::new();
        commands.getrange(self.record_key(key.collection, key.name), 0, LAST_VERSION_BYTE);
        let (bytes,): (Vec<u8>,) = self.run(StoreOperation::ReadRecord, &commands).await?;
        Ok(version_of(&bytes))
    }

    async fn replace_record(
        &self,
        key: RecordKey<'_>,
        expected: Option<&[u8]>,
        change: RecordChange<'_>,
    ) -> Result<bool, ClusterStoreError> {
        let (bytes, lifetime) = match change {
            RecordChange::Write { bytes, lifetime } => (bytes, lifetime),
            RecordChange::Remove => (&[][..], None),
        };
        // 0 is a record that stays.
        let lifetime =
            lifetime.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1));
        let mut commands = Pipeline::new();
        commands
            .cmd("EVAL")
            .arg(REPLACE_SCRIPT)
            .arg(1)
            .arg(self.record_key(key.collection, key.name))
            .arg(expected.unwrap_or_default())
            .arg(bytes)
            .arg(lifetime);
        let (replaced,): (i64,) = self.run(StoreOperation::ReplaceRecord, &commands).await?;
        Ok(replaced == 1)
    }
}

#[async_trait]
impl RecordStore for MemoryStore {
    async fn read_record(&self, key: RecordKey<'_>) -> Result<Option<Vec<u8>>, ClusterStoreError> {
        self.access()?;
        Ok(self.records.lock().get(&owned(key)).and_then(StoredRecord::current).cloned())
    }

    async fn replace_record(
        &self,
        key: RecordKey<'_>,
        expected: Option<&[u8]>,
        change: RecordChange<'_>,
    ) -> Result<bool, ClusterStoreError> {
        self.access()?;
        let mut records = self.records.lock();
        let current = records.get(&owned(key)).and_then(StoredRecord::current);
        let has_expected = match (current, expected) {
            (Some(current), Some(expected)) => current.starts_with(expected),
            (current, expected) => current.is_none() && expected.is_none(),
        };
        if !has_expected {
            return Ok(false);
        }
        match change {
            RecordChange::Write { bytes, lifetime } => {
                let until = lifetime.map(|time| clock::now() + time);
                records.insert(owned(key), StoredRecord { bytes: bytes.to_vec(), until });
            }
            RecordChange::Remove => _ = records.remove(&owned(key)),
        }
        Ok(true)
    }
}

/// A record in memory.
#[derive(Debug)]
pub(super) struct StoredRecord {
    pub(super) bytes: Vec<u8>,
    pub(super) until: Option<tokio::time::Instant>,
}

impl StoredRecord {
    /// Returns the value unless it has expired.
    pub(super) fn current(&self) -> Option<&Vec<u8>> {
        self.until.is_none_or(|until| until > clock::now()).then_some(&self.bytes)
    }
}

fn owned(key: RecordKey<'_>) -> (&'static str, String) {
    (key.collection, key.name.to_owned())
}

/// Returns the version of a sealed record; `None` if it is shorter.
pub(crate) fn version_of(sealed: &[u8]) -> Option<RecordVersion> {
    sealed.first_chunk().copied()
}

/// The place of a version's last byte.
pub(super) const LAST_VERSION_BYTE: isize = 11;
/// The script of [`RecordStore::replace_record`].
const REPLACE_SCRIPT: &str = include_str!("scripts/replace_record.lua");
/// The most bytes of a record, unless its kind has another limit.
pub const MAX_RECORD_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RecordKey<'static> = RecordKey::new("records", "aa");

    fn write(bytes: &[u8], lifetime: Option<Duration>) -> RecordChange<'_> {
        RecordChange::Write { bytes, lifetime }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_in_memory_is_replaced_over_the_expected_value_and_expires() {
        let store = MemoryStore::default();
        let minute = Some(Duration::from_mins(1));
        assert!(store.replace_record(KEY, None, write(b"1", minute)).await.unwrap());
        assert!(!store.replace_record(KEY, None, write(b"2", None)).await.unwrap());
        assert!(!store.replace_record(KEY, Some(b"2"), RecordChange::Remove).await.unwrap());
        assert_eq!(store.read_record(KEY).await.unwrap().unwrap(), b"1");
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(store.read_record(KEY).await.unwrap(), None);
        assert!(store.replace_record(KEY, None, write(b"3", None)).await.unwrap());
        assert!(store.replace_record(KEY, Some(b"3"), RecordChange::Remove).await.unwrap());
        assert_eq!(store.read_record(KEY).await.unwrap(), None);
    }
}
