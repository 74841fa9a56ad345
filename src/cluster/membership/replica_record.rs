//! The record of a replica in the store: its lease, sealed under its name.

use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::LEASE_TIME;
use crate::cluster::{ClusterStoreError, StoredValue};
use crate::crypto::Sealer;

/// The record of a replica in the store, sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReplicaRecord {
    pub(super) advertise: String,
    /// Times since 1970, in milliseconds.
    pub(super) started: u64,
    pub(super) renewed: u64,
    /// Number of renewals: the larger one of two records is the newer one.
    pub(super) renewals: u64,
    pub(super) digest: String,
    /// Number of sessions that the replica owned; `None` for a build that does not write it.
    #[serde(default)]
    pub(super) sessions: Option<usize>,
}

impl ReplicaRecord {
    /// Seals the record under its name: a store cannot return it as that of another replica.
    pub(super) fn seal(&self, sealer: &Sealer, name: &str) -> Result<Vec<u8>, ClusterStoreError> {
        let text = serde_json::to_vec(self).map_err(|_| ClusterStoreError::Seal)?;
        sealer.seal(name.as_bytes(), text).map_err(|_| ClusterStoreError::Seal)
    }

    /// Opens a record; `None` if it was not sealed under its name with the shared keys.
    pub(super) fn open(sealer: &Sealer, value: &StoredValue) -> Option<Self> {
        let text = sealer.open(value.name.as_bytes(), &value.bytes)?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns the time that the replica's clock is ahead of this one: the store knows the true age of
    /// the record, which is at most that of a lease. An old record that a store returns all the same is far
    /// behind.
    pub(super) fn drift(&self, lease_left: Duration, now: SystemTime) -> SignedDuration {
        let age = LEASE_TIME.saturating_sub(lease_left);
        let written = i128::from(unix_millis(now)) - i128::from(as_millis(age));
        let ahead = i128::from(self.renewed) - written;
        SignedDuration::from_millis(i64::try_from(ahead).unwrap_or(i64::MAX))
    }
}

pub(super) fn unix_millis(at: SystemTime) -> u64 {
    as_millis(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn as_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn from_unix_millis(millis: u64) -> SystemTime {
    // A later time than this is not a time.
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis.min(MAX_MILLIS))
}

/// The most that the clocks of two replicas may differ.
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(5);
/// The end of the year 9999, in milliseconds since 1970.
const MAX_MILLIS: u64 = 253_402_300_799_000;
