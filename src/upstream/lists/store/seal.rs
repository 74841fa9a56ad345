//! Encryption of stored lists, bound to the configuration of their server.
//!
//! The fingerprint of a configuration is keyed, because it covers secrets. It reveals nothing about
//! them to a reader of the file.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac::{self, HMAC_SHA256};

use crate::config::ServerConfig;

use super::StoreFault;
use super::fingerprint::{Fingerprint, fingerprint};

/// Keys of a store, newest first. The first one seals, all of them open.
pub(super) struct StoreKeys(Vec<StoreKey>);

struct StoreKey {
    seal: RandomizedNonceKey,
    digest: hmac::Key,
}

impl StoreKeys {
    pub(super) fn new<'a>(
        secrets: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, Unspecified> {
        let derive = |purpose, secret| {
            let purpose = hmac::Key::new(HMAC_SHA256, purpose);
            hmac::sign(&purpose, secret)
        };
        let key = |secret| {
            let digest = hmac::Key::new(HMAC_SHA256, derive(DIGEST_PURPOSE, secret).as_ref());
            let seal =
                RandomizedNonceKey::new(&AES_256_GCM, derive(SEAL_PURPOSE, secret).as_ref())?;
            Ok::<_, Unspecified>(StoreKey { seal, digest })
        };
        Ok(Self(secrets.into_iter().map(key).collect::<Result<_, _>>()?))
    }

    /// Returns the contents of a server's file.
    pub(super) fn seal(
        &self,
        config: &ServerConfig,
        mut record: Vec<u8>,
    ) -> Result<Vec<u8>, Unspecified> {
        let key = self.0.first().ok_or(Unspecified)?;
        let head = head(&fingerprint(&key.digest, config));
        let nonce = key.seal.seal_in_place_append_tag(Aad::from(&head), &mut record)?;
        Ok([&head, nonce.as_ref().as_slice(), &record].concat())
    }

    /// Returns the record in a server's file, if it was sealed for this configuration.
    pub(super) fn open(&self, config: &ServerConfig, file: &[u8]) -> Result<Vec<u8>, StoreFault> {
        let rest = file.strip_prefix(MAGIC).ok_or(StoreFault::Format)?;
        let (found, rest) = rest.split_first_chunk().ok_or(StoreFault::Damaged)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(StoreFault::Damaged)?;
        let is_meant = |key: &&StoreKey| fingerprint(&key.digest, config) == *found;
        let key = self.0.iter().find(is_meant).ok_or(StoreFault::Configuration)?;
        let mut sealed = sealed.to_vec();
        let head = head(found);
        let opened = key.seal.open_in_place(Nonce::from(nonce), Aad::from(&head), &mut sealed);
        let length = opened.map_err(|_| StoreFault::Damaged)?.len();
        sealed.truncate(length);
        Ok(sealed)
    }
}

impl std::fmt::Debug for StoreKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreKeys({})", self.0.len())
    }
}

fn head(fingerprint: &Fingerprint) -> Vec<u8> {
    [MAGIC, fingerprint].concat()
}

/// Beginning of every file. The number is that of the format.
const MAGIC: &[u8] = b"trunkline lists 1\n";
/// Number of bytes before the sealed part.
#[cfg(test)]
pub(super) const HEAD: usize = MAGIC.len() + 32;
/// Maximum number of bytes of a file besides the record.
pub(super) const OVERHEAD: usize = 1024;
const SEAL_PURPOSE: &[u8] = b"trunkline kept lists key\n";
const DIGEST_PURPOSE: &[u8] = b"trunkline kept lists configuration\n";
