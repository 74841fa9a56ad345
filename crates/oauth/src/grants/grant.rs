//! One owner's grant at one server: its tokens, and the source of new ones.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Uri};
use tokio::time::Instant;
use url::Url;

use trunkline_config::Secret;
use trunkline_core::clock;
use trunkline_http_client::outbound::{OutboundClient, shown_url};
use trunkline_protocol::call::{CallerToken, Principal};
use trunkline_shares::{EntryOwner, Holder};

use crate::fault::LoginFault;
use crate::metadata::registration::OauthClient;
use crate::metadata::scopes::ScopeSet;
use crate::metadata::token_use::TokenUse;
use crate::proofs::assertion::AssertionKey;
use crate::proofs::dpop::{
    DPOP_HEADER, DpopFault, DpopKey, ProofAudience, ProvenRequest, hash_token,
};
use crate::proofs::form_post::{FormAnswer, FormPost};
use crate::proofs::token::{
    GivenTokens, TokenEndpointError, TokenGrant, TokenRequest, read_tokens,
};

/// Owner of a grant. Two owners share nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GrantOwner {
    /// The gateway, for all clients, or for its own requests.
    Gateway,
    /// One client.
    Client(Principal),
}

impl GrantOwner {
    /// Returns the name of the client, or `None` for the gateway, and for clients that cannot be
    /// distinguished.
    pub(crate) fn client_name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Client(Principal::Client(name) | Principal::User(name)) => Some(name),
            Self::Client(Principal::Anonymous) | Self::Gateway => None,
        }
    }

    /// Returns the table entry of a request by this owner from an address.
    pub(crate) fn entry_at(&self, address: IpAddr, share: usize) -> EntryOwner {
        let principal = match self {
            Self::Client(principal) => principal,
            Self::Gateway => &Principal::Anonymous,
        };
        let holder = Holder::identify(principal, address);
        EntryOwner { holder, share, address: Some(address) }
    }
}

/// An authorization server from a client's view: its endpoints, and the client that requests
/// tokens.
#[derive(Clone)]
pub(crate) struct TokenSource {
    pub(crate) outbound: OutboundClient,
    /// The issuer, unchanged. Everything here belongs to this issuer alone.
    pub(crate) issuer: String,
    /// URL at which people log in. `None` without such logins.
    pub(crate) authorization_endpoint: Option<Url>,
    pub(crate) token_endpoint: Url,
    /// URL at which tokens are revoked (RFC 7009), if there is one.
    pub(crate) revocation_endpoint: Option<Url>,
    /// True if the client is configured.
    pub(crate) is_configured: bool,
    pub(crate) client: OauthClient,
    pub(crate) key: Option<AssertionKey>,
    /// Identifier of the server. `None` with `drop_resource`.
    pub(crate) resource: Option<String>,
    /// Scopes to request.
    pub(crate) scopes: ScopeSet,
    /// Key to which tokens are bound. `None` for bearer tokens.
    pub(crate) dpop: Option<Arc<DpopKey>>,
}

impl TokenSource {
    /// Requests tokens.
    pub(crate) async fn ask(&self, grant: TokenGrant<'_>) -> Result<GivenTokens, LoginFault> {
        let request = TokenRequest {
            grant,
            client: &self.client,
            key: self.key.as_ref(),
            issuer: &self.issuer,
            resource: self.resource.as_deref(),
            scopes: &self.scopes,
        };
        let Some(key) = &self.dpop else {
            let sent = self.send(&request, None).await?;
            return Ok(sent.read(|status, body| read_tokens(status, body, TokenUse::Bearer))?);
        };
        let read = |status, body: &[u8]| read_tokens(status, body, TokenUse::Dpop);
        let mut sent = self.send(&request, Some(key)).await?;
        let has_nonce = key.keep_nonce(ProofAudience::Issuer, &sent.answer.headers);
        let mut tokens = sent.read(read);
        // Repeated once with the nonce of the authorization server (RFC 9449, 8).
        if has_nonce && tokens.as_ref().is_err_and(TokenEndpointError::needs_nonce) {
            sent = self.send(&request, Some(key)).await?;
            key.keep_nonce(ProofAudience::Issuer, &sent.answer.headers);
            tokens = sent.read(read);
        }
        Ok(tokens?)
    }

    async fn send(
        &self,
        request: &TokenRequest<'_>,
        key: Option<&Arc<DpopKey>>,
    ) -> Result<FormAnswer, LoginFault> {
        let (url, now) = (&self.token_endpoint, clock::unix_now());
        let (mut headers, form) = request.write(now)?;
        if let Some(key) = key {
            let proven = ProvenRequest {
                audience: ProofAudience::Issuer,
                method: &Method::POST,
                url: &shown_url(url),
                used: None,
            };
            headers.insert(DPOP_HEADER, key.prove(&proven, now)?);
        }
        let post = FormPost { url, headers, form, client: &self.client };
        Ok(post.send(&self.outbound).await?)
    }
}

impl TokenSource {
    /// Returns the hash of the token in a value of `Authorization`, if it is bound to a key.
    pub(crate) fn hash_bound_token(&self, authorization: &HeaderValue) -> Option<String> {
        self.dpop.as_ref()?;
        let (_, token) = authorization.to_str().ok()?.split_once(' ')?;
        Some(hash_token(token))
    }
}

/// Tokens in use.
pub struct OauthGrant {
    /// Value of `Authorization`.
    pub authorization: HeaderValue,
    /// Hash of the access token, if it is bound to the key of the source.
    pub(crate) token_hash: Option<String>,
    /// SHA-256 of the client's token for which this grant was exchanged, if it was.
    pub(crate) subject: Option<[u8; 32]>,
    pub(crate) refresh: Option<Secret>,
    /// The end of the refresh token, as time since 1970, if it is announced.
    pub(crate) refresh_ends: Option<Duration>,
    /// The time of the login, as time since 1970; `None` if an earlier version has stored it.
    pub(crate) since: Option<Duration>,
    /// Time from which the grant is renewed before use.
    pub(crate) renew_at: Option<Instant>,
    /// Granted scopes, as far as is known.
    pub(crate) given: ScopeSet,
    pub(crate) source: TokenSource,
}

impl OauthGrant {
    /// Creates the grant of a response that has just arrived.
    pub(crate) fn new(tokens: GivenTokens, source: TokenSource) -> Self {
        let margin = |lifetime: Duration| RENEWAL_MARGIN.min(lifetime / 10);
        let renew_at = tokens
            .lifetime
            .map(|lifetime| clock::now() + lifetime.saturating_sub(margin(lifetime)));
        Self {
            token_hash: source.hash_bound_token(&tokens.authorization),
            subject: None,
            authorization: tokens.authorization,
            refresh_ends: tokens
                .refresh_lifetime
                .filter(|_| tokens.refresh.is_some())
                .map(|lifetime| clock::unix_now() + lifetime),
            refresh: tokens.refresh,
            since: Some(clock::unix_now()),
            renew_at,
            given: tokens.scopes.unwrap_or_else(|| source.scopes.clone()),
            source,
        }
    }

    /// Marks the grant as exchanged for this token of a client.
    pub(crate) fn exchanged_for(self, subject: Option<[u8; 32]>) -> Self {
        Self { subject, ..self }
    }

    /// Returns true if the grant may be used for a client with this token. An exchanged grant is
    /// valid only for the very token that it was exchanged for, because another may allow less.
    /// Requests without a call, such as the opening of a session, have no token.
    pub(crate) fn is_for(&self, caller: Option<&CallerToken>) -> bool {
        match (&self.subject, caller) {
            (Some(subject), Some(caller)) => subject == caller.digest(),
            (None, _) | (_, None) => true,
        }
    }

    /// Returns the header that proves possession of the key to which the token is bound, or `None`
    /// for a bearer token.
    ///
    /// # Errors
    /// [`LoginFault`] if no proof can be made.
    pub fn prove_possession(
        &self,
        method: &Method,
        uri: &Uri,
        body: &[u8],
    ) -> Result<Option<HeaderValue>, LoginFault> {
        let Some((key, hash)) = self.source.dpop.as_ref().zip(self.token_hash.as_ref()) else {
            return Ok(None);
        };
        let url = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme), Some(authority)) => format!("{scheme}://{authority}{}", uri.path()),
            _ => return Err(DpopFault::Key.into()),
        };
        let proven = ProvenRequest {
            audience: ProofAudience::Server,
            method,
            url: &url,
            used: Some((hash, body)),
        };
        Ok(Some(key.prove(&proven, clock::unix_now())?))
    }

    /// Keeps the nonce of a server's response for the next proof. Returns true if it differs from
    /// the last one.
    pub fn keep_nonce(&self, response: &HeaderMap) -> bool {
        let key = self.source.dpop.as_ref();
        key.is_some_and(|key| key.keep_nonce(ProofAudience::Server, response))
    }

    /// Returns true if the grant should be renewed before its next use.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.renew_at.is_some_and(|at| at <= now)
    }

    /// Returns true if the grant can be renewed without its owner.
    pub(crate) fn can_be_refreshed(&self) -> bool {
        self.refresh.is_some()
    }

    /// Requests new tokens with the refresh token. The old refresh token stays if the response has
    /// no new one.
    pub(crate) async fn refresh(&self) -> Result<Self, LoginFault> {
        let token = self.refresh.as_ref().ok_or(TokenEndpointError::Shape)?;
        let mut tokens = self.source.ask(TokenGrant::Refresh { token }).await?;
        let is_old = tokens.refresh.is_none();
        tokens.refresh = tokens.refresh.or_else(|| Some(token.clone()));
        tokens.scopes = tokens.scopes.or_else(|| Some(self.given.clone()));
        let mut renewed = Self { since: self.since, ..Self::new(tokens, self.source.clone()) };
        if is_old && renewed.refresh_ends.is_none() {
            renewed.refresh_ends = self.refresh_ends;
        }
        Ok(renewed)
    }
}

impl fmt::Debug for OauthGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthGrant").field("issuer", &self.source.issuer).finish_non_exhaustive()
    }
}

/// Maximum time before its end at which a token is renewed.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30);
