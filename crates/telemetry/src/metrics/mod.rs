//! Metrics: recording and encoding.
//!
//! Hot paths hold handles: [`ToolMetrics`] in the catalog's entry,
//! [`ServerMetrics`] in the upstream, [`Operation`] beside the method. Recording
//! is then a few atomic additions, without a lookup of labels. The registry
//! holds handles weakly: the series of a server or a tool live as long as a
//! snapshot or a call in flight uses them and are removed with the last of them.
//! A new snapshot is built beside the running one, so unchanged servers keep
//! their counts.
//!
//! Series with an outcome appear with their first event: otherwise, five outcomes
//! for each of thousands of tools, nearly all zero, would dominate a scrape.
//!
//! Histograms are our own, because the library's histograms cannot be read back,
//! and the OTLP push reads the same histograms that `/metrics` shows.

mod audit_counts;
mod cluster_counts;
mod entries;
mod event_counts;
mod expiry_times;
mod failure_counts;
mod handles;
mod histogram;
mod operation;
mod readings;
mod server_metrics;
mod sink_levels;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

use super::CallOutcome;
use entries::{Entries, MetricProjection};
use failure_counts::FailureCounts;
use operation::OperationTable;

pub use audit_counts::{AuditCounts, AuditFate};
pub use cluster_counts::{
    AccessOutcome, ClusterCounts, ForwardResult, ReplicaLevels, RevivalResult, StoreLatency,
    StoreOperation,
};
pub(super) use entries::Labels;
pub use event_counts::{EventCounts, EventFate};
pub use expiry_times::{ExpiryTime, ExpiryTimes};
pub use failure_counts::FailureCount;
pub use handles::{CallMetrics, Entered, Level, ToolMetrics};
pub use histogram::{BUCKET_BOUNDS, Histogram, HistogramSnapshot};
pub use operation::Operation;
pub use readings::{RequestTotals, UsedElement};
pub use server_metrics::{Availability, BreakerLevel, ServerMetric, ServerMetrics};
pub use sink_levels::SinkLevels;

/// The media type of [`Metrics::encode_text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    operations: OperationTable,
    session_durations: histogram::SharedHistogram,
    servers: Entries<ServerMetrics>,
    tools: Entries<ToolMetrics>,
    clients: Entries<CallMetrics>,
    profiles: Entries<CallMetrics>,
    errors: FailureCounts,
    limits: Family<[(&'static str, String); 1], Counter>,
    definitions: Family<[(&'static str, String); 2], Counter>,
    reloads: Family<[(&'static str, &'static str); 1], Counter>,
    events: EventCounts,
    audit: AuditCounts,
    cluster: ClusterCounts,
    sinks: SinkLevels,
    expiries: ExpiryTimes,
    config_loaded: Gauge<f64, AtomicU64>,
    sessions: Level,
    streams: Level,
    parked: Level,
    connections: Level,
}

/// The outcome of a configuration reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReloadOutcome {
    /// The new configuration is active.
    Applied,
    /// The new configuration is equal to the active one.
    Unchanged,
    /// The new configuration has faults; the old one stays active.
    Rejected,
    /// The new configuration weakens protection, and no operator has asked for it; the old one stays
    /// active.
    Refused,
}

impl ReloadOutcome {
    /// Returns the value of the label `outcome`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
        }
    }
}

impl Metrics {
    /// Creates an empty registry.
    pub fn new(version: &'static str) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            operations: OperationTable::default(),
            session_durations: histogram::SharedHistogram::default(),
            servers: Entries::default(),
            tools: Entries::default(),
            clients: Entries::default(),
            profiles: Entries::default(),
            errors: FailureCounts::default(),
            limits: Family::default(),
            definitions: Family::default(),
            reloads: Family::default(),
            events: EventCounts::default(),
            audit: AuditCounts::default(),
            cluster: ClusterCounts::default(),
            sinks: SinkLevels::default(),
            expiries: ExpiryTimes::default(),
            config_loaded: Gauge::default(),
            sessions: Level::default(),
            streams: Level::default(),
            parked: Level::default(),
            connections: Level::default(),
        };
        metrics.register_calls();
        metrics.register_servers();
        metrics.register_gateway(version);
        metrics
    }

    /// The handle for clients' requests to the gateway, by method.
    pub fn operation_metrics(&self, method: &'static str) -> Arc<Operation> {
        self.operations.operation_handle(method)
    }

    /// The handle for a server. The same name gives the same handle while it is held.
    pub fn server(&self, name: &str) -> Arc<ServerMetrics> {
        self.servers.get_or_insert(&[name], || ServerMetrics::new(name))
    }

    /// The handle for a tool, by its server and its native name. The same names give the same
    /// handle while it is held.
    pub fn tool(&self, server: &str, tool: &str) -> Arc<ToolMetrics> {
        self.tools.get_or_insert(&[server, tool], || ToolMetrics::new(server, tool))
    }

    /// The handle for a client, by its configured name, or `anonymous`. The same name gives the
    /// same handle while it is held.
    pub fn client(&self, name: &str) -> Arc<CallMetrics> {
        self.clients.get_or_insert(&[name], || CallMetrics::new("client", name))
    }

    /// The handle for a profile, by its configured name, or `default`. The same name gives the same
    /// handle while it is held.
    pub fn profile_metrics(&self, name: &str) -> Arc<CallMetrics> {
        self.profiles.get_or_insert(&[name], || CallMetrics::new("profile", name))
    }

    /// Counts the reason of a refused or failed call; nothing for other outcomes.
    pub fn count_error(&self, outcome: &CallOutcome) {
        self.errors.count(outcome);
    }

    /// Counts a call over a limit. The limit's name comes from the configuration, never from the
    /// call.
    pub fn count_limit_refused(&self, limit: &str) {
        self.limits.get_or_create(&[("limit", limit.to_owned())]).inc();
    }

    /// Counts a server's definitions with findings: the held ones, and those that are only
    /// reported.
    pub fn count_definitions(&self, server: &str, [held, reported]: [usize; 2]) {
        for (action, count) in [("held", held), ("reported", reported)] {
            if count > 0 {
                let labels = [("server", server.to_owned()), ("action", action.to_owned())];
                let count = u64::try_from(count).unwrap_or(u64::MAX);
                self.definitions.get_or_create(&labels).inc_by(count);
            }
        }
    }

    /// Counts a configuration reload.
    pub fn count_reload(&self, outcome: ReloadOutcome) {
        self.reloads.get_or_create(&[("outcome", outcome.label())]).inc();
    }

    /// The counts of requests between replicas.
    pub fn cluster_counts(&self) -> &ClusterCounts {
        &self.cluster
    }

    /// The counts of audit records.
    pub fn audit_counts(&self) -> &AuditCounts {
        &self.audit
    }

    /// The state of the destinations of records and events.
    pub fn sink_levels(&self) -> &SinkLevels {
        &self.sinks
    }

    /// The counts of lifecycle events.
    pub fn event_counts(&self) -> &EventCounts {
        &self.events
    }

    /// The times at which certificates and keys expire.
    pub fn expiry_times(&self) -> &ExpiryTimes {
        &self.expiries
    }

    /// Records the load time of the active configuration.
    pub fn record_config_load(&self, at: SystemTime) {
        let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.config_loaded.set(since_epoch.as_secs_f64());
    }

    /// Open Legacy sessions of clients.
    #[inline]
    pub fn open_sessions(&self) -> &Level {
        &self.sessions
    }

    /// Calls that wait for their clients' input.
    #[inline]
    pub fn parked(&self) -> &Level {
        &self.parked
    }

    /// Open event streams to clients.
    #[inline]
    pub fn open_streams(&self) -> &Level {
        &self.streams
    }

    /// Open connections from clients.
    #[inline]
    pub fn open_connections(&self) -> &Level {
        &self.connections
    }

    /// Records the duration of a client's Legacy session.
    pub fn record_session(&self, lasted: Duration) {
        self.session_durations.0.observe_duration(lasted);
    }

    /// Encodes all metrics in the OpenMetrics text format, which Prometheus reads. Its media type
    /// is
    /// [`CONTENT_TYPE`].
    pub fn encode_text(&self) -> String {
        self.servers.prune();
        self.tools.prune();
        self.clients.prune();
        self.profiles.prune();
        let mut text = String::new();
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            tracing::error!(
                target: "trunkline::telemetry::metrics", %error, "the metrics could not be written"
            );
        }
        text
    }

    /// Passes every histogram to the OTLP push, by its conventional name.
    pub(super) fn visit_histograms(
        &self,
        visit: &mut dyn FnMut(&'static str, &Labels<'_>, &Histogram),
    ) {
        self.operations.visit_operations(&mut |labels, histogram| {
            visit("mcp.server.operation.duration", labels, histogram);
        });
        visit("mcp.server.session.duration", &[], &self.session_durations.0);
        for server in self.servers.live_entries() {
            let name = ("server", server.name());
            server.show_operations(&mut |labels, histogram| {
                let labels = [&[name], labels].concat();
                visit("mcp.client.operation.duration", &labels, histogram);
            });
            server.show_sessions(&mut |_, histogram| {
                visit("mcp.client.session.duration", &[name], histogram);
            });
        }
    }

    fn register_calls(&mut self) {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "mcp_server_operation_duration",
            "Duration of client requests, from the last byte in to the last byte out",
            Unit::Seconds,
            self.operations.clone(),
        );
        registry.register_with_unit(
            "mcp_server_session_duration",
            "Duration of Legacy sessions of clients",
            Unit::Seconds,
            self.session_durations.clone(),
        );
        registry.register(
            "trunkline_tool_calls",
            "Calls of a tool, by its server and native name",
            MetricProjection::new(&self.tools, ToolMetrics::show_calls),
        );
        registry.register(
            "trunkline_client_calls",
            "Calls of a client, by its name in the configuration",
            MetricProjection::new(&self.clients, CallMetrics::show_calls),
        );
        registry.register(
            "trunkline_profile_calls",
            "Calls through a profile, by its name in the configuration",
            MetricProjection::new(&self.profiles, CallMetrics::show_calls),
        );
        registry.register(
            "trunkline_tool_definition_tokens",
            "Tokens of the definition of a tool, by estimate, once they are counted",
            MetricProjection::new(&self.tools, ToolMetrics::show_tokens),
        );
        registry.register(
            "trunkline_profile_list_tokens",
            "Tokens of the tools that clients of a profile list, by estimate, once they are counted",
            MetricProjection::new(&self.profiles, CallMetrics::show_list_tokens),
        );
        registry.register(
            "trunkline_errors",
            "Calls that were rejected or failed, by reason",
            self.errors.clone(),
        );
        registry.register(
            "trunkline_limit_refused",
            "Calls rejected because of a limit, by the limit's name",
            self.limits.clone(),
        );
        registry.register(
            "trunkline_definitions_found",
            "Definitions of servers that changed or that a scan flagged, by server and by whether \
             they are held or reported",
            self.definitions.clone(),
        );
    }

    fn register_servers(&mut self) {
        let registry = &mut self.registry;
        registry.register_with_unit(
            "mcp_client_operation_duration",
            "Duration of the gateway's requests to a server",
            Unit::Seconds,
            MetricProjection::new(&self.servers, ServerMetrics::show_operations),
        );
        registry.register_with_unit(
            "mcp_client_session_duration",
            "Duration of Legacy sessions with a server",
            Unit::Seconds,
            MetricProjection::new(&self.servers, ServerMetrics::show_sessions),
        );
        server_metrics::register_table(registry, &self.servers);
    }

    fn register_gateway(&mut self, version: &'static str) {
        let registry = &mut self.registry;
        for (name, help, level) in [
            ("trunkline_sessions", "Open Legacy sessions of clients", &self.sessions),
            ("trunkline_streams", "Open event streams to clients", &self.streams),
            ("trunkline_parked_calls", "Calls that wait for their client's input", &self.parked),
            ("trunkline_connections", "Open connections from clients", &self.connections),
        ] {
            registry.register(name, help, level.gauge());
        }
        registry.register(
            "trunkline_reloads",
            "Attempts to load the configuration, by outcome",
            self.reloads.clone(),
        );
        registry.register(
            "trunkline_events",
            "Lifecycle events that left the queue, by outcome",
            self.events.family(),
        );
        registry.register(
            "trunkline_audit_records",
            "Records of the audit log, and failed attempts to write one, by outcome",
            self.audit.family(),
        );
        self.register_cluster();
        let registry = &mut self.registry;
        registry.register(
            "trunkline_sink_up",
            "1 while records or events can be written to their destination, 0 while they cannot",
            self.sinks.family(),
        );
        registry.register_with_unit(
            "trunkline_config_loaded_timestamp",
            "Time at which the running configuration was loaded, in Unix time",
            Unit::Seconds,
            self.config_loaded.clone(),
        );
        registry.register_with_unit(
            "trunkline_expiry_timestamp",
            "Time at which a certificate or key expires, in Unix time, by its kind and setting",
            Unit::Seconds,
            self.expiries.family(),
        );
        let version = Info::new([("version", version)]);
        registry.register("trunkline_build", "The running version", version);
    }

    fn register_cluster(&mut self) {
        let registry = &mut self.registry;
        let [forwarded, store_errors, revivals] = self.cluster.families();
        registry.register(
            "trunkline_forwarded_requests",
            "Requests for Legacy sessions of other replicas, by outcome",
            forwarded,
        );
        registry.register(
            "trunkline_session_revivals",
            "Legacy sessions whose replica is gone, by outcome",
            revivals,
        );
        registry.register(
            "trunkline_store_errors",
            "Failed accesses to the store that replicas share",
            store_errors,
        );
        registry.register(
            "trunkline_store_rate_requests",
            "Requests to the store that replicas share for permits of rates",
            self.cluster.rate_requests(),
        );
        registry.register_with_unit(
            "trunkline_store_operation_duration",
            "Duration of requests to the store that replicas share, by operation and outcome",
            Unit::Seconds,
            self.cluster.store_durations(),
        );
        registry.register(
            "trunkline_replicas",
            "Other replicas with a lease, by configuration",
            self.cluster.replicas(),
        );
        for (name, help, level) in self.cluster.levels() {
            registry.register(name, help, level);
        }
    }
}
