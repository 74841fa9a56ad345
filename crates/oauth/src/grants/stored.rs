//! Stored forms of grants and registered clients in the vault.
//!
//! The secret of a configured client is not stored, because the configuration has it. A grant is
//! restored only for the server, the client and the issuer that are configured now.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

use trunkline_config::{DpopChoice, Secret};
use trunkline_core::clock;
use trunkline_protocol::call::{Principal, ServerName};

use crate::vault::RowName;

use super::authorizer::ServerAuthorizer;
use super::book::{ClientPlace, GrantKey, GrantPlace};
use super::endpoints::{EndpointClaim, IssuerTrust};
use super::grant::{GrantOwner, OauthGrant, TokenSource};
use crate::metadata::registration::{ClientAuth, OauthClient};
use crate::metadata::scopes::ScopeSet;
use crate::proofs::dpop::DpopKey;

/// Stored form of a grant.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredGrant {
    /// Value of `Authorization`.
    authorization: String,
    refresh: Option<String>,
    /// The time of the login, in seconds since 1970.
    #[serde(default)]
    since: Option<u64>,
    /// Time from which the grant is renewed before use, in seconds since 1970.
    renew_at: Option<u64>,
    /// The end of the refresh token, in seconds since 1970.
    #[serde(default)]
    refresh_ends: Option<u64>,
    given: String,
    issuer: String,
    #[serde(default)]
    authorization_endpoint: Option<String>,
    token_endpoint: String,
    revocation_endpoint: Option<String>,
    client: StoredClient,
    #[serde(default)]
    resource: Option<String>,
    scopes: String,
    /// Key to which the tokens are bound.
    #[serde(default)]
    dpop_key: Option<String>,
    /// Digests of the keys and certificates of the client, in the store that replicas share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_proofs: Option<BTreeSet<String>>,
}

/// The content of a login, without its tokens. Times are since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantOverview {
    /// The authorization server.
    pub issuer: String,
    /// Granted scopes, as far as is known, separated by spaces.
    pub scopes: String,
    /// The time of the login; `None` if it was made by an earlier version.
    pub since: Option<Duration>,
    /// The time from which its access token is renewed before use; `None` if no end was announced.
    pub renewed_at: Option<Duration>,
    /// True if it can be renewed without its owner.
    pub is_refreshable: bool,
    /// The announced end of that.
    pub ends_at: Option<Duration>,
    /// True if the authorization server can revoke it.
    pub is_revocable: bool,
}

/// Stored form of an authorization server's client.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredClient {
    id: String,
    secret: Option<String>,
    auth: String,
    /// The end of the secret, in seconds since 1970.
    #[serde(default)]
    secret_ends: Option<u64>,
}

impl StoredClient {
    pub(crate) fn of(client: &OauthClient) -> Self {
        Self {
            id: client.id.clone(),
            secret: client.secret.as_ref().map(|secret| secret.expose().to_owned()),
            auth: client.auth.as_str().to_owned(),
            secret_ends: client.secret_ends.map(|at| at.as_secs()),
        }
    }

    pub(crate) fn revive(self) -> Option<OauthClient> {
        let auth = ClientAuth::parse(&self.auth)?;
        let secret_ends = self.secret_ends.map(Duration::from_secs);
        Some(OauthClient { id: self.id, secret: self.secret.map(Secret::new), auth, secret_ends })
    }
}

impl GrantOverview {
    pub(crate) fn of(grant: &OauthGrant) -> Self {
        let wait = |at: Instant| at.saturating_duration_since(clock::now());
        Self {
            issuer: grant.source.issuer.clone(),
            scopes: grant.given.to_string(),
            since: grant.since,
            renewed_at: grant.renew_at.map(|at| clock::unix_now() + wait(at)),
            is_refreshable: grant.can_be_refreshed(),
            ends_at: grant.refresh_ends,
            is_revocable: grant.source.revocation_endpoint.is_some(),
        }
    }
}

/// A grant in the vault whose server has not been started yet.
pub(crate) struct RestingGrant {
    /// The stored form.
    pub(crate) value: Vec<u8>,
    /// The announced end of its refresh token, as time since 1970.
    pub(crate) ends: Option<Duration>,
}

impl RestingGrant {
    pub(crate) fn new(value: Vec<u8>) -> Self {
        let ends = StoredGrant::read_overview(&value).and_then(|grant| grant.ends_at);
        Self { value, ends }
    }
}

impl StoredGrant {
    /// Returns the authorization endpoint of a stored grant, and its issuer.
    pub(crate) fn read_claim(value: &[u8]) -> Option<EndpointClaim> {
        let stored: Self = serde_json::from_slice(value).ok()?;
        let endpoint = stored.authorization_endpoint?.parse().ok()?;
        Some(EndpointClaim { issuer: stored.issuer, endpoint, trust: IssuerTrust::Discovered })
    }

    /// Reads a stored grant without its tokens.
    pub(crate) fn read_overview(value: &[u8]) -> Option<GrantOverview> {
        let stored: Self = serde_json::from_slice(value).ok()?;
        Some(GrantOverview {
            issuer: stored.issuer,
            scopes: stored.given,
            since: stored.since.map(Duration::from_secs),
            renewed_at: stored.renew_at.map(Duration::from_secs),
            is_refreshable: stored.refresh.is_some(),
            ends_at: stored.refresh_ends.map(Duration::from_secs),
            is_revocable: stored.revocation_endpoint.is_some(),
        })
    }

    /// Returns the digests of the keys and certificates of a stored grant's client.
    pub(crate) fn read_proofs(value: &[u8]) -> Option<BTreeSet<String>> {
        serde_json::from_slice::<Self>(value).ok()?.client_proofs
    }

    /// Returns a stored grant with the digests of its client's keys and certificates.
    pub(crate) fn with_proofs(value: &[u8], proofs: Option<BTreeSet<String>>) -> Option<Vec<u8>> {
        let stored: Self = serde_json::from_slice(value).ok()?;
        serde_json::to_vec(&Self { client_proofs: proofs, ..stored }).ok()
    }

    /// Returns the stored form of a grant, or `None` if it cannot be stored.
    pub(crate) fn of(grant: &OauthGrant) -> Option<Self> {
        let wait = |at: Instant| at.saturating_duration_since(clock::now());
        Some(Self {
            authorization: grant.authorization.to_str().ok()?.to_owned(),
            refresh: grant.refresh.as_ref().map(|token| token.expose().to_owned()),
            since: grant.since.map(|at| at.as_secs()),
            renew_at: grant.renew_at.map(|at| (clock::unix_now() + wait(at)).as_secs()),
            refresh_ends: grant.refresh_ends.map(|at| at.as_secs()),
            given: grant.given.to_string(),
            ..Self::of_source(&grant.source)
        })
    }

    /// Returns the stored form of a source of tokens: a grant without tokens.
    pub(crate) fn of_source(source: &TokenSource) -> Self {
        let dpop_key = source.dpop.as_ref().map(|key| key.to_stored());
        let mut client = StoredClient::of(&source.client);
        if source.is_configured {
            client.secret = None;
        }
        Self {
            authorization: String::new(),
            refresh: None,
            since: None,
            renew_at: None,
            refresh_ends: None,
            given: String::new(),
            issuer: source.issuer.clone(),
            authorization_endpoint: source.authorization_endpoint.as_ref().map(Url::to_string),
            token_endpoint: source.token_endpoint.to_string(),
            revocation_endpoint: source.revocation_endpoint.as_ref().map(Url::to_string),
            client,
            resource: source.resource.clone(),
            scopes: source.scopes.to_string(),
            dpop_key,
            client_proofs: None,
        }
    }
}

impl ServerAuthorizer {
    /// Restores a grant. Returns `None` if its client or issuer is no longer this server's.
    pub(crate) fn revive_grant(&self, value: &[u8]) -> Option<OauthGrant> {
        let stored: StoredGrant = serde_json::from_slice(value).ok()?;
        if !self.admits(&stored) {
            return None;
        }
        let dpop = stored.dpop_key.map(|key| DpopKey::from_stored(&key)).transpose().ok()?;
        let mut client = stored.client.revive()?;
        if let Some(configured) = &self.oauth.client_id {
            if *configured != client.id {
                return None;
            }
            client.secret.clone_from(&self.oauth.client_secret);
            let first = self.first_issuer.get_or_init(|| stored.issuer.clone());
            if *first != stored.issuer {
                return None;
            }
        }
        let mut authorization = HeaderValue::try_from(stored.authorization).ok()?;
        authorization.set_sensitive(true);
        let left = |at: u64| Duration::from_secs(at).saturating_sub(clock::unix_now());
        let authorization_endpoint: Option<Url> =
            stored.authorization_endpoint.and_then(|url| url.parse().ok());
        if let Some(endpoint) = &authorization_endpoint {
            // Claimed again, so that no other issuer can claim it after a restart.
            let _ = self.book.endpoints.claim(&self.place, self.claim_of(&stored.issuer, endpoint));
        }
        let source = TokenSource {
            outbound: self.outbound.clone(),
            issuer: stored.issuer,
            authorization_endpoint,
            token_endpoint: stored.token_endpoint.parse().ok()?,
            revocation_endpoint: stored.revocation_endpoint.and_then(|url| url.parse().ok()),
            is_configured: self.oauth.client_id.is_some(),
            client,
            key: self.assertion_key(),
            resource: stored.resource.filter(|_| !self.oauth.drop_resource),
            scopes: ScopeSet::parse(&stored.scopes),
            dpop: dpop.map(Arc::new),
        };
        Some(OauthGrant {
            token_hash: source.hash_bound_token(&authorization),
            authorization,
            subject: None,
            refresh: stored.refresh.map(Secret::new),
            since: stored.since.map(Duration::from_secs),
            renew_at: stored.renew_at.map(|at| clock::now() + left(at).min(MAX_RENEWAL_DELAY)),
            refresh_ends: stored.refresh_ends.map(Duration::from_secs),
            given: ScopeSet::parse(&stored.given),
            source,
        })
    }

    /// Returns true if a grant matches the configured issuer and the configured use of proofs.
    fn admits(&self, stored: &StoredGrant) -> bool {
        let is_bound = stored.dpop_key.is_some();
        let is_of_issuer = self.oauth.issuer.as_ref().is_none_or(|it| *it == stored.issuer);
        is_of_issuer
            && match self.oauth.dpop {
                DpopChoice::Auto => true,
                DpopChoice::Required => is_bound,
                DpopChoice::Off => !is_bound,
            }
    }
}

impl GrantOwner {
    /// Returns its stored form: the kind and the name.
    pub(crate) fn parts(&self) -> [&str; 2] {
        match self {
            Self::Gateway | Self::Client(Principal::Anonymous) => ["gateway", ""],
            Self::Client(Principal::Client(name)) => ["client", name],
            Self::Client(Principal::User(name)) => ["user", name],
        }
    }

    /// Returns the owner with this stored form.
    pub(crate) fn of_parts(parts: [&str; 2]) -> Option<Self> {
        let [kind, name] = parts;
        match kind {
            "gateway" => Some(Self::Gateway),
            "client" => Some(Self::Client(Principal::Client(name.into()))),
            "user" => Some(Self::Client(Principal::User(name.into()))),
            _ => None,
        }
    }
}

impl GrantKey {
    /// Returns the name of its row.
    pub(crate) fn row_name(&self) -> RowName {
        let [kind, owner] = self.owner.parts();
        let GrantPlace { server, url } = &*self.place;
        RowName::new([GRANT_ROW, server.as_str(), url.as_str(), kind, owner])
    }

    /// Returns the key of a row, or `None` for a row of another kind.
    pub(crate) fn of_row(name: &RowName) -> Option<Self> {
        let [GRANT_ROW, server, url, kind, owner] = name.parts()[..] else { return None };
        let owner = GrantOwner::of_parts([kind, owner])?;
        let (server, url) = (ServerName::new(server).ok()?, url.parse().ok()?);
        Some(Self { place: Arc::new(GrantPlace { server, url }), owner })
    }
}

impl ClientPlace {
    /// Returns the name of its row.
    pub(crate) fn row_name(&self) -> RowName {
        RowName::new([CLIENT_ROW, self.server.as_str(), &self.issuer, self.redirect.as_str()])
    }

    /// Returns the place of a row, or `None` for a row of another kind.
    pub(crate) fn of_row(name: &RowName) -> Option<Self> {
        let [CLIENT_ROW, server, issuer, redirect] = name.parts()[..] else { return None };
        let server = ServerName::new(server).ok()?;
        Some(Self { server, issuer: issuer.to_owned(), redirect: redirect.parse().ok()? })
    }
}

/// The kinds of rows.
const GRANT_ROW: &str = "grant";
const CLIENT_ROW: &str = "client";
/// Maximum time until a renewal that is accepted: ten years.
const MAX_RENEWAL_DELAY: Duration = Duration::from_hours(24 * 3650);
