//! Totals and levels of the running gateway, for `trunkline top` and other views that compute rates
//! from two of these documents.
//!
//! It is made from metrics and levels that exist, in a time that does not depend on the length of
//! lists, and takes no lock that a call holds or waits for.

use std::path::Path;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::{
    BreakerStatus, GatewayState, LastError, ServerEra, ServerState, StatusReport, breaker_status,
    era, last_error, limit_text, next_retry, server_state, wall_time,
};
use crate::codec::file::read_file;
use crate::config::ServerConfig;
use crate::snapshot::{Snapshot, SnapshotServer};
use crate::telemetry::metrics::{
    BUCKET_BOUNDS, FailureCount, HistogramSnapshot, RequestTotals, ServerMetric,
};
use crate::text::{escape_controls, one_line};

/// Totals since the start of the gateway, and current levels.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Activity {
    /// The gateway's version.
    version: &'static str,
    /// Time of this document.
    now: Timestamp,
    /// Start of the process. Totals of another start are not comparable.
    started_at: Timestamp,
    /// State of the gateway as a whole.
    state: GatewayState,
    /// Memory of the process in bytes; `None` where the system does not tell it.
    memory_bytes: Option<u64>,
    /// Legacy sessions of clients.
    sessions: usize,
    /// Open event streams towards clients.
    streams: usize,
    /// Open connections from clients.
    connections: usize,
    /// Calls that wait for input of their client.
    parked: usize,
    /// Upper bounds of the buckets of durations in seconds. One more bucket has no bound.
    bucket_bounds: [f64; BUCKET_BOUNDS.len()],
    /// Requests of clients.
    requests: RequestActivity,
    /// Refused and failed requests, by reason.
    failures: Vec<FailureStatus>,
    /// Every server, in file order.
    servers: Vec<ServerActivity>,
}

/// Totals of requests.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RequestActivity {
    /// Number of requests that ended in any way.
    calls: u64,
    /// Number of those that failed, or whose tool reported an error.
    failed: u64,
    /// Number of those that the gateway refused.
    refused: u64,
    /// Sum of their durations in seconds.
    seconds: f64,
    /// Number of requests in each bucket of durations.
    buckets: Vec<u64>,
}

/// Number of refused or failed requests.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FailureStatus {
    /// `refused` or `failed`.
    outcome: &'static str,
    /// The reason.
    reason: &'static str,
    /// Number of requests.
    count: u64,
}

/// Totals and levels of a server.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ServerActivity {
    /// Its name in the configuration.
    name: String,
    /// Its state.
    state: ServerState,
    /// Start of this state.
    since: Timestamp,
    /// The era of its first instance, once detected.
    era: Option<ServerEra>,
    /// Number of restarts after it went away.
    restarts: u32,
    /// Number of instances besides the first.
    instance_count: usize,
    /// Calls in flight.
    in_flight: usize,
    /// Calls that wait for a slot.
    queued: usize,
    /// Requests that were sent to it.
    requests: RequestActivity,
    /// The tokens of its tools' definitions, by estimate; `None` before they are counted.
    tool_tokens: Option<usize>,
    /// Its circuit breaker; `None` if it has none.
    breaker: Option<BreakerStatus>,
    /// The last error, even if it has recovered since.
    last_error: Option<LastError>,
    /// Time of the next attempt of a server in backoff or failed.
    next_retry_at: Option<Timestamp>,
    /// The actions that make a failed server start before that time.
    cure: Option<String>,
}

/// Answers with the totals and levels of now.
pub(crate) fn show_activity(request: &EndpointRequest) -> EndpointAnswer {
    let mut activity = measure(&request.report);
    for error in activity.servers.iter_mut().filter_map(|server| server.last_error.as_mut()) {
        limit_text(&mut error.message, request.role);
    }
    answer(&activity)
}

fn measure(report: &StatusReport) -> Activity {
    let (gateway, snapshot) = (&report.gateway, report.gateway.snapshots.load());
    let metrics = &gateway.metrics;
    let configured = snapshot.config.servers.iter();
    Activity {
        version: env!("CARGO_PKG_VERSION"),
        now: wall_time(),
        started_at: report.started_at,
        state: report.state(),
        memory_bytes: read_memory(),
        sessions: report.mcp.sessions(),
        streams: metrics.open_streams().value(),
        connections: metrics.open_connections().value(),
        parked: metrics.parked().value(),
        bucket_bounds: BUCKET_BOUNDS,
        requests: request_activity(&metrics.request_totals()),
        failures: failure_statuses(metrics.failure_counts()),
        servers: configured.filter_map(|config| server_activity(&snapshot, config)).collect(),
    }
}

/// A snapshot has each server as running or as disabled.
fn server_activity(snapshot: &Snapshot, config: &ServerConfig) -> Option<ServerActivity> {
    if let Some(member) = snapshot.server(&config.name) {
        return Some(running_activity(snapshot, member));
    }
    let disabled = snapshot.disabled.find(&config.name)?;
    Some(ServerActivity {
        name: config.name.to_string(),
        state: ServerState::Disabled,
        since: disabled.at,
        era: None,
        restarts: 0,
        instance_count: 0,
        in_flight: 0,
        queued: 0,
        requests: request_activity(&RequestTotals::default()),
        tool_tokens: None,
        breaker: None,
        last_error: None,
        next_retry_at: None,
        cure: None,
    })
}

fn running_activity(snapshot: &Snapshot, member: &SnapshotServer) -> ServerActivity {
    let (view, name) = (member.server.view(), &member.config.name);
    let limits = snapshot.policy.server(name);
    let gate = limits.map(crate::policy::ServerLimits::gate);
    let tokens = member.metrics.level(ServerMetric::DefinitionTokens).value();
    ServerActivity {
        name: name.to_string(),
        state: server_state(&view.state),
        since: Timestamp::try_from(view.since).unwrap_or(Timestamp::UNIX_EPOCH),
        era: view.eras.first().map(|spoken| era(*spoken)),
        restarts: view.restarts,
        instance_count: view.instance_count,
        in_flight: gate.map_or(0, |gate| gate.in_flight()),
        queued: gate.map_or(0, |gate| gate.queued()),
        requests: request_activity(&member.metrics.request_totals()),
        tool_tokens: Some(tokens).filter(|tokens| *tokens > 0),
        breaker: limits.and_then(|limits| limits.breaker()).map(|breaker| breaker_status(breaker)),
        last_error: view.last_error.as_ref().map(last_error).map(shorten_error),
        next_retry_at: next_retry(&view),
        cure: view.failed_wait.as_ref().map(|wait| wait.cure.clone()),
    }
}

fn shorten_error(mut error: LastError) -> LastError {
    error.message = escape_controls(&one_line(&error.message, MAX_ERROR_CHARS));
    error
}

fn request_activity(totals: &RequestTotals) -> RequestActivity {
    let RequestTotals { calls, failed, refused, durations } = totals;
    let HistogramSnapshot { buckets, sum, .. } = durations;
    RequestActivity {
        calls: *calls,
        failed: *failed,
        refused: *refused,
        seconds: *sum,
        buckets: buckets.to_vec(),
    }
}

/// Returns the counts for a document.
pub(super) fn failure_statuses(counts: Vec<FailureCount>) -> Vec<FailureStatus> {
    let status = |FailureCount { outcome, reason, count }| FailureStatus { outcome, reason, count };
    counts.into_iter().map(status).collect()
}

/// Returns the memory of this process.
fn read_memory() -> Option<u64> {
    let status = read_file(Path::new("/proc/self/status"), MAX_STATUS_FILE).ok()?;
    resident_bytes(std::str::from_utf8(&status).ok()?)
}

/// Returns the resident memory in the text of `/proc/PID/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Limit of the characters of an error.
const MAX_ERROR_CHARS: usize = 500;
/// Limit of the bytes of `/proc/self/status`.
const MAX_STATUS_FILE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_read_from_its_line() {
        let status = "Name:\ttrunkline\nVmHWM:\t    9000 kB\nVmRSS:\t    1234 kB\nThreads:\t4\n";
        assert_eq!(resident_bytes(status), Some(1234 * 1024));
        assert_eq!(resident_bytes("Name:\ttrunkline\n"), None);
        assert_eq!(resident_bytes("VmRSS:\tmany kB\n"), None);
    }
}
