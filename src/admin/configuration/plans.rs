//! Plans of reloads: the consequences of the configuration file, and the control that applies them.
//!
//! `cli` implements [`ReloadControl`], because it reads the configuration; the API asks it.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ConfigActor, ConfigChangeError, ConfigVersion, FileOnDisk, VersionDocument, VersionError,
};
use crate::admin::StatusReport;
use crate::snapshot::{ConfigConsequences, ReplayReport};
use crate::telemetry::metrics::ReloadOutcome;

/// The consequences of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigPlan {
    /// Identifies the plan for a reload; `None` if the file has faults.
    pub digest: Option<String>,
    /// The faults of the file.
    pub faults: Vec<String>,
    /// True if the file has the running configuration.
    pub is_unchanged: bool,
    /// True if even its text is the running one, with comments.
    pub is_running_text: bool,
    /// The consequences for servers, clients and protections.
    pub consequences: ConfigConsequences,
    /// The recorded calls that would be decided differently; `None` without an audit log.
    pub calls: Option<ReplayReport>,
}

/// Reasons that a plan is not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No plan has this digest, or another one was made since.
    #[error("there is no plan {digest}: make a new one")]
    Unknown {
        /// The requested digest.
        digest: String,
    },
    /// The file, a value that it refers to, or the running configuration has changed since.
    #[error("the configuration has changed since the plan was made: make a new one")]
    Outdated,
    /// This gateway reads no file.
    #[error("the gateway cannot read its configuration again")]
    Unavailable,
}

/// A request to read the configuration file again.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReloadRequest {
    /// The digest of the plan to apply; by default the file is applied as it is.
    pub digest: Option<String>,
    /// True to wait until each server has listed or failed.
    pub wait: bool,
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReloadAnswer {
    /// `applied`, `unchanged`, `rejected` or `refused`.
    pub outcome: &'static str,
    /// The faults of a rejected configuration.
    pub faults: Vec<String>,
    /// The previous version of the file, if the request has replaced it.
    pub backup: Option<String>,
}

/// A text whose consequences are requested, or that is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanSubject {
    /// The file as it is on disk.
    File,
    /// This text in place of the file.
    Text(String),
    /// An earlier version in place of the file.
    Version(u64),
}

/// A requested change of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// The text.
    pub subject: PlanSubject,
    /// The digest of its plan. Only the file itself may be applied without one.
    pub digest: Option<String>,
    /// The party that requests it.
    pub actor: ConfigActor,
    /// True to wait until each server has listed or failed.
    pub waits: bool,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedChange {
    /// The outcome of the reload.
    pub outcome: ReloadOutcome,
    /// The faults of a rejected configuration.
    pub faults: Vec<String>,
    /// The previous version of a file that was written.
    pub backup: Option<String>,
}

/// Reads, writes and applies the configuration file of the gateway.
#[async_trait]
pub trait ReloadControl: Send + Sync {
    /// Returns the consequences of a text. Replays the calls of the last days in the audit log.
    ///
    /// # Errors
    /// [`ConfigChangeError`].
    async fn plan(&self, subject: PlanSubject, days: u16) -> Result<ConfigPlan, ConfigChangeError>;

    /// Applies the file or, with a digest, the plan that has it. Another text replaces the file
    /// first.
    ///
    /// # Errors
    /// [`ConfigChangeError`].
    async fn apply(&self, change: ConfigChange) -> Result<AppliedChange, ConfigChangeError>;

    /// Returns the state of the file on disk.
    async fn inspect_file(&self) -> FileOnDisk;

    /// Compares the file on disk with the running text, without evaluating it: no program of it is
    /// run, and its faults are unknown.
    async fn compare_file(&self) -> FileOnDisk;

    /// Returns true if versions of the configuration are kept.
    fn keeps_versions(&self) -> bool;

    /// Returns the versions that were applied, the newest first.
    ///
    /// # Errors
    /// [`VersionError`].
    async fn versions(&self) -> Result<Vec<ConfigVersion>, VersionError>;

    /// Returns a version with its text.
    ///
    /// # Errors
    /// [`VersionError`].
    async fn version(&self, number: u64) -> Result<VersionDocument, VersionError>;
}

impl StatusReport {
    /// Sets the reader of the configuration file.
    pub fn set_control(&self, control: Weak<dyn ReloadControl>) {
        // One gateway has one.
        let _ = self.control.set(control);
    }

    /// Returns the reader of the configuration file.
    ///
    /// # Errors
    /// [`PlanError::Unavailable`] before it is set.
    pub(crate) fn reload_control(&self) -> Result<Arc<dyn ReloadControl>, PlanError> {
        self.control.get().and_then(Weak::upgrade).ok_or(PlanError::Unavailable)
    }

    /// Changes the configuration.
    ///
    /// # Errors
    /// [`ConfigChangeError`].
    pub(crate) async fn change_configuration(
        &self,
        change: ConfigChange,
    ) -> Result<ReloadAnswer, ConfigChangeError> {
        let waits = change.waits;
        let AppliedChange { outcome, faults, backup } =
            self.reload_control()?.apply(change).await?;
        if waits {
            self.gateway.snapshots.settle().await;
        }
        Ok(ReloadAnswer { outcome: outcome.label(), faults, backup })
    }
}
