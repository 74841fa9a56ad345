//! Authentication: from an HTTP request to its principal.
//!
//! A client sends a key, in `X-API-Key` or as `Authorization: Bearer`; the configuration holds
//! hashes of keys; [`Identity`] finds the client of a key. A bearer credential may also be a token
//! of one of the configured issuers ([`tokens`]); its principal is a user. The certificate of a
//! connection may identify a client as well ([`certificates`]). If neither clients nor issuers are
//! configured, every request belongs to one anonymous principal. Modules that keep state for a
//! principal (sessions, streams, parked calls, private caches) ask [`Identity::knows`] and
//! [`Identity::has`] if they may still keep it.
//!
//! This module knows the callers and the profiles that they may use, but not the content of
//! profiles, which is up to `catalog` and `policy`. It removes the key from the headers, so that no
//! later module can forward or log it.
//!
//! The time is an argument everywhere, as time since 1970.

mod api_keys;
mod certificates;
mod client_access;
mod mark;
mod resource;
mod tokens;

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use tokio::time::sleep;
use url::Url;

use crate::call::{Failure, Grants, Principal, ProfileName, RequestFault};
use crate::clock;
use crate::config::{ClientConfig, Config, IssuerName, KeyHash};
use crate::crypto::sha256;
use crate::mcp::header::single_value;

pub use api_keys::ApiKey;
pub use certificates::{CertificateError, ClientCertificate};
pub use client_access::ClientAccess;
pub use mark::CredentialMark;
pub use resource::{LOGIN_PATH, ProtectedResource, WELL_KNOWN};
pub use tokens::{
    FetchState, IssuerKeys, KeyPlace, KeySet, KeySetFault, KeySource, KeyWait, TokenIssuer,
};

use api_keys::ApiKeys;
use certificates::CertificateNames;
use resource::Resources;
use tokens::{ScopeRanks, TokenAttempt, TokenIssuers, Unverified, VerifiedToken};

/// Clients of a configuration, looked up by their keys, and the issuers of tokens.
#[derive(Debug, Default)]
pub struct Identity {
    keys: ApiKeys,
    certificates: CertificateNames,
    /// With the profiles that they may use; `None` for all.
    clients: HashMap<Arc<str>, Option<Vec<ProfileName>>>,
    /// With the resources that tokens are for; `None` without issuers.
    tokens: Option<(TokenIssuers, Resources)>,
}

/// Reasons for an unknown sender.
#[derive(Debug)]
pub enum Unidentified {
    /// It sent no credential to try, or one that was accepted before and is no longer valid.
    Refused(Failure),
    /// It sent an unknown key, or a token that is not accepted: possibly a guess.
    WrongCredential(Failure),
    /// The keys of its token's issuer are being fetched.
    Pending(KeyWait),
}

impl From<Failure> for Unidentified {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl From<Unverified> for Unidentified {
    fn from(unverified: Unverified) -> Self {
        match unverified {
            Unverified::Refused(failure) => Self::Refused(failure),
            Unverified::Faulty(fault) => Self::WrongCredential(Failure::TokenRefused(fault)),
            Unverified::Pending(wait) => Self::Pending(wait),
        }
    }
}

/// A principal, and its proof.
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
    /// The certificate of the connection.
    Certificate(Arc<ClientCertificate>),
    /// A user's token.
    Token(Arc<VerifiedToken>),
    /// The parent process, over standard streams.
    Parent,
}

impl Identity {
    /// Creates the identity of a configuration's clients and issuers, in place of the one `before`.
    pub fn new(config: &Config, before: &Self) -> Self {
        let ranks = Arc::new(ScopeRanks::new(&config.gateway));
        let known = before.tokens.as_ref().map(|(issuers, _)| issuers);
        let issuers = TokenIssuers::new(config, &ranks, known);
        let tokens = issuers.map(|issuers| (issuers, Resources::new(config)));
        Self { tokens, ..Self::of_clients(&config.clients, &ranks, before) }
    }

    fn of_clients(clients: &[ClientConfig], ranks: &ScopeRanks, before: &Self) -> Self {
        let keys = ApiKeys::new(clients, ranks, &before.keys);
        let entry = |client: &ClientConfig| (Arc::clone(&client.name), client.profiles.clone());
        let certificates = CertificateNames::new(clients, ranks);
        Self { keys, certificates, clients: clients.iter().map(entry).collect(), tokens: None }
    }

    /// Returns true if every request is admitted anonymously.
    fn is_open(&self) -> bool {
        self.keys.is_empty() && self.certificates.is_empty() && self.tokens.is_none()
    }

    /// Returns the resource of a profile, as tokens name it; `None` without issuers. `host`
    /// provides the gateway's URL if it is not configured.
    pub fn resource(
        &self,
        profile: &str,
        host: impl FnOnce() -> Option<Url>,
    ) -> Option<Arc<ProtectedResource>> {
        let (_, resources) = self.tokens.as_ref()?;
        resources.find(profile, host)
    }

    /// Returns the path of the gateway's own URL, if it is not the root; `None` without issuers.
    pub fn resource_path(&self) -> Option<&str> {
        self.tokens.as_ref().map(|(_, resources)| resources.base_path())
    }

    /// Returns the login URL of an issuer with logins that the gateway passes on; `None` without
    /// issuers. `host` provides the gateway's URL if it is not configured.
    pub fn login_url(
        &self,
        issuer: &IssuerName,
        host: impl FnOnce() -> Option<Url>,
    ) -> Option<String> {
        let (_, resources) = self.tokens.as_ref()?;
        resources.login_url(issuer, host)
    }

    /// Returns the issuers of tokens.
    pub fn issuers(&self) -> &[Arc<TokenIssuer>] {
        self.tokens.as_ref().map_or(&[], |(issuers, _)| issuers.all())
    }

    /// Identifies the sender of a request with these headers, and removes the key or token from
    /// them.
    ///
    /// `X-API-Key` takes precedence over `Authorization`, which may then be meant for a server
    /// (`forward_headers`) and stays unless it holds a key of this gateway or a token of its
    /// issuers.
    ///
    /// `admit` decides if an unknown credential may be tried. Keys of clients, which are looked up
    /// by their SHA-256, and tokens that were verified before, which are looked up by their
    /// fingerprint, pass without it: a guess would have to match 256 or 128 random bits.
    ///
    /// # Errors
    /// [`Failure::KeyMissing`], [`Failure::KeyUnknown`] and [`Failure::KeyExpired`], if there are
    /// clients; [`Failure::TokenMissing`], [`Failure::TokenRefused`] and
    /// [`Failure::IssuerUnavailable`], if there are issuers; and those of `admit`.
    pub fn identify(
        &self,
        headers: &mut HeaderMap,
        resource: Option<&ProtectedResource>,
        now: impl FnOnce() -> Duration,
        admit: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Credential, Unidentified> {
        if self.is_open() {
            return Ok(Credential::anonymous());
        }
        let shown = self.shown_credential(headers)?;
        let (now, name) = (now(), shown.name.clone());
        if let Some(known) = self.recall_token(&shown, resource, now) {
            let token = known?;
            headers.remove(name);
            return Ok(Credential::of_token(token));
        }
        let hash = KeyHash::new(sha256(shown.text));
        let Some(key) = self.keys.find(&hash) else {
            let attempt = TokenAttempt { now, admit };
            let token = self.verify_token(&shown, &hash, resource, attempt)?;
            headers.remove(name);
            return Ok(Credential::of_token(token));
        };
        if key.is_expired(now) {
            return Err(Failure::KeyExpired.into());
        }
        key.record_use(now);
        headers.remove(name);
        self.remove_shown_key(headers);
        let principal = Principal::Client(Arc::clone(&key.client));
        Ok(Credential { principal, grants: key.grants.clone(), proof: Proof::Key(hash) })
    }

    /// Identifies the client of a connection by its verified certificate; `None` if the
    /// certificate's names do not lead to exactly one client. `X-API-Key` takes precedence over the
    /// certificate. `Authorization` may be meant for a server, and stays unless it holds a key or a
    /// token.
    pub fn identify_certificate(
        &self,
        certificate: &Arc<ClientCertificate>,
        headers: &mut HeaderMap,
        now: Duration,
    ) -> Option<Credential> {
        let client = self.certificates.find(certificate)?;
        if headers.contains_key(&API_KEY) || certificate.expires() <= now {
            return None;
        }
        self.remove_shown_key(headers);
        let principal = Principal::Client(Arc::clone(&client.name));
        let proof = Proof::Certificate(Arc::clone(certificate));
        Some(Credential { principal, grants: client.grants.clone(), proof })
    }

    /// Returns the token of a request, if it was verified before. It cannot be a key: only texts
    /// that are not keys are verified, and the cache lives as long as the configuration's keys.
    fn recall_token(
        &self,
        shown: &ShownCredential<'_>,
        resource: Option<&ProtectedResource>,
        now: Duration,
    ) -> Option<Result<Arc<VerifiedToken>, Failure>> {
        let (issuers, _) = self.tokens.as_ref()?;
        let is_bearer = shown.name == header::AUTHORIZATION;
        issuers.recall(shown.text, resource.filter(|_| is_bearer)?, now)
    }

    /// Verifies a credential that is not a key.
    fn verify_token(
        &self,
        shown: &ShownCredential<'_>,
        hash: &KeyHash,
        resource: Option<&ProtectedResource>,
        attempt: TokenAttempt<impl FnOnce() -> Result<(), Failure>>,
    ) -> Result<Arc<VerifiedToken>, Unidentified> {
        match (&self.tokens, resource) {
            (Some((issuers, _)), Some(resource)) if shown.name == header::AUTHORIZATION => {
                Ok(issuers.verify(shown.text, hash.as_bytes(), resource, attempt)?)
            }
            _ => {
                (attempt.admit)()?;
                Err(Unidentified::WrongCredential(Failure::KeyUnknown))
            }
        }
    }

    /// Returns the key or token of a request. Duplicate headers are refused: an intermediary may
    /// have acted on another value.
    fn shown_credential<'a>(&self, headers: &'a HeaderMap) -> Result<ShownCredential<'a>, Failure> {
        let takes_tokens = self.tokens.is_some();
        let duplicate = |_| {
            if takes_tokens {
                RequestFault::DuplicateCredentials.into()
            } else {
                Failure::KeyUnknown
            }
        };
        let key = single_value(headers, &API_KEY).map_err(duplicate)?;
        // A token's length is checked by its parser.
        let (name, text) = if let Some(key) = key {
            (API_KEY, Some(key.as_bytes()).filter(|key| !key.is_empty()))
        } else {
            let value = single_value(headers, &header::AUTHORIZATION).map_err(duplicate)?;
            (header::AUTHORIZATION, value.and_then(|value| bearer(value.as_bytes())))
        };
        let may_be_token = takes_tokens && name == header::AUTHORIZATION;
        match text {
            Some(text) if text.len() > MAX_KEY_BYTES && !may_be_token => Err(Failure::KeyUnknown),
            Some(text) => Ok(ShownCredential { name, text }),
            None if takes_tokens => Err(Failure::TokenMissing),
            None => Err(Failure::KeyMissing),
        }
    }

    /// Removes `Authorization` if it holds a key or token of this gateway, in any scheme: it is not
    /// meant for a server then. Credentials of many parts, each of which would have to be hashed,
    /// are removed as well.
    fn remove_shown_key(&self, headers: &mut HeaderMap) {
        let is_key = |token: &[u8]| {
            let is_short = token.len() <= MAX_KEY_BYTES;
            is_short && self.keys.find(&KeyHash::new(sha256(token))).is_some()
                || self.tokens.as_ref().is_some_and(|(issuers, _)| issuers.claims_issuer(token))
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
            let shown = is_key(value) || parts.by_ref().take(MAX_CREDENTIAL_PARTS).any(shows_key);
            shown || parts.next().is_some()
        };
        if headers.get_all(header::AUTHORIZATION).iter().any(holds_key) {
            headers.remove(header::AUTHORIZATION);
        }
    }

    /// Returns true if a credential that was accepted before is still valid.
    pub fn knows(&self, credential: &Credential, now: Duration) -> bool {
        match &credential.proof {
            Proof::Key(hash) => self.keys.find(hash).is_some_and(|key| {
                // Changed grants take effect with the next request, or the next stream.
                *key.client == *credential.principal.as_str()
                    && !key.is_expired(now)
                    && key.grants == credential.grants
            }),
            Proof::Certificate(certificate) => {
                self.certificates.find(certificate).is_some_and(|client| {
                    *client.name == *credential.principal.as_str()
                        && certificate.expires() > now
                        && client.grants == credential.grants
                })
            }
            Proof::Token(token) => {
                self.tokens.as_ref().is_some_and(|(issuers, _)| issuers.accepts(token, now))
            }
            Proof::Nothing => self.is_open(),
            Proof::Parent => true,
        }
    }

    /// Returns the expiry of a credential.
    pub fn expiry(&self, credential: &Credential) -> Option<Duration> {
        match &credential.proof {
            Proof::Key(hash) => self.keys.find(hash).and_then(|key| key.expires),
            Proof::Certificate(certificate) => Some(certificate.expires()),
            Proof::Token(token) => Some(token.ends),
            Proof::Nothing | Proof::Parent => None,
        }
    }

    /// Returns the key with this hash.
    pub fn key(&self, hash: &KeyHash) -> Option<&ApiKey> {
        self.keys.find(hash)
    }

    /// Returns true if the principal still exists, with any key: a client's sessions outlive the
    /// key that they were opened with.
    pub fn has(&self, credential: &Credential) -> bool {
        match &credential.principal {
            Principal::Client(name) => self.lists(name),
            Principal::User(_) => match (&credential.proof, &self.tokens) {
                (Proof::Token(token), Some((issuers, _))) => issuers.keeps_users(token),
                _ => false,
            },
            Principal::Anonymous => credential.proof == Proof::Parent || self.is_open(),
        }
    }

    /// Returns true if a principal still exists: a client by its name, a user by its issuer's.
    pub fn has_principal(&self, principal: &Principal) -> bool {
        match principal {
            Principal::Client(name) => self.lists(name),
            Principal::User(_) => {
                let issuer = principal.issuer().unwrap_or_default();
                self.tokens.as_ref().is_some_and(|(all, _)| all.find(issuer).is_some())
            }
            Principal::Anonymous => true,
        }
    }

    /// Returns true if there is a client of this name.
    pub fn lists(&self, client: &str) -> bool {
        self.clients.contains_key(client)
    }

    /// Returns true if a principal may use a profile, provided that the profile exists.
    pub fn allows(&self, principal: &Principal, profile: &str) -> bool {
        match principal {
            Principal::Client(name) => self.clients.get(name).is_some_and(|profiles| {
                profiles.as_ref().is_none_or(|all| all.iter().any(|one| one.as_str() == profile))
            }),
            Principal::User(_) => {
                self.tokens.as_ref().is_some_and(|(issuers, _)| issuers.allows(principal, profile))
            }
            Principal::Anonymous => true,
        }
    }

    /// Returns true if a principal was served at a profile. Without clients and issuers, every
    /// anonymous caller was.
    pub fn served(&self, principal: &Principal, profile: &str) -> bool {
        match principal {
            Principal::Client(_) | Principal::User(_) => self.allows(principal, profile),
            Principal::Anonymous => self.clients.is_empty() && self.tokens.is_none(),
        }
    }
}

impl Credential {
    /// Creates the credential of any client of a gateway that requires no key.
    fn anonymous() -> Self {
        Self::without_grants(Proof::Nothing)
    }

    fn of_token(token: Arc<VerifiedToken>) -> Self {
        let (principal, grants) = (token.principal.clone(), Some(Arc::clone(&token.grants)));
        Self { principal, grants, proof: Proof::Token(token) }
    }

    /// Creates the credential of the process that started the gateway and uses it over standard
    /// streams: it could read the configuration as well.
    pub fn parent() -> Self {
        Self::without_grants(Proof::Parent)
    }

    fn without_grants(proof: Proof) -> Self {
        Self { principal: Principal::Anonymous, grants: None, proof }
    }

    /// Returns the kind of proof, and an identifier within that kind that reveals no secret: the
    /// first digits of a key's or token's SHA-256.
    pub fn describe(&self) -> (&'static str, Option<Arc<str>>) {
        match &self.proof {
            Proof::Nothing => ("none", None),
            Proof::Key(hash) => ("key", Some(hash.abbreviation().into())),
            Proof::Certificate(certificate) => {
                ("certificate", Some(certificate.abbreviation().into()))
            }
            Proof::Token(token) => ("token", Some(Arc::clone(token.describe()))),
            Proof::Parent => ("parent", None),
        }
    }

    /// Returns the principal.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the principal's grants, if there are any.
    pub fn grants(&self) -> Option<&Arc<Grants>> {
        self.grants.as_ref()
    }
}

/// Waits until a credential has expired; for ever for one that does not expire.
pub async fn wait_for_expiry(expiry: Option<Duration>) {
    match expiry {
        Some(expiry) => sleep(expiry.saturating_sub(clock::unix_now())).await,
        None => pending().await,
    }
}

/// A credential of a request, and its header.
struct ShownCredential<'a> {
    name: HeaderName,
    text: &'a [u8],
}

/// Returns the token of a `Bearer` credential (RFC 6750, 2.1); the scheme in any case (RFC 9110,
/// 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(BEARER_SCHEME.len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(BEARER_SCHEME) && !token.is_empty()).then_some(token)
}

/// The header for a key and nothing else.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The scheme of a bearer token, with the space after it.
const BEARER_SCHEME: &[u8] = b"Bearer ";
/// Limit of the bytes of a key that is hashed.
const MAX_KEY_BYTES: usize = 512;
/// Limit of the parts of credentials that are checked.
const MAX_CREDENTIAL_PARTS: usize = 64;

#[cfg(test)]
mod tests;
