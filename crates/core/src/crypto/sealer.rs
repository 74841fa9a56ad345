//! Seals bytes so that only the owners of a secret can read or change them (AES-256-GCM with random
//! nonces).
//!
//! A sealer has one purpose, from which its keys are derived: bytes that were sealed for one
//! purpose cannot be opened for another, even if both share their secrets.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac::{self, HMAC_SHA256};

pub use aws_lc_rs::aead::NONCE_LEN;

use super::sha256;

/// Seals with the first of its keys, and opens with any of them.
pub struct Sealer {
    /// The newest first.
    keys: Vec<RandomizedNonceKey>,
    /// Keys of an earlier derivation, which only open.
    earlier: Vec<RandomizedNonceKey>,
}

/// Error of the cryptographic library, or of a sealer without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cryptographic library cannot seal")]
pub struct SealError;

impl From<Unspecified> for SealError {
    fn from(_: Unspecified) -> Self {
        Self
    }
}

impl Sealer {
    /// Derives a key for this purpose from each secret, the newest first.
    ///
    /// # Errors
    /// [`SealError`] if the library refuses a key, which should not happen.
    pub fn new<'a>(
        purpose: &[u8],
        secrets: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, SealError> {
        let keys = secrets.into_iter().map(|secret| new_key(derive_key(purpose, secret)));
        Ok(Self { keys: keys.collect::<Result<_, _>>()?, earlier: Vec::new() })
    }

    /// Also opens bytes whose key is the SHA-256 of this purpose and a secret.
    ///
    /// # Errors
    /// [`SealError`], as for [`Self::new`].
    pub fn accepting_sha256<'a>(
        mut self,
        purpose: &[u8],
        secrets: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, SealError> {
        let keys = secrets.into_iter().map(|secret| new_key(sha256(&[purpose, secret].concat())));
        self.earlier = keys.collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Seals bytes: a nonce of [`NONCE_LEN`] bytes, and the encrypted bytes with their tag. They can
    /// be opened only with the same associated data, which are not part of the result.
    ///
    /// # Errors
    /// [`SealError`] without a key, or if the library has no random numbers.
    pub fn seal(&self, associated: &[u8], mut bytes: Vec<u8>) -> Result<Vec<u8>, SealError> {
        let key = self.keys.first().ok_or(SealError)?;
        let (nonce, tag) = key.seal_in_place_separate_tag(Aad::from(associated), &mut bytes)?;
        Ok([nonce.as_ref().as_slice(), &bytes, tag.as_ref()].concat())
    }

    /// Opens sealed bytes. Returns `None` if they were changed, or were sealed with another key or
    /// other associated data.
    pub fn open(&self, associated: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        self.keys.iter().chain(&self.earlier).find_map(|key| {
            let mut bytes = sealed.to_vec();
            let opened =
                key.open_in_place(Nonce::from(nonce), Aad::from(associated), &mut bytes).ok()?;
            let length = opened.len();
            bytes.truncate(length);
            Some(bytes)
        })
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer({})", self.keys.len())
    }
}

/// Derives a key for this purpose from a secret of any length.
pub fn derive_key(purpose: &[u8], secret: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(hmac::sign(&hmac::Key::new(HMAC_SHA256, purpose), secret).as_ref());
    key
}

fn new_key(key: [u8; 32]) -> Result<RandomizedNonceKey, SealError> {
    Ok(RandomizedNonceKey::new(&AES_256_GCM, &key)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(purpose: &[u8], secrets: &[&str]) -> Sealer {
        Sealer::new(purpose, secrets.iter().map(|secret| secret.as_bytes())).unwrap()
    }

    #[test]
    fn a_sealer_of_another_purpose_secret_or_binding_opens_nothing() {
        let sealed = sealer(b"one", &["secret"]).seal(b"row", b"text".to_vec()).unwrap();
        assert_eq!(sealer(b"one", &["secret"]).open(b"row", &sealed).unwrap(), b"text");
        assert!(sealer(b"two", &["secret"]).open(b"row", &sealed).is_none());
        assert!(sealer(b"one", &["other"]).open(b"row", &sealed).is_none());
        assert!(sealer(b"one", &["secret"]).open(b"other row", &sealed).is_none());
    }

    #[test]
    fn sealed_bytes_that_were_changed_or_cut_are_not_opened() {
        let sealer = sealer(b"purpose", &["secret"]);
        let text = sealer.seal(b"", b"text".to_vec()).unwrap();
        for place in 0..text.len() {
            let mut changed = text.clone();
            changed[place] ^= 1;
            assert!(sealer.open(b"", &changed).is_none(), "byte {place}");
            assert!(sealer.open(b"", &text[..place]).is_none(), "{place} bytes");
        }
    }

    #[test]
    fn the_newest_secret_seals_and_all_of_them_open() {
        let (old, both) = (sealer(b"", &["one"]), sealer(b"", &["two", "one"]));
        let (by_old, by_both) = (old.seal(b"", vec![1]).unwrap(), both.seal(b"", vec![2]).unwrap());
        assert_eq!(both.open(b"", &by_old), Some(vec![1]));
        assert_eq!(sealer(b"", &["two"]).open(b"", &by_both), Some(vec![2]));
        assert!(old.open(b"", &by_both).is_none());
        assert_eq!(sealer(b"", &[]).seal(b"", vec![1]), Err(SealError));
    }

    #[test]
    fn a_key_of_the_earlier_derivation_only_opens() {
        let earlier = new_key(sha256(b"old purpose, secret")).unwrap();
        let earlier = Sealer { keys: vec![earlier], earlier: Vec::new() };
        let secret = || [&b"secret"[..]];
        let sealer = Sealer::new(b"purpose", secret()).unwrap();
        let text = earlier.seal(b"", vec![1]).unwrap();
        assert!(sealer.open(b"", &text).is_none());
        let sealer = sealer.accepting_sha256(b"old purpose, ", secret()).unwrap();
        assert_eq!(sealer.open(b"", &text), Some(vec![1]));
        assert!(earlier.open(b"", &sealer.seal(b"", vec![2]).unwrap()).is_none());
    }
}
