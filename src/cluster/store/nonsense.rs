//! A store for tests that answers nonsense.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    ClusterStore, ClusterStoreError, PermitDemand, PermitStore, QuotaDemand, QuotaStore,
    RecordChange, RecordKey, RecordStore, RecordVersion, SessionStore, SessionWrite,
    SessionWritten, StoredValue,
};

/// A store that answers the same to everything, or never.
#[derive(Debug)]
pub(crate) struct NonsenseStore(pub(crate) Option<Vec<i64>>);

impl NonsenseStore {
    async fn answer(&self) -> Result<Vec<i64>, ClusterStoreError> {
        match &self.0 {
            Some(reply) => Ok(reply.clone()),
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl PermitStore for NonsenseStore {
    async fn take_permits(
        &self,
        _name: &str,
        _demand: &PermitDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        self.answer().await
    }
}

#[async_trait]
impl QuotaStore for NonsenseStore {
    async fn lease_quota(
        &self,
        _name: &str,
        _demand: &QuotaDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        self.answer().await
    }

    async fn return_quota(&self, _name: &str, _calls: u32) -> Result<(), ClusterStoreError> {
        Ok(())
    }
}

#[async_trait]
impl RecordStore for NonsenseStore {
    async fn read_record(&self, _key: RecordKey<'_>) -> Result<Option<Vec<u8>>, ClusterStoreError> {
        Ok(None)
    }

    async fn replace_record(
        &self,
        _key: RecordKey<'_>,
        _expected: Option<&[u8]>,
        _change: RecordChange<'_>,
    ) -> Result<bool, ClusterStoreError> {
        Ok(false)
    }
}

#[async_trait]
impl SessionStore for NonsenseStore {
    async fn write_sessions(
        &self,
        _writes: &[SessionWrite],
    ) -> Result<Vec<SessionWritten>, ClusterStoreError> {
        Ok(Vec::new())
    }

    async fn prolong_sessions(
        &self,
        _names: &[String],
        _lifetime: Duration,
    ) -> Result<Vec<Option<RecordVersion>>, ClusterStoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl ClusterStore for NonsenseStore {
    async fn put(
        &self,
        _collection: &str,
        _name: &str,
        _bytes: Vec<u8>,
        _lease: Duration,
    ) -> Result<(), ClusterStoreError> {
        Ok(())
    }

    async fn list(&self, _: &str, _: usize) -> Result<Vec<StoredValue>, ClusterStoreError> {
        Ok(Vec::new())
    }

    async fn remove(&self, _collection: &str, _name: &str) -> Result<(), ClusterStoreError> {
        Ok(())
    }

    fn place(&self) -> String {
        "nonsense".to_owned()
    }
}
