//! Encryption of stored lists, bound to the configuration of their server.
//!
//! The fingerprint of a configuration is keyed, because it covers secrets. It reveals nothing about
//! them to a reader of the file.

use aws_lc_rs::hmac::{self, HMAC_SHA256};

use crate::config::ServerConfig;
use crate::crypto::{SealError, Sealer, derive_key};

use super::StoreFault;
use super::fingerprint::{Fingerprint, fingerprint};

/// Keys of a store, newest first. The first one seals, all of them open.
pub(super) struct StoreKeys(Vec<StoreKey>);

struct StoreKey {
    sealer: Sealer,
    digest: hmac::Key,
}

impl StoreKeys {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, SealError> {
        let key = |secret| {
            let digest = hmac::Key::new(HMAC_SHA256, &derive_key(DIGEST_PURPOSE, secret));
            Ok::<_, SealError>(StoreKey { sealer: Sealer::new(SEAL_PURPOSE, [secret])?, digest })
        };
        Ok(Self(secrets.into_iter().map(key).collect::<Result<_, _>>()?))
    }

    /// Returns the contents of a server's file.
    pub(super) fn seal(
        &self,
        config: &ServerConfig,
        record: Vec<u8>,
    ) -> Result<Vec<u8>, SealError> {
        let key = self.0.first().ok_or(SealError)?;
        let head = head(&fingerprint(&key.digest, config));
        let sealed = key.sealer.seal(&head, record)?;
        Ok([head, sealed].concat())
    }

    /// Returns the record in a server's file, if it was sealed for this configuration.
    pub(super) fn open(&self, config: &ServerConfig, file: &[u8]) -> Result<Vec<u8>, StoreFault> {
        let rest = file.strip_prefix(LISTS_MAGIC).ok_or(StoreFault::Format)?;
        let (found, sealed) = rest.split_first_chunk().ok_or(StoreFault::Damaged)?;
        let is_meant = |key: &&StoreKey| fingerprint(&key.digest, config) == *found;
        let key = self.0.iter().find(is_meant).ok_or(StoreFault::Configuration)?;
        key.sealer.open(&head(found), sealed).ok_or(StoreFault::Damaged)
    }
}

impl std::fmt::Debug for StoreKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreKeys({})", self.0.len())
    }
}

fn head(fingerprint: &Fingerprint) -> Vec<u8> {
    [LISTS_MAGIC, fingerprint].concat()
}

/// Beginning of every file. The number is that of the format.
const LISTS_MAGIC: &[u8] = b"trunkline lists 1\n";
/// Number of bytes before the sealed part.
#[cfg(test)]
pub(super) const HEAD_BYTES: usize = LISTS_MAGIC.len() + 32;
/// Maximum number of bytes of a file besides the record.
pub(super) const FILE_OVERHEAD_BYTES: usize = 1024;
const SEAL_PURPOSE: &[u8] = b"trunkline kept lists key\n";
const DIGEST_PURPOSE: &[u8] = b"trunkline kept lists configuration\n";

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    /// The fingerprint is read from the file, because new settings change it.
    #[test]
    fn a_file_that_was_sealed_by_an_earlier_version_is_opened() {
        let keys = StoreKeys::new([&b"a state key"[..]]).unwrap();
        let StoreKey { sealer, digest } = &keys.0[0];
        let file = HEXLOWER.decode(FILE.as_bytes()).unwrap();
        let (head, sealed) = file.split_at(HEAD_BYTES);
        assert_eq!(sealer.open(head, sealed).unwrap(), b"lists of a server");
        assert_eq!(HEXLOWER.encode(hmac::sign(digest, b"configuration").as_ref()), DIGEST);
    }

    /// A file, and the digest of a text, as the version before the common sealer made them.
    const FILE: &str = "7472756e6b6c696e65206c6973747320310ace6fb22c941b63332f4b5ffa1becbeea5b5c65c30b128e830d4081ccf16fa6c4ced4e2fd8669ece15548c5e88187b580970c3e6a976df33f0068e6bbf1ddc4595ed23064523b17f86137488e62";
    const DIGEST: &str = "c85770cac0577a0453e87e1c1bc56e2f8fa1affaa622ffa4abe8073119ab36a5";
}
