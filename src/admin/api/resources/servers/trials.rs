//! Tests of servers.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::config::AdminRole;
use crate::jsonrpc::WrittenObject;
use crate::snapshot::TestedCall;

use super::{action_problem, server_name};

/// The arguments of the tool that a test calls.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrialArguments {
    /// The arguments; none by default.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    arguments: WrittenObject,
}

/// Starts a server apart from the running one, lists it, and calls a tool if one is named.
pub(crate) async fn test_server(request: EndpointRequest) -> EndpointAnswer {
    let name = server_name(&request)?;
    let call = requested_call(&request)?;
    let tested = request.report.gateway.snapshots.test_server(&name, call.as_ref()).await;
    answer(&tested.map_err(|error| action_problem(error, &name))?)
}

/// Reads the requested call. It takes effect outside of the gateway, with the gateway's account, and
/// passes no rule of a client: so it needs the role of those who write the rules.
fn requested_call(request: &EndpointRequest) -> Result<Option<TestedCall>, ApiProblem> {
    let body: TrialArguments =
        if request.body.is_empty() { TrialArguments::default() } else { request.read_body()? };
    let Some(tool) = request.argument("tool") else {
        let is_empty = body.arguments.is_empty();
        let detail = "arguments without a tool: name it with the parameter `tool`";
        return if is_empty { Ok(None) } else { Err(ApiProblem::invalid(detail)) };
    };
    if !request.role.includes(AdminRole::Admin) {
        let detail =
            "a test that calls a tool needs the role `admin`; without `tool`, it lists only";
        return Err(ApiProblem::new(ProblemCode::RoleNeeded, detail));
    }
    Ok(Some(TestedCall { tool: tool.to_owned(), arguments: body.arguments }))
}
