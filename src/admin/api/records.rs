//! Records of changes: one for each request that may change something, with its operator.

use http::{Method, Response, StatusCode};

use crate::downstream::Body;
use crate::telemetry::audit::{
    AuditOperation, AuditTrail, OperationActor, OperationOutcome, OperationRecord,
};
use crate::text::{clip, escape_controls};

use super::access::OperatorIdentity;
use super::problem::ApiProblem;
use super::request::{ChangeNotes, EndpointAnswer};

/// The sender of a request that may change something, and the place of its record.
pub(super) struct ChangeSender {
    /// The audit log.
    pub(super) trail: AuditTrail,
    /// The operator.
    pub(super) operator: OperatorIdentity,
    /// The method.
    pub(super) method: Method,
    /// The path below the API's own, or that of a page beside it, with the query.
    pub(super) path: String,
    /// Facts that the endpoint adds.
    pub(super) notes: ChangeNotes,
}

impl ChangeSender {
    /// Records a change that was refused before it began.
    pub(super) fn record_refusal(&self, problem: &ApiProblem) {
        let Self { trail, operator, method, path, notes } = self;
        let client = notes.client();
        let client = client.as_deref();
        let change = OperatorChange { method: method.as_str(), path, digests: &[], client };
        record_change(trail, operator, &change, ChangeOutcome::of_problem(problem));
    }
}

/// A request that may have changed something.
#[derive(Debug, Clone, Copy)]
struct OperatorChange<'a> {
    /// Its method.
    method: &'a str,
    /// Its path, with the query.
    path: &'a str,
    /// The digests of the definitions that it is about.
    digests: &'a [String],
    /// The client that a refused call names as its caller.
    client: Option<&'a str>,
}

/// The answer to such a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangeOutcome {
    /// Its status.
    pub(super) status: StatusCode,
    /// The reason of a problem.
    pub(super) reason: Option<&'static str>,
}

impl ChangeOutcome {
    /// Returns the outcome of an endpoint's request.
    pub(super) fn of_endpoint(answered: &EndpointAnswer) -> Self {
        let done = Self { status: StatusCode::OK, reason: None };
        answered.as_ref().err().map_or(done, Self::of_problem)
    }

    fn of_problem(problem: &ApiProblem) -> Self {
        Self { status: problem.code.status(), reason: Some(problem.code.as_str()) }
    }

    /// Returns the outcome of a request for a page beside the API.
    pub(super) fn of_page(response: &Response<Body>) -> Self {
        let status = response.status();
        let reason = (!status.is_success()).then_some(match status {
            StatusCode::NOT_FOUND => "unknown_server_or_client",
            StatusCode::SERVICE_UNAVAILABLE => "server_unavailable",
            _ => "invalid_request",
        });
        Self { status, reason }
    }
}

/// Makes a change in a task of its own, and records it: a client that disconnects neither cuts it in
/// half nor leaves it without a record. Returns `None` if the change has broken off.
pub(super) async fn make_recorded<T: Send + 'static>(
    sender: ChangeSender,
    change: impl Future<Output = T> + Send + 'static,
    outcome: fn(&T) -> ChangeOutcome,
) -> Option<T> {
    let making = tokio::spawn(async move {
        let answered = change.await;
        let ChangeSender { trail, operator, method, path, notes } = sender;
        let digests = notes.digests();
        let (method, client) = (method.as_str(), None);
        let change = OperatorChange { method, path: &path, digests: &digests, client };
        record_change(&trail, &operator, &change, outcome(&answered));
        answered
    });
    making.await.ok()
}

/// Records a request that may change something, and its outcome, in the log and the audit log.
fn record_change(
    trail: &AuditTrail,
    operator: &OperatorIdentity,
    change: &OperatorChange<'_>,
    answered: ChangeOutcome,
) {
    audit_change(trail, operator, change, answered);
    let path = escape_controls(clip(change.path, MAX_RECORDED_PATH_BYTES));
    let (operator, method) = (&operator.actor, change.method);
    match answered.reason {
        None => tracing::info!(%operator, method, path, "changed by an operator"),
        Some(outcome) => {
            let client =
                change.client.map(|name| escape_controls(clip(name, MAX_RECORDED_NAME_BYTES)));
            tracing::info!(%operator, method, path, client, outcome, "a change was not made");
        }
    }
}

fn audit_change(
    trail: &AuditTrail,
    operator: &OperatorIdentity,
    change: &OperatorChange<'_>,
    answered: ChangeOutcome,
) {
    let ChangeOutcome { status, reason } = answered;
    let name = operator.actor.to_string();
    trail.record_operation(&OperationRecord {
        operation: AuditOperation::Change {
            method: change.method,
            path: change.path,
            digests: change.digests,
            client: change.client,
        },
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
/// Limit of the bytes of a client's name in the log.
const MAX_RECORDED_NAME_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::api::access::Actor;
    use crate::admin::api::problem::ProblemCode;
    use crate::captured_log::CapturedLog;
    use crate::listener::LocalUser;
    use crate::telemetry::metrics::AuditCounts;

    #[test]
    fn the_line_of_a_change_names_its_operator_and_is_bounded() {
        let log = CapturedLog::start();
        let actor = Actor::Local(LocalUser { uid: 7 });
        let operator = OperatorIdentity { actor, role: None, address: None };
        let path = format!("/servers/a\u{1b}[2J\n/{}end", "x".repeat(5_000));
        let client = format!("ci\u{1b}[2J{}tail", "y".repeat(500));
        let client = Some(client.as_str());
        let change = OperatorChange { method: "POST", path: &path, digests: &[], client };
        let refused = Err(ApiProblem::new(ProblemCode::UnknownServer, "none"));
        let outcome = ChangeOutcome::of_endpoint(&refused);
        record_change(&AuditTrail::new(AuditCounts::default()), &operator, &change, outcome);
        let text = log.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        for words in
            ["a change was not made", "uid 7", "POST", "unknown_server", "/servers/a", "ci"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            !text.contains('\u{1b}') && !text.contains("end") && !text.contains("tail"),
            "{text}"
        );
        assert!(text.len() < 1_000, "{}", text.len());
    }
}
