//! Baselines in the store that replicas share: one record for each server, which does not expire.
//!
//! A record is written only over the one that its writer has read. So of several replicas that approve
//! one form at once, one does, and the others find it approved. It contains the texts of definitions
//! unless it is too large with them.

use std::sync::Arc;

use crate::call::ServerName;
use crate::oauth::{
    NewRecord, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault,
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
        let Some(found) = found else {
            return Ok(StoredBaseline { record: BaselineRecord::default(), version: None });
        };
        let record = serde_json::from_slice(&found.value);
        let record = record.map_err(|_| BaselineError::Unreadable { server: server.clone() })?;
        Ok(StoredBaseline { record, version: Some(found.without_value()) })
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
        for _ in 0..WRITE_CONFLICTS {
            let StoredBaseline { record: before, version } = self.read(server).await?;
            let mut record = before.clone();
            let edited = edit(&mut record);
            if record == before {
                return Ok((StoredBaseline { record, version }, edited));
            }
            let written = self.write(server, &record, version.as_ref()).await?;
            if let Some(written) = written {
                let version = Some(written.without_value());
                return Ok((StoredBaseline { record, version }, edited));
            }
        }
        Err(BaselineError::Sharing(SharingFault::Busy))
    }

    /// Writes a record over the expected one. Returns `None` if there is another one.
    async fn write(
        &self,
        server: &ServerName,
        record: &BaselineRecord,
        expected: Option<&SharedRecord>,
    ) -> Result<Option<SharedRecord>, BaselineError> {
        let place = place_of(server);
        let written = match self.records.write(place, expected, new_record(&encode(record))).await {
            Err(SharingFault::TooLarge { .. }) => {
                let short = encode(&record.clone().without_texts());
                self.records.write(place, expected, new_record(&short)).await
            }
            written => written,
        };
        written.map_err(|fault| match fault {
            SharingFault::TooLarge { bytes, limit } => {
                BaselineError::TooLarge { server: server.clone(), bytes, limit }
            }
            fault => BaselineError::Sharing(fault),
        })
    }
}

fn encode(record: &BaselineRecord) -> Vec<u8> {
    // A record has strings as keys, and nothing else that could fail.
    serde_json::to_vec(record).unwrap_or_default()
}

fn new_record(value: &[u8]) -> NewRecord<'_> {
    NewRecord { value, lifetime: None }
}

fn place_of(server: &ServerName) -> RecordPlace<'_> {
    RecordPlace { kind: SharedRecordKind::Definitions, name: server.as_str() }
}

/// Attempts to write over the records of other replicas.
const WRITE_CONFLICTS: usize = 8;

#[cfg(test)]
mod tests;
