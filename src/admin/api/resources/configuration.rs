//! The configuration: the running one and its file, plans, reloads, and earlier versions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::{
    ConfigActor, ConfigChange, ConfigChangeError, ConfigVersion, FileOnDisk, PlanError,
    PlanSubject, ReloadRequest, ReloadStatus, RunningConfiguration, VersionError,
};
use crate::config::AdminRole;
use crate::telemetry::metrics::ReloadOutcome;
use crate::text::error_chain;

/// The running configuration, its file, and the last attempts to replace it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConfigurationPage {
    /// The configuration in force.
    running: RunningConfiguration,
    /// Its file on disk.
    file: FileOnDisk,
    /// The last reload, if it was rejected for faults, or refused because it weakens protection.
    refused: Option<ReloadStatus>,
    /// The last reload.
    last_reload: Option<ReloadStatus>,
    /// True if versions are kept (`gateway.state_dir`).
    keeps_versions: bool,
}

/// The versions that were applied.
#[derive(Serialize, JsonSchema)]
pub(crate) struct VersionsPage {
    /// The newest first.
    versions: Vec<ConfigVersion>,
    /// SHA-256 of the running text.
    running: String,
}

/// A request for a plan.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanRequest {
    /// The past days whose recorded calls are decided again.
    #[serde(default = "usual_days")]
    days: u16,
    /// A text in place of the file; needs the role `admin`.
    text: Option<String>,
    /// The number of an earlier version in place of the file; needs the role `admin`.
    version: Option<u64>,
}

/// A request to apply an earlier version.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackRequest {
    /// The digest of the plan of this version.
    digest: String,
    /// True to wait until each server has listed or failed.
    #[serde(default)]
    wait: bool,
}

/// A request to replace the configuration.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyRequest {
    /// The new text of the file.
    text: String,
    /// The digest of the plan of this text.
    digest: String,
    /// True to wait until each server has listed or failed.
    #[serde(default)]
    wait: bool,
}

/// Answers with the running configuration and its file.
pub(crate) async fn show_configuration(request: EndpointRequest) -> EndpointAnswer {
    let report = &request.report;
    let control = report.reload_control().map_err(|error| problem(&error.into()))?;
    let last_reload = report.last_reload();
    let is_refused = |reload: &ReloadStatus| {
        matches!(reload.outcome, ReloadOutcome::Rejected | ReloadOutcome::Refused)
    };
    // Reading the file runs the programs of its `${command:…}`.
    let file = if request.role.includes(AdminRole::Operator) {
        control.inspect_file().await
    } else {
        control.compare_file().await
    };
    answer(&ConfigurationPage {
        running: report.running_configuration(request.role),
        file,
        refused: last_reload.clone().filter(is_refused),
        last_reload,
        keeps_versions: control.keeps_versions(),
    })
}

/// Lists the versions that were applied.
pub(crate) async fn list_versions(request: EndpointRequest) -> EndpointAnswer {
    let control = request.report.reload_control().map_err(|error| problem(&error.into()))?;
    let versions = control.versions().await.map_err(|error| problem(&error.into()))?;
    answer(&VersionsPage { versions, running: request.report.loaded_digest() })
}

/// Answers with a version, its text and its differences.
pub(crate) async fn show_version(request: EndpointRequest) -> EndpointAnswer {
    let number = request.number("version")?;
    let control = request.report.reload_control().map_err(|error| problem(&error.into()))?;
    answer(&control.version(number).await.map_err(|error| problem(&error.into()))?)
}

/// Answers with the consequences of the configuration file, of a text, or of a version.
pub(crate) async fn plan_reload(request: EndpointRequest) -> EndpointAnswer {
    let PlanRequest { days, text, version } = request.read_body()?;
    let subject = match (text, version) {
        (None, None) => PlanSubject::File,
        (Some(text), None) => PlanSubject::Text(text),
        (None, Some(number)) => PlanSubject::Version(number),
        (Some(_), Some(_)) => return Err(ApiProblem::invalid("expected `text` or `version`")),
    };
    // Reading a text runs the programs of its `${command:…}`.
    if subject != PlanSubject::File && !request.role.includes(AdminRole::Admin) {
        let detail = "a plan of another text than the file's needs the role `admin`";
        return Err(ApiProblem::new(ProblemCode::RoleNeeded, detail));
    }
    let control = request.report.reload_control().map_err(|error| problem(&error.into()))?;
    answer(&control.plan(subject, days).await.map_err(|error| problem(&error))?)
}

/// Reads the configuration file again.
pub(crate) async fn reload(request: EndpointRequest) -> EndpointAnswer {
    let ReloadRequest { digest, wait } = request.read_body()?;
    let actor = operator(&request);
    change(&request, ConfigChange { subject: PlanSubject::File, digest, actor, waits: wait }).await
}

/// Replaces the file by an earlier version, and applies it.
pub(crate) async fn roll_back(request: EndpointRequest) -> EndpointAnswer {
    let subject = PlanSubject::Version(request.number("version")?);
    let RollbackRequest { digest, wait } = request.read_body()?;
    let (digest, actor) = (Some(digest), operator(&request));
    change(&request, ConfigChange { subject, digest, actor, waits: wait }).await
}

/// Replaces the file by a text, and applies it.
pub(crate) async fn apply_text(request: EndpointRequest) -> EndpointAnswer {
    let ApplyRequest { text, digest, wait } = request.read_body()?;
    let (subject, digest) = (PlanSubject::Text(text), Some(digest));
    let actor = operator(&request);
    change(&request, ConfigChange { subject, digest, actor, waits: wait }).await
}

fn operator(request: &EndpointRequest) -> ConfigActor {
    ConfigActor::Operator { name: request.operator.actor.to_string() }
}

async fn change(request: &EndpointRequest, change: ConfigChange) -> EndpointAnswer {
    let done = request.report.change_configuration(change).await;
    answer(&done.map_err(|error| problem(&error))?)
}

fn problem(error: &ConfigChangeError) -> ApiProblem {
    let code = match error {
        ConfigChangeError::Plan(PlanError::Unknown { .. } | PlanError::Outdated) => {
            ProblemCode::PlanOutdated
        }
        ConfigChangeError::Version(VersionError::NoStateDir) => ProblemCode::StateDirNeeded,
        ConfigChangeError::Version(VersionError::Unknown { .. }) => ProblemCode::UnknownVersion,
        ConfigChangeError::Write(_) => ProblemCode::FileNotWritten,
        ConfigChangeError::Plan(PlanError::Unavailable) | ConfigChangeError::Version(_) => {
            ProblemCode::Internal
        }
    };
    ApiProblem::new(code, error_chain(error))
}

fn usual_days() -> u16 {
    30
}
