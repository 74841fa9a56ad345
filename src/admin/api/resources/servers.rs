//! Servers: their refresh.

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::{RefreshRequestError, StatusSource as _};

/// Lists a server anew.
pub(crate) async fn refresh_server(request: EndpointRequest) -> EndpointAnswer {
    let server = request.argument("server").unwrap_or_default();
    let refreshed = request.report.refresh(server, request.argument("client")).await;
    answer(&refreshed.map_err(|error| refresh_problem(&error))?)
}

fn refresh_problem(error: &RefreshRequestError) -> ApiProblem {
    let code = match error {
        RefreshRequestError::UnknownServer => ProblemCode::UnknownServer,
        RefreshRequestError::UnknownClient => ProblemCode::UnknownClient,
        RefreshRequestError::Unavailable(_) => ProblemCode::ServerUnavailable,
    };
    ApiProblem::new(code, error.to_string())
}
