//! The disabled servers of all replicas, as one record in the store that they share.
//!
//! The file of a replica is the way in: its entries are moved to the store. While that cannot be reached,
//! the last known entries stay in force, and no others are made.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::shared_records::{
    RecordEdit, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault,
};
use crate::text::error_chain;

use super::disabled::{DisabledFile, DisabledServers};

/// The disabled servers of all replicas.
#[derive(Debug)]
pub struct SharedDisabled {
    records: Arc<dyn SharedRecords>,
    /// The file with entries that are not in the store yet.
    file: Mutex<Option<DisabledFile>>,
    known: Mutex<KnownEntries>,
}

/// The entries that this replica knows.
#[derive(Debug, Clone, Default)]
struct KnownEntries {
    /// Those of the file, to be moved to the store.
    unmoved: DisabledServers,
    /// Those of the store, with their version; `None` before they were read.
    stored: Option<(DisabledServers, Option<SharedRecord>)>,
}

/// Reasons that the entries of all replicas are not read or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SharedDisabledError {
    /// The store cannot be used.
    #[error(transparent)]
    Sharing(#[from] SharingFault),
    /// The record cannot be opened.
    #[error(
        "the disabled servers in the store of the gateway's replicas were changed, or are sealed with a \
         key that `gateway.state_keys` does not have"
    )]
    Unreadable,
}

impl SharedDisabled {
    /// Creates the entries of a replica with those of its file, which are moved to the store.
    pub fn new(
        records: Arc<dyn SharedRecords>,
        file: Option<DisabledFile>,
        unmoved: DisabledServers,
    ) -> Self {
        let known = KnownEntries { unmoved, stored: None };
        Self { records, file: Mutex::new(file), known: Mutex::new(known) }
    }

    /// Returns true if the store has the entries that were last read, or cannot be reached.
    pub(super) async fn is_current(&self) -> bool {
        let known = self.known.lock().stored.clone();
        match self.records.read_version(RECORD_PLACE).await {
            Ok(version) => known.is_some_and(|(_, known)| known == version),
            Err(_) => true,
        }
    }

    /// Edits the entries, and writes them if they have changed. If another replica writes them
    /// meanwhile, `edit` is repeated with the result of that.
    ///
    /// # Errors
    /// [`SharedDisabledError`]: nothing is written, unless the store has failed during the write.
    pub(super) async fn edit(
        &self,
        edit: impl Fn(DisabledServers) -> DisabledServers,
    ) -> Result<DisabledServers, SharedDisabledError> {
        let known = self.known.lock().clone();
        let edit = |found: Option<&SharedRecord>| {
            let before = match (found, &known.stored) {
                (Some(found), _) => serde_json::from_slice(&found.value)
                    .map_err(|_| SharedDisabledError::Unreadable)?,
                // The store has lost its data.
                (None, Some((stored, Some(_)))) => stored.clone(),
                (None, _) => DisabledServers::default(),
            };
            let servers = edit(before.clone().with_all(&known.unmoved));
            let is_same = if found.is_some() { servers == before } else { servers.is_empty() };
            let change = if is_same {
                RecordEdit::Keep
            } else {
                let value = serde_json::to_vec(&servers).unwrap_or_default();
                RecordEdit::Write { value, lifetime: None }
            };
            Ok::<_, SharedDisabledError>((change, servers))
        };
        let (stored, servers) = self.records.edit(RECORD_PLACE, edit).await?;
        self.note(servers.clone(), stored);
        Ok(servers)
    }

    /// Notes the entries of the store. Those of the file are among them.
    fn note(&self, servers: DisabledServers, record: Option<SharedRecord>) {
        let stored = Some((servers, record.map(SharedRecord::without_value)));
        *self.known.lock() = KnownEntries { unmoved: DisabledServers::default(), stored };
        let Some(file) = self.file.lock().take() else { return };
        if let Err(error) = file.edit(|_| DisabledServers::default()).written {
            let fault = error_chain(&error);
            tracing::error!("disabled servers are in the store, and still in the file: {fault}");
        }
    }
}

const RECORD_PLACE: RecordPlace<'static> =
    RecordPlace { kind: SharedRecordKind::DisabledServers, name: "all" };
