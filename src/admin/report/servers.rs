//! The state of servers, as `/status` reports it.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::admin::definitions::shown_name;
use crate::admin::reason::instance_reason;
use crate::admin::{
    BreakerStatus, DefinitionFinding, DefinitionStatus, DependenceFinding, DisabledStatus,
    InstanceOwner, InstanceStatus, LastError, ListDependenceStatus, ServerEra, ServerInfo,
    ServerStart, ServerState, ServerStatus, ServerTransport,
};
use crate::child::sandbox_gap;
use crate::clock;
use crate::config::{ServerConfig, ServerKind, StartChoice};
use crate::mcp::Era;
use crate::pipeline::Gateway;
use crate::policy::{Breaker, BreakerView, ScreenedDefinition, scan_of};
use crate::snapshot::{DisabledServer, Snapshot, SnapshotServer};
use crate::telemetry::metrics::ServerMetric;
use crate::upstream::{
    DependenceVerdict, InstanceScope, InstanceView, LifeState, ListDependence, Peer, ServerOverview,
};

use super::time;

/// Returns the state of a configured server. A snapshot has each of them as running or as disabled.
pub(super) fn server_status(
    gateway: &Gateway,
    snapshot: &Snapshot,
    config: &ServerConfig,
) -> Option<ServerStatus> {
    match snapshot.server(&config.name) {
        Some(member) => Some(running_status(snapshot, member)),
        None => disabled_status(gateway, snapshot, config),
    }
}

/// Returns the state of a server that an operator has disabled.
fn disabled_status(
    gateway: &Gateway,
    snapshot: &Snapshot,
    config: &ServerConfig,
) -> Option<ServerStatus> {
    let DisabledServer { by, at } = snapshot.disabled.find(&config.name)?;
    let (by, at) = (by.clone(), *at);
    let survives_restart = gateway.snapshots.keeps_disabled();
    let gate = snapshot.policy.server(&config.name).map(crate::policy::ServerLimits::gate);
    let settings = &config.definitions;
    Some(ServerStatus {
        name: config.name.to_string(),
        transport: transport(config),
        start: start(config),
        era: None,
        eras: Vec::new(),
        protocol_version: None,
        server_info: None,
        state: ServerState::Disabled,
        since: at,
        disabled: Some(DisabledStatus { by, at, survives_restart }),
        first_verdict_at: None,
        last_error: None,
        login: None,
        own_accounts_only: false,
        tools: 0,
        tool_tokens: None,
        restarts: 0,
        // Calls in flight finish.
        in_flight: gate.map_or(0, |gate| gate.in_flight()),
        queued: 0,
        breaker: None,
        pid: None,
        replica: None,
        next_retry_at: None,
        cure: None,
        warnings: Vec::new(),
        definitions: DefinitionStatus {
            trusted: settings.trusted,
            pins: settings.pins.unwrap_or(snapshot.config.gateway.pins).as_str(),
            scan: scan_of(&snapshot.config, config).as_str(),
            fault: None,
            held: 0,
            rejected: 0,
            reported: 0,
            found: Vec::new(),
        },
        stdout_lines: 0,
        lists_by_capabilities: ListDependenceStatus {
            verdict: DependenceFinding::Unknown,
            since: None,
        },
        capabilities: None,
        instance_count: 0,
        instances: Vec::new(),
    })
}

fn transport(config: &ServerConfig) -> ServerTransport {
    match config.target {
        ServerKind::Command(_) => ServerTransport::Stdio,
        ServerKind::Http(_) => ServerTransport::Http,
        ServerKind::OpenApi(_) => ServerTransport::OpenApi,
    }
}

fn start(config: &ServerConfig) -> ServerStart {
    match config.start {
        StartChoice::Eager => ServerStart::Eager,
        StartChoice::Lazy => ServerStart::Lazy,
    }
}

fn running_status(snapshot: &Snapshot, member: &SnapshotServer) -> ServerStatus {
    let tokens = snapshot.newest_token_report();
    let counted = tokens.as_ref().and_then(|report| report.of_server(&member.config.name));
    let view = member.server.view();
    let limits = snapshot.policy.server(&member.config.name);
    let gate = limits.map(crate::policy::ServerLimits::gate);
    let tools = snapshot.plain.catalog.entries().filter(|entry| entry.server == member.config.name);
    ServerStatus {
        name: member.config.name.to_string(),
        transport: transport(&member.config),
        start: start(&member.config),
        era: view.eras.first().map(|spoken| era(*spoken)),
        eras: view.eras.iter().map(|spoken| era(*spoken)).collect(),
        protocol_version: view.peer.as_ref().map(|peer| peer.version.to_string()),
        server_info: view.peer.as_ref().map(|peer| {
            let (name, version) = peer.name_and_version();
            ServerInfo { name, version }
        }),
        state: server_state(&view.state),
        since: time(view.since),
        disabled: None,
        first_verdict_at: view.first_verdict.map(time),
        last_error: view.last_error.as_ref().map(last_error),
        login: view.login.as_deref().map(str::to_owned),
        own_accounts_only: view.own_accounts_only,
        tools: tools.count(),
        tool_tokens: counted.map(|counted| counted.tokens),
        restarts: view.restarts,
        in_flight: gate.map_or(0, |gate| gate.in_flight()),
        queued: gate.map_or(0, |gate| gate.queued()),
        breaker: limits.and_then(|limits| limits.breaker()).map(|breaker| breaker_status(breaker)),
        pid: view.pid,
        replica: view.replica.map(|replica| replica.to_string()),
        next_retry_at: next_retry(&view),
        cure: view.failed_wait.as_ref().map(|wait| wait.cure.clone()),
        warnings: view.warnings.into_iter().chain(sandbox_warning(member)).collect(),
        definitions: definitions(snapshot, member),
        stdout_lines: member.metrics.level(ServerMetric::StdoutLines).value(),
        lists_by_capabilities: list_dependence(view.list_dependence),
        capabilities: view.peer.as_ref().and_then(|peer| capabilities(member, peer)),
        instance_count: view.instance_count,
        instances: view.instances.iter().map(instance).collect(),
    }
}

/// Returns the capabilities that a server declared, without secrets; `None` if they are too large.
fn capabilities(member: &SnapshotServer, peer: &Peer) -> Option<serde_json::Value> {
    let text = serde_json::to_string(peer.known_offers().capabilities()).ok()?;
    if text.len() > MAX_SHOWN_CAPABILITY_BYTES {
        return None;
    }
    serde_json::from_str(&member.config.secrets.hide_in(&text)).ok()
}

/// Describes the parts of its sandbox that are not enforced.
fn sandbox_warning(member: &SnapshotServer) -> Option<String> {
    sandbox_gap(&member.config).map(str::to_owned)
}

pub(crate) fn breaker_status(breaker: &Breaker) -> BreakerStatus {
    let status = |state| BreakerStatus { state, failures: 0, until: None };
    match breaker.view(clock::now()) {
        BreakerView::Closed { failures } => BreakerStatus { failures, ..status("closed") },
        BreakerView::Open { remaining } => {
            BreakerStatus { until: Some(time(clock::wall_now() + remaining)), ..status("open") }
        }
        BreakerView::HalfOpen => status("half-open"),
    }
}

fn definitions(snapshot: &Snapshot, member: &SnapshotServer) -> DefinitionStatus {
    let (name, settings) = (&member.config.name, &member.config.definitions);
    let lists = member.server.known_lists();
    let all = lists.iter().flat_map(|list| snapshot.screen.findings_in(list));
    let mut found = Vec::<ScreenedDefinition>::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    let held = found.iter().filter(|one| one.held).count();
    DefinitionStatus {
        trusted: settings.trusted,
        pins: settings.pins.unwrap_or(snapshot.config.gateway.pins).as_str(),
        scan: scan_of(&snapshot.config, &member.config).as_str(),
        fault: snapshot.screen.fault_of(name).map(str::to_owned),
        held,
        rejected: found.iter().filter(|one| one.rejected).count(),
        reported: found.len() - held,
        found: found.iter().take(MAX_SHOWN_FINDINGS).map(definition_finding).collect(),
    }
}

fn definition_finding(one: &ScreenedDefinition) -> DefinitionFinding {
    DefinitionFinding {
        kind: one.kind.member(),
        name: shown_name(&one.native),
        sha256: one.digest.to_string(),
        held: one.held,
        rejected: one.rejected,
        reasons: one.reasons.iter().map(ToString::to_string).collect(),
    }
}

fn instance(view: &InstanceView) -> InstanceStatus {
    let (owner, client) = match &view.owner.whose {
        InstanceScope::Everybody => (InstanceOwner::Shared, None),
        InstanceScope::Session { principal, .. } => (InstanceOwner::Session, Some(principal)),
        InstanceScope::Principal(principal) => (InstanceOwner::Client, Some(principal)),
    };
    InstanceStatus {
        reason: instance_reason(view),
        era: view.era.map(era),
        owner,
        client: client.map(|client| client.as_str().to_owned()),
        capabilities: serde_json::from_slice(&view.told.capabilities).unwrap_or_default(),
        state: server_state(&view.state),
        since: time(view.since),
        in_flight: view.calls,
        pid: view.pid,
        last_error: view.last_error.as_ref().map(last_error),
    }
}

fn list_dependence(known: DependenceVerdict) -> ListDependenceStatus {
    let since = known.since.and_then(|since| Timestamp::from_second(since.try_into().ok()?).ok());
    let verdict = match known.found {
        ListDependence::Unknown => DependenceFinding::Unknown,
        ListDependence::Independent => DependenceFinding::No,
        ListDependence::Dependent => DependenceFinding::Yes,
    };
    ListDependenceStatus { verdict, since }
}

pub(crate) fn era(spoken: Era) -> ServerEra {
    match spoken {
        Era::Legacy => ServerEra::Legacy,
        Era::Modern => ServerEra::Modern,
    }
}

pub(crate) fn last_error(error: &(SystemTime, String)) -> LastError {
    let (at, message) = error;
    LastError { at: time(*at), message: message.clone() }
}

pub(crate) fn server_state(state: &LifeState) -> ServerState {
    match state {
        LifeState::Idle => ServerState::Idle,
        LifeState::Connecting => ServerState::Connecting,
        LifeState::Ready => ServerState::Ready,
        LifeState::Backoff { .. } => ServerState::Backoff,
        LifeState::AwaitsLogin => ServerState::Login,
        LifeState::Failed => ServerState::Failed,
        LifeState::Stopped => ServerState::Stopping,
    }
}

pub(crate) fn next_retry(view: &ServerOverview) -> Option<Timestamp> {
    let wait = view.next_try()?.saturating_duration_since(clock::now());
    Some(time(clock::wall_now() + wait.min(Duration::from_hours(24))))
}

/// Limit of the bytes of a server's capabilities in the status.
const MAX_SHOWN_CAPABILITY_BYTES: usize = 16 << 10;
/// Limit of a server's definitions in the status.
const MAX_SHOWN_FINDINGS: usize = 100;
