//! Records of changes: one for each request that may change something, with its operator.

use crate::text::{clip, escape_controls};

use super::access::OperatorIdentity;
use super::request::EndpointAnswer;

/// A request that may have changed something.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperatorChange<'a> {
    /// Its method.
    pub(super) method: &'a str,
    /// Its path below the API's own.
    pub(super) path: &'a str,
}

/// Records a request that passed the checks, and its outcome.
pub(super) fn record_change(
    operator: &OperatorIdentity,
    change: &OperatorChange<'_>,
    answered: &EndpointAnswer,
) {
    let outcome = answered.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "done");
    let path = escape_controls(clip(change.path, MAX_RECORDED_PATH_BYTES));
    let (operator, method) = (&operator.actor, change.method);
    tracing::info!(%operator, method, path, outcome, "changed by an operator");
}

/// Limit of the bytes of a path in a record.
const MAX_RECORDED_PATH_BYTES: usize = 512;
