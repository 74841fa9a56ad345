//! Tokens that were verified, by their digests.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;

use crate::call::{CallerToken, Grants, Principal, TokenFault};
use crate::identity::resource::ProtectedResource;

use super::TokenIssuer;
use super::claims::{self, CheckedClaims};
use super::jwt::ParsedToken;
use super::key_set::KeySet;
use super::scopes::own_names;

/// A token that was verified. Its text is kept only where a server exchanges it.
pub(in crate::identity) struct VerifiedToken {
    pub(in crate::identity) principal: Principal,
    pub(in crate::identity) grants: Arc<Grants>,
    pub(in crate::identity) issuer: Arc<TokenIssuer>,
    /// From when on it is refused, as time since 1970.
    pub(in crate::identity) ends: Duration,
    audiences: Vec<String>,
    digest: [u8; 32],
    /// The keys with one of which it was verified.
    keys: Arc<KeySet>,
}

impl VerifiedToken {
    pub(super) fn new(
        issuer: &Arc<TokenIssuer>,
        token: &ParsedToken<'_>,
        (digest, checked): (&[u8; 32], CheckedClaims),
        keys: Arc<KeySet>,
    ) -> Arc<Self> {
        let (config, claims) = (&issuer.config, &token.claims);
        let CheckedClaims { subject, audiences, ends } = checked;
        let scopes = own_names(config, claims::scopes(config, claims));
        let grants = Grants {
            groups: claims::groups(config, claims),
            scopes: issuer.ranks.expand(scopes),
            claims: claims.clone(),
            token: issuer.keeps_texts.then(|| CallerToken::new(token.text(), *digest)),
        };
        Arc::new(Self {
            principal: Principal::User(format!("{}:{subject}", config.name).into()),
            grants: Arc::new(grants),
            issuer: Arc::clone(issuer),
            ends,
            audiences,
            digest: *digest,
            keys,
        })
    }

    pub(super) fn is_expired(&self, now: Duration) -> bool {
        self.ends <= now
    }

    /// Whether the issuer's keys are still those that it was verified with.
    pub(super) fn has_current_key(&self) -> bool {
        self.issuer.keys.current().is_some_and(|keys| Arc::ptr_eq(&keys, &self.keys))
    }

    pub(super) fn check_resource(&self, resource: &ProtectedResource) -> Result<(), TokenFault> {
        claims::check_audience(&self.issuer.config, &self.audiences, resource)
    }

    /// What tells it from others in the audit log: its issuer, and the first digits of its SHA-256.
    pub(in crate::identity) fn describe(&self) -> String {
        let [first, second, third, fourth, ..] = self.digest;
        let digits = HEXLOWER.encode(&[first, second, third, fourth]);
        format!("{}:{digits}", self.issuer.config.name)
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

/// The tokens that were verified under one configuration: as many as fit into [`MOST_BYTES`].
#[derive(Default)]
pub(super) struct VerifiedTokens([Mutex<TokenShelf>; SHELVES]);

#[derive(Default)]
struct TokenShelf {
    tokens: HashMap<[u8; 32], SizedToken>,
    /// The sum of their sizes.
    bytes: usize,
}

/// A token with what it takes, about.
struct SizedToken {
    token: Arc<VerifiedToken>,
    bytes: usize,
}

impl VerifiedTokens {
    pub(super) fn find(&self, digest: &[u8; 32]) -> Option<Arc<VerifiedToken>> {
        self.shelf_of(digest)?.lock().tokens.get(digest).map(|sized| Arc::clone(&sized.token))
    }

    /// Remembers a token. Where there is no room, those that have expired are dropped, or else all
    /// of the shelf: they are verified again.
    pub(super) fn insert(
        &self,
        digest: &[u8; 32],
        token: Arc<VerifiedToken>,
        (length, now): (usize, Duration),
    ) {
        let Some(mut kept) = self.shelf_of(digest).map(Mutex::lock) else { return };
        let kept_text = token.grants.token.as_ref().map_or(0, |_| length);
        let bytes = length + kept_text + OVERHEAD;
        if kept.bytes + bytes > MOST_BYTES / SHELVES {
            kept.tokens.retain(|_, sized| !sized.token.is_expired(now));
            kept.bytes = kept.tokens.values().map(|sized| sized.bytes).sum();
        }
        if kept.bytes + bytes > MOST_BYTES / SHELVES {
            kept.tokens.clear();
            kept.bytes = 0;
        }
        kept.bytes += bytes;
        if let Some(same) = kept.tokens.insert(*digest, SizedToken { token, bytes }) {
            kept.bytes -= same.bytes;
        }
    }

    fn shelf_of(&self, digest: &[u8; 32]) -> Option<&Mutex<TokenShelf>> {
        let [first, ..] = digest;
        self.0.get(usize::from(*first) % SHELVES)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|shelf| shelf.lock().tokens.len()).sum()
    }
}

impl fmt::Debug for VerifiedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifiedTokens")
    }
}

/// Each has its own lock, so that threads rarely wait for one another.
const SHELVES: usize = 16;
/// The most bytes of tokens.
pub(super) const MOST_BYTES: usize = 32 << 20;
/// What a token takes besides its text.
const OVERHEAD: usize = 512;
