//! Calls that operators make.

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::config::AdminRole;
use crate::pipeline::{CallingOperator, OperatorCall, OperatorCallError};

/// Makes a call, and answers with its result. The end of the operator's connection, or of its access,
/// cancels the call.
pub(crate) async fn make_call(mut request: EndpointRequest) -> EndpointAnswer {
    let notes = request.notes.clone();
    let call: OperatorCall = request.read_body().inspect_err(|_| notes.note_refusal())?;
    if let Some(client) = &call.r#as {
        notes.note_client(client);
        let checked = request.operator.require(AdminRole::Admin);
        checked.inspect_err(|_| notes.note_refusal())?;
        request.least = AdminRole::Admin;
    }
    let mut access = request.watch_access();
    let sender = &request.operator;
    let operator = CallingOperator {
        name: sender.actor.to_string(),
        address: sender.address,
        credential: sender.credential().cloned(),
    };
    let made = tokio::select! {
        biased;
        made = request.report.gateway.call_for_operator(&operator, &call) => made,
        () = access.revoked() => return Err(lost_access(&operator)),
    };
    let made = made.inspect_err(|error| {
        // A refused profile has a record of the call.
        if !matches!(error, OperatorCallError::Profile { .. }) {
            notes.note_refusal();
        }
    });
    answer(&made.map_err(|error| problem(&error))?)
}

fn lost_access(operator: &CallingOperator) -> ApiProblem {
    let name = &operator.name;
    let detail = format!("{name} has lost its access during the call, which is cancelled");
    ApiProblem::new(ProblemCode::RoleNeeded, detail)
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
