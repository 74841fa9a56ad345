//! The running configuration: its file, the attempts to replace it, and its earlier versions.
//!
//! `cli` reads, writes and applies the file; it implements [`ReloadControl`] for the API. The texts
//! here are shown ones: their literal secrets are hidden.

mod plans;
mod versions;

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::report::time;
use super::{ConfigurationStatus, Expiry, ReloadStatus, StatusReport};
use crate::config::{AdminRole, ConfigPlaces};
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::ReloadOutcome;

pub use plans::{
    AppliedChange, ConfigChange, ConfigPlan, PlanError, PlanSubject, ReloadAnswer, ReloadControl,
    ReloadRequest,
};
pub use versions::{
    ConfigActor, ConfigChangeError, ConfigVersion, FileOnDisk, VersionDocument, VersionError,
};

/// The file of a configuration that is loaded.
#[derive(Debug, Default)]
pub struct LoadedFile {
    /// Its [`ConfigSource::digest`](crate::config::ConfigSource::digest).
    pub digest: String,
    /// The lines of its settings.
    pub places: ConfigPlaces,
    /// Expiries of certificates and keys.
    pub expiries: Vec<Expiry>,
    /// Its text, with literal secrets hidden.
    pub shown_text: Arc<str>,
    /// The party that had it loaded.
    pub applied_by: ConfigActor,
}

/// Facts about the configuration that the snapshot does not have.
#[derive(Default)]
pub(super) struct ConfigurationNotes {
    path: String,
    pub(super) file: LoadedFile,
    applied_at: Timestamp,
    /// Expiries of CA certificates for servers and issuers.
    pub(super) authorities: Vec<Expiry>,
    last_reload: Option<ReloadStatus>,
    pub(super) draining: bool,
}

/// The running configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunningConfiguration {
    /// The file that it came from.
    pub path: String,
    /// SHA-256 of its text.
    pub digest: String,
    /// Time when this text was applied.
    pub applied_at: Timestamp,
    /// The party that had it applied.
    pub applied_by: ConfigActor,
    /// Number of configurations loaded so far, including this one.
    pub generation: u64,
    /// Its text, with `***` in place of literal secrets; for the role `admin` only.
    pub text: Option<String>,
}

impl StatusReport {
    /// Notes the file that the configuration came from. A text that was loaded already keeps the
    /// party that had it applied first.
    pub fn loaded(&self, path: &Path, file: LoadedFile) {
        let mut notes = self.notes();
        notes.path = path.display().to_string();
        let is_other = notes.file.digest != file.digest || notes.file.digest.is_empty();
        let applied_by =
            if is_other { file.applied_by.clone() } else { notes.file.applied_by.clone() };
        if is_other {
            notes.applied_at = Timestamp::now();
        }
        notes.file = LoadedFile { applied_by, ..file };
        drop(notes);
        self.show_expiries();
        self.loads.notify_one();
    }

    /// Returns the digest of the file in force.
    pub fn loaded_digest(&self) -> String {
        self.notes().file.digest.clone()
    }

    /// Returns the text of the file in force, with literal secrets hidden.
    pub fn shown_text(&self) -> Arc<str> {
        Arc::clone(&self.notes().file.shown_text)
    }

    /// Notes the outcome of a reload, with its faults, or the protections that it weakens.
    pub fn reloaded(&self, outcome: ReloadOutcome, faults: Vec<String>, losses: Vec<String>) {
        let is_refused = outcome == ReloadOutcome::Refused;
        let accept = is_refused.then(|| format!("kill -HUP {}, or a restart", std::process::id()));
        let at = Timestamp::now();
        self.notes().last_reload = Some(ReloadStatus { at, outcome, faults, losses, accept });
    }

    /// Returns the last attempt to replace the configuration.
    pub(super) fn last_reload(&self) -> Option<ReloadStatus> {
        self.notes().last_reload.clone()
    }

    /// Returns the running configuration, as this role may see it.
    pub(super) fn running_configuration(&self, role: AdminRole) -> RunningConfiguration {
        let generation = self.gateway.snapshots.load().generation;
        let notes = self.notes();
        let shows_text = role.includes(AdminRole::Admin);
        RunningConfiguration {
            path: notes.path.clone(),
            digest: notes.file.digest.clone(),
            applied_at: notes.applied_at,
            applied_by: notes.file.applied_by.clone(),
            generation,
            text: shows_text.then(|| notes.file.shown_text.to_string()),
        }
    }

    pub(super) fn configuration(&self, snapshot: &Snapshot) -> ConfigurationStatus {
        let notes = self.notes();
        ConfigurationStatus {
            path: notes.path.clone(),
            digest: notes.file.digest.clone(),
            loaded_at: time(self.gateway.snapshots.loaded_at()),
            generation: snapshot.generation,
            last_reload: notes.last_reload.clone(),
        }
    }
}
