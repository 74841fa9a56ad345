//! The store that replicas share: collections of small values with leases, rates, quotas, and
//! records.
//!
//! One trait with two implementations: a Redis or Valkey server, and memory for tests and models. A
//! value is sealed by its user ([`membership`](super::membership)); names are random, or digests, so
//! that the store learns neither names nor tokens. Every reply is bounded.

mod connection;
mod health;
mod memory;
#[cfg(test)]
mod nonsense;
mod permits;
mod quotas;
mod records;
mod redis;
mod sessions;
mod value_faults;

use std::time::Duration;

use async_trait::async_trait;

#[cfg(test)]
pub(super) use self::health::PROBE_INTERVAL;
pub use self::health::{StoreFailure, StoreHealth};
pub use self::memory::MemoryStore;
#[cfg(test)]
pub(super) use self::nonsense::NonsenseStore;
pub use self::permits::{PermitDemand, PermitGrant, PermitStore};
pub use self::quotas::{QuotaDemand, QuotaGrant, QuotaStore};
pub(super) use self::records::version_of;
pub use self::records::{MAX_RECORD_BYTES, RecordChange, RecordKey, RecordStore, RecordVersion};
pub use self::redis::RedisStore;
pub(super) use self::sessions::{MAX_SESSION_RECORD, session_key};
pub use self::sessions::{SessionStore, SessionWrite, SessionWritten};
pub use self::value_faults::ValueFault;
pub(super) use self::value_faults::ValueFaultLog;

/// A value of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// Its name.
    pub name: String,
    /// The sealed bytes.
    pub bytes: Vec<u8>,
    /// The rest of its lease, as the store says.
    pub lease_left: Duration,
}

/// Reasons that an access to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterStoreError {
    /// The URL cannot be used.
    #[error("its URL cannot be used")]
    Url(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There was no answer in time.
    #[error("it did not answer in time")]
    Timeout,
    /// The server's error, or that of the connection.
    #[error("it failed")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A value is none that a replica has written.
    #[error("it sent a value that is refused")]
    Value(#[source] ValueFault),
    /// The reply is none that the command has.
    #[error("it sent an impossible reply")]
    Reply,
    /// This replica has no lease, which a write needs.
    #[error("this replica has no lease")]
    NoLease,
    /// A value cannot be sealed.
    #[error("a value could not be sealed")]
    Seal,
}

/// The store.
#[async_trait]
pub trait ClusterStore: PermitStore + QuotaStore + SessionStore {
    /// Writes a value that expires after the lease.
    async fn put(
        &self,
        collection: &str,
        name: &str,
        bytes: Vec<u8>,
        lease: Duration,
    ) -> Result<(), ClusterStoreError>;

    /// Returns the values of a collection, at most so many. Larger ones than [`MAX_VALUE_BYTES`] are
    /// left out.
    async fn list(
        &self,
        collection: &str,
        most: usize,
    ) -> Result<Vec<StoredValue>, ClusterStoreError>;

    /// Removes a value.
    async fn remove(&self, collection: &str, name: &str) -> Result<(), ClusterStoreError>;

    /// Returns its address, for logs.
    fn place(&self) -> String;
}

/// The most bytes of a value.
pub(super) const MAX_VALUE_BYTES: usize = 4096;
