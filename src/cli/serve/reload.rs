//! Configuration reload while the gateway runs: builds beside the running one,
//! swaps last, keeps the old one on any fault.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::admin::StatusReport;
use crate::cli::{CommonArgs, OPEN};
use crate::codec::file::FileReader;
use crate::config::{
    Config, ConfigSource, Environment, ReloadTrigger, SystemEnvironment, renew_outputs,
};
use crate::listener::LiveSettings;
use crate::pipeline::Gateway;
use crate::telemetry::events::{EventDelivery, LifecycleEvent};
use crate::telemetry::log::LogHandle;
use crate::telemetry::metrics::ReloadOutcome;
use crate::text::error_chain;
use crate::upstream::child::Guardian;

use super::{Doors, Running, audit_log, event_delivery, levels, settings};

/// Applies the current contents of the configuration file.
pub struct Reloader {
    pub(super) common: CommonArgs,
    gateway: Arc<Gateway>,
    report: Arc<StatusReport>,
    clients: LiveSettings,
    operators: LiveSettings,
    log: Option<LogHandle>,
    events: Arc<EventDelivery>,
    guardian: Guardian,
    doors: Doors,
    environment: Arc<dyn Environment + Send + Sync>,
    pub(super) reader: FileReader,
    one_at_a_time: Mutex<()>,
    /// The files that a rejected configuration names: a change of one may
    /// correct it.
    refused: parking_lot::Mutex<Vec<PathBuf>>,
}

impl Running {
    /// The reloader of this gateway, with the process's log if it has one.
    pub fn reloader(&self, common: CommonArgs, log: Option<LogHandle>) -> Reloader {
        Reloader {
            common,
            gateway: Arc::clone(&self.gateway),
            report: Arc::clone(&self.report),
            clients: self.clients.clone(),
            operators: self.operators.clone(),
            log,
            events: Arc::clone(&self.events),
            guardian: self.guardian.clone(),
            doors: self.doors,
            environment: Arc::new(SystemEnvironment),
            reader: FileReader::default(),
            one_at_a_time: Mutex::new(()),
            refused: parking_lot::Mutex::default(),
        }
    }
}

/// A configuration that was read, with the certificates that it names.
struct LoadedFiles {
    config: Config,
    listeners: settings::Listeners,
    digest: String,
}

/// Why a configuration was rejected, and the files that it names.
struct RejectedFiles {
    faults: Vec<String>,
    files: Vec<PathBuf>,
}

impl Reloader {
    /// Reads variables and files from another environment, within another time.
    #[must_use]
    pub fn with_environment(
        self,
        environment: Arc<dyn Environment + Send + Sync>,
        within: Duration,
    ) -> Self {
        Self { environment, reader: FileReader::new(within), ..self }
    }

    /// Reads the file and applies it. Faults are reported in the log and the
    /// status, and the old configuration stays active.
    pub async fn reload(&self) -> ReloadOutcome {
        let _turn = self.one_at_a_time.lock().await;
        let outcome = match self.load_files().await {
            Ok(loaded) => self.apply(loaded).await,
            Err(faults) => Err(faults),
        };
        let (outcome, faults) = match outcome {
            Ok(outcome) => (outcome, Vec::new()),
            Err(faults) => (ReloadOutcome::Rejected, faults),
        };
        for fault in &faults {
            tracing::error!("{fault}");
        }
        if outcome == ReloadOutcome::Rejected {
            tracing::error!(faults = faults.len(), "the configuration stays as it was");
            let rejected = LifecycleEvent::ConfigRejected { faults: faults.len() };
            self.events.sender().send(&rejected);
        }
        self.gateway.metrics.count_reload(outcome);
        self.report.reloaded(outcome, faults);
        outcome
    }

    /// Has the file of the audit log opened again.
    pub(super) fn reopen_audit(&self) {
        self.gateway.audit.reopen();
    }

    /// When the running configuration is to be reloaded.
    pub fn manner(&self) -> ReloadTrigger {
        self.gateway.snapshots.load().config.gateway.reload
    }

    /// Waits until the commands of the configuration are to be run again: for ever, if it has none.
    pub(super) async fn command_refresh(&self) {
        let config = Arc::clone(&self.gateway.snapshots.load().config);
        if config.commands.is_empty() || config.gateway.reload != ReloadTrigger::Watch {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(config.gateway.command_refresh).await;
    }

    /// Runs the commands of the configuration again, on a blocking thread. Returns whether an output
    /// has changed.
    pub(super) async fn renew_commands(&self) -> bool {
        let config = Arc::clone(&self.gateway.snapshots.load().config);
        // If they take too long together, a reload finds out.
        self.reader.run(move || renew_outputs(&config.commands)).await.unwrap_or(true)
    }

    /// All files that affect the configuration: the file itself, and the files
    /// that it names.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let config = &self.gateway.snapshots.load().config;
        let tls = config.gateway.tls.iter().flat_map(|tls| {
            [tls.cert.clone(), tls.key.clone()].into_iter().chain(tls.client_ca.clone())
        });
        let refused = self.refused.lock().clone();
        let named = config.files.iter().cloned();
        [self.common.config.path.clone()]
            .into_iter()
            .chain(named)
            .chain(tls)
            .chain(refused)
            .collect()
    }

    /// Reads all files on a blocking thread: one that hangs is a fault of the configuration.
    async fn load_files(&self) -> Result<LoadedFiles, Vec<String>> {
        let (common, environment) = (self.common.clone(), Arc::clone(&self.environment));
        let read = move || load_files(&common, &*environment);
        match self.reader.run(read).await {
            Ok(loaded) => {
                let rejected = loaded.as_ref().err().map(|rejected| rejected.files.clone());
                *self.refused.lock() = rejected.unwrap_or_default();
                loaded.map_err(|rejected| rejected.faults)
            }
            Err(error) => Err(vec![error_chain(&error)]),
        }
    }

    async fn apply(&self, loaded: LoadedFiles) -> Result<ReloadOutcome, Vec<String>> {
        let LoadedFiles { config, listeners, digest } = loaded;
        let running = Arc::clone(&self.gateway.snapshots.load().config);
        // Removing the last client is not meant to open the gateway to
        // everyone.
        if config.is_open_to_anyone() && !running.is_open_to_anyone() {
            return Err(vec![OPEN.to_owned()]);
        }
        audit_log::check_standard_output(&config, self.doors).map_err(|fault| vec![fault])?;
        if config == *running {
            // The certificate files may have changed under the same names.
            self.publish(listeners, digest);
            return Ok(ReloadOutcome::Unchanged);
        }
        warn_of_what_needs_a_restart(&running, &config);
        if let Some(log) = &self.log
            && let Err(error) = log.set_levels(levels(&config))
        {
            return Err(vec![error.to_string()]);
        }
        if config.audit != running.audit {
            let settings = audit_log::audit_settings(&config.audit);
            self.gateway.audit.apply(settings).map_err(|error| vec![error_chain(&error)])?;
        }
        if config.events != running.events {
            self.events.apply(event_delivery::event_settings(&config.events, &self.guardian));
        }
        let plan = self.gateway.snapshots.apply(config).await;
        self.publish(listeners, digest);
        tracing::info!(
            kept = plan.kept.len(),
            replaced = plan.replaced.len(),
            added = plan.added.len(),
            removed = plan.removed.len(),
            "the new configuration runs"
        );
        self.events.sender().send(&LifecycleEvent::ConfigApplied {
            kept: plan.kept.len(),
            replaced: plan.replaced.len(),
            added: plan.added.len(),
            removed: plan.removed.len(),
        });
        Ok(ReloadOutcome::Applied)
    }

    fn publish(&self, listeners: settings::Listeners, digest: String) {
        self.clients.publish(listeners.clients);
        self.operators.publish(listeners.operators);
        self.report.loaded(&self.common.config.path, digest);
    }
}

/// Reads the configuration and the files that it names, and checks them together.
fn load_files(
    common: &CommonArgs,
    environment: &dyn Environment,
) -> Result<LoadedFiles, RejectedFiles> {
    let rejected = |faults| RejectedFiles { faults, files: Vec::new() };
    let source = ConfigSource::open(&common.config.path).map_err(|error| {
        rejected(vec![format!("cannot read {}: {error}", common.config.path.display())])
    })?;
    let mut config = Config::read(&source, environment).map_err(|faults| RejectedFiles {
        faults: faults.to_string().lines().map(str::to_owned).collect(),
        files: faults.files().to_vec(),
    })?;
    common.apply_overrides(&mut config).map_err(|problem| rejected(vec![problem]))?;
    let listeners = settings::of(&config).map_err(rejected)?;
    Ok(LoadedFiles { config, listeners, digest: source.digest() })
}

/// Sockets, the log's format and the telemetry endpoint are fixed for the
/// process.
fn warn_of_what_needs_a_restart(old: &Config, new: &Config) {
    let changed = [
        ("gateway.listen", old.gateway.listen != new.gateway.listen),
        ("gateway.threads", old.gateway.threads != new.gateway.threads),
        ("admin.listen", old.admin.listen != new.admin.listen),
        ("log.format", old.log.format != new.log.format),
        ("telemetry", old.telemetry != new.telemetry),
        ("events.queue_dir", old.events.queue_dir != new.events.queue_dir),
    ];
    for (key, _) in changed.iter().filter(|(_, changed)| *changed) {
        tracing::warn!("{key} has changed: it takes effect at the next start");
    }
}
