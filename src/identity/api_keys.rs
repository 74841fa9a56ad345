//! The API keys of `[clients]`, looked up by their SHA-256.
//!
//! Lookup among thousands of keys costs no more than among two. The first eight bytes of the hash
//! select a shelf, and every hash on it is compared in constant time. The time of the selection can
//! reveal bytes of a hash, from which a key cannot be derived: keys are 256 random bits (`trunkline
//! key`), not passwords.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use crate::call::Grants;
use crate::config::{ClientConfig, KeyHash};

use super::tokens::ScopeRanks;

/// Every key of a configuration.
#[derive(Debug, Default)]
pub(super) struct ApiKeys {
    shelves: HashMap<Shelf, Vec<ApiKey>>,
}

/// A key and its client.
#[derive(Debug)]
pub struct ApiKey {
    /// The hash of the key.
    pub hash: KeyHash,
    /// The client.
    pub client: Arc<str>,
    /// Grants of the client, if there are any.
    pub(super) grants: Option<Arc<Grants>>,
    /// Expiry of the key, as time since 1970.
    pub expires: Option<Duration>,
    last_use: Arc<LastUse>,
}

/// The second of the last request, since 1970; zero before the first. A reload keeps it.
type LastUse = AtomicU64;

/// The first bytes of a hash.
type Shelf = [u8; 8];

impl ApiKeys {
    /// Indexes the keys of these clients. Keys that existed `before` keep their last use.
    pub(super) fn new(clients: &[ClientConfig], ranks: &ScopeRanks, before: &Self) -> Self {
        let mut shelves: HashMap<_, Vec<_>> = HashMap::new();
        for client in clients {
            let grants = grants_of(client, ranks).map(Arc::new);
            for key in &client.keys {
                let last_use = before.find(&key.hash).map(|key| Arc::clone(&key.last_use));
                shelves.entry(shelf(&key.hash)).or_default().push(ApiKey {
                    hash: key.hash,
                    client: Arc::clone(&client.name),
                    grants: grants.clone(),
                    expires: key.expires.map(since_1970),
                    last_use: last_use.unwrap_or_default(),
                });
            }
        }
        Self { shelves }
    }

    /// Returns all keys.
    pub(super) fn all(&self) -> impl Iterator<Item = &ApiKey> {
        self.shelves.values().flatten()
    }

    /// Returns true if there are no keys.
    pub(super) fn is_empty(&self) -> bool {
        self.shelves.is_empty()
    }

    /// Returns the key with this hash. Compares it with every key on the shelf, even after a match,
    /// so that the time reveals nothing.
    pub(super) fn find(&self, hash: &KeyHash) -> Option<&ApiKey> {
        let mut found = None;
        for key in self.shelves.get(&shelf(hash)).into_iter().flatten() {
            if verify_slices_are_equal(key.hash.as_bytes(), hash.as_bytes()).is_ok() {
                found = Some(key);
            }
        }
        found
    }
}

impl ApiKey {
    /// Returns true if the key has expired at this time since 1970.
    pub(super) fn is_expired(&self, now: Duration) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }

    /// Records a request with the key at this time since 1970. Writes at most once a second,
    /// because threads share the value.
    pub(super) fn record_use(&self, now: Duration) {
        if self.last_use.load(Ordering::Relaxed) != now.as_secs() {
            self.last_use.store(now.as_secs(), Ordering::Relaxed);
        }
    }

    /// Returns the time of the last use, to the second, as time since 1970.
    pub fn last_use(&self) -> Option<Duration> {
        Some(self.last_use.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Duration::from_secs)
    }
}

pub(super) fn grants_of(client: &ClientConfig, ranks: &ScopeRanks) -> Option<Grants> {
    let (groups, scopes) = (&client.groups, &client.scopes);
    let is_granted = !groups.is_empty() || !scopes.is_empty();
    let groups = groups.iter().map(|name| Arc::from(name.as_str())).collect();
    let scopes = ranks.expand(scopes.iter().map(|name| Arc::from(name.as_str())));
    is_granted.then(|| Grants { groups, scopes, ..Grants::default() })
}

fn shelf(hash: &KeyHash) -> Shelf {
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}

/// Returns zero for a time before 1970.
fn since_1970(time: jiff::Timestamp) -> Duration {
    time.duration_since(jiff::Timestamp::UNIX_EPOCH).try_into().unwrap_or_default()
}
