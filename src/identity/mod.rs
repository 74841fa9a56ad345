//! From an HTTP request to the principal who sent it.
//!
//! A client sends a key, in `X-API-Key` or as `Authorization: Bearer`; the
//! configuration holds hashes of keys; [`Identity`] finds the client of a key.
//! If no clients are configured, every request belongs to one anonymous
//! principal. Modules that keep state for a principal (sessions, streams, parked
//! calls, private caches) ask [`Identity::knows`] and [`Identity::has`] whether
//! they may still keep it.
//!
//! This module knows who is calling and which profiles they may use, but not
//! what those profiles contain, which is up to `catalog` and `policy`. It removes
//! the key from the headers, so that no later module can forward or log it.
//!
//! The time is an argument everywhere, as time since 1970.

mod api_keys;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::call::{Failure, Grants, Principal, ProfileName};
use crate::config::{ClientConfig, KeyHash};
use crate::crypto::sha256;
use crate::mcp::header::single_value;

pub use api_keys::ApiKey;
use api_keys::ApiKeys;

/// The clients of a configuration, found by their keys.
#[derive(Debug, Default)]
pub struct Identity {
    keys: ApiKeys,
    /// With the profiles that they may use, where these are not all.
    clients: HashMap<Arc<str>, Option<Vec<ProfileName>>>,
}

/// A principal, and the proof it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    principal: Principal,
    grants: Option<Arc<Grants>>,
    proof: Proof,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    /// No proof was required.
    Nothing,
    /// A client's key.
    Key(KeyHash),
    /// The parent process, over standard streams.
    Parent,
}

impl Identity {
    /// The identity of these clients, in place of the one `before`.
    pub fn new(clients: &[ClientConfig], before: &Self) -> Self {
        let keys = ApiKeys::new(clients, &before.keys);
        let entry = |client: &ClientConfig| (Arc::clone(&client.name), client.profiles.clone());
        Self { keys, clients: clients.iter().map(entry).collect() }
    }

    /// Who sent a request with these headers, and takes the key out of them.
    ///
    /// `X-API-Key` counts where both are there: `Authorization` may then be
    /// meant for a server (`forward_headers`), and stays unless it holds a
    /// key of this gateway.
    ///
    /// # Errors
    /// [`Failure::KeyMissing`], [`Failure::KeyUnknown`] and [`Failure::KeyExpired`], where there are
    /// clients.
    pub fn identify(
        &self,
        headers: &mut HeaderMap,
        now: impl FnOnce() -> Duration,
    ) -> Result<Credential, Failure> {
        if self.keys.is_empty() {
            return Ok(Credential::anonymous());
        }
        let hash = KeyHash::new(sha256(&take_key(headers)?));
        let key = self.keys.find(&hash).ok_or(Failure::KeyUnknown)?;
        let now = now();
        if key.is_expired(now) {
            return Err(Failure::KeyExpired);
        }
        key.record_use(now);
        self.remove_shown_key(headers);
        let principal = Principal::Client(Arc::clone(&key.client));
        Ok(Credential { principal, grants: key.grants.clone(), proof: Proof::Key(hash) })
    }

    /// Removes `Authorization` if it holds a key of this gateway, in whatever scheme: it is not
    /// meant for a server then. Credentials of many parts, each of which would have to be hashed,
    /// are removed as well.
    fn remove_shown_key(&self, headers: &mut HeaderMap) {
        let is_key = |token: &[u8]| {
            token.len() <= LONGEST && self.keys.find(&KeyHash::new(sha256(token))).is_some()
        };
        // A scheme, and a token or parameters (RFC 9110, section 11.4).
        let separates = |byte: &u8| byte.is_ascii_whitespace() || b",;\"".contains(byte);
        let holds_key = |value: &HeaderValue| {
            let value = value.as_bytes();
            let mut parts = value.split(separates).filter(|part| !part.is_empty());
            let shows_key = |part: &[u8]| {
                let value = part.splitn(2, |byte| *byte == b'=').nth(1);
                is_key(part) || value.is_some_and(is_key)
            };
            let shown = is_key(value) || parts.by_ref().take(MOST_PARTS).any(shows_key);
            shown || parts.next().is_some()
        };
        if headers.get_all(header::AUTHORIZATION).iter().any(holds_key) {
            headers.remove(header::AUTHORIZATION);
        }
    }

    /// Whether a credential that was accepted before is still valid.
    pub fn knows(&self, credential: &Credential, now: Duration) -> bool {
        match &credential.proof {
            Proof::Key(hash) => self.keys.find(hash).is_some_and(|key| {
                // What was granted anew takes effect with the next request, or the next stream.
                *key.client == *credential.principal.as_str()
                    && !key.is_expired(now)
                    && key.grants == credential.grants
            }),
            Proof::Nothing => self.keys.is_empty(),
            Proof::Parent => true,
        }
    }

    /// When a credential ends by itself.
    pub fn expiry(&self, credential: &Credential) -> Option<Duration> {
        match &credential.proof {
            Proof::Key(hash) => self.keys.find(hash).and_then(|key| key.expires),
            Proof::Nothing | Proof::Parent => None,
        }
    }

    /// The key of this hash.
    pub fn key(&self, hash: &KeyHash) -> Option<&ApiKey> {
        self.keys.find(hash)
    }

    /// Whether the principal still exists, with whatever key: a client's sessions outlive the key
    /// that they were opened with.
    pub fn has(&self, credential: &Credential) -> bool {
        match &credential.principal {
            Principal::Client(name) => self.lists(name),
            Principal::Anonymous => credential.proof == Proof::Parent || self.keys.is_empty(),
        }
    }

    /// Whether there is a client of this name.
    pub fn lists(&self, client: &str) -> bool {
        self.clients.contains_key(client)
    }

    /// Whether a principal may use a profile, if there is one of that name.
    pub fn allows(&self, principal: &Principal, profile: &str) -> bool {
        match principal {
            Principal::Client(name) => self.clients.get(name).is_some_and(|profiles| {
                profiles.as_ref().is_none_or(|all| all.iter().any(|one| one.as_str() == profile))
            }),
            Principal::Anonymous => true,
        }
    }

    /// Whether a principal was served at a profile: without clients, everybody was.
    pub fn served(&self, principal: &Principal, profile: &str) -> bool {
        match principal {
            Principal::Client(_) => self.allows(principal, profile),
            Principal::Anonymous => self.clients.is_empty(),
        }
    }
}

impl Credential {
    /// Any client of a gateway that requires no key.
    fn anonymous() -> Self {
        Self::without_grants(Proof::Nothing)
    }

    /// The process that started the gateway and talks to it over standard streams: it could read
    /// the configuration as well.
    pub fn parent() -> Self {
        Self::without_grants(Proof::Parent)
    }

    fn without_grants(proof: Proof) -> Self {
        Self { principal: Principal::Anonymous, grants: None, proof }
    }

    /// The kind of proof, and what tells it from others of its kind, without the secret: the first
    /// digits of a key's SHA-256.
    pub fn describe(&self) -> (&'static str, Option<String>) {
        match &self.proof {
            Proof::Nothing => ("none", None),
            Proof::Key(hash) => ("key", Some(hash.abbreviation())),
            Proof::Parent => ("parent", None),
        }
    }

    /// Who it is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What the principal was granted, if anything.
    pub fn grants(&self) -> Option<&Arc<Grants>> {
        self.grants.as_ref()
    }
}

/// The key of a request. Duplicate headers count as none: an intermediary may have acted on
/// another value.
fn take_key(headers: &mut HeaderMap) -> Result<Vec<u8>, Failure> {
    let (name, value) = if let Some(value) = single(headers, &API_KEY)? {
        (API_KEY, Some(value))
    } else {
        let value = single(headers, &header::AUTHORIZATION)?;
        (header::AUTHORIZATION, value.and_then(bearer))
    };
    let key = match value {
        Some(key) if key.len() > LONGEST => return Err(Failure::KeyUnknown),
        Some(key) if !key.is_empty() => key.to_vec(),
        _ => return Err(Failure::KeyMissing),
    };
    headers.remove(name);
    Ok(key)
}

/// A header that may be sent only once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Failure> {
    let value = single_value(headers, name).map_err(|_| Failure::KeyUnknown)?;
    Ok(value.map(HeaderValue::as_bytes))
}

/// The token of a `Bearer` credential (RFC 6750, 2.1); the scheme in any case
/// (RFC 9110, 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME) && !token.is_empty()).then_some(token)
}

/// The header that carries a key and nothing else.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The scheme of a bearer token, with the space behind it.
const SCHEME: &[u8] = b"Bearer ";
/// The longest key that is hashed, in bytes.
const LONGEST: usize = 512;
/// The most parts of credentials that are looked at.
const MOST_PARTS: usize = 64;

#[cfg(test)]
mod tests;
