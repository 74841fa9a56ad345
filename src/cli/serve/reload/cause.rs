//! Causes and results of reloads.

use crate::admin::ConfigActor;
use crate::cli::serve::watch::FileStamps;
use crate::snapshot::ProtectionLoss;
use crate::telemetry::audit::OperationActor;
use crate::telemetry::metrics::ReloadOutcome;

use super::planned::PlannedConfig;

/// Cause of a reload.
pub(super) enum ReloadCause {
    /// An operator, by SIGHUP or by the API.
    Operator(ConfigActor),
    /// An operator who has seen the consequences.
    Plan(Box<PlannedConfig>, ConfigActor),
    /// The watcher, for files that had these stamps.
    Watch(FileStamps),
}

impl ReloadCause {
    /// Returns the party in the audit log.
    pub(super) fn audit_actor(&self) -> OperationActor<'_> {
        match self {
            Self::Operator(ConfigActor::Operator { name })
            | Self::Plan(_, ConfigActor::Operator { name }) => OperationActor::Operator(Some(name)),
            Self::Operator(_) | Self::Plan(..) => OperationActor::Operator(None),
            Self::Watch(_) => OperationActor::Gateway,
        }
    }

    /// Returns the party that has the configuration applied.
    pub(super) fn actor(&self) -> ConfigActor {
        match self {
            Self::Operator(actor) | Self::Plan(_, actor) => actor.clone(),
            Self::Watch(_) => ConfigActor::Watch,
        }
    }
}

/// Reason that a configuration does not take effect.
pub(super) enum ReloadRefusal {
    /// It has faults.
    Faults(Vec<String>),
    /// It weakens protection.
    Weakens(Vec<ProtectionLoss>),
    /// A file changed while it was read, or the configuration since it was planned.
    Unsettled,
}

impl From<Vec<String>> for ReloadRefusal {
    fn from(faults: Vec<String>) -> Self {
        Self::Faults(faults)
    }
}

/// The result of a reload, for log, status, metrics and events.
pub(super) struct ReloadReport {
    pub(super) outcome: ReloadOutcome,
    pub(super) faults: Vec<String>,
    pub(super) losses: Vec<ProtectionLoss>,
}

impl ReloadReport {
    pub(super) fn accepted(outcome: ReloadOutcome, losses: Vec<ProtectionLoss>) -> Self {
        Self { outcome, faults: Vec::new(), losses }
    }

    pub(super) fn rejected(faults: Vec<String>) -> Self {
        Self { outcome: ReloadOutcome::Rejected, faults, losses: Vec::new() }
    }
}
