//! Counts of requests between replicas, and of faults of their store.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

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

/// Counters of a cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterCounts {
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

    pub(super) fn families(&self) -> [Family<[(&'static str, &'static str); 1], Counter>; 3] {
        [self.forwarded.clone(), self.store_errors.clone(), self.revivals.clone()]
    }
}
