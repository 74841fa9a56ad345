//! Actions of operators on one server: restart, disable, enable.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::call::ServerName;
use crate::clock;
use crate::config::{Config, ServerConfig};
use crate::snapshot::disabled::{DisabledServer, DisabledServers};
use crate::snapshot::shared_disabled::SharedDisabledError;
use crate::text::{clip, error_chain, escape_controls};
use crate::upstream;

use super::parts::SnapshotParts;
use super::{Snapshot, Snapshots};

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

/// Reasons that a server is not disabled or enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DisablingError {
    /// The action is refused.
    #[error(transparent)]
    Refused(#[from] ServerActionError),
    /// The store of the replicas cannot be used.
    #[error(transparent)]
    Shared(#[from] SharedDisabledError),
}

impl Snapshots {
    /// Starts a server anew beside its old instances, waits until it is ready or has failed, and
    /// lets it take over, as for a server whose settings change: calls in flight finish. Other
    /// changes do not wait for it. If one of them replaces or removes the server, the new instance is
    /// stopped.
    ///
    /// # Errors
    /// [`ServerActionError`].
    pub async fn restart(&self, name: &ServerName) -> Result<(), ServerActionError> {
        // Several restarts of one server follow each other: each starts a process.
        let turn = self.restart_turn(name)?;
        let _turn = turn.lock().await;
        let before = self.current.load_full();
        let Some(member) = before.server(name) else { return Err(before.missing_reason(name)) };
        let old = Arc::clone(&member.server);
        let server = upstream::Server::start(Arc::clone(&member.config), &self.surroundings);
        // Holding the snapshot would keep servers that are removed meanwhile from being stopped.
        drop(before);
        tokio::select! {
            () = server.settled() => {}
            // Another change has replaced or removed it.
            () = old.released() => {}
        }
        let _turn = self.operating.lock().await;
        let before = self.current.load_full();
        let is_current =
            before.server(name).is_some_and(|member| Arc::ptr_eq(&member.server, &old));
        if !is_current {
            self.stop_later(vec![(server, Duration::ZERO)]).await;
            return match before.server(name) {
                Some(_) => Ok(()),
                None => Err(before.missing_reason(name)),
            };
        }
        server.inherit(&old);
        let with_server = |current: &Snapshot| {
            let mut parts = SnapshotParts::of(current);
            parts.servers.insert(name.clone(), server);
            parts
        };
        self.publish(with_server).await;
        self.stop_removed(&before, std::slice::from_ref(name)).await;
        Ok(())
    }

    /// Returns the lock that the restarts of a server of the configuration take.
    fn restart_turn(&self, name: &ServerName) -> Result<Arc<Mutex<()>>, ServerActionError> {
        find_config(&self.load(), name)?;
        let mut restarts = self.restarts.lock();
        restarts.retain(|_, turn| Arc::strong_count(turn) > 1);
        Ok(Arc::clone(restarts.entry(name.clone()).or_default()))
    }

    /// Disables a server: its elements leave the catalog at once, and its children and sessions end
    /// after the calls in flight. Nothing starts it before it is enabled. One that is disabled
    /// already keeps its entry.
    ///
    /// # Errors
    /// [`DisablingError`].
    pub async fn disable(&self, name: &ServerName, by: &str) -> Result<(), DisablingError> {
        let by = escape_controls(clip(by, MAX_OPERATOR_BYTES));
        let at = Timestamp::try_from(clock::wall_now()).unwrap_or(Timestamp::UNIX_EPOCH);
        let (entry, disabled) = (DisabledServer { by, at }, name.clone());
        self.change_disabled(name, move |all| match all.find(&disabled) {
            Some(_) => all,
            None => all.with(&disabled, entry.clone()),
        })
        .await
    }

    /// Enables a server that was disabled, and starts it. Does not wait until it is ready.
    ///
    /// # Errors
    /// [`DisablingError`].
    pub async fn enable(&self, name: &ServerName) -> Result<(), DisablingError> {
        let enabled = name.clone();
        self.change_disabled(name, move |all| all.without(&enabled)).await
    }

    /// Edits the entry of a server of the configuration.
    async fn change_disabled(
        &self,
        name: &ServerName,
        edit: impl Fn(DisabledServers) -> DisabledServers + Send + Sync + 'static,
    ) -> Result<(), DisablingError> {
        let _turn = self.operating.lock().await;
        let before = self.current.load_full();
        find_config(&before, name)?;
        let disabled = self.edit_disabled(&before, &before.config, edit).await?;
        self.put_disabled(&before, disabled).await;
        Ok(())
    }

    /// Puts the stored list of disabled servers in force: another gateway with the same configuration
    /// file may have changed it.
    pub async fn read_disabled(&self) {
        let _turn = self.operating.lock().await;
        let before = self.current.load_full();
        // Without the store of the replicas, the last known list stays in force.
        if let Ok(disabled) = self.edit_disabled(&before, &before.config, |all| all).await {
            self.put_disabled(&before, disabled).await;
        }
    }

    /// Puts the list of the replicas in force, if another one has changed it.
    pub(super) async fn follow_disabled(&self) {
        if let Some(shared) = &self.shared_disabled
            && !shared.is_current().await
        {
            self.read_disabled().await;
        }
    }

    /// Stops the servers that a list disables, and starts those that it does not disable any more.
    async fn put_disabled(&self, before: &Snapshot, disabled: DisabledServers) {
        if *before.disabled == disabled {
            return;
        }
        let (removed, missing): (Vec<_>, Vec<_>) =
            before.config.servers.iter().partition(|it| disabled.find(&it.name).is_some());
        let missing = missing.into_iter().filter(|it| before.server(&it.name).is_none());
        let started: Vec<_> =
            missing.map(|it| upstream::Server::start(Arc::clone(it), &self.surroundings)).collect();
        let removed = removed.into_iter().map(|it| it.name.clone());
        let removed: Vec<_> = removed.filter(|name| before.server(name).is_some()).collect();
        let change = |current: &Snapshot| {
            let mut parts = SnapshotParts::of(current);
            parts.servers.retain(|name, _| !removed.contains(name));
            parts.servers.extend(started.into_iter().map(|it| (it.name().clone(), it)));
            parts.disabled = Arc::new(disabled);
            parts
        };
        self.publish(change).await;
        self.stop_removed(before, &removed).await;
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
        self.shared_disabled.is_some()
            || self.disabled_file.is_some() && !self.disabled_unsaved.load(Ordering::Relaxed)
    }

    /// Edits the stored list of disabled servers, and returns it without the servers that `config`
    /// does not have. The file loses only those that the configuration in force has and `config` lacks:
    /// another gateway may have read a newer configuration. A file that cannot be written is reported in the log and by
    /// [`Self::keeps_disabled`]: the action takes effect in this run all the same.
    ///
    /// # Errors
    /// [`SharedDisabledError`] if replicas share the list, and the store cannot be used.
    pub(super) async fn edit_disabled(
        &self,
        before: &Snapshot,
        config: &Arc<Config>,
        edit: impl Fn(DisabledServers) -> DisabledServers + Send + Sync + 'static,
    ) -> Result<DisabledServers, SharedDisabledError> {
        let edited = if let Some(shared) = &self.shared_disabled {
            let edit = |all| edit(all).without_removed(&before.config, config);
            shared.edit(edit).await?.of_config(config)
        } else {
            let known = DisabledServers::clone(&before.disabled);
            self.edit_file(known, &before.config, config, edit).await
        };
        for name in config.servers.iter().map(|it| &it.name) {
            match (before.disabled.find(name), edited.find(name)) {
                (None, Some(_)) => tracing::info!(server = %name, "disabled by an operator"),
                (Some(_), None) => tracing::info!(server = %name, "enabled by an operator"),
                _ => {}
            }
        }
        Ok(edited)
    }

    async fn edit_file(
        &self,
        known: DisabledServers,
        before: &Arc<Config>,
        config: &Arc<Config>,
        edit: impl FnOnce(DisabledServers) -> DisabledServers + Send + 'static,
    ) -> DisabledServers {
        let Some(file) = self.disabled_file.clone() else { return edit(known).of_config(config) };
        let (old, new) = (Arc::clone(before), Arc::clone(config));
        let is_unsaved = self.disabled_unsaved.load(Ordering::Relaxed);
        let unedited = known.clone();
        let editing = spawn_blocking(move || {
            file.edit(|stored| {
                // The file lacks the last changes if they could not be written.
                let all = stored.filter(|_| !is_unsaved).unwrap_or(known);
                edit(all).without_removed(&old, &new)
            })
        });
        let edited = editing.await;
        self.disabled_unsaved
            .store(!edited.as_ref().is_ok_and(|it| it.written.is_ok()), Ordering::Relaxed);
        let Ok(edited) = edited else { return unedited };
        if let Err(error) = edited.written {
            tracing::error!("{}", error_chain(&error));
        }
        edited.servers.of_config(config)
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
