//! Ids of replicas.

use std::fmt;

use data_encoding::HEXLOWER;

/// The id of a replica: random at each start, so that a gateway that was restarted is another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId([u8; Self::ID_BYTES]);

impl ReplicaId {
    /// Bytes of an id.
    pub const ID_BYTES: usize = 8;

    /// Wraps random bytes.
    pub fn new(bytes: [u8; Self::ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// Parses the hexadecimal digits of an id.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; Self::ID_BYTES] {
        &self.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplicaId({self})")
    }
}
