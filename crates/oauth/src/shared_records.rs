//! Records that several gateways share: grants, locks for their renewal, logins in progress, and state of the
//! gateway itself. The store is outside of this crate.
//!
//! A record is written only over the one that its writer has read, so that of two gateways that write
//! at once, one succeeds.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use trunkline_core::crypto::NONCE_LEN;

/// A store of records, sealed for the gateways that share it.
#[async_trait]
pub trait SharedRecords: fmt::Debug + Send + Sync {
    /// Returns a record; `None` if there is none.
    async fn read(&self, place: RecordPlace<'_>) -> Result<Option<SharedRecord>, SharingFault>;

    /// Returns a record [without its value](SharedRecord::without_value), which differs after each write.
    async fn read_version(
        &self,
        place: RecordPlace<'_>,
    ) -> Result<Option<SharedRecord>, SharingFault> {
        Ok(self.read(place).await?.map(SharedRecord::without_value))
    }

    /// Writes a record over the expected one (`None`: if it is absent), and returns it. Returns `None`,
    /// and writes nothing, if there is another one.
    async fn write(
        &self,
        place: RecordPlace<'_>,
        expected: Option<&SharedRecord>,
        new: NewRecord<'_>,
    ) -> Result<Option<SharedRecord>, SharingFault>;

    /// Removes a record. Returns false if there is another one, or none.
    async fn remove(
        &self,
        place: RecordPlace<'_>,
        expected: &SharedRecord,
    ) -> Result<bool, SharingFault>;
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedRecordKind {
    /// A grant. It does not expire.
    Grant,
    /// The lock of a grant during its renewal.
    Renewal,
    /// A link to log in by, or to see connections.
    Link,
    /// A login that waits for the response of the authorization server.
    Login,
    /// A browser that the gateway knows.
    Browser,
    /// The accepted definitions of a server. They do not expire.
    Definitions,
    /// The last known lists of a server.
    Lists,
    /// The servers that operators have disabled. They do not expire.
    DisabledServers,
}

/// The kind and the name of a record. The store learns only a digest of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace<'a> {
    /// The kind.
    pub kind: SharedRecordKind,
    /// The name.
    pub name: &'a str,
}

/// A record in the store.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedRecord {
    /// The value; empty if it is sealed with a key that this gateway does not have. Never logged.
    pub value: Vec<u8>,
    /// The sealed bytes in the store, or their beginning.
    pub sealed: Vec<u8>,
}

/// A record to write.
#[derive(Clone, Copy)]
pub struct NewRecord<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The time until it expires; `None` for a record that stays.
    pub lifetime: Option<Duration>,
}

/// Reasons that a record is not read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SharingFault {
    /// The store cannot be reached.
    #[error("the store that the gateway's replicas share cannot be reached: try again later")]
    Unavailable,
    /// The record is too large for the store.
    #[error(
        "the login has {bytes} bytes, and the store of the gateway's replicas takes at most {limit}: \
         the authorization server should issue smaller tokens"
    )]
    TooLarge {
        /// Its size, sealed.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Another replica has been changing the record for too long.
    #[error("another replica of the gateway is changing the same record: try again later")]
    Busy,
}

impl SharedRecord {
    /// Returns the record without its value, and the beginning of its sealed bytes, which is a random
    /// nonce: enough to compare it, and to write over it.
    #[must_use]
    pub fn without_value(mut self) -> Self {
        self.value = Vec::new();
        self.sealed.truncate(NONCE_LEN);
        self
    }
}

impl fmt::Debug for SharedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRecord({} bytes)", self.sealed.len())
    }
}

/// Records in memory, for tests.
#[cfg(test)]
pub(crate) mod test_records {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use parking_lot::Mutex;

    use super::*;

    /// Records by kind and name.
    #[derive(Debug, Default)]
    pub(crate) struct TestRecords {
        records: Mutex<BTreeMap<(String, String), SharedRecord>>,
        written: AtomicU64,
        fails: AtomicBool,
    }

    impl TestRecords {
        /// Makes every access fail, or succeed again.
        pub(crate) fn fail(&self, fails: bool) {
            self.fails.store(fails, Ordering::Relaxed);
        }

        pub(crate) fn count(&self, kind: SharedRecordKind) -> usize {
            let kind = format!("{kind:?}");
            self.records.lock().keys().filter(|(of, _)| *of == kind).count()
        }

        fn access(&self) -> Result<(), SharingFault> {
            if self.fails.load(Ordering::Relaxed) { Err(SharingFault::Unavailable) } else { Ok(()) }
        }
    }

    fn key_of(place: RecordPlace<'_>) -> (String, String) {
        (format!("{:?}", place.kind), place.name.to_owned())
    }

    #[async_trait]
    impl SharedRecords for TestRecords {
        async fn read(&self, place: RecordPlace<'_>) -> Result<Option<SharedRecord>, SharingFault> {
            self.access()?;
            let found = self.records.lock().get(&key_of(place)).cloned();
            // Replicas that read at once all read before one of them writes.
            tokio::task::yield_now().await;
            Ok(found)
        }

        async fn write(
            &self,
            place: RecordPlace<'_>,
            expected: Option<&SharedRecord>,
            new: NewRecord<'_>,
        ) -> Result<Option<SharedRecord>, SharingFault> {
            self.access()?;
            if new.value.len() > 16 * 1024 {
                return Err(SharingFault::TooLarge { bytes: new.value.len(), limit: 16 * 1024 });
            }
            let mut records = self.records.lock();
            if records.get(&key_of(place)) != expected {
                return Ok(None);
            }
            // No two seals are equal.
            let number = self.written.fetch_add(1, Ordering::Relaxed);
            let sealed = [&number.to_be_bytes(), new.value].concat();
            let record = SharedRecord { value: new.value.to_vec(), sealed };
            records.insert(key_of(place), record.clone());
            Ok(Some(record))
        }

        async fn remove(
            &self,
            place: RecordPlace<'_>,
            expected: &SharedRecord,
        ) -> Result<bool, SharingFault> {
            self.access()?;
            let mut records = self.records.lock();
            let is_there = records.get(&key_of(place)) == Some(expected);
            if is_there {
                records.remove(&key_of(place));
            }
            Ok(is_there)
        }
    }
}
