//! Actions of operators on one server: restart, disable, enable.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use tokio::task::spawn_blocking;

use crate::call::ServerName;
use crate::clock;
use crate::config::ServerConfig;
use crate::snapshot::disabled::{DisabledServer, DisabledServers};
use crate::text::{clip, error_chain, escape_controls};
use crate::upstream;

use super::parts::SnapshotParts;
use super::{ReloadPlan, Snapshot, Snapshots};

/// Reason that an action on a server is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerActionError {
    /// The configuration has no such server.
    #[error("the configuration has no such server")]
    Unknown,
    /// An operator has disabled it.
    #[error("the server is disabled: enable it first (`trunkline enable`)")]
    Disabled,
}

impl Snapshots {
    /// Starts a server anew beside its old instances, waits until it is ready or has failed, and
    /// lets it take over, as for a server whose settings change: calls in flight finish.
    ///
    /// # Errors
    /// [`ServerActionError`].
    pub async fn restart(self: &Arc<Self>, name: &ServerName) -> Result<(), ServerActionError> {
        let _turn = self.loading.lock().await;
        let before = self.current.load_full();
        let Some(member) = before.server(name) else { return Err(before.missing_reason(name)) };
        let server = upstream::Server::start(Arc::clone(&member.config), &self.surroundings);
        let plan = ReloadPlan { replaced: vec![name.clone()], ..ReloadPlan::default() };
        let servers = HashMap::from([(name.clone(), Arc::clone(&server))]);
        self.take_over(&before, &plan, &servers).await;
        let with_server = |current: &Snapshot| {
            let mut parts = SnapshotParts::of(current);
            parts.servers.insert(name.clone(), server);
            parts
        };
        self.publish(with_server).await;
        self.stop_removed(&before, &plan).await;
        Ok(())
    }

    /// Disables a server: its elements leave the catalog at once, and its children and sessions end
    /// after the calls in flight. Nothing starts it before it is enabled. One that is disabled
    /// already keeps its entry.
    ///
    /// # Errors
    /// [`ServerActionError::Unknown`].
    pub async fn disable(&self, name: &ServerName, by: &str) -> Result<(), ServerActionError> {
        let _turn = self.loading.lock().await;
        let before = self.current.load_full();
        find_config(&before, name)?;
        if before.disabled.find(name).is_some() {
            self.retry_disabled(&before.disabled).await;
            return Ok(());
        }
        let by = escape_controls(clip(by, MAX_OPERATOR_BYTES));
        let at = Timestamp::try_from(clock::wall_now()).unwrap_or(Timestamp::UNIX_EPOCH);
        let disabled = Arc::new(before.disabled.with(name, DisabledServer { by, at }));
        self.keep_disabled(&disabled).await;
        let without_server = |current: &Snapshot| {
            let mut parts = SnapshotParts::of(current);
            parts.servers.remove(name);
            parts.disabled = disabled;
            parts
        };
        self.publish(without_server).await;
        tracing::info!(server = %name, "disabled by an operator");
        let plan = ReloadPlan { removed: vec![name.clone()], ..ReloadPlan::default() };
        self.stop_removed(&before, &plan).await;
        Ok(())
    }

    /// Enables a server that was disabled, and starts it. Does not wait until it is ready.
    ///
    /// # Errors
    /// [`ServerActionError::Unknown`].
    pub async fn enable(&self, name: &ServerName) -> Result<(), ServerActionError> {
        let _turn = self.loading.lock().await;
        let before = self.current.load_full();
        let config = Arc::clone(find_config(&before, name)?);
        if before.disabled.find(name).is_none() {
            self.retry_disabled(&before.disabled).await;
            return Ok(());
        }
        let disabled = Arc::new(before.disabled.without(name));
        self.keep_disabled(&disabled).await;
        let server = upstream::Server::start(config, &self.surroundings);
        let with_server = |current: &Snapshot| {
            let mut parts = SnapshotParts::of(current);
            parts.servers.insert(name.clone(), server);
            parts.disabled = disabled;
            parts
        };
        self.publish(with_server).await;
        tracing::info!(server = %name, "enabled by an operator");
        Ok(())
    }

    /// Waits until one server is ready or has failed, and publishes its lists.
    pub async fn settle_server(&self, name: &ServerName) {
        // Holding the snapshot would keep a server that is removed meanwhile from being stopped.
        let server = self.load().server(name).map(|member| Arc::clone(&member.server));
        if let Some(server) = server {
            server.settled().await;
            self.catch_up().await;
        }
    }

    /// Returns true if disabled servers are still disabled after a restart of the gateway.
    pub fn keeps_disabled(&self) -> bool {
        self.disabled_file.is_some() && !self.disabled_unsaved.load(Ordering::Relaxed)
    }

    /// Stores the disabled servers again, if the last attempt has failed.
    async fn retry_disabled(&self, disabled: &Arc<DisabledServers>) {
        if self.disabled_unsaved.load(Ordering::Relaxed) {
            self.keep_disabled(disabled).await;
        }
    }

    /// Stores the disabled servers for the next run. A file that cannot be written is reported in the
    /// log and by [`Self::keeps_disabled`]: the action takes effect in this run all the same.
    pub(super) async fn keep_disabled(&self, disabled: &Arc<DisabledServers>) {
        let Some(file) = self.disabled_file.clone() else { return };
        let disabled = Arc::clone(disabled);
        let written = spawn_blocking(move || file.write(&disabled)).await;
        self.disabled_unsaved.store(!matches!(written, Ok(Ok(()))), Ordering::Relaxed);
        if let Ok(Err(error)) = written {
            tracing::error!("{}", error_chain(&error));
        }
    }
}

impl Snapshot {
    /// Returns the reason that a server is not in the snapshot.
    pub fn missing_reason(&self, name: &ServerName) -> ServerActionError {
        match self.disabled.find(name) {
            Some(_) => ServerActionError::Disabled,
            None => ServerActionError::Unknown,
        }
    }
}

pub(super) fn find_config<'a>(
    snapshot: &'a Snapshot,
    name: &ServerName,
) -> Result<&'a Arc<ServerConfig>, ServerActionError> {
    let mut servers = snapshot.config.servers.iter();
    servers.find(|server| server.name == *name).ok_or(ServerActionError::Unknown)
}

/// Limit of the bytes of an operator's name in an entry.
const MAX_OPERATOR_BYTES: usize = 256;
