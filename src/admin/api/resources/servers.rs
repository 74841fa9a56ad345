//! Servers: their state, and the actions on them.

pub(crate) mod history;
pub(crate) mod trials;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::{RefreshRequestError, ServerStatus, StatusSource as _};
use crate::call::ServerName;
use crate::snapshot::{DisablingError, ServerActionError, SharedDisabledError};

/// Every server of the configuration.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ServersPage {
    /// In file order.
    servers: Vec<ServerStatus>,
}

/// Lists the servers.
pub(crate) fn list_servers(request: &EndpointRequest) -> EndpointAnswer {
    answer(&ServersPage { servers: request.status().servers })
}

/// Answers with one server.
pub(crate) fn show_server(request: &EndpointRequest) -> EndpointAnswer {
    let name = server_name(request)?;
    let servers = request.status().servers;
    let found = servers.into_iter().find(|server| server.name == name.as_str());
    answer(&found.ok_or_else(|| unknown_server(name.as_str()))?)
}

/// Starts a server anew.
pub(crate) async fn restart_server(request: EndpointRequest) -> EndpointAnswer {
    let name = server_name(&request)?;
    let snapshots = Arc::clone(&request.report.gateway.snapshots);
    if waits(&request)? {
        let restarted = snapshots.restart(&name).await;
        restarted.map_err(|error| action_problem(error, &name))?;
    } else {
        let snapshot = snapshots.load_full();
        if snapshot.server(&name).is_none() {
            return Err(action_problem(snapshot.missing_reason(&name), &name));
        }
        drop(snapshot);
        tokio::spawn(async move { snapshots.restart(&name).await });
    }
    show_server(&request)
}

/// Disables a server.
pub(crate) async fn disable_server(request: EndpointRequest) -> EndpointAnswer {
    let name = server_name(&request)?;
    let by = request.operator.actor.to_string();
    let disabled = request.report.gateway.snapshots.disable(&name, &by).await;
    disabled.map_err(|error| disabling_problem(error, &name))?;
    show_server(&request)
}

/// Enables a server that was disabled.
pub(crate) async fn enable_server(request: EndpointRequest) -> EndpointAnswer {
    let name = server_name(&request)?;
    let waits = waits(&request)?;
    let snapshots = &request.report.gateway.snapshots;
    snapshots.enable(&name).await.map_err(|error| disabling_problem(error, &name))?;
    if waits {
        snapshots.settle_server(&name).await;
    }
    show_server(&request)
}

/// Returns true if the sender waits until the server is ready or has failed.
fn waits(request: &EndpointRequest) -> Result<bool, ApiProblem> {
    match request.argument("wait") {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => {
            Err(ApiProblem::invalid(format!("wait: expected true or false, got {other:?}")))
        }
    }
}

fn disabling_problem(error: DisablingError, name: &ServerName) -> ApiProblem {
    match error {
        DisablingError::Refused(refusal) => action_problem(refusal, name),
        DisablingError::Shared(SharedDisabledError::Sharing(_)) => {
            ApiProblem::new(ProblemCode::StoreUnavailable, error.to_string())
        }
        DisablingError::Shared(SharedDisabledError::Unreadable) => {
            ApiProblem::new(ProblemCode::Internal, error.to_string())
        }
    }
}

pub(super) fn action_problem(error: ServerActionError, name: &ServerName) -> ApiProblem {
    match error {
        ServerActionError::Unknown => unknown_server(name.as_str()),
        ServerActionError::Disabled => {
            ApiProblem::new(ProblemCode::ServerDisabled, error.to_string())
        }
    }
}

/// Lists a server anew.
pub(crate) async fn refresh_server(request: EndpointRequest) -> EndpointAnswer {
    let server = request.argument("server").unwrap_or_default();
    let refreshed = request.report.refresh(server, request.argument("client")).await;
    answer(&refreshed.map_err(|error| refresh_problem(&error))?)
}

/// Returns the server that the path names.
pub(super) fn server_name(request: &EndpointRequest) -> Result<ServerName, ApiProblem> {
    let server = request.argument("server").unwrap_or_default();
    ServerName::new(server).map_err(|_| unknown_server(server))
}

/// Returns the parameter `server` of the query, which names a server of the configuration.
pub(super) fn known_server(request: &EndpointRequest) -> Result<Option<String>, ApiProblem> {
    let Some(name) = request.argument("server") else { return Ok(None) };
    let config = request.report.configured();
    let is_known = config.servers.iter().any(|server| server.name.as_str() == name);
    if is_known { Ok(Some(name.to_owned())) } else { Err(unknown_server(name)) }
}

pub(super) fn unknown_server(name: &str) -> ApiProblem {
    ApiProblem::new(ProblemCode::UnknownServer, format!("the configuration has no server {name:?}"))
}

fn refresh_problem(error: &RefreshRequestError) -> ApiProblem {
    let code = match error {
        RefreshRequestError::UnknownServer => ProblemCode::UnknownServer,
        RefreshRequestError::DisabledServer => ProblemCode::ServerDisabled,
        RefreshRequestError::UnknownClient => ProblemCode::UnknownClient,
        RefreshRequestError::Unavailable(_) => ProblemCode::ServerUnavailable,
    };
    ApiProblem::new(code, error.to_string())
}
