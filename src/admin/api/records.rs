//! Records of changes: one for each request that may change something, with its operator.

use http::StatusCode;

use crate::telemetry::audit::{
    AuditOperation, AuditTrail, OperationActor, OperationOutcome, OperationRecord,
};
use crate::text::{clip, escape_controls};

use super::access::OperatorIdentity;
use super::problem::ProblemCode;
use super::request::EndpointAnswer;

/// A request that may have changed something.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperatorChange<'a> {
    /// Its method.
    pub(super) method: &'a str,
    /// Its path below the API's own, with the query.
    pub(super) path: &'a str,
}

/// The answer to such a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangeOutcome {
    /// Its status.
    pub(super) status: StatusCode,
    /// The reason of a problem.
    pub(super) reason: Option<&'static str>,
}

/// Records a request that passed the checks, and its outcome, in the log and the audit log.
pub(super) fn record_change(
    trail: &AuditTrail,
    operator: &OperatorIdentity,
    change: &OperatorChange<'_>,
    answered: &EndpointAnswer,
) {
    let problem = answered.as_ref().err().map(|problem| problem.code);
    let status = problem.map_or(StatusCode::OK, ProblemCode::status);
    let reason = problem.map(ProblemCode::as_str);
    audit_change(trail, operator, change, ChangeOutcome { status, reason });
    let outcome = problem.map_or("done", ProblemCode::as_str);
    let path = escape_controls(clip(change.path, MAX_RECORDED_PATH_BYTES));
    let (operator, method) = (&operator.actor, change.method);
    tracing::info!(%operator, method, path, outcome, "changed by an operator");
}

/// Records a request of an operator in the audit log.
pub(super) fn audit_change(
    trail: &AuditTrail,
    operator: &OperatorIdentity,
    change: &OperatorChange<'_>,
    answered: ChangeOutcome,
) {
    let ChangeOutcome { status, reason } = answered;
    let name = operator.actor.to_string();
    trail.record_operation(&OperationRecord {
        operation: AuditOperation::Change { method: change.method, path: change.path },
        actor: OperationActor::Operator(Some(&name)),
        address: operator.address,
        outcome: match status {
            status if status.is_success() => OperationOutcome::Ok,
            status if status.is_client_error() => OperationOutcome::Refused,
            _ => OperationOutcome::Failed,
        },
        reason,
    });
}

/// Limit of the bytes of a path in a record.
const MAX_RECORDED_PATH_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::api::access::Actor;
    use crate::admin::api::problem::ApiProblem;
    use crate::captured_log::CapturedLog;
    use crate::listener::LocalUser;
    use crate::telemetry::metrics::AuditCounts;

    #[test]
    fn the_line_of_a_change_names_its_operator_and_is_bounded() {
        let log = CapturedLog::start();
        let actor = Actor::Local(LocalUser { uid: 7 });
        let operator = OperatorIdentity { actor, role: None, address: None };
        let path = format!("/servers/a\u{1b}[2J\n/{}end", "x".repeat(5_000));
        let change = OperatorChange { method: "POST", path: &path };
        let refused = Err(ApiProblem::new(ProblemCode::UnknownServer, "none"));
        record_change(&AuditTrail::new(AuditCounts::default()), &operator, &change, &refused);
        let text = log.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        for words in ["changed by an operator", "uid 7", "POST", "unknown_server", "/servers/a"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains("end"), "{text}");
        assert!(text.len() < 1_000, "{}", text.len());
    }
}
