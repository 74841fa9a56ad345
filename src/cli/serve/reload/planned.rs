//! Plans: the consequences of the configuration file, and a reload that applies exactly one plan.
//!
//! A plan is kept with the values that it was made from, also those of files, variables and
//! programs. A reload with its digest applies nothing else: if one of them, or the running
//! configuration, has changed since, it is refused.

use std::path::Path;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use jiff::{Span, Timestamp};
use tokio::task::spawn_blocking;

use crate::admin::{ConfigPlan, PlanError, ReloadControl, wall_time};
use crate::cli::audit::records::{audit_files, read_records};
use crate::config::Config;
use crate::crypto::sha256;
use crate::snapshot::{CallReplay, RecordedCall, ReplayReport, Snapshot};
use crate::telemetry::metrics::ReloadOutcome;
use crate::text::error_chain;

use super::{ReloadCause, ReloadRefusal, Reloader};
use crate::cli::CommonArgs;
use crate::cli::serve::Running;
use crate::telemetry::log::LogHandle;

/// A configuration whose consequences were shown.
pub(super) struct PlannedConfig {
    digest: String,
    /// The number of the configuration that it was compared with.
    generation: u64,
    config: Config,
}

impl Reloader {
    /// Returns the consequences of the configuration file as it is now. Replays the calls of the last
    /// days in the audit log.
    pub async fn plan(&self, days: u16) -> ConfigPlan {
        let loaded = match self.load_files(&ReloadCause::Operator).await {
            Ok(loaded) => loaded,
            Err(ReloadRefusal::Faults(faults)) => return faulty(faults),
            Err(ReloadRefusal::Weakens(_) | ReloadRefusal::Unsettled) => {
                return faulty(vec!["the file has changed while it was read".into()]);
            }
        };
        let snapshot = self.gateway.snapshots.load_full();
        let since = wall_time() - Span::new().hours(i64::from(days) * 24);
        let (config, digest) = (loaded.config, loaded.source.digest());
        let generation = snapshot.generation;
        let digest = HEXLOWER.encode(&sha256(format!("{digest} after {generation}").as_bytes()));
        let work = spawn_blocking(move || (describe(&snapshot, &config, since), config)).await;
        let (mut plan, config) = match work {
            Ok(described) => described,
            Err(error) => return faulty(vec![error_chain(&error)]),
        };
        plan.digest = Some(digest.clone());
        *self.planned.lock() = Some(PlannedConfig { digest, generation, config });
        plan
    }

    /// Applies the plan with this digest, and nothing else.
    ///
    /// # Errors
    /// [`PlanError`].
    pub async fn reload_if(&self, digest: &str) -> Result<ReloadOutcome, PlanError> {
        let planned = self.planned.lock().take();
        let planned = planned.filter(|planned| planned.digest == digest);
        let unknown = || PlanError::Unknown { digest: digest.to_owned() };
        let planned = planned.ok_or_else(unknown)?;
        let outcome = Box::pin(self.reload_for(ReloadCause::Plan(Box::new(planned)))).await;
        outcome.ok_or(PlanError::Outdated)
    }
}

impl Running {
    /// Returns the reloader of this gateway, and has the API use it.
    pub(in crate::cli) fn share_reloader(
        &self,
        common: CommonArgs,
        log: Option<LogHandle>,
    ) -> Arc<Reloader> {
        let reloader = Arc::new(self.reloader(common, log));
        let weak: Weak<Reloader> = Arc::downgrade(&reloader);
        self.report.set_control(weak);
        reloader
    }
}

#[async_trait]
impl ReloadControl for Reloader {
    async fn plan(&self, days: u16) -> ConfigPlan {
        Self::plan(self, days).await
    }

    async fn apply(&self, digest: Option<&str>) -> Result<ReloadOutcome, PlanError> {
        match digest {
            Some(digest) => self.reload_if(digest).await,
            None => Ok(self.reload().await),
        }
    }
}

impl PlannedConfig {
    /// Returns true if a loaded configuration is the planned one, and replaces the one that it was
    /// compared with.
    pub(super) fn is_for(&self, config: &Config, generation: u64) -> bool {
        self.generation == generation && self.config == *config
    }
}

fn faulty(faults: Vec<String>) -> ConfigPlan {
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
    let mut replay = CallReplay::new(&snapshot.config, config);
    for file in files.iter().filter(|file| file.exists()) {
        replay_file(file, since, &mut replay);
    }
    Some(replay.finish())
}

/// Replays the calls of one file. One that cannot be read is reported in the log: the plan is about
/// the others.
fn replay_file(path: &Path, since: Timestamp, replay: &mut CallReplay<'_>) {
    let read = read_records(path, |record: Option<RecordedCall>| {
        if let Some(call) = record.filter(|call| call.time >= since) {
            replay.add(&call);
        }
    });
    if let Err(error) = read {
        let path = path.display();
        tracing::warn!(%path, %error, "a file of the audit log cannot be read for a plan");
    }
}
