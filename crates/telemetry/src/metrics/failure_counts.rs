//! Counts of refused and failed calls by reason, for the whole gateway and for each client.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::CallOutcome;
use super::entries::{EventCount, encode_with};

/// Counts by outcome and reason. Both are `&'static str`, so the code bounds their number. Only
/// calls that were refused or failed take its lock.
#[derive(Debug, Clone, Default)]
pub(super) struct FailureCounts(Arc<RwLock<BTreeMap<FailureKind, EventCount>>>);

/// Outcome and reason.
type FailureKind = (&'static str, &'static str);

/// Number of calls that were refused or failed for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureCount {
    /// `refused` or `failed`.
    pub outcome: &'static str,
    /// The reason: `over_limit`, `timeout`, …
    pub reason: &'static str,
    /// Number of calls.
    pub count: u64,
}

impl FailureCounts {
    /// Counts the reason of a refused or failed call; nothing for other outcomes.
    #[inline]
    pub(super) fn count(&self, outcome: &CallOutcome) {
        if let Some(reason) = outcome.failure_reason() {
            self.count_kind((outcome.label(), reason));
        }
    }

    fn count_kind(&self, kind: FailureKind) {
        if let Some(count) = self.0.read().get(&kind) {
            count.increment();
            return;
        }
        self.0.write().entry(kind).or_default().increment();
    }

    /// Returns all counts, sorted by outcome and reason.
    pub(super) fn all(&self) -> Vec<FailureCount> {
        let counts = self.0.read();
        let read = |(&(outcome, reason), count): (&FailureKind, &EventCount)| FailureCount {
            outcome,
            reason,
            count: count.value(),
        };
        counts.iter().map(read).collect()
    }
}

impl TypedMetric for FailureCounts {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for FailureCounts {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        for ((outcome, reason), count) in &*self.0.read() {
            let labels = [("outcome", *outcome), ("reason", *reason)];
            encode_with(&mut encoder, &labels, count)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
