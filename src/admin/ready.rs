//! Readiness: decides if clients should be routed to this gateway.
//!
//! Ready means: a configuration runs, the gateway is not draining, every eager server has had its
//! first verdict (it became ready or failed once) or [`VERDICT_GRACE`] has passed, and not all
//! servers are down. A server that is down while others work is reported as a reason, but does not
//! count: the others' tools are better than none. With all of them down, another replica may do
//! better. A gateway without servers is ready, as configured. An issuer of tokens without known
//! keys is reported as a reason, but does not count: it would be the same elsewhere. The same holds
//! for a certificate that has expired, or will do so soon, a new configuration that is not in
//! effect, a sink of records or events that cannot be written, and a store of replicas that cannot
//! be used. A required audit log is different: without it requests are refused, and another replica
//! may serve them.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::cluster_status::ClusterReadiness;
use super::expiries::describe_end;
use super::status::{
    ExpiryStatus, GatewayState, IssuerStatus, ReloadStatus, ServerStart, ServerState, ServerStatus,
    SinkStatus, Status,
};
use super::{ClusterStatus, ExpiryState};
use crate::telemetry::metrics::ReloadOutcome;

/// Time limit from the start of the process for the first verdicts of eager servers; after it, the
/// gateway is ready without them.
pub const VERDICT_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// The answer of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// True if clients should be routed here.
    pub ready: bool,
    /// The reasons if not ready; otherwise the faults of a gateway that is ready all the same.
    pub reasons: Vec<String>,
    /// The cluster, if the gateway is a replica and runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterReadiness>,
}

impl Readiness {
    /// Judges a status.
    pub fn of(status: &Status) -> Self {
        let stopping = match (status.state, &status.configuration) {
            (GatewayState::Draining, _) => Some("the gateway is draining"),
            (GatewayState::Starting, _) | (_, None) => Some("no configuration runs yet"),
            (GatewayState::Ready, Some(_)) => None,
        };
        if let Some(reason) = stopping {
            return Self { ready: false, reasons: vec![reason.to_owned()], cluster: None };
        }
        // A disabled server is as good as removed: an operator wants it so.
        let is_used = |state| !matches!(state, ServerState::Stopping | ServerState::Disabled);
        let servers = || status.servers.iter().filter(|server| is_used(server.state));
        let pending = in_grace(status) && servers().any(awaits_verdict);
        let all_down = servers().next().is_some() && !servers().any(can_take_calls);
        let mut reasons: Vec<_> = servers().filter(|s| !can_take_calls(s)).map(reason).collect();
        let lacks_keys = |issuer: &&IssuerStatus| issuer.keys == 0;
        let unknown = status.issuers.iter().filter(lacks_keys);
        reasons.extend(unknown.map(|issuer| format!("issuer {}: no keys yet", issuer.name)));
        reasons.extend(status.expiries.iter().filter_map(|it| expiry_reason(it, status.now)));
        let last = status.configuration.as_ref().and_then(|it| it.last_reload.as_ref());
        reasons.extend(last.and_then(reload_reason));
        reasons.extend(status.cluster.iter().flat_map(ClusterStatus::reasons));
        reasons.extend(status.sinks.iter().filter_map(sink_reason));
        let refuses = status.audit.as_ref().is_some_and(|audit| audit.refuses_requests);
        if refuses {
            reasons.insert(0, UNRECORDED_REASON.to_owned());
        }
        if all_down {
            reasons.insert(0, "no server can take calls".to_owned());
        }
        let cluster = status.cluster.as_ref().map(ClusterStatus::readiness);
        Self { ready: !pending && !all_down && !refuses, reasons, cluster }
    }
}

/// Describes a certificate that has expired or will do so soon. It does not make the gateway unready:
/// another replica has the same one.
fn expiry_reason(expiry: &ExpiryStatus, now: Timestamp) -> Option<String> {
    let is_reason = expiry.kind.is_certificate() && expiry.state != ExpiryState::Valid;
    is_reason.then(|| format!("{} {}", expiry.name, describe_end(expiry.expires_at, now)))
}

fn in_grace(status: &Status) -> bool {
    status.now.duration_since(status.started_at) < VERDICT_GRACE
}

fn awaits_verdict(server: &ServerStatus) -> bool {
    server.start == ServerStart::Eager && server.first_verdict_at.is_none()
}

/// Returns true if the server is ready, or a call would make it ready.
fn can_take_calls(server: &ServerStatus) -> bool {
    match server.state {
        ServerState::Ready => true,
        ServerState::Idle => !awaits_verdict(server),
        // Woken by a call, it only makes that call wait. An eager one without an error was stopped
        // for lack of calls; one with an error is recovering.
        ServerState::Connecting => {
            server.start == ServerStart::Lazy
                || (!awaits_verdict(server) && server.last_error.is_none())
        }
        // Clients use their own accounts, and log in as needed.
        ServerState::Backoff | ServerState::Login | ServerState::Failed => server.own_accounts_only,
        ServerState::Stopping | ServerState::Disabled => false,
    }
}

/// Describes the server without its error, which may quote the server's text: probes are often less
/// protected than `/status`.
fn reason(server: &ServerStatus) -> String {
    let ServerStatus { name, state, since, .. } = server;
    format!("{name}: {} since {}", state.as_str(), whole_seconds(*since))
}

/// Describes a reload without effect. Like that of a server, the reason has no text of the fault.
fn reload_reason(reload: &ReloadStatus) -> Option<String> {
    let cause = match (reload.outcome, reload.faults.len()) {
        (ReloadOutcome::Rejected, 1) => "was rejected, it has a fault".to_owned(),
        (ReloadOutcome::Rejected, faults) => format!("was rejected, it has {faults} faults"),
        (ReloadOutcome::Refused, _) => "was refused, it weakens protection".to_owned(),
        (ReloadOutcome::Applied | ReloadOutcome::Unchanged, _) => return None,
    };
    let at = whole_seconds(reload.at);
    Some(format!("configuration: the reload at {at} {cause}: see /status"))
}

/// Describes a sink that cannot be written. Its fault is the system's, or that of a connection.
fn sink_reason(sink: &SinkStatus) -> Option<String> {
    let SinkStatus { name, place, error } = sink;
    error.as_ref().map(|error| format!("{name}: {place}: {error}"))
}

fn whole_seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// Reason of a gateway that refuses requests.
const UNRECORDED_REASON: &str =
    "audit: requests are refused, because they cannot be recorded (audit.required)";
