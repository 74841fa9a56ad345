//! Records in memory, for tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{NewRecord, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault};

/// Records by kind and name.
#[derive(Debug, Default)]
pub struct TestRecords {
    records: Mutex<BTreeMap<(String, String), SharedRecord>>,
    written: AtomicU64,
    fails: AtomicBool,
}

impl TestRecords {
    /// Makes every access fail, or succeed again.
    pub fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Returns the number of records of a kind.
    pub fn count(&self, kind: SharedRecordKind) -> usize {
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
