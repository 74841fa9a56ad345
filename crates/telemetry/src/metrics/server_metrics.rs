//! The metrics of one server. Those that are one number are rows of a table.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant as RealInstant};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::entries::{Entries, LabelledEntry, MetricVisit, encode_with};
use super::handles::Level;
use super::operation::OperationTable;
use super::readings::{ElementUses, UsedElement};
use super::{Histogram, Operation};

/// Defines [`ServerMetric`] with its rows, in the order of `/metrics`.
macro_rules! server_metrics {
    ($($metric:ident: $kind:ident, $shown:ident, $name:literal, $help:literal;)*) => {
        /// A metric of each server that is one number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ServerMetric {
            $(#[doc = $help] $metric,)*
        }

        impl ServerMetric {
            const ALL: [Self; [$($name),*].len()] = [$(Self::$metric),*];

            const fn row(self) -> MetricRow {
                match self {
                    $(Self::$metric => MetricRow {
                        name: $name,
                        help: $help,
                        kind: MetricType::$kind,
                        shown: SeriesShown::$shown,
                    },)*
                }
            }
        }
    };
}

server_metrics! {
    CallsInFlight: Gauge, Always, "trunkline_calls_in_flight", "Calls in flight at a server";
    Instances: Gauge, Always, "trunkline_server_instances",
        "Child processes or sessions of a server besides its first, for clients or sets of capabilities";
    Up: Gauge, Always, "trunkline_server_up",
        "1 while a server can take calls (an idle one can), 0 while it cannot";
    Disabled: Gauge, Positive, "trunkline_server_disabled",
        "1 while an operator has disabled a server";
    Restarts: Counter, Always, "trunkline_server_restarts", "Restarts of and reconnects to a server";
    Breaker: Gauge, AfterOpening, "trunkline_server_breaker",
        "The circuit breaker of a server, once it has opened: 0 closed, 1 half-open, 2 open";
    BreakerOpened: Counter, Positive, "trunkline_server_breaker_opened",
        "Openings of the circuit breaker of a server";
    StepUps: Counter, Positive, "trunkline_server_step_ups",
        "Tokens or logins requested because a server required more scopes";
    RepeatedResults: Counter, Positive, "trunkline_server_repeated_results",
        "Large results of a server replaced by a reference, because the client already had them";
    DefinitionTokens: Gauge, Positive, "trunkline_server_definition_tokens",
        "Tokens of the definitions of a server's tools, by estimate, once they are counted";
    LostLines: Counter, Positive, "trunkline_server_lost_log_lines",
        "Log messages of servers that belong to no client's call";
    StdoutLines: Counter, Positive, "trunkline_server_stdout_lines",
        "Lines on the standard output of a server that are not messages";
}

/// The form of a metric at `/metrics`.
struct MetricRow {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    shown: SeriesShown,
}

/// The servers that have a series.
enum SeriesShown {
    /// All servers.
    Always,
    /// Servers with a value above zero.
    Positive,
    /// Servers with a circuit breaker that has opened.
    AfterOpening,
}

/// The metrics of one server.
#[derive(Debug)]
pub struct ServerMetrics {
    name: Box<str>,
    operations: OperationTable,
    session_durations: Histogram,
    uses: ElementUses,
    /// By [`ServerMetric`].
    values: [Level; ServerMetric::ALL.len()],
}

impl ServerMetrics {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            operations: OperationTable::default(),
            session_durations: Histogram::default(),
            uses: ElementUses::default(),
            values: Default::default(),
        }
    }

    /// The handle for the gateway's requests to this server, by method.
    pub fn operation_metrics(&self, method: &'static str) -> Arc<Operation> {
        self.operations.operation_handle(method)
    }

    /// The current value of a metric.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "there is a value for each metric")]
    pub fn level(&self, metric: ServerMetric) -> &Level {
        &self.values[metric as usize]
    }

    /// Counts an event; returns the count before it.
    pub fn count(&self, metric: ServerMetric) -> usize {
        self.level(metric).increment()
    }

    /// Records the availability of the server. An idle server, which the next call starts, is
    /// available.
    pub fn set_availability(&self, availability: Availability) {
        self.level(ServerMetric::Up).set(usize::from(availability == Availability::Up));
        let is_disabled = availability == Availability::Disabled;
        self.level(ServerMetric::Disabled).set(usize::from(is_disabled));
    }

    /// Records the state of the server's circuit breaker.
    pub fn set_breaker(&self, level: BreakerLevel) {
        self.level(ServerMetric::Breaker).set(level as usize);
        if level == BreakerLevel::Open {
            self.count(ServerMetric::BreakerOpened);
        }
    }

    /// Records the tokens of the definitions of its tools.
    pub fn set_definition_tokens(&self, tokens: usize) {
        self.level(ServerMetric::DefinitionTokens).set(tokens);
    }

    /// Records the duration of a Legacy session with this server.
    pub fn record_session(&self, lasted: Duration) {
        self.session_durations.observe_duration(lasted);
    }

    /// Notes the beginning of a call about a prompt, a resource or a template.
    pub fn note_use(&self, element: UsedElement, native: &str, at: RealInstant) {
        self.uses.note(element, native, at);
    }

    /// Returns the time of the last such call; `None` if there was none.
    pub fn last_use(&self, element: UsedElement, native: &str) -> Option<Instant> {
        self.uses.last(element, native)
    }

    pub(super) fn operations(&self) -> &OperationTable {
        &self.operations
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

    /// Returns the value of a metric, if the server has the series.
    fn shown_value(&self, metric: ServerMetric) -> Option<usize> {
        let value = self.level(metric).value();
        let is_shown = match metric.row().shown {
            SeriesShown::Always => true,
            SeriesShown::Positive => value > 0,
            SeriesShown::AfterOpening => self.level(ServerMetric::BreakerOpened).value() > 0,
        };
        is_shown.then_some(value)
    }
}

impl LabelledEntry for ServerMetrics {
    fn labels(&self) -> Vec<(&'static str, &str)> {
        vec![("server", &self.name)]
    }
}

/// One family in the registry: one metric of all servers.
#[derive(Debug)]
struct ServerFamily {
    servers: Entries<ServerMetrics>,
    metric: ServerMetric,
}

/// Registers all rows of the table.
pub(super) fn register_table(registry: &mut Registry, servers: &Entries<ServerMetrics>) {
    for metric in ServerMetric::ALL {
        let MetricRow { name, help, .. } = metric.row();
        registry.register(name, help, ServerFamily { servers: servers.clone(), metric });
    }
}

impl EncodeMetric for ServerFamily {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for server in self.servers.live_entries() {
            let Some(value) = server.shown_value(self.metric) else { continue };
            let labels = server.labels();
            match self.metric_type() {
                MetricType::Counter => {
                    encode_with(&mut encoder, &labels, &ConstCounter::new(value))?;
                }
                _ => encode_with(&mut encoder, &labels, &ConstGauge::new(value))?,
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.metric.row().kind
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
    /// An operator has disabled the server.
    Disabled,
}
