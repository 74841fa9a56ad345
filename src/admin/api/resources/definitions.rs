//! Definitions of servers that wait for approval. They are approved in the files that `trunkline pin
//! approve` edits, under the same lock, or in the store that replicas share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use trunkline_import::unified_diff;

use super::servers::{server_name, unknown_server};
use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::definitions::shown_name;
use crate::call::{NativeName, ServerName};
use crate::policy::{
    BaselineError, BaselineRecord, BaselineStorage, PinDecision, PinnedDefinition,
};
use crate::text::{error_chain, escape_controls, escape_invisible};

/// Every definition that waits for approval.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct PendingPage {
    /// In file order of servers.
    pending: Vec<PendingDefinition>,
    /// Forms that were rejected, and are held as long as the server lists them.
    rejected: Vec<PendingDefinition>,
}

/// A definition that waits for approval.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PendingDefinition {
    /// The server.
    server: String,
    /// Its kind.
    kind: &'static str,
    /// The server's own name for it, or its URI.
    name: String,
    /// SHA-256 of the form that waits.
    sha256: String,
    /// The reasons to ask.
    reasons: Vec<String>,
    /// True if an operator has rejected it: it stays held until it is approved.
    rejected: bool,
    /// The changes since the newest form, as a unified diff; the whole text if there are none.
    diff: String,
}

/// The forms to approve or to reject.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approval {
    /// Their SHA-256, as listed: the decision is not about a form that has changed since.
    sha256: Vec<String>,
}

/// The approved definitions.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ApprovalReport {
    /// Their kinds and names.
    approved: Vec<DecidedDefinition>,
}

/// The rejected definitions.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RejectionReport {
    /// Their kinds and names.
    rejected: Vec<DecidedDefinition>,
}

/// A definition that was approved or rejected.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DecidedDefinition {
    /// Its kind.
    kind: &'static str,
    /// The server's own name for it, or its URI.
    name: String,
}

impl PendingPage {
    /// Adds the definitions of a server.
    pub(crate) fn add(&mut self, server: &ServerName, record: &BaselineRecord) {
        let (rejected, pending): (Vec<_>, Vec<_>) =
            pending_of(server, record).into_iter().partition(|one| one.rejected);
        self.pending.extend(pending);
        self.rejected.extend(rejected);
    }
}

/// Lists the definitions that wait for approval, with their changes.
pub(crate) async fn list_pending(request: EndpointRequest) -> EndpointAnswer {
    let storage = storage(&request)?;
    let config = request.report.configured();
    let mut page = PendingPage::default();
    for server in &config.servers {
        let record = storage.read(&server.name).await;
        page.add(&server.name, &record.map_err(|error| problem_of(&error))?);
    }
    answer(&page)
}

/// Approves forms of a server.
pub(crate) async fn approve_forms(request: EndpointRequest) -> EndpointAnswer {
    let approved = decide(&request, PinDecision::Approve).await?;
    answer(&ApprovalReport { approved })
}

/// Rejects forms of a server.
pub(crate) async fn reject_forms(request: EndpointRequest) -> EndpointAnswer {
    let rejected = decide(&request, PinDecision::Reject).await?;
    answer(&RejectionReport { rejected })
}

/// Decides about the forms of a request, and applies the decision.
async fn decide(
    request: &EndpointRequest,
    decision: PinDecision,
) -> Result<Vec<DecidedDefinition>, ApiProblem> {
    let (storage, server) = (storage(request)?, server_name(request)?);
    let config = request.report.configured();
    if config.servers.iter().all(|known| known.name != server) {
        return Err(unknown_server(server.as_str()));
    }
    let Approval { sha256 } = request.read_body()?;
    if sha256.is_empty() || sha256.len() > MAX_DECIDED_FORMS {
        let detail = format!("expected 1 to {MAX_DECIDED_FORMS} digests in `sha256`");
        return Err(ApiProblem::invalid(detail));
    }
    request.notes.add_digests(&sha256);
    let decided = storage.decide(decision, &server, sha256).await;
    let decided = decided.map_err(|error| problem_of(&error))?;
    request.report.gateway.snapshots.read_approvals();
    if decided.is_empty() {
        let detail = "no definition waits for a decision in exactly these forms: list them again";
        return Err(ApiProblem::new(ProblemCode::NotPending, detail));
    }
    let decided = decided.iter().map(|(kind, name)| DecidedDefinition {
        kind: kind.member(),
        name: shown_name(&NativeName::new(name)),
    });
    Ok(decided.collect())
}

fn storage(request: &EndpointRequest) -> Result<BaselineStorage, ApiProblem> {
    request.report.gateway.snapshots.definitions().storage().ok_or_else(|| {
        let detail = "definitions are not stored: set gateway.pin_dir or gateway.state_dir";
        ApiProblem::new(ProblemCode::StateDirNeeded, detail)
    })
}

/// Returns the problem of a baseline that cannot be read or written.
fn problem_of(error: &BaselineError) -> ApiProblem {
    let code = match error {
        BaselineError::Sharing(_) => ProblemCode::StoreUnavailable,
        BaselineError::TooLarge { .. } => ProblemCode::RecordTooLarge,
        _ => ProblemCode::Internal,
    };
    ApiProblem::new(code, error_chain(error))
}

fn pending_of(server: &ServerName, record: &BaselineRecord) -> Vec<PendingDefinition> {
    let all = record.definitions().flat_map(|(kind, name, pinned)| {
        pinned.pending.iter().map(move |form| PendingDefinition {
            server: server.to_string(),
            kind: kind.member(),
            name: shown_name(&NativeName::new(name)),
            sha256: form.sha256.to_string(),
            reasons: form.reasons.clone(),
            rejected: form.rejected,
            diff: diff_of(name, pinned, form.definition.as_ref()),
        })
    });
    all.collect()
}

fn diff_of(name: &str, pinned: &PinnedDefinition, after: Option<&Value>) -> String {
    let newest = pinned.accepted.last().and_then(|form| form.definition.as_ref());
    let before = newest.map(pretty_text).unwrap_or_default();
    let after = after.map(pretty_text).unwrap_or_default();
    // An unchanged form waits if nothing of its server is served before it is approved.
    if before == after { after } else { unified_diff(name, &before, &after) }
}

/// Returns a definition, indented, with invisible characters escaped.
fn pretty_text(definition: &Value) -> String {
    let pretty = serde_json::to_string_pretty(definition).unwrap_or_default();
    let lines = pretty.lines().map(|line| escape_invisible(&escape_controls(line)) + "\n");
    lines.collect()
}

/// Limit of the forms in one decision.
const MAX_DECIDED_FORMS: usize = 10_000;
