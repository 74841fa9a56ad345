//! Handles that other modules keep: per server, per tool, and levels that rise and fall.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;

use super::entries::{EventCount, LabelledEntry, MetricVisit};
use super::operation::OperationTable;
use super::{CallOutcome, Histogram, Operation};

/// The metrics of one server.
#[derive(Debug)]
pub struct ServerMetrics {
    name: Box<str>,
    operations: OperationTable,
    session_durations: Histogram,
    in_flight: Level,
    instances: Level,
    up: Gauge,
    restarts: EventCount,
    lost_lines: EventCount,
    stdout_lines: EventCount,
    breaker: Gauge,
    breaker_opened: EventCount,
    step_ups: EventCount,
    repeated_results: EventCount,
    definition_tokens: TokenGauge,
}

impl ServerMetrics {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            operations: OperationTable::default(),
            session_durations: Histogram::default(),
            in_flight: Level::default(),
            instances: Level::default(),
            up: Gauge::default(),
            restarts: EventCount::default(),
            lost_lines: EventCount::default(),
            stdout_lines: EventCount::default(),
            breaker: Gauge::default(),
            breaker_opened: EventCount::default(),
            step_ups: EventCount::default(),
            repeated_results: EventCount::default(),
            definition_tokens: TokenGauge::default(),
        }
    }

    /// The handle for the gateway's requests to this server, by method.
    pub fn operation_metrics(&self, method: &'static str) -> Arc<Operation> {
        self.operations.operation_handle(method)
    }

    /// Calls in flight at this server.
    #[inline]
    pub fn calls_in_flight(&self) -> &Level {
        &self.in_flight
    }

    /// The server's instances besides the first.
    pub fn running_instances(&self) -> &Level {
        &self.instances
    }

    /// Records the availability of the server. An idle server, which the next call starts, is
    /// available.
    pub fn set_availability(&self, availability: Availability) {
        self.up.set(i64::from(availability == Availability::Up));
    }

    /// Counts a start or a connection after the first.
    pub fn count_restart(&self) {
        self.restarts.increment();
    }

    /// Counts a server's log message that belongs to no client's call.
    pub fn count_lost_line(&self) {
        self.lost_lines.increment();
    }

    /// Counts a line on a child's standard output that is not a message; returns the count before
    /// it.
    pub fn count_stdout_line(&self) -> u64 {
        self.stdout_lines.increment()
    }

    /// Returns the number of lines on the standard output of children that were not messages.
    pub fn stdout_lines(&self) -> u64 {
        self.stdout_lines.value()
    }

    /// Records the state of the server's circuit breaker.
    pub fn set_breaker(&self, level: BreakerLevel) {
        self.breaker.set(level as i64);
        if level == BreakerLevel::Open {
            self.breaker_opened.increment();
        }
    }

    /// Counts a token or login that was requested because the server required more scopes.
    pub fn count_step_up(&self) {
        self.step_ups.increment();
    }

    /// Counts a large result that was replaced by a reference for its client.
    pub fn count_repeated_result(&self) {
        self.repeated_results.increment();
    }

    /// Records the tokens of the definitions of its tools.
    pub fn set_definition_tokens(&self, tokens: usize) {
        self.definition_tokens.set(tokens);
    }

    /// Records the duration of a Legacy session with this server.
    pub fn record_session(&self, lasted: Duration) {
        self.session_durations.observe_duration(lasted);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn show_operations(&self, visit: MetricVisit<'_, Histogram>) {
        self.operations.visit_operations(visit);
    }

    pub(super) fn show_sessions(&self, visit: MetricVisit<'_, Histogram>) {
        if !self.session_durations.is_empty() {
            visit(&[], &self.session_durations);
        }
    }

    pub(super) fn show_in_flight(&self, visit: MetricVisit<'_, Gauge>) {
        visit(&[], &self.in_flight.0);
    }

    pub(super) fn show_instances(&self, visit: MetricVisit<'_, Gauge>) {
        visit(&[], &self.instances.0);
    }

    pub(super) fn show_up(&self, visit: MetricVisit<'_, Gauge>) {
        visit(&[], &self.up);
    }

    pub(super) fn show_lost_lines(&self, visit: MetricVisit<'_, EventCount>) {
        if self.lost_lines.value() > 0 {
            visit(&[], &self.lost_lines);
        }
    }

    pub(super) fn show_stdout_lines(&self, visit: MetricVisit<'_, EventCount>) {
        if self.stdout_lines.value() > 0 {
            visit(&[], &self.stdout_lines);
        }
    }

    pub(super) fn show_step_ups(&self, visit: MetricVisit<'_, EventCount>) {
        if self.step_ups.value() > 0 {
            visit(&[], &self.step_ups);
        }
    }

    pub(super) fn show_repeated_results(&self, visit: MetricVisit<'_, EventCount>) {
        if self.repeated_results.value() > 0 {
            visit(&[], &self.repeated_results);
        }
    }

    pub(super) fn show_definition_tokens(&self, visit: MetricVisit<'_, Gauge>) {
        self.definition_tokens.show(visit);
    }

    pub(super) fn show_breaker(&self, visit: MetricVisit<'_, Gauge>) {
        if self.breaker_opened.value() > 0 {
            visit(&[], &self.breaker);
        }
    }

    pub(super) fn show_breaker_opened(&self, visit: MetricVisit<'_, EventCount>) {
        if self.breaker_opened.value() > 0 {
            visit(&[], &self.breaker_opened);
        }
    }

    pub(super) fn show_restarts(&self, visit: MetricVisit<'_, EventCount>) {
        visit(&[], &self.restarts);
    }
}

impl LabelledEntry for ServerMetrics {
    fn labels(&self) -> Vec<(&'static str, &str)> {
        vec![("server", &self.name)]
    }
}

/// State of a circuit breaker, with its value in the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerLevel {
    /// Calls are sent.
    Closed = 0,
    /// Single calls probe the server.
    HalfOpen = 1,
    /// Calls are refused.
    Open = 2,
}

/// Availability of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// The server accepts calls.
    Up,
    /// The server does not accept calls.
    Down,
}

/// The metrics of one tool.
#[derive(Debug)]
pub struct ToolMetrics {
    server: Box<str>,
    tool: Box<str>,
    calls: [EventCount; CallOutcome::COUNT],
    tokens: TokenGauge,
}

impl ToolMetrics {
    pub(super) fn new(server: &str, tool: &str) -> Self {
        let (calls, tokens) = Default::default();
        Self { server: server.into(), tool: tool.into(), calls, tokens }
    }

    /// Records the tokens of its definition.
    pub fn set_tokens(&self, tokens: usize) {
        self.tokens.set(tokens);
    }

    pub(super) fn show_tokens(&self, visit: MetricVisit<'_, Gauge>) {
        self.tokens.show(visit);
    }

    /// Counts a call.
    #[inline]
    pub fn record_call(&self, outcome: &CallOutcome) {
        if let Some(count) = self.calls.get(outcome.index()) {
            count.increment();
        }
    }

    pub(super) fn show_calls(&self, visit: MetricVisit<'_, EventCount>) {
        show_by_outcome(&self.calls, visit);
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
    calls: [EventCount; CallOutcome::COUNT],
    list_tokens: TokenGauge,
}

impl CallMetrics {
    pub(super) fn new(label: &'static str, name: &str) -> Self {
        let (calls, list_tokens) = Default::default();
        Self { label: (label, name.into()), calls, list_tokens }
    }

    /// Records the tokens of the tools that clients of a profile list.
    pub fn set_list_tokens(&self, tokens: usize) {
        self.list_tokens.set(tokens);
    }

    pub(super) fn show_list_tokens(&self, visit: MetricVisit<'_, Gauge>) {
        self.list_tokens.show(visit);
    }

    /// Counts a call.
    #[inline]
    pub fn record_call(&self, outcome: &CallOutcome) {
        if let Some(count) = self.calls.get(outcome.index()) {
            count.increment();
        }
    }

    pub(super) fn show_calls(&self, visit: MetricVisit<'_, EventCount>) {
        show_by_outcome(&self.calls, visit);
    }
}

impl LabelledEntry for CallMetrics {
    fn labels(&self) -> Vec<(&'static str, &str)> {
        let (label, name) = &self.label;
        vec![(label, name)]
    }
}

fn show_by_outcome(calls: &[EventCount; CallOutcome::COUNT], visit: MetricVisit<'_, EventCount>) {
    for (outcome, count) in CallOutcome::LABELS.iter().zip(calls) {
        if count.value() > 0 {
            visit(&[("outcome", outcome)], count);
        }
    }
}

/// A number of tokens, which appears once it is known.
#[derive(Debug, Default)]
struct TokenGauge(Gauge);

impl TokenGauge {
    fn set(&self, tokens: usize) {
        self.0.set(i64::try_from(tokens).unwrap_or(i64::MAX));
    }

    fn show(&self, visit: MetricVisit<'_, Gauge>) {
        if self.0.get() > 0 {
            visit(&[], &self.0);
        }
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
