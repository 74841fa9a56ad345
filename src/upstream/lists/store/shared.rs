//! The lists of servers in the store that replicas share, so that all of them have the same names: a
//! replica that starts while a server is down begins with the lists that another one has seen.
//!
//! A record has the time at which the lists were requested, and the bytes of a file. Later lists replace
//! earlier ones, and never the other way.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::config::ServerConfig;
use crate::shared_records::{
    RecordEdit, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault,
};
use crate::text::error_chain;

use super::{KnownServer, ListDigest, ListStore, MAX_STORED_LIST_AGE, SealedLists, WrittenFile};

/// The lists of a server in the store of the replicas.
#[derive(Debug, Clone)]
pub(super) struct SharedLists {
    lists: WrittenFile,
    version: SharedRecord,
}

/// The outcome of keeping lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepOutcome {
    /// They are kept, or cannot be.
    Done,
    /// The store of the replicas cannot be reached now.
    TryAgain,
}

impl ListStore {
    /// Returns the lists of a server that the replicas share, sealed as in a file.
    pub(super) async fn read_shared(&self, config: &ServerConfig) -> Option<Vec<u8>> {
        let records = self.shared.as_ref()?;
        let read = timeout(SHARED_READ_TIME, records.read(place_of(config))).await;
        let record = read.ok()?.ok()??;
        split(&record.value).map(|(_, sealed)| sealed.to_vec())
    }

    /// Returns the lists of a server that another replica has shared.
    pub(crate) async fn find_shared(
        self: &Arc<Self>,
        config: &Arc<ServerConfig>,
    ) -> Option<KnownServer> {
        let sealed = self.read_shared(config).await?;
        let (store, config) = (Arc::clone(self), Arc::clone(config));
        // This compiles the schemas of the tools.
        let opened = spawn_blocking(move || store.open_lists(&config, &sealed).ok()).await;
        opened.ok()?.map(|(known, _)| known)
    }

    /// Returns true if replicas share lists.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Returns the digest of the lists that the store of the replicas has, if this replica knows it and
    /// they need not be written again.
    pub(super) async fn shared_digest(
        &self,
        config: &ServerConfig,
        now: u64,
    ) -> Option<ListDigest> {
        let records = self.shared.as_ref()?;
        let known = self.known_shared.lock().get(&config.name).cloned()?;
        let found = records.read_version(place_of(config)).await.ok()?;
        let is_current = known.lists.is_recent(now) && found.as_ref() == Some(&known.version);
        is_current.then_some(known.lists.digest)
    }

    /// Writes the lists of a server to the store of the replicas, unless it has the same or later ones.
    pub(super) async fn share(&self, config: &ServerConfig, lists: &SealedLists) -> KeepOutcome {
        let Some(records) = &self.shared else { return KeepOutcome::Done };
        match self.write_unless_later(records, config, lists).await {
            Ok(known) => {
                let mut all = self.known_shared.lock();
                match known {
                    Some(known) => _ = all.insert(config.name.clone(), known),
                    None => _ = all.remove(&config.name),
                }
                KeepOutcome::Done
            }
            Err(SharingFault::TooLarge { bytes, limit }) => {
                let server = &config.name;
                tracing::warn!(%server, bytes, limit, "its lists are too large for other replicas");
                self.unshare(config).await;
                KeepOutcome::Done
            }
            Err(fault) => {
                let fault = error_chain(&fault);
                tracing::debug!(server = %config.name, "its lists are not shared yet: {fault}");
                KeepOutcome::TryAgain
            }
        }
    }

    /// Returns the record with these lists; `None` if the store has later ones.
    async fn write_unless_later(
        &self,
        records: &Arc<dyn SharedRecords>,
        config: &ServerConfig,
        lists: &SealedLists,
    ) -> Result<Option<SharedLists>, SharingFault> {
        let edit = |found: Option<&SharedRecord>| {
            if let Some((listed_at, sealed)) = found.and_then(|it| split(&it.value)) {
                let stored = self.open_record(config, sealed).ok().map(|(_, stored)| stored);
                let stored = stored.filter(|stored| stored.digest == lists.digest);
                if let Some(stored) = stored.filter(|stored| stored.is_recent(lists.at)) {
                    return Ok((RecordEdit::Keep, Some(stored)));
                }
                if listed_at > lists.listed_at {
                    return Ok((RecordEdit::Keep, None));
                }
            }
            let value = [&lists.listed_at.to_be_bytes()[..], &lists.bytes].concat();
            let write = RecordEdit::Write { value, lifetime: Some(MAX_STORED_LIST_AGE) };
            Ok::<_, SharingFault>((write, Some(lists.written())))
        };
        let (stored, lists) = records.edit(place_of(config), edit).await?;
        let version = stored.map(SharedRecord::without_value);
        Ok(lists.zip(version).map(|(lists, version)| SharedLists { lists, version }))
    }

    /// Removes the lists of a server from the store of the replicas: without them, its names are free.
    pub(super) async fn unshare(&self, config: &ServerConfig) {
        let Some(records) = &self.shared else { return };
        let place = place_of(config);
        if let Ok(Some(record)) = records.read_version(place).await {
            // If that fails, earlier lists stay until they expire.
            let _ = records.remove(place, &record).await;
        }
    }
}

/// Splits a record into the time of its lists, in milliseconds since 1970, and the sealed lists.
fn split(value: &[u8]) -> Option<(u64, &[u8])> {
    let (listed_at, sealed) = value.split_first_chunk()?;
    Some((u64::from_be_bytes(*listed_at), sealed))
}

fn place_of(config: &ServerConfig) -> RecordPlace<'_> {
    RecordPlace { kind: SharedRecordKind::Lists, name: config.name.as_str() }
}

/// Time limit for reading the lists of a server at the start.
const SHARED_READ_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
