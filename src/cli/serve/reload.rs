//! Configuration reload while the gateway runs: builds beside the running one,
//! swaps last, keeps the old one on any fault.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::admin::StatusReport;
use crate::cli::{CommonArgs, OPEN};
use crate::config::{Config, ConfigSource, ReloadTrigger, SystemEnvironment};
use crate::listener::LiveSettings;
use crate::pipeline::Gateway;
use crate::telemetry::log::LogHandle;
use crate::telemetry::metrics::ReloadOutcome;

use super::{Running, levels, settings};

/// Applies the current contents of the configuration file.
pub struct Reloader {
    pub(super) common: CommonArgs,
    gateway: Arc<Gateway>,
    report: Arc<StatusReport>,
    clients: LiveSettings,
    operators: LiveSettings,
    log: Option<LogHandle>,
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
            one_at_a_time: Mutex::new(()),
            refused: parking_lot::Mutex::default(),
        }
    }
}

impl Reloader {
    /// Reads the file and applies it. Faults are reported in the log and the
    /// status, and the old configuration stays active.
    pub async fn reload(&self) -> ReloadOutcome {
        let _turn = self.one_at_a_time.lock().await;
        let outcome = match self.read().await {
            Ok(config) => self.apply(config).await,
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
        }
        self.gateway.metrics.count_reload(outcome);
        self.report.reloaded(&self.common.config, outcome, faults);
        outcome
    }

    /// When the running configuration is to be reloaded.
    pub fn manner(&self) -> ReloadTrigger {
        self.gateway.snapshots.load().config.gateway.reload
    }

    /// All files that affect the configuration: the file itself, and the files
    /// that it names.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let config = &self.gateway.snapshots.load().config;
        let tls = config.gateway.tls.iter().flat_map(|tls| [tls.cert.clone(), tls.key.clone()]);
        let refused = self.refused.lock().clone();
        let named = config.files.iter().cloned();
        [self.common.config.clone()].into_iter().chain(named).chain(tls).chain(refused).collect()
    }

    async fn read(&self) -> Result<Config, Vec<String>> {
        let path = self.common.config.clone();
        let read = tokio::task::spawn_blocking(move || {
            let unreadable = |error| vec![format!("cannot read {}: {error}", path.display())];
            let source =
                ConfigSource::open(&path).map_err(|error| (unreadable(error), Vec::new()))?;
            Config::read(&source, &SystemEnvironment).map_err(|faults| {
                let told = faults.to_string().lines().map(str::to_owned).collect();
                (told, faults.files().to_vec())
            })
        });
        let read: Result<Config, (Vec<String>, Vec<PathBuf>)> =
            read.await.unwrap_or_else(|error| Err((vec![error.to_string()], Vec::new())));
        let refused = read.as_ref().err().map(|(_, files)| files.clone()).unwrap_or_default();
        *self.refused.lock() = refused;
        let mut config = read.map_err(|(told, _)| told)?;
        self.common.apply_overrides(&mut config).map_err(|problem| vec![problem])?;
        Ok(config)
    }

    async fn apply(&self, config: Config) -> Result<ReloadOutcome, Vec<String>> {
        let running = Arc::clone(&self.gateway.snapshots.load().config);
        let listeners = settings::of(&config)?;
        // Removing the last client is not meant to open the gateway to
        // everyone.
        if config.is_open_to_anyone() && !running.is_open_to_anyone() {
            return Err(vec![OPEN.to_owned()]);
        }
        if config == *running {
            // The certificate files may have changed under the same names.
            self.publish(listeners);
            return Ok(ReloadOutcome::Unchanged);
        }
        warn_of_what_needs_a_restart(&running, &config);
        if let Some(log) = &self.log
            && let Err(error) = log.set_levels(levels(&config))
        {
            return Err(vec![error.to_string()]);
        }
        let plan = self.gateway.snapshots.apply(config).await;
        self.publish(listeners);
        tracing::info!(
            kept = plan.kept.len(),
            replaced = plan.replaced.len(),
            added = plan.added.len(),
            removed = plan.removed.len(),
            "the new configuration runs"
        );
        Ok(ReloadOutcome::Applied)
    }

    fn publish(&self, listeners: settings::Listeners) {
        self.clients.publish(listeners.clients);
        self.operators.publish(listeners.operators);
    }
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
    ];
    for (key, _) in changed.iter().filter(|(_, changed)| *changed) {
        tracing::warn!("{key} has changed: it takes effect at the next start");
    }
}
