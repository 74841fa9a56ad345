//! Counts of requests between replicas, and of faults of their store.

pub(super) mod store_accesses;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use store_accesses::{AccessHistograms, StoreAccesses};

pub use store_accesses::{AccessOutcome, StoreLatency, StoreOperation};

/// Result of a forwarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardResult {
    /// The owner of the session has answered.
    Answered,
    /// The owner is gone, or cannot be reached: the session is lost.
    OwnerGone,
    /// The connection failed before the answer.
    Broken,
    /// This replica received a request that no replica has forwarded to it, and refused it.
    Refused,
}

impl ForwardResult {
    /// Returns the value of the label `outcome`.
    fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::OwnerGone => "owner_gone",
            Self::Broken => "broken",
            Self::Refused => "refused",
        }
    }
}

/// Event in the life of a session of a lost replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevivalResult {
    /// This replica has revived it.
    Revived,
    /// It could not be revived: no record is left, or a limit is reached.
    Lost,
    /// Its owner has a lease but cannot be reached, or the store cannot be.
    Unreachable,
    /// Another replica has revived a session of this one.
    Moved,
}

impl RevivalResult {
    /// Returns the value of the label `outcome`.
    fn label(self) -> &'static str {
        match self {
            Self::Revived => "revived",
            Self::Lost => "lost",
            Self::Unreachable => "unreachable",
            Self::Moved => "moved",
        }
    }
}

/// Numbers of the other replicas with a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicaLevels {
    /// Replicas with the same configuration.
    pub same: usize,
    /// Replicas with another one.
    pub other: usize,
    /// Replicas that are ignored because of their clocks.
    pub skewed: usize,
}

/// Counters of a cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterCounts {
    replicas: Family<[(&'static str, &'static str); 1], Gauge>,
    owned_sessions: Gauge,
    degraded: Gauge,
    accesses: StoreAccesses,
    forwarded: Family<[(&'static str, &'static str); 1], Counter>,
    store_errors: Family<[(&'static str, &'static str); 1], Counter>,
    rate_requests: Counter,
    revivals: Family<[(&'static str, &'static str); 1], Counter>,
}

impl ClusterCounts {
    /// Counts an event in the life of a session of a lost replica.
    pub fn count_revival(&self, result: RevivalResult) {
        self.revivals.get_or_create(&[("outcome", result.label())]).inc();
    }

    /// Counts a failed access to the store for a record of a session.
    pub fn count_session_error(&self) {
        self.store_errors.get_or_create(&[("store", "sessions")]).inc();
    }

    /// Counts a forwarded request.
    pub fn count_forwarded(&self, result: ForwardResult) {
        self.forwarded.get_or_create(&[("outcome", result.label())]).inc();
    }

    /// Counts a failed access to the store.
    pub fn count_store_error(&self) {
        self.store_errors.get_or_create(&[("store", "replicas")]).inc();
    }

    /// Counts a failed access to the store for a shared rate.
    pub fn count_rate_error(&self) {
        self.store_errors.get_or_create(&[("store", "rates")]).inc();
    }

    /// Counts a request to the store for permits of a shared rate.
    pub fn count_rate_request(&self) {
        self.rate_requests.inc();
    }

    /// Returns the number of requests to the store for permits of shared rates.
    pub fn rate_requests(&self) -> Counter {
        self.rate_requests.clone()
    }

    /// Replaces the numbers of the other replicas.
    pub fn set_replicas(&self, levels: ReplicaLevels) {
        let ReplicaLevels { same, other, skewed } = levels;
        for (state, count) in [("same", same), ("other", other), ("skewed", skewed)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.replicas.get_or_create(&[("configuration", state)]).set(count);
        }
    }

    /// Replaces the number of sessions that this replica owns.
    pub fn set_owned_sessions(&self, count: usize) {
        self.owned_sessions.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Notes that the store cannot be used.
    pub fn enter_degraded(&self) {
        self.degraded.set(1);
    }

    /// Notes that the store can be used again.
    pub fn leave_degraded(&self) {
        self.degraded.set(0);
    }

    /// Records an access to the store that ends now.
    pub fn observe_access(
        &self,
        operation: StoreOperation,
        outcome: AccessOutcome,
        start: Instant,
    ) {
        self.accesses.observe(operation, outcome, start);
    }

    /// Returns the latency of the store; `None` without an access in the last minute.
    pub fn store_latency(&self) -> Option<StoreLatency> {
        self.accesses.latency()
    }

    pub(super) fn store_durations(&self) -> AccessHistograms {
        self.accesses.durations()
    }

    pub(super) fn replicas(&self) -> Family<[(&'static str, &'static str); 1], Gauge> {
        self.replicas.clone()
    }

    /// Returns the gauges with their names and descriptions.
    pub(super) fn levels(&self) -> [(&'static str, &'static str, Gauge); 2] {
        [
            (
                "trunkline_owned_sessions",
                "Legacy sessions that this replica owns and that another one can revive, as in its \
                 lease",
                self.owned_sessions.clone(),
            ),
            (
                "trunkline_store_degraded",
                "1 while the store that replicas share cannot be used for limits and records, else 0",
                self.degraded.clone(),
            ),
        ]
    }

    pub(super) fn families(&self) -> [Family<[(&'static str, &'static str); 1], Counter>; 3] {
        [self.forwarded.clone(), self.store_errors.clone(), self.revivals.clone()]
    }
}
