//! Changes of baselines: those of this process are written, and those of operators and of other
//! replicas are read.
//!
//! A gateway that is alone has its baselines in files. A replica has them in the store, and compares
//! versions at an interval. Its files are the way in: accepted and rejected forms that are found there are
//! added to the store, and the result is written back for `trunkline pin`. While the store cannot be
//! reached, the last known state stays in force.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::call::ServerName;
use crate::clock;
use crate::config::Config;
use crate::text::error_chain;

use super::record::BaselineChange;
use super::screen::ServerScreen;
use super::shared_baselines::StoredBaseline;
use super::{
    BaselineError, BaselineFolder, BaselineRecord, BaselineState, DefinitionGuard, KnownBaseline,
    SharedBaselines,
};

/// Changes of a server's baseline that the store of the replicas may not have.
#[derive(Default)]
struct LocalChanges {
    /// Those that were found in its lists.
    changes: Vec<BaselineChange>,
    /// The content of its file, which may have decisions of operators.
    file: Option<BaselineRecord>,
}

impl DefinitionGuard {
    /// Reads the baselines of a configuration's servers from the store of the replicas, if there is
    /// one. Those that cannot be read now are read later.
    pub async fn read_shared(&self, config: &Config) {
        let Some(shared) = &self.shared else { return };
        let compared =
            config.servers.iter().filter(|it| !ServerScreen::settings_of(config, it).is_off());
        for server in compared {
            let name = server.name.clone();
            self.baselines.lock().entry(name).or_insert_with(KnownBaseline::unread);
        }
        self.share_changes(shared).await;
    }

    /// Writes the changes of the baselines, and reads those of operators and other replicas. Returns
    /// true if a baseline has changed by that, so that the lists have to be compared again.
    pub async fn save_changes(&self) -> bool {
        if let Some(shared) = &self.shared {
            return self.share_changes(shared).await;
        }
        let Some(folder) = &self.folder else { return false };
        let mut has_changed = false;
        for (server, changes) in self.take_unsaved() {
            has_changed |= self.save_in_file(folder, &server, changes).await;
        }
        has_changed
    }

    async fn share_changes(&self, shared: &SharedBaselines) -> bool {
        let folder = self.folder.as_ref().filter(|_| self.files_due.swap(false, Ordering::Relaxed));
        let mut has_changed = false;
        for (server, changes) in self.take_unsaved() {
            let file = match folder {
                Some(folder) => self.read_way_in(folder, &server).await,
                None => None,
            };
            has_changed |= self.exchange(shared, &server, LocalChanges { changes, file }).await;
        }
        has_changed
    }

    /// Reads the files again with the next [`save_changes`](Self::save_changes): `trunkline pin` may have
    /// written them.
    pub fn read_files_again(&self) {
        self.files_due.store(true, Ordering::Relaxed);
    }

    /// Completes when the baselines should be compared with those in the store of the replicas.
    pub async fn comparison_due(&self) {
        if self.shared.is_none() {
            return std::future::pending().await;
        }
        let is_behind = self.baselines.lock().values().any(|known| known.is_behind);
        sleep(if is_behind { RETRY_INTERVAL } else { COMPARISON_INTERVAL }).await;
    }

    fn take_unsaved(&self) -> HashMap<ServerName, Vec<BaselineChange>> {
        let mut baselines = self.baselines.lock();
        let due = baselines.iter_mut();
        due.map(|(name, known)| (name.clone(), std::mem::take(&mut known.unsaved))).collect()
    }

    async fn save_in_file(
        &self,
        folder: &BaselineFolder,
        server: &ServerName,
        changes: Vec<BaselineChange>,
    ) -> bool {
        let (folder, name) = (folder.clone(), server.clone());
        let saved = self.files.run(move || folder.update(&name, &changes)).await;
        let state = match saved {
            Ok(Ok(record)) => BaselineState::Known(record.without_texts()),
            Ok(Err(error)) => BaselineState::unusable(&error),
            Err(error) => {
                tracing::warn!(%server, "definitions are not stored: {}", error_chain(&error));
                return false;
            }
        };
        let mut baselines = self.baselines.lock();
        baselines.get_mut(server).is_some_and(|known| known.replace(server, state))
    }

    /// Writes changes of a server's baseline to the store, and reads those of other replicas. Returns
    /// true if the baseline has changed.
    async fn exchange(
        &self,
        shared: &SharedBaselines,
        server: &ServerName,
        local: LocalChanges,
    ) -> bool {
        let Some(known) = self.baselines.lock().get(server).cloned() else { return false };
        let LocalChanges { changes, file } = &local;
        let has_news = !changes.is_empty() || file.is_some() || known.is_behind;
        if !has_news && known.version.is_some() {
            match shared.has_version(server, known.version.as_ref()).await {
                Ok(true) => return false,
                Ok(false) => {}
                Err(error) => return self.note_failure(server, &error),
            }
        }
        let edit = |record: &mut BaselineRecord| {
            // The store has lost its data.
            if let BaselineState::Known(own) = &*known.state
                && known.version.is_some()
                && record.is_empty()
            {
                record.adopt(own);
            }
            if let Some(file) = file {
                record.adopt(file);
            }
            for change in changes {
                record.apply(change.clone());
            }
        };
        match shared.edit(server, edit).await {
            Ok((stored, ())) => self.adopt_stored(server, stored).await,
            Err(error) => {
                self.keep_withdrawals(server, local.changes);
                self.note_failure(server, &error)
            }
        }
    }

    /// Keeps the withdrawals among changes that were not written: those of forms that are not listed
    /// any more are not found again.
    fn keep_withdrawals(&self, server: &ServerName, changes: Vec<BaselineChange>) {
        let mut baselines = self.baselines.lock();
        let Some(known) = baselines.get_mut(server) else { return };
        let kept = changes.into_iter().filter(|it| matches!(it, BaselineChange::Withdraw(_)));
        known.unsaved.splice(..0, kept.take(MAX_KEPT_WITHDRAWALS));
    }

    /// Uses the baseline of the store, and writes it to the file. Returns true if it has changed.
    async fn adopt_stored(&self, server: &ServerName, stored: StoredBaseline) -> bool {
        let StoredBaseline { record, version } = stored;
        let state = BaselineState::Known(record.clone().without_texts());
        let (has_changed, is_new) = {
            let mut baselines = self.baselines.lock();
            let Some(known) = baselines.get_mut(server) else { return false };
            let is_new = known.version != version;
            known.version = version;
            (known.replace(server, state) | std::mem::take(&mut known.is_behind), is_new)
        };
        if is_new && let Some(folder) = &self.folder {
            let (folder, name) = (folder.clone(), server.clone());
            let written = self.files.run(move || folder.copy_shared(&name, &record)).await;
            let fault = match written {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error_chain(&error)),
                Err(error) => Some(error_chain(&error)),
            };
            if let Some(fault) = fault {
                tracing::warn!(%server, "its accepted definitions are only in the store: {fault}");
            }
        }
        has_changed
    }

    /// Notes that the store was not read or written. The last known baseline stays in force. The lost
    /// changes are found again when the lists are compared with the baseline of the store.
    fn note_failure(&self, server: &ServerName, error: &BaselineError) -> bool {
        let text = format!("{server}: its definitions are not shared: {}", error_chain(error));
        if let Some(line) = self.faults.lock().note(&text, clock::now()) {
            tracing::error!("{line}");
        }
        let mut baselines = self.baselines.lock();
        let Some(known) = baselines.get_mut(server) else { return false };
        match error {
            // The same changes would be too large again.
            BaselineError::TooLarge { .. } => false,
            BaselineError::Unreadable { .. } => {
                known.version = None;
                known.replace(server, BaselineState::unusable(error))
            }
            _ => {
                known.is_behind = true;
                self.read_files_again();
                false
            }
        }
    }

    /// Reads the decisions in a server's file.
    async fn read_way_in(
        &self,
        folder: &BaselineFolder,
        server: &ServerName,
    ) -> Option<BaselineRecord> {
        let (folder, name) = (folder.clone(), server.clone());
        let fault = match self.files.run(move || folder.read(&name)).await {
            Ok(Ok(record)) => return Some(record),
            Ok(Err(error)) => error_chain(&error),
            Err(error) => error_chain(&error),
        };
        tracing::warn!(%server, "its file of definitions is not read: {fault}");
        None
    }
}

impl KnownBaseline {
    /// Creates the baseline of a server that has to be read from the store of the replicas: until then
    /// nothing counts as accepted.
    pub(super) fn unread() -> Self {
        let state = Arc::new(BaselineState::Unusable(UNREAD_BASELINE.to_owned()));
        Self { is_shared: true, is_behind: true, ..Self::with_state(state) }
    }
}

/// Age of a comparison with the store after which it is repeated.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(5);
/// The time after which the store is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of the withdrawals that are kept while the store cannot be reached. Beyond it, forms that are
/// not listed any more wait for a decision.
const MAX_KEPT_WITHDRAWALS: usize = 1000;
/// Reason that a baseline cannot be used yet.
const UNREAD_BASELINE: &str =
    "the baseline was not read from the store of the gateway's replicas yet";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{DefinitionDigest, DefinitionKind};
    use crate::policy::definitions::record::DefinitionKey;

    #[test]
    fn a_bounded_number_of_withdrawals_waits_for_the_store() {
        let (guard, server) = (DefinitionGuard::default(), ServerName::new("s").unwrap());
        guard.baselines.lock().insert(server.clone(), KnownBaseline::unread());
        let kind = DefinitionKind::ALL[0];
        let key = |number: usize| {
            let sha256 = DefinitionDigest::compute(kind, &number.to_string());
            DefinitionKey { kind, name: number.to_string(), sha256, definition: None }
        };
        let withdrawals = (0..=MAX_KEPT_WITHDRAWALS).map(|it| BaselineChange::Withdraw(key(it)));
        let accepted = BaselineChange::Accept(key(0));
        guard.keep_withdrawals(&server, std::iter::once(accepted).chain(withdrawals).collect());
        let kept = guard.take_unsaved().remove(&server).unwrap();
        assert_eq!(kept.len(), MAX_KEPT_WITHDRAWALS);
        assert!(kept.iter().all(|it| matches!(it, BaselineChange::Withdraw(_))));
    }
}
