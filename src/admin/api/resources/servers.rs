//! Servers: their state, and the actions on them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::{RefreshRequestError, ServerStatus, StatusSource as _};
use crate::call::ServerName;

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
    if !request.report.gateway.snapshots.restart(&name).await {
        return Err(unknown_server(name.as_str()));
    }
    show_server(&request)
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
        RefreshRequestError::UnknownClient => ProblemCode::UnknownClient,
        RefreshRequestError::Unavailable(_) => ProblemCode::ServerUnavailable,
    };
    ApiProblem::new(code, error.to_string())
}
