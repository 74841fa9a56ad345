//! Calls that operators make.

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::config::AdminRole;
use crate::pipeline::{CallingOperator, OperatorCall, OperatorCallError};

/// Makes a call, and answers with its result. A client that disconnects cancels it.
pub(crate) async fn make_call(request: EndpointRequest) -> EndpointAnswer {
    let call: OperatorCall = request.read_body()?;
    let sender = &request.operator;
    if call.r#as.is_some() {
        sender.require(AdminRole::Admin)?;
    }
    let operator = CallingOperator {
        name: sender.actor.to_string(),
        address: sender.address,
        credential: sender.credential().cloned(),
    };
    let made = request.report.gateway.call_for_operator(&operator, &call).await;
    answer(&made.map_err(|error| problem(&error))?)
}

fn problem(error: &OperatorCallError) -> ApiProblem {
    let code = match error {
        OperatorCallError::UnknownClient { .. } => ProblemCode::UnknownClient,
        OperatorCallError::User { .. }
        | OperatorCallError::Profile { .. }
        | OperatorCallError::Invalid(_) => ProblemCode::InvalidRequest,
    };
    ApiProblem::new(code, error.to_string())
}
