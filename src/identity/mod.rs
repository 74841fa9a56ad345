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
//! A key is looked up by its SHA-256, so that finding it among thousands costs
//! no more than among two. The first eight bytes of the hash select a shelf, and
//! every hash on it is compared in constant time. The time of the selection can
//! reveal bytes of a hash, from which a key cannot be derived: keys are 256
//! random bits (`trunkline key`), not passwords.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::call::{Failure, Principal, ProfileName};
use crate::config::{ClientConfig, KeyHash};
use crate::crypto::sha256;
use crate::mcp::header::single_value;

/// The clients of a configuration, found by their keys.
#[derive(Debug, Default)]
pub struct Identity {
    shelves: HashMap<Shelf, Vec<Known>>,
    /// With the profiles that they may use, where these are not all.
    clients: HashMap<Arc<str>, Option<Vec<ProfileName>>>,
}

/// A principal, and the proof it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    principal: Principal,
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

#[derive(Debug)]
struct Known {
    key: KeyHash,
    client: Arc<str>,
}

/// The first bytes of a hash.
type Shelf = [u8; 8];

impl Identity {
    /// Indexes these clients by their keys.
    pub fn new(clients: &[ClientConfig]) -> Self {
        let mut shelves: HashMap<_, Vec<_>> = HashMap::new();
        for client in clients {
            for key in &client.keys {
                let known = Known { key: *key, client: Arc::clone(&client.name) };
                shelves.entry(shelf(key)).or_default().push(known);
            }
        }
        let entry = |client: &ClientConfig| (Arc::clone(&client.name), client.profiles.clone());
        let clients = clients.iter().map(entry).collect();
        Self { shelves, clients }
    }

    /// Who sent a request with these headers, and takes the key out of them.
    ///
    /// `X-API-Key` counts where both are there: `Authorization` may then be
    /// meant for a server (`forward_headers`), and stays unless it holds a
    /// key of this gateway.
    ///
    /// # Errors
    /// [`Failure::KeyMissing`] and [`Failure::KeyUnknown`], where there are clients.
    pub fn identify(&self, headers: &mut HeaderMap) -> Result<Credential, Failure> {
        if self.shelves.is_empty() {
            return Ok(Credential::anonymous());
        }
        let key = take_key(headers)?;
        let key = KeyHash::new(sha256(&key));
        match self.owner(&key) {
            Some(client) => {
                let principal = Principal::Client(Arc::clone(client));
                self.remove_shown_key(headers);
                Ok(Credential { principal, proof: Proof::Key(key) })
            }
            None => Err(Failure::KeyUnknown),
        }
    }

    /// Removes `Authorization` if it holds a key of this gateway, in whatever scheme: it is not
    /// meant for a server then. Credentials of many parts, each of which would have to be hashed,
    /// are removed as well.
    fn remove_shown_key(&self, headers: &mut HeaderMap) {
        let is_key = |token: &[u8]| {
            token.len() <= LONGEST && self.owner(&KeyHash::new(sha256(token))).is_some()
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
    pub fn knows(&self, credential: &Credential) -> bool {
        match (&credential.proof, &credential.principal) {
            (Proof::Key(key), Principal::Client(name)) => self.owner(key) == Some(name),
            (Proof::Key(_), Principal::Anonymous) => false,
            (Proof::Nothing, _) => self.shelves.is_empty(),
            (Proof::Parent, _) => true,
        }
    }

    /// Whether the principal still exists, with whatever key: a client's sessions outlive the key
    /// that they were opened with.
    pub fn has(&self, credential: &Credential) -> bool {
        match &credential.principal {
            Principal::Client(name) => self.lists(name),
            Principal::Anonymous => self.knows(credential),
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

    /// Compares with every key on the shelf, even after a match, so that the time tells nothing.
    fn owner(&self, key: &KeyHash) -> Option<&Arc<str>> {
        let mut owner = None;
        for known in self.shelves.get(&shelf(key)).into_iter().flatten() {
            if verify_slices_are_equal(known.key.as_bytes(), key.as_bytes()).is_ok() {
                owner = Some(&known.client);
            }
        }
        owner
    }
}

impl Credential {
    /// Any client of a gateway that requires no key.
    fn anonymous() -> Self {
        Self { principal: Principal::Anonymous, proof: Proof::Nothing }
    }

    /// The process that started the gateway and talks to it over standard streams: it could read
    /// the configuration as well.
    pub fn parent() -> Self {
        Self { principal: Principal::Anonymous, proof: Proof::Parent }
    }

    /// Who it is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }
}

fn shelf(key: &KeyHash) -> Shelf {
    key.as_bytes().first_chunk().copied().unwrap_or_default()
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
