//! Counts of audit records.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Fate of an audit record, or of an attempt to write one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditFate {
    /// It was written.
    Written,
    /// It was lost: the queue was full, or it could not be written before the end.
    Dropped,
    /// An attempt to write it failed; it is tried again.
    Failed,
}

impl AuditFate {
    /// Returns the value of the label `outcome`.
    fn label(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

/// Counters for all fates.
#[derive(Debug, Clone, Default)]
pub struct AuditCounts(Family<[(&'static str, &'static str); 1], Counter>);

impl AuditCounts {
    /// Counts records.
    pub fn count(&self, fate: AuditFate, records: u64) {
        self.0.get_or_create(&[("outcome", fate.label())]).inc_by(records);
    }

    /// Returns the number of records with this fate.
    pub fn of(&self, fate: AuditFate) -> u64 {
        self.0.get_or_create(&[("outcome", fate.label())]).get()
    }

    pub(super) fn family(&self) -> Family<[(&'static str, &'static str); 1], Counter> {
        self.0.clone()
    }
}
