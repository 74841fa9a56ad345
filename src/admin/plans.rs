//! Plans of reloads: the consequences of the configuration file, and the control that applies them.
//!
//! `cli` implements [`ReloadControl`], because it reads the configuration; the API asks it.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{StatusReport, StatusSource as _};
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
}

/// Reads the configuration file of the gateway.
#[async_trait]
pub trait ReloadControl: Send + Sync {
    /// Returns the consequences of the file as it is now. Replays the calls of the last days in the
    /// audit log.
    async fn plan(&self, days: u16) -> ConfigPlan;

    /// Applies the file or, with a digest, the plan that has it.
    ///
    /// # Errors
    /// [`PlanError`].
    async fn apply(&self, digest: Option<&str>) -> Result<ReloadOutcome, PlanError>;
}

impl StatusReport {
    /// Sets the reader of the configuration file.
    pub fn set_control(&self, control: Weak<dyn ReloadControl>) {
        // One gateway has one.
        let _ = self.control.set(control);
    }

    /// Returns the reader of the configuration file; `None` before it is set.
    pub(super) fn reload_control(&self) -> Option<Arc<dyn ReloadControl>> {
        self.control.get().and_then(Weak::upgrade)
    }

    /// Reads the configuration file again, or applies one plan.
    ///
    /// # Errors
    /// [`PlanError`].
    pub(super) async fn reload(&self, request: &ReloadRequest) -> Result<ReloadAnswer, PlanError> {
        let control = self.reload_control().ok_or(PlanError::Unavailable)?;
        let outcome = control.apply(request.digest.as_deref()).await?;
        if request.wait {
            self.gateway.snapshots.settle().await;
        }
        let faults = match outcome {
            ReloadOutcome::Rejected => {
                let reload = self.status().configuration.and_then(|it| it.last_reload);
                reload.map_or_else(Vec::new, |reload| reload.faults)
            }
            _ => Vec::new(),
        };
        Ok(ReloadAnswer { outcome: outcome.label(), faults })
    }
}
