//! The replicas of a cluster in `/status`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::report::time;
use crate::cluster::{ClusterView, ReplicaView, SkewedReplica};
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
    /// True while the store cannot be used for rates: `cluster.degrade` decides about them.
    pub degraded: bool,
    /// Number of Legacy sessions of this replica that another one can revive, or soon can.
    pub recorded_sessions: usize,
    /// The other replicas.
    pub replicas: Vec<ReplicaStatus>,
    /// Further replicas, which this one ignores because of their clocks.
    pub skewed: Vec<SkewedReplicaStatus>,
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
}

impl ClusterStatus {
    pub(super) fn of(view: ClusterView, now: Timestamp) -> Self {
        Self {
            id: view.id.to_string(),
            address: view.address,
            renewed_at: view.renewed_at.map(time),
            store_error: view.store_error.map(|error| escape_controls(&error)),
            degraded: view.degraded,
            recorded_sessions: view.sessions,
            replicas: view.replicas.into_iter().map(|it| ReplicaStatus::of(it, now)).collect(),
            skewed: view.skewed.into_iter().map(SkewedReplicaStatus::of).collect(),
        }
    }

    /// Describes a store that cannot be used. It does not make the gateway unready: it serves its own
    /// sessions, and another replica has the same store.
    pub(super) fn reason(&self) -> Option<String> {
        match &self.store_error {
            Some(error) => Some(format!("cluster: the store cannot be used: {error}")),
            None if self.degraded => Some("cluster: the store cannot be used for rates".into()),
            None => None,
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
        }
    }
}
