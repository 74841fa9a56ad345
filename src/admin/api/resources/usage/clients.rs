//! Clients and their sessions.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::{ClientStatus, client_status};
use crate::call::Principal;
use crate::config::{AdminRole, ClientConfig};
use crate::downstream::{ListenOverview, SessionOverview};
use crate::pipeline::SeenClient;
use crate::policy::LimitLevel;
use crate::snapshot::Snapshot;

use super::activity::{FailureStatus, failure_statuses};

/// Clients of the configuration, open sessions, and clients that were seen lately.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClientsPage {
    /// Start of the process. Calls and failures before it are not counted.
    counted_since: Timestamp,
    /// Every client of the configuration, in file order.
    clients: Vec<ClientDetails>,
    /// Callers without a table of their own: `anonymous` ones, and the users of each issuer
    /// (`NAME:*`). They are counted together.
    groups: Vec<CallerGroup>,
    /// Every open session of a Legacy client, the oldest first. Modern clients have none.
    sessions: Vec<SessionStatus>,
    /// Modern clients of the last hour, the last one first: at most 1000, 200 of one address and
    /// 20 of one principal. Then those that were silent for longer and have an open stream.
    recent: Vec<RecentClient>,
}

/// A client of the configuration.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClientDetails {
    /// Its name and keys.
    #[serde(flatten)]
    client: ClientStatus,
    /// Its role towards the admin interface.
    role: Option<&'static str>,
    /// The profiles that it may use; `None` for all.
    profiles: Option<Vec<String>>,
    /// Time of its last request with a key, to the second: in this process and, with
    /// `gateway.state_dir`, in earlier ones.
    last_used_at: Option<Timestamp>,
    /// Number of its open sessions.
    sessions: usize,
    /// Number of its calls since `counted_since`.
    calls: u64,
    /// Its refused and failed requests since `counted_since`, by reason.
    failures: Vec<FailureStatus>,
    /// The rest of its rates and quotas, as `POST /why` has it.
    limits: Vec<LimitStatus>,
}

/// Callers that are counted together.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CallerGroup {
    /// `anonymous`, or `NAME:*` for the users of an issuer.
    name: String,
    /// Number of their calls since `counted_since`.
    calls: u64,
    /// Their refused and failed requests since `counted_since`, by reason.
    failures: Vec<FailureStatus>,
}

/// The rest of a rate or quota.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LimitStatus {
    /// Its name in errors and metrics.
    limit: String,
    /// The calls that it still admits now.
    remaining: u64,
    /// The setting, such as `100/min`.
    setting: String,
}

/// A Modern client that was seen lately.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RecentClient {
    /// Digits that name it here.
    session: String,
    /// The client of the configuration, the user of an issuer, or `anonymous`.
    principal: String,
    /// Its address, or the /64 network of an IPv6 address.
    address: IpAddr,
    /// The profile.
    profile: String,
    /// The client's name for its software.
    software: String,
    /// The version of that software.
    version: String,
    /// The protocol version.
    protocol_version: &'static str,
    /// Its open streams for messages outside of calls.
    streams: usize,
    /// The time of its first request, if it has not been silent for an hour since.
    first_seen_at: Option<Timestamp>,
    /// The time of its last request, to 5 seconds.
    last_seen_at: Option<Timestamp>,
    /// The rest of the rates and quotas of a caller without a table; empty for a client of the
    /// configuration, which has them in `clients`.
    limits: Vec<LimitStatus>,
}

/// An open session.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionStatus {
    /// Digits of the SHA-256 of its id. They name it here, and open no session.
    session: String,
    /// The client of the configuration, the user of an issuer, or `anonymous`.
    principal: String,
    /// The profile.
    profile: String,
    /// The client's name for its software.
    software: String,
    /// The version of that software.
    version: String,
    /// The protocol version.
    protocol_version: String,
    /// Its open streams for messages outside of calls.
    streams: usize,
    /// Its calls in flight.
    calls: usize,
    /// The time of its opening.
    opened_at: Option<Timestamp>,
    /// The time of its last use; `None` while it has a call or a stream.
    idle_since: Option<Timestamp>,
    /// The rest of the rates and quotas of a caller without a table; empty for a client of the
    /// configuration, which has them in `clients`.
    limits: Vec<LimitStatus>,
}

/// Lists clients and sessions.
pub(crate) fn list_clients(request: &EndpointRequest) -> EndpointAnswer {
    let sessions = request.report.mcp.session_overviews();
    let snapshot = request.report.gateway.snapshots.load_full();
    let uses = request.report.uses.times();
    let clients = snapshot.config.clients.iter().map(|client| {
        let principal = Principal::Client(Arc::clone(&client.name));
        let open = sessions.iter().filter(|session| session.principal == principal);
        client_details(&snapshot, client_status(&snapshot, client, &uses), client, open.count())
    });
    let issuers = snapshot.config.issuers.iter();
    let issued =
        issuers.map(|issuer| Principal::User(format!("{}:*", issuer.name.as_str()).into()));
    let groups = std::iter::once(Principal::Anonymous).chain(issued);
    let mut recent = Vec::new();
    let mut unmatched = request.report.mcp.listening_clients();
    for sighting in request.report.gateway.seen_clients() {
        let open = unmatched.iter().position(|overview| overview.client == sighting.client);
        let streams = open.map_or(0, |place| unmatched.remove(place).streams);
        let times = [sighting.first_at, sighting.last_at].map(time);
        recent.push(recent_client(&snapshot, sighting.client, streams, times));
    }
    for ListenOverview { client, streams, .. } in unmatched {
        recent.push(recent_client(&snapshot, client, streams, [None, None]));
    }
    answer(&ClientsPage {
        counted_since: request.report.started_at,
        clients: clients.collect(),
        groups: groups.map(|group| caller_group(&snapshot, &group)).collect(),
        recent,
        sessions: sessions.into_iter().map(|it| session_status(&snapshot, it)).collect(),
    })
}

fn client_details(
    snapshot: &Snapshot,
    status: ClientStatus,
    client: &ClientConfig,
    sessions: usize,
) -> ClientDetails {
    let principal = Principal::Client(Arc::clone(&client.name));
    let counts = snapshot.client_counts(&principal);
    let profiles = client.profiles.as_ref();
    ClientDetails {
        role: client.role.map(AdminRole::as_str),
        profiles: profiles.map(|names| names.iter().map(ToString::to_string).collect()),
        last_used_at: status.keys.iter().filter_map(|key| key.last_used_at).max(),
        sessions,
        calls: counts.map_or(0, |counts| counts.call_count()),
        failures: counts.map(|it| failure_statuses(it.failure_counts())).unwrap_or_default(),
        // The limits of a client do not depend on its address.
        limits: limit_statuses(snapshot, &principal, IpAddr::V4(Ipv4Addr::LOCALHOST)),
        client: status,
    }
}

fn caller_group(snapshot: &Snapshot, group: &Principal) -> CallerGroup {
    let counts = snapshot.client_counts(group);
    CallerGroup {
        name: principal_name(group),
        calls: counts.map_or(0, |counts| counts.call_count()),
        failures: counts.map(|it| failure_statuses(it.failure_counts())).unwrap_or_default(),
    }
}

fn recent_client(
    snapshot: &Snapshot,
    client: SeenClient,
    streams: usize,
    times: [Option<Timestamp>; 2],
) -> RecentClient {
    let [first_seen_at, last_seen_at] = times;
    let limits = limits_without_table(snapshot, &client.principal, client.address);
    RecentClient {
        session: client.digest(),
        streams,
        principal: principal_name(&client.principal),
        address: client.address,
        profile: client.profile,
        software: client.software,
        version: client.version,
        protocol_version: client.protocol_version,
        first_seen_at,
        last_seen_at,
        limits,
    }
}

/// Returns the rest of the limits of a caller that has no table in the configuration.
fn limits_without_table(
    snapshot: &Snapshot,
    caller: &Principal,
    address: IpAddr,
) -> Vec<LimitStatus> {
    match caller {
        Principal::Client(_) => Vec::new(),
        caller => limit_statuses(snapshot, caller, address),
    }
}

fn limit_statuses(snapshot: &Snapshot, who: &Principal, address: IpAddr) -> Vec<LimitStatus> {
    let levels = snapshot.policy.levels_of_caller(who, address).into_iter();
    let status =
        |LimitLevel { limit, remaining, setting, .. }| LimitStatus { limit, remaining, setting };
    levels.map(status).collect()
}

fn principal_name(principal: &Principal) -> String {
    match principal {
        Principal::Anonymous => "anonymous".to_owned(),
        principal => principal.as_str().to_owned(),
    }
}

fn time(at: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(at).ok()
}

/// Ends a session, or the streams of a Modern client.
pub(crate) fn end_session(request: &EndpointRequest) -> EndpointAnswer {
    let digest = request.argument("session").unwrap_or_default();
    let mcp = &request.report.mcp;
    let snapshot = request.report.gateway.snapshots.load();
    if let Some(ended) = mcp.end_session(digest) {
        return answer(&session_status(&snapshot, ended));
    }
    let missing = || {
        let detail = "there is no such session, and no Modern client with open streams";
        ApiProblem::new(ProblemCode::UnknownSession, detail)
    };
    answer(&stream_status(&snapshot, mcp.end_streams(digest).ok_or_else(missing)?))
}

/// Describes the streams of a Modern client like a session.
fn stream_status(snapshot: &Snapshot, ended: ListenOverview) -> SessionStatus {
    let ListenOverview { client, streams, opened_at } = ended;
    SessionStatus {
        session: client.digest(),
        principal: principal_name(&client.principal),
        limits: limits_without_table(snapshot, &client.principal, client.address),
        profile: client.profile,
        software: client.software,
        version: client.version,
        protocol_version: client.protocol_version.to_owned(),
        streams,
        calls: 0,
        opened_at: time(opened_at),
        idle_since: None,
    }
}

fn session_status(snapshot: &Snapshot, session: SessionOverview) -> SessionStatus {
    SessionStatus {
        limits: limits_without_table(snapshot, &session.principal, session.address),
        session: session.digest,
        principal: principal_name(&session.principal),
        profile: session.profile,
        software: session.software,
        version: session.version,
        protocol_version: session.protocol_version,
        streams: session.streams,
        calls: session.calls,
        opened_at: time(session.opened_at),
        idle_since: session.idle_since.and_then(time),
    }
}
