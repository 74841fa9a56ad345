//! The sealer, SHA-256, BLAKE2b and random bytes, for every module that needs them.
//!
//! Other modules call the cipher library (`aws_lc_rs`) themselves for their signatures and keyed
//! digests: HMAC in `era`, `upstream` and `telemetry`, signatures in `upstream`. This module knows
//! no configuration and no protocol;
//! hexadecimal and Base64 text is written by `data_encoding` and `base64`.

mod sealer;

use std::io;

use aws_lc_rs::digest::{SHA256, digest};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

pub use sealer::{NONCE_LEN, SealError, Sealer, derive_key};

/// The SHA-256 of these bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// The BLAKE2b of these bytes, with 256 bits (RFC 7693).
pub fn blake2b_256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(blake2b_simd::Params::new().hash_length(32).hash(bytes).as_bytes());
    hash
}

/// Cryptographically secure random bytes from the operating system. The cipher library's own
/// generator takes 20 ms to start, too long for the start of a gateway.
///
/// # Errors
/// The system's error, if it has no random bytes.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        filled += retry_on_intr(|| getrandom(&mut *rest, GetRandomFlags::empty()))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_do_not_repeat() {
        let all: std::collections::HashSet<[u8; 16]> =
            (0..64).map(|_| random_bytes().unwrap()).collect();
        assert_eq!(all.len(), 64);
        // More than the system returns in one piece.
        let long: [u8; 1024] = random_bytes().unwrap();
        assert!(long.chunks(16).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
    }
}
