//! The replicas of a cluster in `/status`.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::report::time;
use crate::cluster::{ClusterView, ReplicaView, SkewedReplica};
use crate::telemetry::metrics::StoreLatency;
use crate::text::escape_controls;

/// This gateway as one of several replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClusterStatus {
    /// The id of this replica: random at each start.
    pub id: String,
    /// The address where others reach it.
    pub address: String,
    /// Time of the last renewal of its lease.
    pub renewed_at: Option<Timestamp>,
    /// The fault of the last access to the store; `None` if it succeeded.
    pub store_error: Option<String>,
    /// True while the store cannot be used for limits and records: `cluster.degrade` decides about rates.
    pub degraded: bool,
    /// Time since which it cannot be used; `None` while it can.
    pub degraded_since: Option<Timestamp>,
    /// The last failed access for a limit or a record, also after the store has answered again.
    pub last_failure: Option<StoreFailureStatus>,
    /// Latency of the store; `None` without an answer in the last minute.
    pub store_latency: Option<StoreLatencyStatus>,
    /// Number of Legacy sessions of this replica that another one can revive, or soon can.
    pub recorded_sessions: usize,
    /// The other replicas.
    pub replicas: Vec<ReplicaStatus>,
    /// Further replicas, which this one ignores because of their clocks.
    pub skewed: Vec<SkewedReplicaStatus>,
}

/// A failed access to the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoreFailureStatus {
    /// Its time.
    pub at: Timestamp,
    /// The error.
    pub error: String,
}

/// Latency of the store: the requests of the last minute that it has answered, at most the last 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoreLatencyStatus {
    /// Number of the requests.
    pub requests: usize,
    /// The median of their durations, in microseconds.
    pub median_micros: u64,
    /// Duration that 99 % of them do not exceed, in microseconds.
    pub p99_micros: u64,
    /// The longest one, in microseconds.
    pub slowest_micros: u64,
}

/// The cluster in the answer of `/readyz`: numbers alone, since probes are often less protected than
/// `/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterReadiness {
    /// Number of replicas with a lease, with this one.
    pub replicas: usize,
    /// Number of the others that have another configuration.
    pub other_configurations: usize,
    /// Number of Legacy sessions that this replica owns.
    pub sessions: usize,
    /// Number of Legacy sessions of all replicas, as their leases say.
    pub all_sessions: usize,
    /// True while the store cannot be used for limits and records.
    pub degraded: bool,
    /// Latency of the store; `None` without an answer in the last minute.
    pub store_latency: Option<StoreLatencyStatus>,
}

/// A replica whose clock differs by more than 5 seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SkewedReplicaStatus {
    /// Its id.
    pub id: String,
    /// The address where it is reached.
    pub address: String,
    /// Seconds that its clock is ahead of this replica's; negative if it is behind.
    pub ahead: i64,
}

/// Another replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReplicaStatus {
    /// Its id.
    pub id: String,
    /// The address where it is reached.
    pub address: String,
    /// Its start.
    pub started_at: Timestamp,
    /// Seconds since the last renewal of its lease, by its own clock.
    pub lease_age: i64,
    /// True if its configuration has the same text as that of this replica.
    pub same_configuration: bool,
    /// Number of Legacy sessions that it owned at the last renewal of its lease; `None` if the lease does
    /// not say so.
    pub sessions: Option<usize>,
}

impl ClusterStatus {
    pub(super) fn of(view: ClusterView, now: Timestamp) -> Self {
        Self {
            id: view.id.to_string(),
            address: view.address,
            renewed_at: view.renewed_at.map(time),
            store_error: view.store_error.map(|error| escape_controls(&error)),
            degraded: view.degraded_since.is_some(),
            degraded_since: view.degraded_since.map(time),
            last_failure: view.last_failure.map(|failure| StoreFailureStatus {
                at: time(failure.at),
                error: escape_controls(&failure.error),
            }),
            store_latency: view.store_latency.map(StoreLatencyStatus::of),
            recorded_sessions: view.sessions,
            replicas: view.replicas.into_iter().map(|it| ReplicaStatus::of(it, now)).collect(),
            skewed: view.skewed.into_iter().map(SkewedReplicaStatus::of).collect(),
        }
    }

    /// Describes a store that cannot be used, and replicas that differ. None of it makes the gateway
    /// unready: it serves its own sessions, and another replica has the same store and the same replicas.
    pub(super) fn reasons(&self) -> Vec<String> {
        let store = match &self.store_error {
            Some(error) => Some(format!("cluster: the store cannot be used: {error}")),
            None if self.degraded => Some("cluster: the store cannot be used for rates".into()),
            None => None,
        };
        let (others, all) = (self.count_other_configurations(), self.replicas.len());
        let differing = (others > 0).then(|| {
            format!("cluster: {others} of {all} other replicas have another configuration")
        });
        let skewed = self.skewed.len();
        let ignored = (skewed > 0)
            .then(|| format!("cluster: {skewed} replicas are ignored because of their clocks"));
        [store, differing, ignored].into_iter().flatten().collect()
    }

    pub(super) fn readiness(&self) -> ClusterReadiness {
        let others: usize = self.replicas.iter().filter_map(|replica| replica.sessions).sum();
        ClusterReadiness {
            replicas: self.replicas.len() + 1,
            other_configurations: self.count_other_configurations(),
            sessions: self.recorded_sessions,
            all_sessions: self.recorded_sessions + others,
            degraded: self.degraded,
            store_latency: self.store_latency,
        }
    }

    fn count_other_configurations(&self) -> usize {
        self.replicas.iter().filter(|replica| !replica.same_configuration).count()
    }
}

impl StoreLatencyStatus {
    fn of(latency: StoreLatency) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            requests: latency.accesses,
            median_micros: micros(latency.median),
            p99_micros: micros(latency.p99),
            slowest_micros: micros(latency.slowest),
        }
    }
}

impl SkewedReplicaStatus {
    fn of(view: SkewedReplica) -> Self {
        Self { id: view.id.to_string(), address: view.address, ahead: view.ahead }
    }
}

impl ReplicaStatus {
    fn of(view: ReplicaView, now: Timestamp) -> Self {
        Self {
            id: view.id.to_string(),
            address: view.address,
            started_at: time(view.started_at),
            lease_age: now.duration_since(time(view.renewed_at)).as_secs().max(0),
            same_configuration: view.same_configuration,
            sessions: view.sessions,
        }
    }
}
