//! Records that several gateways share: grants, locks for their renewal, logins in progress, and state of the
//! gateway itself. The store is outside of this crate.
//!
//! A record is written only over the one that its writer has read, so that of two gateways that write
//! at once, one succeeds. The method `edit` repeats the change of the other one.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::crypto::NONCE_LEN;

/// A store of records, sealed for the gateways that share it.
#[async_trait]
pub trait SharedRecords: fmt::Debug + Send + Sync {
    /// Returns a record; `None` if there is none.
    async fn read(&self, place: RecordPlace<'_>) -> Result<Option<SharedRecord>, SharingFault>;

    /// Returns a record [without its value](SharedRecord::without_value), which differs after each write.
    async fn read_version(
        &self,
        place: RecordPlace<'_>,
    ) -> Result<Option<SharedRecord>, SharingFault> {
        Ok(self.read(place).await?.map(SharedRecord::without_value))
    }

    /// Writes a record over the expected one (`None`: if it is absent), and returns it. Returns `None`,
    /// and writes nothing, if there is another one.
    async fn write(
        &self,
        place: RecordPlace<'_>,
        expected: Option<&SharedRecord>,
        new: NewRecord<'_>,
    ) -> Result<Option<SharedRecord>, SharingFault>;

    /// Removes a record. Returns false if there is another one, or none.
    async fn remove(
        &self,
        place: RecordPlace<'_>,
        expected: &SharedRecord,
    ) -> Result<bool, SharingFault>;
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedRecordKind {
    /// A grant. It does not expire.
    Grant,
    /// The lock of a grant during its renewal.
    Renewal,
    /// A link to log in by, or to see connections.
    Link,
    /// A login that waits for the response of the authorization server.
    Login,
    /// A browser that the gateway knows.
    Browser,
    /// The accepted definitions of a server. They do not expire.
    Definitions,
    /// The last known lists of a server.
    Lists,
    /// The servers that operators have disabled. They do not expire.
    DisabledServers,
    /// The replica that runs the only child of a server.
    ServerLease,
}

/// The kind and the name of a record. The store learns only a digest of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace<'a> {
    /// The kind.
    pub kind: SharedRecordKind,
    /// The name.
    pub name: &'a str,
}

/// A record in the store.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedRecord {
    /// The value; empty if it is sealed with a key that this gateway does not have. Never logged.
    pub value: Vec<u8>,
    /// The sealed bytes in the store, or their beginning.
    pub sealed: Vec<u8>,
}

/// A record to write.
#[derive(Clone, Copy)]
pub struct NewRecord<'a> {
    /// The value.
    pub value: &'a [u8],
    /// The time until it expires; `None` for a record that stays.
    pub lifetime: Option<Duration>,
}

/// A change of a record by an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordEdit {
    /// None.
    Keep,
    /// Writes the record, whether there is one or not.
    Write {
        /// The value.
        value: Vec<u8>,
        /// The time until it expires; `None` for a record that stays.
        lifetime: Option<Duration>,
    },
    /// Removes the record if there is one.
    Remove,
}

/// Reasons that a record is not read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SharingFault {
    /// The store cannot be reached.
    #[error("the store that the gateway's replicas share cannot be reached: try again later")]
    Unavailable,
    /// The record is too large for the store.
    #[error(
        "the record has {bytes} bytes, and the store of the gateway's replicas takes at most {limit}"
    )]
    TooLarge {
        /// Its size, sealed.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Other replicas have been changing the record for too long.
    #[error("another replica of the gateway is changing the same record: try again later")]
    Busy,
}

impl dyn SharedRecords {
    /// Reads a record, and changes it as `edit` decides. If another replica changes it meanwhile, `edit`
    /// is repeated with the result of that. Returns the record that the store has then, with the output
    /// of `edit`.
    ///
    /// # Errors
    /// That of `edit`, or a [`SharingFault`]: nothing is changed, unless the store has failed during the
    /// change.
    pub async fn edit<T, E: From<SharingFault>>(
        &self,
        place: RecordPlace<'_>,
        edit: impl Fn(Option<&SharedRecord>) -> Result<(RecordEdit, T), E>,
    ) -> Result<(Option<SharedRecord>, T), E> {
        for _ in 0..MAX_EDITS {
            let found = self.read(place).await?;
            let (change, output) = edit(found.as_ref())?;
            match (change, &found) {
                (RecordEdit::Keep, _) | (RecordEdit::Remove, None) => return Ok((found, output)),
                (RecordEdit::Write { value, lifetime }, _) => {
                    let new = NewRecord { value: &value, lifetime };
                    if let Some(written) = self.write(place, found.as_ref(), new).await? {
                        return Ok((Some(written), output));
                    }
                }
                (RecordEdit::Remove, Some(record)) => {
                    if self.remove(place, record).await? {
                        return Ok((None, output));
                    }
                }
            }
        }
        Err(SharingFault::Busy.into())
    }
}

impl SharedRecord {
    /// Returns the record without its value, and the beginning of its sealed bytes, which is a random
    /// nonce: enough to compare it, and to write over it.
    #[must_use]
    pub fn without_value(mut self) -> Self {
        self.value = Vec::new();
        self.sealed.truncate(NONCE_LEN);
        self
    }
}

impl fmt::Debug for SharedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedRecord({} bytes)", self.sealed.len())
    }
}

/// Attempts to change a record that other replicas change, too.
const MAX_EDITS: usize = 8;

#[cfg(any(test, feature = "test-support"))]
pub mod test_records;

#[cfg(test)]
mod tests;
