//! Seals rows. A sealed row names its key, so that keys can be rotated.

use trunkline_config::Secret;
use trunkline_core::crypto::{Sealer, derive_key};
use trunkline_core::text::clip;

use super::VaultFault;

/// The keys of a vault, the newest first: it seals, and all of them open.
pub(super) struct VaultKeys(Vec<VaultKey>);

struct VaultKey {
    id: KeyId,
    sealer: Sealer,
}

/// Identifies a key without revealing it.
type KeyId = [u8; 8];

impl VaultKeys {
    pub(super) fn new(secrets: &[Secret]) -> Result<Self, VaultFault> {
        let key = |secret: &Secret| {
            let secret = secret.expose().as_bytes();
            let sealer = Sealer::new(SEAL_PURPOSE, [secret]).map_err(|_| VaultFault::Cipher)?;
            let id = derive_key(ID_PURPOSE, secret).first_chunk().copied().unwrap_or_default();
            Ok(VaultKey { id, sealer })
        };
        Ok(Self(secrets.iter().map(key).collect::<Result<_, VaultFault>>()?))
    }

    /// Returns true if a row is sealed with the newest key.
    pub(super) fn is_newest(&self, sealed: &[u8]) -> bool {
        let id = sealed.strip_prefix(SEAL_FORMAT).and_then(<[u8]>::first_chunk::<8>);
        id.is_some() && id == self.0.first().map(|key| &key.id)
    }

    /// Seals the value of the row of this name.
    pub(super) fn seal(&self, name: &str, value: Vec<u8>) -> Result<Vec<u8>, VaultFault> {
        let key = self.0.first().ok_or(VaultFault::Cipher)?;
        let sealed = key.sealer.seal(&associated(key.id, name), value);
        Ok([SEAL_FORMAT, &key.id, &sealed.map_err(|_| VaultFault::Cipher)?].concat())
    }

    /// The value of the row of this name.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, VaultFault> {
        let row = || clip(name, MAX_SHOWN_NAME_BYTES).to_owned();
        let damaged = || VaultFault::Sealed { row: row() };
        let rest = sealed.strip_prefix(SEAL_FORMAT).ok_or_else(damaged)?;
        let (id, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let key = self.0.iter().find(|key| key.id == *id);
        let key = key.ok_or_else(|| VaultFault::UnknownKey { row: row() })?;
        key.sealer.open(&associated(key.id, name), rest).ok_or_else(damaged)
    }
}

impl std::fmt::Debug for VaultKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VaultKeys({})", self.0.len())
    }
}

/// The associated data of a sealed value: the format, the key and the row.
fn associated(id: KeyId, name: &str) -> Vec<u8> {
    [SEAL_FORMAT, &id, name.as_bytes()].concat()
}

/// The first byte of every sealed value: the number of the format.
const SEAL_FORMAT: &[u8] = &[1];
const SEAL_PURPOSE: &[u8] = b"trunkline vault key\n";
const ID_PURPOSE: &[u8] = b"trunkline vault key id\n";
/// The most bytes of a row's name in an error.
const MAX_SHOWN_NAME_BYTES: usize = 300;
