//! Plans: the consequences of the configuration file, and a reload that applies exactly one plan.
//!
//! A plan is kept with the values that it was made from, also those of files, variables and
//! programs. A reload with its digest applies nothing else: if one of them, or the running
//! configuration, has changed since, it is refused.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Weak};

use data_encoding::HEXLOWER;
use jiff::{Span, Timestamp};

use crate::admin::{ConfigActor, ConfigPlan, LogFiles, PlanError, PlanSubject, wall_time};
use crate::cli::audit::records::{audit_files, read_open_records};
use crate::cli::preview::configuration::find_hidden_value;
use crate::config::{Config, ConfigSource, retain_outputs};
use crate::crypto::sha256;
use crate::snapshot::{CallReplay, RecordedCall, ReplayReport, Snapshot};
use crate::telemetry::metrics::ReloadOutcome;
use crate::text::error_chain;

use super::loading::{LoadedFiles, load_files, load_text};
use super::{ReloadCause, ReloadReport, Reloader};
use crate::cli::CommonArgs;
use crate::cli::serve::Running;
use crate::telemetry::log::LogHandle;

/// A configuration whose consequences were shown.
pub(super) struct PlannedConfig {
    digest: String,
    /// The number of the configuration that it was compared with.
    generation: u64,
    config: Config,
    /// The digest of the file that a text replaces; `None` if it could not be read.
    replaces: Option<String>,
}

impl Reloader {
    /// Returns the consequences of the configuration file as it is now. Replays the calls of the last
    /// days in the audit log.
    pub async fn plan(&self, days: u16) -> ConfigPlan {
        self.plan_text(None, days).await
    }

    /// Returns the consequences of a text, or of the file.
    pub(super) async fn plan_text(&self, text: Option<String>, days: u16) -> ConfigPlan {
        let replaces = if text.is_some() { self.disk_digest().await } else { None };
        // Outputs of other commands than the running ones may be those of long ago.
        retain_outputs(&self.gateway.snapshots.load().config.commands);
        let loaded = match self.read_text(text).await {
            Ok(loaded) => loaded,
            Err(faults) => return faulty(faults),
        };
        let snapshot = self.gateway.snapshots.load_full();
        let since = wall_time() - Span::new().hours(i64::from(days) * 24);
        let LoadedFiles { config, source, .. } = loaded;
        let generation = snapshot.generation;
        let digest = plan_digest(&source, generation);
        let is_running = source.digest() == self.report.loaded_digest();
        let describe = move || (describe(&snapshot, &config, since), config);
        let work = self.report.evaluate(describe).await;
        let (mut plan, config) = match work {
            Ok(described) => described,
            Err(error) => return faulty(vec![error_chain(&error)]),
        };
        plan.digest = Some(digest.clone());
        plan.is_running_text = is_running;
        *self.planned.lock() = Some(PlannedConfig { digest, generation, config, replaces });
        plan
    }

    /// Applies the plan with this digest, and nothing else.
    ///
    /// # Errors
    /// [`PlanError`].
    pub async fn reload_if(&self, digest: &str) -> Result<ReloadOutcome, PlanError> {
        let report = self.reload_planned(digest, ConfigActor::Signal).await?;
        Ok(report.outcome)
    }

    pub(super) async fn reload_planned(
        &self,
        digest: &str,
        actor: ConfigActor,
    ) -> Result<ReloadReport, PlanError> {
        let cause = ReloadCause::Plan(Box::new(self.take_plan(digest)?), actor);
        Box::pin(self.reload_for(cause)).await.ok_or(PlanError::Outdated)
    }

    /// Removes the last plan, if it has this digest.
    pub(super) fn take_plan(&self, digest: &str) -> Result<PlannedConfig, PlanError> {
        let planned = self.planned.lock().take_if(|planned| planned.digest == digest);
        planned.ok_or_else(|| PlanError::Unknown { digest: digest.to_owned() })
    }

    /// Returns the digest of the file on disk; `None` if it cannot be read.
    pub(super) async fn disk_digest(&self) -> Option<String> {
        let path = self.common.config.path.clone();
        let digest = self.reader.run(move || ConfigSource::open(&path).map(|it| it.digest())).await;
        digest.ok().and_then(Result::ok)
    }

    /// Refuses a text of an operator with the sign of a hidden secret. A stored version may have one,
    /// because it was applied.
    pub(super) fn find_sent_fault(subject: &PlanSubject) -> Option<String> {
        let PlanSubject::Text(text) = subject else { return None };
        let line = find_hidden_value(text)?;
        Some(format!(
            "line {line}: \"***\" stands for a secret that is not shown: write the secret, or a \
             reference such as ${{env:NAME}}"
        ))
    }

    /// Reads a text, or the file, as a reload would, without an effect.
    pub(super) async fn read_text(&self, text: Option<String>) -> Result<LoadedFiles, Vec<String>> {
        let (common, environment) = (self.common.clone(), Arc::clone(&self.environment));
        let read = move || match text {
            Some(text) => load_text(text, &common, &*environment),
            None => load_files(&common, &*environment),
        };
        let read = self.reader.run(read).await.map_err(|error| vec![error_chain(&error)])?;
        read.map_err(|rejected| rejected.faults)
    }
}

impl Running {
    /// Returns the reloader of this gateway, and has the API use it.
    pub fn share_reloader(&self, common: CommonArgs, log: Option<LogHandle>) -> Arc<Reloader> {
        let reloader = Arc::new(self.reloader(common, log));
        let weak: Weak<Reloader> = Arc::downgrade(&reloader);
        self.report.set_control(weak);
        reloader
    }
}

impl PlannedConfig {
    /// Returns the digest of the file that the text replaces.
    pub(super) fn replaces(&self) -> Option<String> {
        self.replaces.clone()
    }

    /// Returns true if a text is the planned one.
    pub(super) fn is_of(&self, source: &ConfigSource) -> bool {
        plan_digest(source, self.generation) == self.digest
    }

    /// Returns true if a loaded configuration is the planned one, and replaces the one that it was
    /// compared with.
    pub(super) fn is_for(&self, config: &Config, generation: u64) -> bool {
        self.generation == generation && self.config == *config
    }
}

/// Returns the digest of a plan. It contains no value of a reference: it would allow to guess secrets.
fn plan_digest(source: &ConfigSource, generation: u64) -> String {
    let digest = source.digest();
    HEXLOWER.encode(&sha256(format!("{digest} after {generation}").as_bytes()))
}

pub(super) fn faulty(faults: Vec<String>) -> ConfigPlan {
    ConfigPlan { faults, ..ConfigPlan::default() }
}

/// Describes the consequences of a configuration. Blocks: it reads the audit log.
fn describe(snapshot: &Arc<Snapshot>, config: &Config, since: Timestamp) -> ConfigPlan {
    ConfigPlan {
        is_unchanged: *snapshot.config == *config,
        consequences: snapshot.preview(config),
        calls: replay_log(snapshot, config, since),
        ..ConfigPlan::default()
    }
}

fn replay_log(snapshot: &Snapshot, config: &Config, since: Timestamp) -> Option<ReplayReport> {
    let files = audit_files(&snapshot.config.audit)?;
    let mut replay = snapshot.replay_calls(config);
    let mut log = LogFiles::new(&files);
    loop {
        match log.open_next() {
            Ok(Some(file)) => replay_file(file, log.last_path(), since, &mut replay),
            Ok(None) => break,
            Err(error) => {
                let name = files.first().map(|file| file.display().to_string()).unwrap_or_default();
                let fault = format!("{name}: a file of the log cannot be opened: {error}");
                replay.add_unreadable_file(fault);
                break;
            }
        }
    }
    for folder in files.iter().filter(|path| path.is_dir()) {
        replay.add_unreadable_file(format!("{}: is a directory", folder.display()));
    }
    Some(replay.finish())
}

/// Replays the calls of one file. One that cannot be read is named in the plan, which is about the
/// others.
fn replay_file(file: File, path: Option<&Path>, since: Timestamp, replay: &mut CallReplay<'_>) {
    let read = read_open_records(file, |record: Option<RecordedCall>| match record {
        Some(call) if call.time >= since => replay.add(&call),
        Some(_) => {}
        None => replay.add_unreadable_line(),
    });
    if let Err(error) = read {
        let name = path.map(|path| path.display().to_string()).unwrap_or_default();
        replay.add_unreadable_file(format!("{name}: {error}"));
    }
}
