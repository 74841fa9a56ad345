//! The cache of verified tokens, by fingerprint.
//!
//! A fingerprint is a 128-bit SipHash-2-4 under a random key that is made with each configuration
//! and never leaves the process. SipHash is a pseudorandom function: without the key, finding a
//! text with the fingerprint of another one amounts to forging a message authentication code, with
//! a chance of 2⁻¹²⁸ for each token in the cache and each request. The time of a lookup reveals
//! nothing either, since the sender of a text cannot compute its fingerprint. SHA-256, which needs
//! no key, takes seven times as many instructions on a processor without instructions for it. It is
//! computed once for each token, for its identifier in the audit log. The text of the token is not
//! kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use siphasher::sip128::SipHasher24;

use crate::call::{CallerToken, Grants, Principal, TokenFault};
use crate::crypto::random_bytes;
use crate::identity::resource::ProtectedResource;

use super::TokenIssuer;
use super::claims::{self, CheckedClaims};
use super::jwt::ParsedToken;
use super::key_set::KeySet;
use super::scopes::own_names;

/// A verified token. Its text is kept only if a server exchanges it.
pub(crate) struct VerifiedToken {
    pub(crate) principal: Principal,
    pub(crate) grants: Arc<Grants>,
    pub(crate) issuer: Arc<TokenIssuer>,
    /// The end of its validity, as time since 1970.
    pub(crate) ends: Duration,
    audiences: Vec<String>,
    digest: [u8; 32],
    label: Arc<str>,
    /// The key set that verified it.
    keys: Arc<KeySet>,
}

/// A token whose claims were checked.
pub(super) struct CheckedToken<'a> {
    pub(super) token: &'a ParsedToken<'a>,
    /// The SHA-256 of the token.
    pub(super) digest: &'a [u8; 32],
    pub(super) claims: CheckedClaims,
}

impl VerifiedToken {
    pub(super) fn new(
        issuer: &Arc<TokenIssuer>,
        checked: CheckedToken<'_>,
        keys: Arc<KeySet>,
    ) -> Arc<Self> {
        let CheckedToken { token, digest, claims: checked } = checked;
        let (config, claims) = (&issuer.config, &token.claims);
        let CheckedClaims { subject, audiences, ends } = checked;
        let scopes = own_names(config, claims::scopes(config, claims));
        let grants = Grants {
            groups: claims::groups(config, claims),
            scopes: issuer.ranks.expand(scopes),
            claims: claims.clone(),
            token: issuer.keeps_texts.then(|| CallerToken::new(token.text(), *digest)),
        };
        let [first, second, third, fourth, ..] = *digest;
        let digits = HEXLOWER.encode(&[first, second, third, fourth]);
        Arc::new(Self {
            principal: Principal::User(format!("{}:{subject}", config.name).into()),
            grants: Arc::new(grants),
            issuer: Arc::clone(issuer),
            ends,
            audiences,
            digest: *digest,
            label: format!("{}:{digits}", config.name).into(),
            keys,
        })
    }

    pub(super) fn is_expired(&self, now: Duration) -> bool {
        self.ends <= now
    }

    /// Returns true if the issuer's keys are still those that verified it.
    pub(super) fn has_current_key(&self) -> bool {
        self.issuer.keys.current().is_some_and(|keys| Arc::ptr_eq(&keys, &self.keys))
    }

    pub(super) fn check_resource(&self, resource: &ProtectedResource) -> Result<(), TokenFault> {
        claims::check_audience(&self.issuer.config, &self.audiences, resource)
    }

    /// Returns its identifier in the audit log: its issuer, and the first digits of its SHA-256.
    pub(crate) fn describe(&self) -> &Arc<str> {
        &self.label
    }
}

impl PartialEq for VerifiedToken {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for VerifiedToken {}

impl fmt::Debug for VerifiedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifiedToken({})", self.describe())
    }
}

/// Tokens verified under one configuration: as many as fit into [`MAX_VERIFIED_BYTES`].
pub(super) struct VerifiedTokens {
    /// Computes fingerprints; `None` if the system has no random bytes for its key, so that nothing
    /// is cached.
    fingerprints: Option<SipHasher24>,
    shelves: [Mutex<TokenShelf>; SHELF_COUNT],
}

/// The key of a token in the cache.
type Fingerprint = u128;

#[derive(Default)]
struct TokenShelf {
    tokens: HashMap<Fingerprint, SizedToken, foldhash::fast::RandomState>,
    /// The sum of their sizes.
    bytes: usize,
}

/// A token with its approximate size.
struct SizedToken {
    token: Arc<VerifiedToken>,
    bytes: usize,
}

impl VerifiedTokens {
    pub(super) fn new() -> Self {
        let key = random_bytes::<16>().ok();
        let fingerprints = key.map(|key| SipHasher24::new_with_key(&key));
        Self { fingerprints, shelves: Default::default() }
    }

    pub(super) fn find(&self, text: &[u8]) -> Option<Arc<VerifiedToken>> {
        let (fingerprint, place) = self.place_of(text)?;
        place.lock().tokens.get(&fingerprint).map(|sized| Arc::clone(&sized.token))
    }

    /// Caches a token. If there is no room, expired ones are dropped, or otherwise the whole shelf:
    /// those are verified again.
    pub(super) fn insert(&self, text: &[u8], token: Arc<VerifiedToken>, now: Duration) {
        let Some((fingerprint, place)) = self.place_of(text) else { return };
        let kept_text = token.grants.token.as_ref().map_or(0, |_| text.len());
        let bytes = text.len() + kept_text + TOKEN_OVERHEAD_BYTES;
        let mut kept = place.lock();
        if kept.bytes + bytes > MAX_VERIFIED_BYTES / SHELF_COUNT {
            kept.tokens.retain(|_, sized| !sized.token.is_expired(now));
            kept.bytes = kept.tokens.values().map(|sized| sized.bytes).sum();
        }
        if kept.bytes + bytes > MAX_VERIFIED_BYTES / SHELF_COUNT {
            kept.tokens.clear();
            kept.bytes = 0;
        }
        kept.bytes += bytes;
        if let Some(same) = kept.tokens.insert(fingerprint, SizedToken { token, bytes }) {
            kept.bytes -= same.bytes;
        }
    }

    pub(super) fn fingerprint(&self, text: &[u8]) -> Option<Fingerprint> {
        Some(self.fingerprints.as_ref()?.hash(text).as_u128())
    }

    fn place_of(&self, text: &[u8]) -> Option<(Fingerprint, &Mutex<TokenShelf>)> {
        let fingerprint = self.fingerprint(text)?;
        let [first, ..] = fingerprint.to_le_bytes();
        Some((fingerprint, self.shelves.get(usize::from(first) % SHELF_COUNT)?))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.lock().tokens.len()).sum()
    }
}

impl fmt::Debug for VerifiedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifiedTokens")
    }
}

/// Number of shelves. Each has its own lock, so that threads rarely wait for one another.
const SHELF_COUNT: usize = 16;
/// Limit of the bytes of tokens.
pub(super) const MAX_VERIFIED_BYTES: usize = 32 << 20;
/// Memory of a token besides its text.
const TOKEN_OVERHEAD_BYTES: usize = 512;
