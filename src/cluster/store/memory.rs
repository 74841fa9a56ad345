//! A store in memory, for tests and models.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::permits::MemoryRates;
use super::quotas::StoredCounter;
use super::records::StoredRecord;
use super::{ClusterStore, ClusterStoreError, MAX_VALUE_BYTES, StoredValue};
use crate::clock;

/// Values by collection and name.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: Mutex<BTreeMap<(String, String), LeasedValue>>,
    fails: AtomicBool,
    pub(super) rates: Mutex<MemoryRates>,
    /// The sums of leased calls.
    pub(super) quotas: Mutex<BTreeMap<String, StoredCounter>>,
    /// Records by collection and name.
    pub(super) records: Mutex<BTreeMap<(&'static str, String), StoredRecord>>,
}

#[derive(Debug)]
struct LeasedValue {
    bytes: Vec<u8>,
    until: Instant,
}

impl MemoryStore {
    /// Makes every access fail, or succeed again.
    pub fn fail(&self, fails: bool) {
        self.fails.store(fails, Relaxed);
    }

    /// Returns the sums of leased calls.
    #[cfg(test)]
    pub(crate) fn quotas(&self) -> Vec<i64> {
        self.quotas.lock().values().map(|counter| counter.sum).collect()
    }

    /// Forgets all values.
    pub fn clear(&self) {
        self.values.lock().clear();
        self.rates.lock().clear();
        self.quotas.lock().clear();
        self.records.lock().clear();
    }

    /// Returns true if there is a value whose lease is not over.
    pub(super) fn has_value(&self, collection: &str, name: &str) -> bool {
        let key = (collection.to_owned(), name.to_owned());
        self.values.lock().get(&key).is_some_and(|value| value.until > clock::now())
    }

    pub(super) fn access(&self) -> Result<(), ClusterStoreError> {
        if self.fails.load(Relaxed) { Err(ClusterStoreError::Timeout) } else { Ok(()) }
    }
}

#[async_trait]
impl ClusterStore for MemoryStore {
    async fn put(
        &self,
        collection: &str,
        name: &str,
        bytes: Vec<u8>,
        lease: Duration,
    ) -> Result<(), ClusterStoreError> {
        self.access()?;
        let value = LeasedValue { bytes, until: clock::now() + lease };
        self.values.lock().insert((collection.to_owned(), name.to_owned()), value);
        Ok(())
    }

    async fn list(
        &self,
        collection: &str,
        most: usize,
    ) -> Result<Vec<StoredValue>, ClusterStoreError> {
        self.access()?;
        let now = clock::now();
        let mut values = self.values.lock();
        values.retain(|_, value| value.until > now);
        let listed = values
            .iter()
            .filter(|((of, _), value)| of == collection && value.bytes.len() <= MAX_VALUE_BYTES);
        let value = |((_, name), value): (&(String, String), &LeasedValue)| StoredValue {
            name: name.clone(),
            bytes: value.bytes.clone(),
            lease_left: value.until.saturating_duration_since(now),
        };
        Ok(listed.map(value).take(most).collect())
    }

    async fn remove(&self, collection: &str, name: &str) -> Result<(), ClusterStoreError> {
        self.access()?;
        self.values.lock().remove(&(collection.to_owned(), name.to_owned()));
        Ok(())
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn larger_values_than_a_server_returns_are_left_out() {
        let store = MemoryStore::default();
        for (name, bytes) in [("fits", MAX_VALUE_BYTES), ("large", MAX_VALUE_BYTES + 1)] {
            store.put("values", name, vec![1; bytes], Duration::from_mins(1)).await.unwrap();
        }
        let listed = store.list("values", 9).await.unwrap();
        assert_eq!(listed.iter().map(|value| &*value.name).collect::<Vec<_>>(), ["fits"]);
    }
}
