//! The holder of a server's lease, as its record names it.

use super::ServerDigest;
use crate::cluster::ReplicaId;
use crate::shared_records::SharedRecord;

/// The holder of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseHolder {
    /// Its replica.
    pub(super) replica: ReplicaId,
    /// Random bytes. A server that is started again has others.
    pub(super) token: [u8; TOKEN_BYTES],
    /// The digest of the child's settings.
    pub(super) digest: ServerDigest,
}

impl LeaseHolder {
    /// Writes the value of its record.
    pub(super) fn write(&self) -> Vec<u8> {
        [&self.replica.as_bytes()[..], &self.token, &self.digest].concat()
    }

    /// Reads the value of a record; `None` if it is none that a replica writes.
    pub(super) fn read(record: &SharedRecord) -> Option<Self> {
        let (replica, rest) = record.value.split_first_chunk()?;
        let (token, digest) = rest.split_first_chunk()?;
        let digest = digest.try_into().ok()?;
        Some(Self { replica: ReplicaId::new(*replica), token: *token, digest })
    }
}

/// Bytes of a token.
const TOKEN_BYTES: usize = 8;
