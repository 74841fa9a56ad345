//! Baselines in the store that replicas share: one record for each server, which does not expire.
//!
//! A record is written only over the one that its writer has read. So of several replicas that approve
//! one form at once, one does, and the others find it approved. It contains the texts of definitions
//! unless it is too large with them.

use std::sync::Arc;

use crate::call::ServerName;
use crate::shared_records::{
    RecordEdit, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault,
};

use super::BaselineError;
use super::record::BaselineRecord;

/// The baselines of all servers, in the store that replicas share.
#[derive(Debug, Clone)]
pub struct SharedBaselines {
    records: Arc<dyn SharedRecords>,
}

/// A baseline in the store.
#[derive(Debug)]
pub(super) struct StoredBaseline {
    pub(super) record: BaselineRecord,
    /// The record without its value; `None` if the store has none.
    pub(super) version: Option<SharedRecord>,
}

impl SharedBaselines {
    /// Creates the baselines of a replica.
    pub fn new(records: Arc<dyn SharedRecords>) -> Self {
        Self { records }
    }

    /// Reads the baseline of a server; an empty one if there is none.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub(super) async fn read(&self, server: &ServerName) -> Result<StoredBaseline, BaselineError> {
        let found = self.records.read(place_of(server)).await?;
        let record = decode(server, found.as_ref())?;
        Ok(StoredBaseline { record, version: found.map(SharedRecord::without_value) })
    }

    /// Returns true if the baseline of a server has this version.
    ///
    /// # Errors
    /// [`BaselineError::Sharing`].
    pub(super) async fn has_version(
        &self,
        server: &ServerName,
        version: Option<&SharedRecord>,
    ) -> Result<bool, BaselineError> {
        Ok(self.records.read_version(place_of(server)).await?.as_ref() == version)
    }

    /// Edits the baseline of a server, and writes it if it has changed. If another replica writes it
    /// meanwhile, `edit` is repeated with the result of that.
    ///
    /// # Errors
    /// [`BaselineError`]: nothing is written, unless the store has failed during the write.
    pub(super) async fn edit<T>(
        &self,
        server: &ServerName,
        edit: impl Fn(&mut BaselineRecord) -> T,
    ) -> Result<(StoredBaseline, T), BaselineError> {
        let edited = match self.edit_encoded(server, &edit, encode).await {
            Err(BaselineError::Sharing(SharingFault::TooLarge { .. })) => {
                let without_texts =
                    |record: &BaselineRecord| encode(&record.clone().without_texts());
                self.edit_encoded(server, &edit, without_texts).await
            }
            edited => edited,
        };
        edited.map_err(|error| match error {
            BaselineError::Sharing(SharingFault::TooLarge { bytes, limit }) => {
                BaselineError::TooLarge { server: server.clone(), bytes, limit }
            }
            error => error,
        })
    }

    async fn edit_encoded<T>(
        &self,
        server: &ServerName,
        edit: &impl Fn(&mut BaselineRecord) -> T,
        encode: fn(&BaselineRecord) -> Vec<u8>,
    ) -> Result<(StoredBaseline, T), BaselineError> {
        let edit = |found: Option<&SharedRecord>| {
            let before = decode(server, found)?;
            let mut record = before.clone();
            let edited = edit(&mut record);
            let change = if record == before {
                RecordEdit::Keep
            } else {
                RecordEdit::Write { value: encode(&record), lifetime: None }
            };
            Ok::<_, BaselineError>((change, (record, edited)))
        };
        let (stored, (record, edited)) = self.records.edit(place_of(server), edit).await?;
        let version = stored.map(SharedRecord::without_value);
        Ok((StoredBaseline { record, version }, edited))
    }
}

/// Returns the baseline in a record; an empty one if there is none.
fn decode(
    server: &ServerName,
    found: Option<&SharedRecord>,
) -> Result<BaselineRecord, BaselineError> {
    let Some(found) = found else { return Ok(BaselineRecord::default()) };
    serde_json::from_slice(&found.value)
        .map_err(|_| BaselineError::Unreadable { server: server.clone() })
}

fn encode(record: &BaselineRecord) -> Vec<u8> {
    // A record has strings as keys, and nothing else that could fail.
    serde_json::to_vec(record).unwrap_or_default()
}

fn place_of(server: &ServerName) -> RecordPlace<'_> {
    RecordPlace { kind: SharedRecordKind::Definitions, name: server.as_str() }
}

#[cfg(test)]
mod tests;
