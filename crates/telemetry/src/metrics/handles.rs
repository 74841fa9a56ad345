//! Handles that other modules keep: of a tool, a client or a profile, and levels that rise and fall.

use std::time::Instant as RealInstant;

use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use trunkline_core::clock::{self, LastUse};

use super::entries::{EventCount, LabelledEntry, MetricVisit};
use super::failure_counts::FailureCounts;
use super::{CallOutcome, FailureCount};

/// The metrics of one tool.
#[derive(Debug)]
pub struct ToolMetrics {
    server: Box<str>,
    tool: Box<str>,
    calls: CallCounts,
    tokens: Level,
    used: LastUse,
}

impl ToolMetrics {
    pub(super) fn new(server: &str, tool: &str) -> Self {
        let (calls, tokens) = Default::default();
        let used = LastUse::new(clock::now());
        Self { server: server.into(), tool: tool.into(), calls, tokens, used }
    }

    /// Notes the beginning of a call: one atomic store.
    #[inline]
    pub fn note_use(&self, at: RealInstant) {
        self.used.touch(Instant::from_std(at));
    }

    /// Returns the time of the last call; `None` if there was none.
    pub(super) fn last_use(&self) -> Option<Instant> {
        self.used.last_if_used()
    }

    /// Records the tokens of its definition.
    pub fn set_tokens(&self, tokens: usize) {
        self.tokens.set(tokens);
    }

    pub(super) fn show_tokens(&self, visit: MetricVisit<'_, Gauge>) {
        show_positive(&self.tokens, visit);
    }

    /// Counts a call.
    #[inline]
    pub fn record_call(&self, outcome: &CallOutcome) {
        self.calls.record(outcome);
    }

    pub(super) fn show_calls(&self, visit: MetricVisit<'_, EventCount>) {
        self.calls.show(visit);
    }
}

impl LabelledEntry for ToolMetrics {
    fn labels(&self) -> Vec<(&'static str, &str)> {
        vec![("server", &self.server), ("tool", &self.tool)]
    }
}

/// The calls of one client, or through one profile.
#[derive(Debug)]
pub struct CallMetrics {
    label: (&'static str, Box<str>),
    calls: CallCounts,
    failures: FailureCounts,
    list_tokens: Level,
}

impl CallMetrics {
    pub(super) fn new(label: &'static str, name: &str) -> Self {
        let (calls, failures, list_tokens) = Default::default();
        Self { label: (label, name.into()), calls, failures, list_tokens }
    }

    /// Records the tokens of the tools that clients of a profile list.
    pub fn set_list_tokens(&self, tokens: usize) {
        self.list_tokens.set(tokens);
    }

    pub(super) fn show_list_tokens(&self, visit: MetricVisit<'_, Gauge>) {
        show_positive(&self.list_tokens, visit);
    }

    /// Counts a call.
    #[inline]
    pub fn record_call(&self, outcome: &CallOutcome) {
        self.calls.record(outcome);
        self.failures.count(outcome);
    }

    /// Counts a request that was refused before it became a call.
    pub fn record_refusal(&self, outcome: &CallOutcome) {
        self.failures.count(outcome);
    }

    /// Returns the number of calls.
    pub fn call_count(&self) -> u64 {
        self.calls.0.iter().map(EventCount::value).sum()
    }

    /// Returns the counts of refused and failed requests, by reason.
    pub fn failure_counts(&self) -> Vec<FailureCount> {
        self.failures.all()
    }

    pub(super) fn show_calls(&self, visit: MetricVisit<'_, EventCount>) {
        self.calls.show(visit);
    }
}

impl LabelledEntry for CallMetrics {
    fn labels(&self) -> Vec<(&'static str, &str)> {
        let (label, name) = &self.label;
        vec![(label, name)]
    }
}

/// Numbers of calls by outcome.
#[derive(Debug, Default)]
struct CallCounts([EventCount; CallOutcome::COUNT]);

impl CallCounts {
    #[inline]
    fn record(&self, outcome: &CallOutcome) {
        if let Some(count) = self.0.get(outcome.index()) {
            count.increment();
        }
    }

    fn show(&self, visit: MetricVisit<'_, EventCount>) {
        for (outcome, count) in CallOutcome::LABELS.iter().zip(&self.0) {
            if count.value() > 0 {
                visit(&[("outcome", outcome)], count);
            }
        }
    }
}

fn show_positive(level: &Level, visit: MetricVisit<'_, Gauge>) {
    if level.value() > 0 {
        visit(&[], &level.0);
    }
}

/// A current number, such as of open streams.
#[derive(Debug, Clone, Default)]
pub struct Level(Gauge);

impl Level {
    /// Increments the level until the returned guard is dropped.
    #[must_use = "the count falls again when this is dropped"]
    #[inline]
    pub fn enter(&self) -> Entered {
        self.0.inc();
        Entered(self.0.clone())
    }

    /// Adds one; returns the number before.
    #[inline]
    pub(super) fn increment(&self) -> usize {
        usize::try_from(self.0.inc()).unwrap_or_default()
    }

    pub(super) fn set(&self, value: usize) {
        self.0.set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    pub(super) fn gauge(&self) -> Gauge {
        self.0.clone()
    }

    /// Returns the current number; never below zero.
    #[inline]
    pub fn value(&self) -> usize {
        usize::try_from(self.0.get()).unwrap_or_default()
    }
}

/// Guard that counts in a [`Level`] until it is dropped.
#[derive(Debug)]
pub struct Entered(Gauge);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.dec();
    }
}
