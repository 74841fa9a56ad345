//! Totals that are read back, for views of the running gateway.
//!
//! Reading takes the locks of the tables of names. Calls do not: they hold their handles.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant as RealInstant;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use trunkline_core::clock::LastUse;

use super::histogram::HistogramSnapshot;
use super::operation::OperationTable;
use super::{FailureCount, Metrics, ServerMetrics};

/// Requests of all methods together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestTotals {
    /// Number of requests that ended in any way.
    pub calls: u64,
    /// Number of those that failed, or whose tool reported an error.
    pub failed: u64,
    /// Number of those that the gateway refused.
    pub refused: u64,
    /// Their durations.
    pub durations: HistogramSnapshot,
}

impl OperationTable {
    fn totals(&self) -> RequestTotals {
        let mut totals = RequestTotals::default();
        self.visit_operations(&mut |labels, histogram| {
            let durations = histogram.snapshot();
            totals.calls += durations.count;
            let outcome = labels.iter().find(|(name, _)| *name == "outcome");
            match outcome.map(|(_, outcome)| *outcome) {
                Some("failed" | "tool_error") => totals.failed += durations.count,
                Some("refused") => totals.refused += durations.count,
                _ => {}
            }
            totals.durations.add(&durations);
        });
        totals
    }
}

impl Metrics {
    /// Returns the totals of clients' requests.
    pub fn request_totals(&self) -> RequestTotals {
        self.operations.totals()
    }

    /// Returns the counts of refused and failed calls, by reason.
    pub fn failure_counts(&self) -> Vec<FailureCount> {
        self.errors.all()
    }

    /// Returns the time of a tool's last call, by its server and native name; `None` if it was not
    /// called since the start.
    pub fn last_tool_use(&self, server: &str, tool: &str) -> Option<Instant> {
        self.tools.find(&[server, tool])?.last_use()
    }
}

impl ServerMetrics {
    /// Returns the totals of the gateway's requests to the server.
    pub fn request_totals(&self) -> RequestTotals {
        self.operations().totals()
    }
}

/// Elements with a time of their last use besides tools, which have it in their own metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsedElement {
    /// A prompt, by its native name.
    Prompt,
    /// A resource, by its native URI, or a template, by its native text.
    Resource,
}

/// Times of the last use of a server's prompts, resources and templates, by native name.
///
/// A use stores one number. The first use of an element replaces the table, at most
/// [`MAX_USED_ELEMENTS`] times.
#[derive(Debug, Default)]
pub(super) struct ElementUses(ArcSwap<UseTable>);

type UseTable = HashMap<(UsedElement, Arc<str>), Arc<LastUse>>;

impl ElementUses {
    /// Notes a use. Elements beyond the limit are left out.
    pub(super) fn note(&self, element: UsedElement, native: &str, at: RealInstant) {
        let at = Instant::from_std(at);
        let key = (element, Arc::from(native));
        let known = self.0.load();
        if let Some(used) = known.get(&key) {
            return used.touch(at);
        }
        if known.len() >= MAX_USED_ELEMENTS {
            return;
        }
        let used = Arc::new(LastUse::new(at));
        self.0.rcu(|table| {
            let mut table = UseTable::clone(table);
            table.entry(key.clone()).or_insert_with(|| Arc::clone(&used));
            table
        });
    }

    pub(super) fn last(&self, element: UsedElement, native: &str) -> Option<Instant> {
        self.0.load().get(&(element, Arc::from(native))).map(|used| used.last())
    }
}

/// Limit of the elements of a server with a time of use.
const MAX_USED_ELEMENTS: usize = 1024;
