//! Changes of the configuration file by the API: texts and earlier versions in its place.
//!
//! A text is applied only by the digest of its plan. The file is written and applied in one turn, so
//! that the watcher finds it in force; a text that is rejected all the same is removed again.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::spawn_blocking;

use trunkline_import::{EditedFileError, WriteOutcome, replace_gateway_text, undo_write};

use crate::admin::{
    AppliedChange, ConfigActor, ConfigChange, ConfigChangeError, ConfigPlan, ConfigVersion,
    FileOnDisk, PlanError, PlanSubject, ReloadControl, VersionDocument, VersionError,
};
use crate::cli::preview::configuration::{
    diff_configurations, find_references, show_configuration,
};
use crate::config::ConfigSource;
use crate::telemetry::metrics::ReloadOutcome;
use crate::text::error_chain;

use super::history::{ConfigHistory, StoredVersion};
use super::loading::{load_files, source_of};
use super::planned::faulty;
use super::{ReloadCause, ReloadReport, Reloader};

#[async_trait]
impl ReloadControl for Reloader {
    async fn plan(&self, subject: PlanSubject, days: u16) -> Result<ConfigPlan, ConfigChangeError> {
        if let Some(fault) = Self::find_sent_fault(&subject) {
            return Ok(faulty(vec![fault]));
        }
        let text = self.subject_text(subject).await?;
        Ok(self.plan_text(text, days).await)
    }

    async fn apply(&self, change: ConfigChange) -> Result<AppliedChange, ConfigChangeError> {
        let ConfigChange { subject, digest, actor, .. } = change;
        let text = self.subject_text(subject).await?;
        match (text, digest) {
            (None, None) => {
                let report = Box::pin(self.reload_for(ReloadCause::Operator(actor))).await;
                Ok(applied(report.ok_or(PlanError::Outdated)?, None))
            }
            (None, Some(digest)) => Ok(applied(self.reload_planned(&digest, actor).await?, None)),
            (Some(text), digest) => {
                Box::pin(self.replace_file(text, &digest.unwrap_or_default(), actor)).await
            }
        }
    }

    async fn inspect_file(&self) -> FileOnDisk {
        let compared = self.compare_file().await;
        if !compared.differs {
            return compared;
        }
        let (common, environment) = (self.common.clone(), Arc::clone(&self.environment));
        // Reloads do not wait for its programs.
        let read = self.inspections.run(move || load_files(&common, &*environment)).await;
        let faults = match read {
            Ok(Ok(_)) => Vec::new(),
            Ok(Err(rejected)) => rejected.faults,
            Err(error) => vec![error_chain(&error)],
        };
        FileOnDisk { faults, ..compared }
    }

    async fn compare_file(&self) -> FileOnDisk {
        let digest = self.disk_digest().await;
        let differs = digest.as_ref() != Some(&self.report.loaded_digest());
        FileOnDisk { digest, differs, faults: Vec::new() }
    }

    fn keeps_versions(&self) -> bool {
        self.state_folder.is_some()
    }

    async fn versions(&self) -> Result<Vec<ConfigVersion>, VersionError> {
        self.with_history(super::history::ConfigHistory::list).await
    }

    async fn version(&self, number: u64) -> Result<VersionDocument, VersionError> {
        let StoredVersion { version, text } =
            self.with_history(move |history| history.read(number)).await?;
        let source = source_of(&self.common.config.path, text.clone());
        let (before, after) = (self.report.shown_text(), show_configuration(&source));
        let mut diff = diff_configurations(&source.name, &before, &after);
        if diff.is_empty() && version.digest != self.report.loaded_digest() {
            "only a hidden value changes\n".clone_into(&mut diff);
        }
        Ok(VersionDocument { version, text: after, diff, references: find_references(&text) })
    }
}

impl Reloader {
    /// Returns a text in place of the file; `None` for the file itself.
    async fn subject_text(&self, subject: PlanSubject) -> Result<Option<String>, VersionError> {
        match subject {
            PlanSubject::File => Ok(None),
            PlanSubject::Text(text) => Ok(Some(text)),
            PlanSubject::Version(number) => {
                let read = self.with_history(move |history| history.read(number));
                read.await.map(|stored| Some(stored.text))
            }
        }
    }

    /// Reads the stored versions on a blocking thread.
    async fn with_history<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ConfigHistory) -> Result<T, VersionError> + Send + 'static,
    ) -> Result<T, VersionError> {
        let (folder, path) = (self.state_folder.clone(), self.common.config.path.clone());
        let reading = spawn_blocking(move || read(&ConfigHistory::open(folder.as_deref(), &path)?));
        reading.await.unwrap_or_else(|error| Err(VersionError::System(error.into())))
    }

    /// Replaces the file by a planned text and applies it. Writes nothing if the text no longer has
    /// the planned consequences.
    async fn replace_file(
        &self,
        text: String,
        digest: &str,
        actor: ConfigActor,
    ) -> Result<AppliedChange, ConfigChangeError> {
        let planned = self.take_plan(digest)?;
        let _turn = self.one_at_a_time.lock().await;
        let generation = self.gateway.snapshots.load().generation;
        let read = self.read_text(Some(text.clone())).await;
        let is_planned = read.is_ok_and(|loaded| {
            planned.is_of(&loaded.source) && planned.is_for(&loaded.config, generation)
        });
        if !is_planned {
            return Err(PlanError::Outdated.into());
        }
        let written = match self.write_file(planned.replaces(), text).await {
            // An edit by hand since the plan is not overwritten.
            Err(EditedFileError::Changed { .. }) => return Err(PlanError::Outdated.into()),
            written => written?,
        };
        let cause = ReloadCause::Plan(Box::new(planned), actor);
        let report = Box::pin(self.reload_in_turn(&cause)).await;
        let is_applied = report.as_ref().is_some_and(|report| {
            matches!(report.outcome, ReloadOutcome::Applied | ReloadOutcome::Unchanged)
        });
        if !is_applied {
            self.restore_file().await;
            return Ok(applied(report.ok_or(PlanError::Outdated)?, None));
        }
        let backup = written.backup.display().to_string();
        Ok(applied(report.ok_or(PlanError::Outdated)?, Some(backup)))
    }

    async fn write_file(
        &self,
        replaces: Option<String>,
        text: String,
    ) -> Result<WriteOutcome, EditedFileError> {
        let path = self.common.config.path.clone();
        let writing =
            spawn_blocking(move || replace_gateway_text(&path, replaces.as_deref(), &text));
        let path = || self.common.config.path.clone();
        let failed = |source: std::io::Error| EditedFileError::Write { path: path(), source };
        writing.await.unwrap_or_else(|error| Err(failed(error.into())))
    }

    /// Restores the file to its state before the last write.
    async fn restore_file(&self) {
        let path = self.common.config.path.clone();
        let undone = spawn_blocking(move || undo_write(&path, ConfigSource::MAX_LEN));
        if let Ok(Err(error)) = undone.await {
            tracing::error!("the configuration file is not restored: {}", error_chain(&error));
        }
    }
}

fn applied(report: ReloadReport, backup: Option<String>) -> AppliedChange {
    AppliedChange { outcome: report.outcome, faults: report.faults, backup }
}
