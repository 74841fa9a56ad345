//! One owner's grant at one server: its tokens, and what renews them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use tokio::time::Instant;
use url::Url;

use crate::call::{CallerToken, Principal};
use crate::clock;
use crate::config::Secret;
use crate::policy::{EntryOwner, Holder};
use crate::upstream::UpstreamError;
use crate::upstream::outbound::{OutboundClient, shown_url};
use crate::upstream::transport::http::SignableRequest;

use super::assertion::AssertionKey;
use super::dpop::{DPOP, DpopFault, DpopKey, ProofAudience, ProvenRequest, hash_token};
use super::fault::LoginFault;
use super::form_post::{FormAnswer, FormPost};
use super::registration::OauthClient;
use super::scopes::ScopeSet;
use super::token::{GivenTokens, TokenGrant, TokenRefusal, TokenRequest, TokenUse, read_tokens};

/// Whose grant it is. Two owners share nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GrantOwner {
    /// The gateway's, for all clients, or for what is done for none of them.
    Gateway,
    /// One client's.
    Client(Principal),
}

impl GrantOwner {
    /// The name of the client; `None` for the gateway, and for clients that cannot be told apart.
    pub(super) fn client_name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Client(Principal::Client(name) | Principal::User(name)) => Some(name),
            Self::Client(Principal::Anonymous) | Self::Gateway => None,
        }
    }

    /// An entry of a table that this owner asks for from an address.
    pub(super) fn entry_at(&self, address: IpAddr, share: usize) -> EntryOwner {
        let principal = match self {
            Self::Client(principal) => principal,
            Self::Gateway => &Principal::Anonymous,
        };
        let holder = Holder::identify(principal, address);
        EntryOwner { holder, share, address: Some(address) }
    }
}

/// An authorization server as a client of it sees it: where tokens are, and who asks for them.
#[derive(Clone)]
pub(super) struct TokenSource {
    pub(super) outbound: OutboundClient,
    /// The issuer, as it is written: everything here is this issuer's alone.
    pub(super) issuer: String,
    /// Where people log in; `None` if nobody does.
    pub(super) authorization_endpoint: Option<Url>,
    pub(super) token_endpoint: Url,
    /// Where tokens are revoked (RFC 7009), if anywhere.
    pub(super) revocation_endpoint: Option<Url>,
    /// Whether the configuration has the client.
    pub(super) is_configured: bool,
    pub(super) client: OauthClient,
    pub(super) key: Option<AssertionKey>,
    /// The identifier of the server; `None` with `drop_resource`.
    pub(super) resource: Option<String>,
    /// The scopes that are asked for.
    pub(super) scopes: ScopeSet,
    /// The key that tokens are bound to; `None` for those that are not.
    pub(super) dpop: Option<Arc<DpopKey>>,
}

impl TokenSource {
    /// Asks for tokens.
    pub(super) async fn ask(&self, grant: TokenGrant<'_>) -> Result<GivenTokens, LoginFault> {
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
        // Once more with the nonce of the authorization server (RFC 9449, 8).
        if has_nonce && tokens.as_ref().is_err_and(TokenRefusal::needs_nonce) {
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
            headers.insert(DPOP, key.prove(&proven, now)?);
        }
        let post = FormPost { url, headers, form, client: &self.client };
        Ok(post.send(&self.outbound).await?)
    }
}

impl TokenSource {
    /// The hash of the token in a value of `Authorization`, if it is bound to a key.
    pub(super) fn hash_bound_token(&self, authorization: &HeaderValue) -> Option<String> {
        self.dpop.as_ref()?;
        let (_, token) = authorization.to_str().ok()?.split_once(' ')?;
        Some(hash_token(token))
    }
}

/// Tokens that are in use.
pub(in crate::upstream) struct OauthGrant {
    /// The value of `Authorization`.
    pub(in crate::upstream) authorization: HeaderValue,
    /// The hash of the access token, if it is bound to the key of the source.
    pub(super) token_hash: Option<String>,
    /// The SHA-256 of the token of a client that it was exchanged for, if it was.
    pub(super) subject: Option<[u8; 32]>,
    pub(super) refresh: Option<Secret>,
    /// From when on it is renewed before it is used.
    pub(super) renew_at: Option<Instant>,
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
            token_hash: source.hash_bound_token(&tokens.authorization),
            subject: None,
            authorization: tokens.authorization,
            refresh: tokens.refresh,
            renew_at,
            given: tokens.scopes.unwrap_or_else(|| source.scopes.clone()),
            source,
        }
    }

    /// The same grant, exchanged for this token of a client.
    pub(super) fn exchanged_for(self, subject: Option<[u8; 32]>) -> Self {
        Self { subject, ..self }
    }

    /// Whether it may be used for a client that has sent this token. A grant that was exchanged is
    /// only good for the very token that it was exchanged for: another may allow less. Requests
    /// without a call, such as the opening of a session, have none.
    pub(super) fn is_for(&self, caller: Option<&CallerToken>) -> bool {
        match (&self.subject, caller) {
            (Some(subject), Some(caller)) => subject == caller.digest(),
            (None, _) | (_, None) => true,
        }
    }

    /// The header that proves the possession of the key which the token is bound to; `None` if it is
    /// not bound.
    ///
    /// # Errors
    /// [`UpstreamError::Login`] if no proof can be made.
    pub(in crate::upstream) fn prove_possession(
        &self,
        request: &SignableRequest<'_>,
    ) -> Result<Option<HeaderValue>, UpstreamError> {
        let Some((key, hash)) = self.source.dpop.as_ref().zip(self.token_hash.as_ref()) else {
            return Ok(None);
        };
        let SignableRequest { method, uri, body, .. } = *request;
        let url = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme), Some(authority)) => format!("{scheme}://{authority}{}", uri.path()),
            _ => return Err(UpstreamError::Login(Box::new(DpopFault::Key.into()))),
        };
        let proven = ProvenRequest {
            audience: ProofAudience::Server,
            method,
            url: &url,
            used: Some((hash, body)),
        };
        let proof = key.prove(&proven, clock::unix_now());
        proof.map(Some).map_err(|fault| UpstreamError::Login(Box::new(fault.into())))
    }

    /// Keeps the nonce of a server's response for the next proof. True if it is another one than the
    /// last.
    pub(in crate::upstream) fn keep_nonce(&self, response: &HeaderMap) -> bool {
        let key = self.source.dpop.as_ref();
        key.is_some_and(|key| key.keep_nonce(ProofAudience::Server, response))
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
