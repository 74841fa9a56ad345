//! Durations of accesses to the store that replicas share: a histogram by operation, and the last
//! minute for the status.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use trunkline_core::clock;

/// Kind of an access to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOperation {
    /// Writes a value with a lease, such as that of a replica.
    Put,
    /// Reads the values of a collection.
    List,
    /// Removes a value.
    Remove,
    /// Takes permits of a rate.
    TakePermits,
    /// Leases calls of a quota.
    LeaseQuota,
    /// Returns unused calls of a quota.
    ReturnQuota,
    /// Reads a record.
    ReadRecord,
    /// Writes or removes a record.
    ReplaceRecord,
    /// Writes records of sessions.
    WriteSessions,
    /// Prolongs records of sessions.
    ProlongSessions,
}

impl StoreOperation {
    /// Returns the value of the label `operation`.
    fn label(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::List => "list",
            Self::Remove => "remove",
            Self::TakePermits => "take_permits",
            Self::LeaseQuota => "lease_quota",
            Self::ReturnQuota => "return_quota",
            Self::ReadRecord => "read_record",
            Self::ReplaceRecord => "replace_record",
            Self::WriteSessions => "write_sessions",
            Self::ProlongSessions => "prolong_sessions",
        }
    }
}

/// Outcome of an access to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessOutcome {
    /// The store has answered.
    Answered,
    /// It failed, or did not answer in time.
    Failed,
}

/// Latency of the store: the accesses of the last minute that it has answered, at most the last 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLatency {
    /// Number of the accesses.
    pub accesses: usize,
    /// The median of their durations.
    pub median: Duration,
    /// Duration that 99 % of them do not exceed.
    pub p99: Duration,
    /// The longest one.
    pub slowest: Duration,
}

/// The histograms of a family, by operation and outcome.
pub(super) type AccessHistograms =
    Family<[(&'static str, &'static str); 2], Histogram, fn() -> Histogram>;

/// Durations of accesses to the store.
#[derive(Debug, Clone)]
pub(super) struct StoreAccesses {
    durations: AccessHistograms,
    recent: Arc<Mutex<VecDeque<RecentAccess>>>,
}

#[derive(Debug, Clone, Copy)]
struct RecentAccess {
    /// Time of the answer.
    at: Instant,
    duration: Duration,
}

impl StoreAccesses {
    pub(super) fn observe(
        &self,
        operation: StoreOperation,
        outcome: AccessOutcome,
        start: Instant,
    ) {
        let now = clock::now();
        let duration = now.saturating_duration_since(start);
        let is_answered = outcome == AccessOutcome::Answered;
        let outcome = if is_answered { "ok" } else { "error" };
        let labels = [("operation", operation.label()), ("outcome", outcome)];
        self.durations.get_or_create(&labels).observe(duration.as_secs_f64());
        if is_answered {
            let mut recent = self.recent.lock();
            if recent.len() == MAX_RECENT {
                recent.pop_front();
            }
            recent.push_back(RecentAccess { at: now, duration });
        }
    }

    /// Returns the latency; `None` without an access in the last minute.
    pub(super) fn latency(&self) -> Option<StoreLatency> {
        let now = clock::now();
        let is_recent =
            |access: &&RecentAccess| now.saturating_duration_since(access.at) < RECENT_TIME;
        let recent = self.recent.lock();
        let mut durations: Vec<_> =
            recent.iter().filter(is_recent).map(|access| access.duration).collect();
        drop(recent);
        durations.sort_unstable();
        let accesses = durations.len();
        let at_rank = |percent: usize| {
            durations.get((accesses * percent).div_ceil(100).saturating_sub(1)).copied()
        };
        let (median, p99, slowest) = (at_rank(50)?, at_rank(99)?, at_rank(100)?);
        Some(StoreLatency { accesses, median, p99, slowest })
    }

    pub(super) fn durations(&self) -> AccessHistograms {
        self.durations.clone()
    }
}

impl Default for StoreAccesses {
    fn default() -> Self {
        let new: fn() -> Histogram = || Histogram::new(STORE_BUCKET_BOUNDS);
        Self { durations: Family::new_with_constructor(new), recent: Arc::default() }
    }
}

/// The upper bounds in seconds: a store in the same network answers within a millisecond.
pub(in crate::metrics) const STORE_BUCKET_BOUNDS: [f64; 12] =
    [0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.0];
/// Time for which an access counts towards the latency.
const RECENT_TIME: Duration = Duration::from_mins(1);
/// Limit of the accesses that count towards it.
const MAX_RECENT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes an answered access with a duration in milliseconds.
    fn observe(accesses: &StoreAccesses, millis: u64) {
        let start = clock::now().checked_sub(Duration::from_millis(millis)).unwrap();
        accesses.observe(StoreOperation::List, AccessOutcome::Answered, start);
    }

    #[tokio::test(start_paused = true)]
    async fn the_latency_is_that_of_the_answers_of_the_last_minute() {
        tokio::time::advance(Duration::from_mins(5)).await;
        let accesses = StoreAccesses::default();
        assert_eq!(accesses.latency(), None);
        accesses.observe(StoreOperation::List, AccessOutcome::Failed, clock::now());
        assert_eq!(accesses.latency(), None, "a failure is none");
        observe(&accesses, 1000);
        tokio::time::advance(Duration::from_secs(59)).await;
        for millis in 1..=199 {
            observe(&accesses, millis);
        }
        let millis = Duration::from_millis;
        let latency = |accesses, median, p99, slowest| StoreLatency {
            accesses,
            median: millis(median),
            p99: millis(p99),
            slowest: millis(slowest),
        };
        assert_eq!(accesses.latency(), Some(latency(200, 100, 198, 1000)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(accesses.latency(), Some(latency(199, 100, 198, 199)));
        for _ in 0..2 * MAX_RECENT {
            observe(&accesses, 7);
        }
        assert_eq!(accesses.latency(), Some(latency(MAX_RECENT, 7, 7, 7)));
        assert_eq!(accesses.recent.lock().len(), MAX_RECENT);
    }
}
