//! Configuration reload while the gateway runs: builds the new state beside the running one, swaps
//! last, and keeps the old one on any fault.

mod cause;
mod changes;
mod edits;
pub(super) mod history;
mod loading;
mod planned;
mod renewed;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::admin::{ConfigActor, LoadedFile, StatusReport, key_expiries, wall_time};
use crate::child::Guardian;
use crate::cli::{CommonArgs, OPEN_GATEWAY_WARNING};
use crate::codec::file::FileReader;
use crate::config::{
    ConfigSource, Environment, ReloadTrigger, SystemEnvironment, renew_outputs, retain_outputs,
};
use crate::listener::LiveSettings;
use crate::pipeline::Gateway;
use crate::snapshot::find_losses;
use crate::telemetry::audit::{AuditOperation, OperationActor};
use crate::telemetry::events::{EventDelivery, LifecycleEvent};
use crate::telemetry::log::LogHandle;
use crate::telemetry::metrics::ReloadOutcome;
use crate::text::error_chain;

use super::replicas::PeerConnections;
use super::watch::{FileStamp, FileStamps};
use super::{Doors, Running, audit_log, event_delivery, levels, loaded_file, settings};
use cause::{ReloadCause, ReloadRefusal, ReloadReport};
use changes::{ReloadChanges, warn_of_what_needs_a_restart};
use history::{AppliedText, keep_version};
use loading::{LoadedFiles, load_files, located_lines};
use planned::PlannedConfig;
use renewed::RenewalFaults;

/// Applies the current contents of the configuration file.
pub struct Reloader {
    pub(super) common: CommonArgs,
    gateway: Arc<Gateway>,
    report: Arc<StatusReport>,
    clients: LiveSettings,
    operators: LiveSettings,
    replicas: Option<PeerConnections>,
    log: Option<LogHandle>,
    events: Arc<EventDelivery>,
    guardian: Guardian,
    doors: Doors,
    environment: Arc<dyn Environment + Send + Sync>,
    /// The folder of the start; reloads do not change it.
    state_folder: Option<PathBuf>,
    pub(super) reader: FileReader,
    /// Reads the file for operators who look at it.
    inspections: FileReader,
    one_at_a_time: Mutex<()>,
    /// The last plan, until it is applied.
    planned: parking_lot::Mutex<Option<PlannedConfig>>,
    /// Files named by a rejected configuration: a change of one may correct it.
    refused: parking_lot::Mutex<Vec<PathBuf>>,
    /// Time at which refused certificates are valid.
    valid_from: watch::Sender<Option<Timestamp>>,
    /// Digest of the file that was read last; `None` if it could not be read.
    read: parking_lot::Mutex<Option<String>>,
}

impl Running {
    /// Returns the reloader of this gateway, with the process's log if it has one.
    pub fn reloader(&self, common: CommonArgs, log: Option<LogHandle>) -> Reloader {
        let running = Arc::clone(&self.gateway.snapshots.load().config);
        Reloader {
            common,
            state_folder: running.gateway.state_dir.folder().map(Path::to_path_buf),
            gateway: Arc::clone(&self.gateway),
            report: Arc::clone(&self.report),
            clients: self.clients.clone(),
            operators: self.operators.clone(),
            replicas: self.replica.as_ref().map(|replica| replica.connections().clone()),
            log,
            events: Arc::clone(&self.events),
            guardian: self.guardian.clone(),
            doors: self.doors,
            environment: Arc::new(SystemEnvironment),
            reader: FileReader::default(),
            inspections: FileReader::default(),
            one_at_a_time: Mutex::new(()),
            planned: parking_lot::Mutex::default(),
            refused: parking_lot::Mutex::default(),
            valid_from: watch::Sender::new(None),
            read: parking_lot::Mutex::default(),
        }
    }
}

impl Reloader {
    /// Reads variables and files from another environment, within another time limit.
    #[must_use]
    pub fn with_environment(
        self,
        environment: Arc<dyn Environment + Send + Sync>,
        within: Duration,
    ) -> Self {
        Self { environment, reader: FileReader::new(within), ..self }
    }

    /// Reads the file and applies it for SIGHUP, even if it weakens protection, because an operator
    /// requested it. Faults are reported in the log and the status, and the old configuration stays
    /// active.
    pub async fn reload(&self) -> ReloadOutcome {
        let cause = ReloadCause::Operator(ConfigActor::Signal);
        let report = Box::pin(self.reload_for(cause)).await;
        report.map_or(ReloadOutcome::Rejected, |report| report.outcome)
    }

    /// Reads changed files and applies them, unless they weaken protection. Returns `None` without
    /// an effect if a file no longer had its stamp when it was read.
    pub(super) async fn reload_watched(&self, stamps: FileStamps) -> Option<ReloadOutcome> {
        let report = Box::pin(self.reload_for(ReloadCause::Watch(stamps))).await;
        report.map(|report| report.outcome)
    }

    async fn reload_for(&self, cause: ReloadCause) -> Option<ReloadReport> {
        let _turn = self.one_at_a_time.lock().await;
        Box::pin(self.reload_in_turn(&cause)).await
    }

    /// Reads the file and applies it, while no other reload does.
    async fn reload_in_turn(&self, cause: &ReloadCause) -> Option<ReloadReport> {
        let before = self.report.loaded_digest();
        let applied = match self.load_files(cause).await {
            Ok(loaded) => Box::pin(self.apply(loaded, cause)).await,
            Err(refusal) => Err(refusal),
        };
        let report = match applied {
            Ok(report) => report,
            Err(ReloadRefusal::Unsettled) => return None,
            Err(ReloadRefusal::Faults(faults)) => ReloadReport::rejected(faults),
            Err(ReloadRefusal::Weakens(losses)) => {
                ReloadReport { outcome: ReloadOutcome::Refused, faults: Vec::new(), losses }
            }
        };
        self.publish_report(&report);
        self.audit_reload(&report, &before, cause.audit_actor());
        Some(report)
    }

    /// Reports files that were written in place and end in an unterminated line.
    pub(super) async fn report_incomplete(&self, paths: &[PathBuf]) {
        let _turn = self.one_at_a_time.lock().await;
        let fault = |path: &PathBuf| {
            format!(
                "{}: the last line has no line end, so the file may be incomplete: add it, or \
                 {ACCEPT_HINT}",
                path.display()
            )
        };
        let report = ReloadReport::rejected(paths.iter().map(fault).collect());
        self.publish_report(&report);
        self.read.lock().take();
        self.audit_reload(&report, &self.report.loaded_digest(), OperationActor::Gateway);
    }

    /// Records a reload in the audit log in force.
    fn audit_reload(&self, report: &ReloadReport, before: &str, actor: OperationActor<'_>) {
        let after = self.read.lock().clone();
        let (after, losses) = (after.as_deref(), report.losses.len());
        let reload = AuditOperation::Reload { before, after, losses };
        audit_log::record_reload(&self.gateway.audit, reload, actor, report.outcome);
    }

    fn publish_report(&self, report: &ReloadReport) {
        let ReloadReport { outcome, faults, losses } = report;
        for fault in faults {
            tracing::error!("{fault}");
        }
        let losses: Vec<_> = losses.iter().map(ToString::to_string).collect();
        let is_refused = *outcome == ReloadOutcome::Refused;
        for loss in &losses {
            if is_refused {
                tracing::error!("the new configuration weakens protection: {loss}");
            } else {
                tracing::warn!("protection is weakened: {loss}");
            }
        }
        if *outcome == ReloadOutcome::Rejected {
            tracing::error!(faults = faults.len(), "the running configuration is kept");
        } else if is_refused {
            let pid = std::process::id();
            tracing::error!(
                losses = losses.len(),
                "the running configuration is kept: to accept the new one, {ACCEPT_HINT} (kill -HUP {pid})"
            );
        }
        if is_refused || *outcome == ReloadOutcome::Rejected {
            let rejected =
                LifecycleEvent::ConfigRejected { faults: faults.len(), losses: losses.len() };
            self.events.sender().send(&rejected);
        }
        self.gateway.metrics.count_reload(*outcome);
        self.report.reloaded(*outcome, faults.clone(), losses);
    }

    /// Opens the file of the audit log again.
    pub(super) fn reopen_audit(&self) {
        self.gateway.audit.reopen();
    }

    /// Returns the trigger for reloads of the running configuration.
    pub fn manner(&self) -> ReloadTrigger {
        self.gateway.snapshots.load().config.gateway.reload
    }

    /// Waits until the commands of the configuration are due again; forever if it has none.
    pub(super) async fn command_refresh(&self) {
        let config = Arc::clone(&self.gateway.snapshots.load().config);
        if config.commands.is_empty() || config.gateway.reload != ReloadTrigger::Watch {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(config.gateway.command_refresh).await;
    }

    /// Waits until certificates that were refused because they were not valid yet are valid;
    /// forever if there are none.
    pub(super) async fn certificates_valid(&self) {
        let mut valid_from = self.valid_from.subscribe();
        loop {
            let at = *valid_from.borrow_and_update();
            let Some(at) = at else {
                // The sender is part of the reloader.
                let _ = valid_from.changed().await;
                continue;
            };
            let rest = at.duration_since(wall_time());
            if rest.is_negative() || rest.is_zero() {
                return;
            }
            // In steps, because the clock may be set.
            let rest = Duration::try_from(rest).unwrap_or_default();
            let _ = timeout(rest.min(CLOCK_STEP), valid_from.changed()).await;
        }
    }

    /// Runs the commands of the configuration again, on a blocking thread. Returns true if an
    /// output has changed.
    pub(super) async fn renew_commands(&self) -> bool {
        let config = Arc::clone(&self.gateway.snapshots.load().config);
        // If they take too long together, the reload detects it.
        self.reader.run(move || renew_outputs(&config.commands)).await.unwrap_or(true)
    }

    /// Returns all files that affect the configuration: the file itself, and the files that it
    /// names.
    pub fn watched_files(&self) -> Vec<PathBuf> {
        let config = &self.gateway.snapshots.load().config;
        let tls = config.gateway.tls.iter().flat_map(|tls| {
            [tls.cert.clone(), tls.key.clone()].into_iter().chain(tls.client_ca.clone())
        });
        let peer_files = config.cluster.iter().flat_map(|cluster| {
            [&cluster.cert, &cluster.key, &cluster.ca].into_iter().flatten().cloned()
        });
        let refused = self.refused.lock().clone();
        let named = config.files.iter().cloned();
        [self.common.config.path.clone()]
            .into_iter()
            .chain(named)
            .chain(tls)
            .chain(peer_files)
            .chain(refused)
            .collect()
    }

    /// Reads all files on a blocking thread: one that hangs is a fault of the configuration.
    async fn load_files(&self, cause: &ReloadCause) -> Result<LoadedFiles, ReloadRefusal> {
        *self.read.lock() = None;
        let (common, environment) = (self.common.clone(), Arc::clone(&self.environment));
        let stamps = match cause {
            ReloadCause::Operator(_) | ReloadCause::Plan(..) => FileStamps::new(),
            ReloadCause::Watch(stamps) => stamps.clone(),
        };
        let read = move || {
            let loaded = load_files(&common, &*environment);
            let is_settled = stamps.iter().all(|(path, stamp)| FileStamp::read(path) == *stamp);
            is_settled.then_some(loaded)
        };
        let loaded = match self.reader.run(read).await {
            Ok(loaded) => loaded.ok_or(ReloadRefusal::Unsettled)?,
            Err(error) => return Err(ReloadRefusal::Faults(vec![error_chain(&error)])),
        };
        let (refused_files, digest) = match &loaded {
            Ok(loaded) => (Vec::new(), Some(loaded.source.digest())),
            Err(rejected) => (rejected.files.clone(), rejected.digest.clone()),
        };
        *self.refused.lock() = refused_files;
        *self.read.lock() = digest;
        loaded.map_err(|rejected| ReloadRefusal::Faults(rejected.faults))
    }

    async fn apply(
        &self,
        loaded: LoadedFiles,
        cause: &ReloadCause,
    ) -> Result<ReloadReport, ReloadRefusal> {
        self.valid_from.send_replace(None);
        let generation = self.gateway.snapshots.load().generation;
        if let ReloadCause::Plan(planned, _) = cause
            && !planned.is_for(&loaded.config, generation)
        {
            return Err(ReloadRefusal::Unsettled);
        }
        self.valid_from.send_replace(None);
        self.check_certificates(&loaded)?;
        let LoadedFiles { config, listeners, source } = loaded;
        let expiries = [listeners.expiries(), key_expiries(&config)].concat();
        let file = loaded_file(&source, expiries, cause.actor());
        let running = Arc::clone(&self.gateway.snapshots.load().config);
        // Removing the last client is not meant to open the gateway to
        // everyone.
        if config.is_open_to_anyone() && !running.is_open_to_anyone() {
            return Err(vec![OPEN_GATEWAY_WARNING.to_owned()].into());
        }
        audit_log::check_standard_output(&config, self.doors).map_err(|fault| vec![fault])?;
        if config == *running {
            // The certificate files may have changed under the same names, and another gateway with
            // this file may have disabled servers.
            self.publish(listeners, file);
            self.gateway.snapshots.read_disabled().await;
            self.keep_applied(source, cause, "no setting has changed".to_owned()).await;
            if matches!(cause, ReloadCause::Operator(_)) {
                tracing::info!("the configuration is unchanged; its certificates are read again");
            }
            return Ok(ReloadReport::accepted(ReloadOutcome::Unchanged, Vec::new()));
        }
        let losses = find_losses(&running, &config);
        if matches!(cause, ReloadCause::Watch(_)) && !losses.is_empty() {
            *self.refused.lock() = config.files;
            return Err(ReloadRefusal::Weakens(losses));
        }
        let faults = audit_log::find_required_faults(&self.reader, &config, &running).await;
        if !faults.is_empty() {
            return Err(located_lines(&source, faults).into());
        }
        warn_of_what_needs_a_restart(&running, &config);
        if config.audit != running.audit {
            if !config.audit.is_on() {
                // The last record of the log tells why it ends.
                let last = ReloadReport::accepted(ReloadOutcome::Applied, losses.clone());
                self.audit_reload(&last, &self.report.loaded_digest(), cause.audit_actor());
            }
            let audit = &self.gateway.audit;
            let replaced = audit_log::replace_audit(audit, &config.audit).await;
            replaced.map_err(|fault| located_lines(&source, vec![fault]))?;
        }
        if let Some(log) = &self.log
            && let Err(error) = log.set_levels(levels(&config))
        {
            return Err(vec![error.to_string()].into());
        }
        if config.events != running.events {
            self.events.apply(event_delivery::event_settings(&config.events, &self.guardian));
        }
        self.gateway.calls.set_recent(config.admin.recent);
        let changes = ReloadChanges::between(&running, &config).describe();
        let plan = self.gateway.snapshots.apply(config).await;
        retain_outputs(&self.gateway.snapshots.load().config.commands);
        self.publish(listeners, file);
        self.keep_applied(source, cause, changes.clone()).await;
        tracing::info!(
            kept = plan.kept.len(),
            replaced = plan.replaced.len(),
            "the configuration is reloaded: {changes}"
        );
        self.events.sender().send(&LifecycleEvent::ConfigApplied {
            kept: plan.kept.len(),
            replaced: plan.replaced.len(),
            added: plan.added.len(),
            removed: plan.removed.len(),
        });
        Ok(ReloadReport::accepted(ReloadOutcome::Applied, losses))
    }

    /// Refuses certificates that clients or replicas would not accept in place of certificates that they
    /// accept. Certificates that are in use already are no reason to refuse other changes.
    fn check_certificates(&self, loaded: &LoadedFiles) -> Result<(), ReloadRefusal> {
        let LoadedFiles { config, source, .. } = loaded;
        let found = RenewalFaults::find(loaded, &self.clients, self.replicas.as_ref());
        if !found.refused.is_empty() {
            *self.refused.lock() = config.files.iter().cloned().chain(found.files).collect();
            self.valid_from.send_replace(found.valid_from);
            return Err(located_lines(source, found.refused).into());
        }
        for fault in located_lines(source, found.tolerated) {
            tracing::error!("{fault}");
        }
        Ok(())
    }

    /// Adds an applied text to the stored versions.
    async fn keep_applied(&self, source: ConfigSource, cause: &ReloadCause, summary: String) {
        let text = AppliedText { source, actor: cause.actor(), summary };
        keep_version(self.state_folder.as_deref(), &self.common.config.path, text).await;
    }

    fn publish(&self, listeners: settings::Listeners, file: LoadedFile) {
        self.clients.publish(listeners.clients);
        self.operators.publish(listeners.operators);
        if let Some((running, new)) = self.replicas.as_ref().zip(listeners.replicas) {
            running.renew_certificates(new);
        }
        self.report.loaded(&self.common.config.path, file);
    }
}

/// Maximum time between two looks at the clock.
const CLOCK_STEP: Duration = Duration::from_mins(10);
/// Ways to accept a configuration that the watcher refuses.
const ACCEPT_HINT: &str = "send SIGHUP, or restart the gateway";
