//! Decisions about definitions: by the running gateway, which records them in its audit log, or in the
//! files of baselines if no gateway runs. The command records those itself.

use std::path::Path;
use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::call::ServerName;
use crate::catalog::DefinitionKind;
use crate::cli::print_error;
use crate::cli::running::{GatewayOption, GatewayRequest, RunningGatewayError};
use crate::cli::serve::audit_settings;
use crate::config::Config;
use crate::policy::{BaselineError, BaselineFolder, BaselineRecord, PinDecision};
use crate::telemetry::audit::{
    AuditOperation, AuditTrail, OperationActor, OperationOutcome, OperationRecord,
};
use crate::telemetry::metrics::AuditCounts;

/// The baselines of a configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PinFiles<'a> {
    pub(crate) config: &'a Config,
    /// The file of the configuration.
    pub(crate) path: &'a Path,
    pub(crate) folder: &'a BaselineFolder,
}

/// Reasons that a decision is not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecisionError {
    /// A baseline cannot be read or written.
    #[error(transparent)]
    Baseline(#[from] BaselineError),
    /// The running gateway refuses it, or does not answer.
    #[error(transparent)]
    Gateway(#[from] RunningGatewayError),
}

/// Definitions by kind and name.
type DecidedNames = Vec<(DefinitionKind, String)>;

impl PinDecision {
    pub(crate) fn participle(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Reject => "rejected",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
        }
    }
}

impl PinFiles<'_> {
    /// Decides about the definitions with these names that wait for approval, or about all. Returns
    /// their kinds and names.
    ///
    /// # Errors
    /// [`DecisionError`].
    pub(crate) fn record_decision(
        self,
        decision: PinDecision,
        server: &ServerName,
        names: &[String],
    ) -> Result<DecidedNames, DecisionError> {
        let (digests, waiting) = find_pending(&self.folder.read(server)?, names, decision);
        if digests.is_empty() {
            return Ok(Vec::new());
        }
        let path = format!("/servers/{server}/definitions/{}", decision.verb());
        let body = Some(json!({ "sha256": digests }).to_string());
        let request = GatewayRequest { method: Method::POST, path: &path, body };
        let outcome = GatewayOption::of_config(self.path.to_owned()).request(&request);
        match outcome {
            Ok(_) => return Ok(waiting),
            Err(error) if !has_no_gateway(&error) => return Err(error.into()),
            Err(_) => {}
        }
        let decided = self.folder.decide(decision, server, &digests)?;
        if let Some(reason) = record_change(self.config, &path, &digests) {
            print_error(&format!("the decision is not in the audit log: {reason}"));
        }
        Ok(decided)
    }
}

/// Returns true if no gateway can make the decision: none runs, none has a socket, or the one that
/// runs keeps its baselines elsewhere. Others have to make it themselves, so that they record it.
fn has_no_gateway(error: &RunningGatewayError) -> bool {
    match error {
        RunningGatewayError::NotRunning { .. } | RunningGatewayError::NoSocket { .. } => true,
        RunningGatewayError::Refused { code, .. } => code == STATE_DIR_NEEDED,
        _ => false,
    }
}

/// Returns the digests of the forms that wait under these names, or of all, and their kinds and
/// names. A rejected form is approved if its name is given and no other form waits.
fn find_pending(
    record: &BaselineRecord,
    names: &[String],
    decision: PinDecision,
) -> (Vec<String>, DecidedNames) {
    let (mut digests, mut waiting) = (Vec::new(), Vec::new());
    for (kind, name, pinned) in record.definitions() {
        if !names.is_empty() && names.iter().all(|one| one != name) {
            continue;
        }
        let is_undecided = pinned.pending.iter().any(|form| !form.rejected);
        let takes_rejected = decision == PinDecision::Approve && !is_undecided && !names.is_empty();
        let forms = pinned.pending.iter().filter(|form| !form.rejected || takes_rejected);
        let before = digests.len();
        digests.extend(forms.map(|form| form.sha256.to_string()));
        if digests.len() > before {
            waiting.push((kind, name.to_owned()));
        }
    }
    (digests, waiting)
}

/// Records a change in the configured audit log, with its chain. Returns the reason that it is not
/// recorded.
fn record_change(config: &Config, path: &str, digests: &[String]) -> Option<String> {
    let settings = audit_settings(&config.audit).filter(|_| !config.audit.stdout)?;
    let trail = AuditTrail::new(AuditCounts::default());
    if let Err(error) = trail.apply(Some(settings)) {
        return Some(error.to_string());
    }
    let name = format!("uid {}", rustix::process::geteuid().as_raw());
    trail.record_operation(&OperationRecord {
        operation: AuditOperation::Change { method: "POST", path, digests, client: None },
        actor: OperationActor::Operator(Some(&name)),
        address: None,
        outcome: OperationOutcome::Ok,
        reason: None,
    });
    let fault = trail.await_sink(RECORD_TIMEOUT);
    trail.finish(RECORD_TIMEOUT);
    fault
}

/// The code of a gateway without a folder for its baselines.
const STATE_DIR_NEEDED: &str = "state_dir_needed";
/// Time limit for opening the log, and for writing the record.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn a_decision_that_a_running_gateway_refuses_is_not_made_beside_it() {
        let refused = |code: &str| RunningGatewayError::Refused {
            status: StatusCode::CONFLICT,
            code: code.to_owned(),
            detail: String::new(),
        };
        let config = || "gateway.toml".into();
        let (place, reason) = ("a".to_owned(), "b".to_owned());
        for (error, has_none) in [
            (RunningGatewayError::NotRunning { config: config(), attempts: Vec::new() }, true),
            (RunningGatewayError::NoSocket { config: config() }, true),
            (refused("state_dir_needed"), true),
            (refused("not_pending"), false),
            (refused("internal"), false),
            (RunningGatewayError::Unreachable { place, reason }, false),
        ] {
            assert_eq!(has_no_gateway(&error), has_none, "{error}");
        }
    }
}
