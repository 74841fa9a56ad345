//! The configuration: plans and reloads.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::admin::PlanError;
use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::plans::ReloadRequest;

/// A request for a plan.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanRequest {
    /// The past days whose recorded calls are decided again.
    #[serde(default = "usual_days")]
    days: u16,
}

/// Answers with the consequences of the configuration file.
pub(crate) async fn plan_reload(request: EndpointRequest) -> EndpointAnswer {
    let PlanRequest { days } = request.read_body()?;
    let control =
        request.report.reload_control().ok_or_else(|| problem(&PlanError::Unavailable))?;
    answer(&control.plan(days).await)
}

/// Reads the configuration file again.
pub(crate) async fn reload(request: EndpointRequest) -> EndpointAnswer {
    let reload: ReloadRequest = request.read_body()?;
    let done = request.report.reload(&reload).await;
    answer(&done.map_err(|error| problem(&error))?)
}

fn problem(error: &PlanError) -> ApiProblem {
    let code = match error {
        PlanError::Unknown { .. } | PlanError::Outdated => ProblemCode::PlanOutdated,
        PlanError::Unavailable => ProblemCode::Internal,
    };
    ApiProblem::new(code, error.to_string())
}

fn usual_days() -> u16 {
    30
}
