//! One owner's grant at one server: its tokens, and what renews them.

use std::fmt;
use std::time::Duration;

use http::{HeaderValue, Method};
use tokio::time::Instant;
use url::Url;

use crate::call::Principal;
use crate::clock;
use crate::config::Secret;
use crate::upstream::outbound::{OutboundClient, OutboundRequest};

use super::assertion::AssertionKey;
use super::fault::LoginFault;
use super::registration::OauthClient;
use super::scopes::ScopeSet;
use super::token::{GivenTokens, TokenGrant, TokenRefusal, TokenRequest, read_tokens};

/// Whose grant it is. Two owners share nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GrantOwner {
    /// The gateway's, for all clients, or for what is done for none of them.
    Gateway,
    /// One client's.
    Client(Principal),
}

/// An authorization server as a client of it sees it: where tokens are, and who asks for them.
#[derive(Clone)]
pub(super) struct TokenSource {
    pub(super) outbound: OutboundClient,
    /// The issuer, as it is written: everything here is this issuer's alone.
    pub(super) issuer: String,
    pub(super) token_endpoint: Url,
    pub(super) client: OauthClient,
    pub(super) key: Option<AssertionKey>,
    /// The identifier of the server.
    pub(super) resource: String,
    /// The scopes that are asked for.
    pub(super) scopes: ScopeSet,
}

impl TokenSource {
    /// Asks for tokens.
    pub(super) async fn ask(&self, grant: TokenGrant<'_>) -> Result<GivenTokens, LoginFault> {
        let request = TokenRequest {
            grant,
            client: &self.client,
            key: self.key.as_ref(),
            issuer: &self.issuer,
            resource: &self.resource,
            scopes: &self.scopes,
        };
        let (headers, form) = request.write(clock::unix_now())?;
        let url = &self.token_endpoint;
        let request = OutboundRequest { method: Method::POST, url, headers, body: form.into() };
        let answer = self.outbound.send(request).await?;
        Ok(read_tokens(answer.status, &answer.body)?)
    }
}

/// Tokens that are in use.
pub(super) struct OauthGrant {
    /// The value of `Authorization`.
    pub(super) authorization: HeaderValue,
    refresh: Option<Secret>,
    /// From when on it is renewed before it is used.
    renew_at: Option<Instant>,
    /// The scopes that were given, as far as is known.
    pub(super) given: ScopeSet,
    pub(super) source: TokenSource,
}

impl OauthGrant {
    /// The grant of an answer that came now.
    pub(super) fn new(tokens: GivenTokens, source: TokenSource) -> Self {
        let margin = |lifetime: Duration| RENEWAL_MARGIN.min(lifetime / 10);
        let renew_at = tokens
            .lifetime
            .map(|lifetime| clock::now() + lifetime.saturating_sub(margin(lifetime)));
        Self {
            authorization: tokens.authorization,
            refresh: tokens.refresh,
            renew_at,
            given: tokens.scopes.unwrap_or_else(|| source.scopes.clone()),
            source,
        }
    }

    /// Whether it should be renewed before it is used again.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.renew_at.is_some_and(|at| at <= now)
    }

    /// Whether it can be renewed without its owner.
    pub(super) fn can_be_refreshed(&self) -> bool {
        self.refresh.is_some()
    }

    /// Asks for new tokens with the refresh token. The old one stays if no new one comes.
    pub(super) async fn refresh(&self) -> Result<Self, LoginFault> {
        let token = self.refresh.as_ref().ok_or(TokenRefusal::Shape)?;
        let mut tokens = self.source.ask(TokenGrant::Refresh { token }).await?;
        tokens.refresh = tokens.refresh.or_else(|| Some(token.clone()));
        tokens.scopes = tokens.scopes.or_else(|| Some(self.given.clone()));
        Ok(Self::new(tokens, self.source.clone()))
    }
}

impl fmt::Debug for OauthGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthGrant").field("issuer", &self.source.issuer).finish_non_exhaustive()
    }
}

/// How long before its end a token is renewed, at most.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30);
