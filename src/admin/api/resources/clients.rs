//! Clients and their sessions.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::{ClientStatus, StatusSource as _};
use crate::call::Principal;
use crate::downstream::SessionOverview;

/// Clients of the configuration, and open sessions.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ClientsPage {
    /// Every client of the configuration, in file order.
    clients: Vec<ClientStatus>,
    /// Every open session of a Legacy client, the oldest first. Modern clients have none.
    sessions: Vec<SessionStatus>,
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
    /// The time of its opening.
    opened_at: Option<Timestamp>,
    /// The time of its last use; `None` while it has a call or a stream.
    idle_since: Option<Timestamp>,
}

/// Lists clients and sessions.
pub(crate) fn list_clients(request: &EndpointRequest) -> EndpointAnswer {
    let sessions = request.report.mcp.session_overviews();
    let clients = request.report.status().clients;
    answer(&ClientsPage { clients, sessions: sessions.into_iter().map(session_status).collect() })
}

/// Ends a session.
pub(crate) fn end_session(request: &EndpointRequest) -> EndpointAnswer {
    let digest = request.argument("session").unwrap_or_default();
    let ended = request.report.mcp.end_session(digest);
    let missing = || ApiProblem::new(ProblemCode::UnknownSession, "there is no such session");
    answer(&session_status(ended.ok_or_else(missing)?))
}

fn session_status(session: SessionOverview) -> SessionStatus {
    let time = |at| Timestamp::try_from(at).ok();
    SessionStatus {
        session: session.digest,
        principal: match &session.principal {
            Principal::Anonymous => "anonymous".to_owned(),
            principal => principal.as_str().to_owned(),
        },
        profile: session.profile,
        software: session.software,
        version: session.version,
        protocol_version: session.protocol_version,
        opened_at: time(session.opened_at),
        idle_since: session.idle_since.and_then(time),
    }
}
