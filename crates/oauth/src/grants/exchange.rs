//! Tokens without a person: for the client itself, in exchange for another token, or for a JWT of
//! the platform.
//!
//! None of these grants falls back to another, and none uses a token of another owner: a call's
//! token is exchanged for that call's client, and the operator's for the gateway.

use std::net::IpAddr;
use std::sync::Arc;

use trunkline_config::{ExchangedType, GrantKind, IdpConfig, OauthConfig, Secret};
use trunkline_core::clock;
use trunkline_core::crypto::sha256;
use trunkline_protocol::call::{CallerToken, Context, Principal};

use super::authorizer::ServerAuthorizer;
use super::book::GrantSlot;
use super::grant::{GrantOwner, OauthGrant, TokenSource};
use super::held_token::{HeldToken, check_audience};
use crate::fault::LoginFault;
use crate::metadata::registration::OauthClient;
use crate::proofs::assertion::AssertionKey;
use crate::proofs::form_post::FormPost;
use crate::proofs::token::{
    GivenTokens, TokenExchange, TokenGrant, TokenRequest, WantedToken, read_id_jag,
};

/// Recipient of a token that is obtained without a person.
pub(crate) struct TokenSeeker<'a> {
    pub(crate) owner: &'a GrantOwner,
    /// The client's token from its call, if there is a call.
    pub(crate) caller: Option<&'a CallerToken>,
    pub(crate) slot: &'a Arc<GrantSlot>,
}

/// A token that is exchanged for another.
struct ExchangedToken {
    text: Secret,
    /// SHA-256 of the token, if it is a client's.
    digest: Option<[u8; 32]>,
}

impl ServerAuthorizer {
    /// Gets a grant without a person, with the configured kind of grant.
    pub(crate) async fn obtain_alone(
        &self,
        seeker: &TokenSeeker<'_>,
        source: TokenSource,
    ) -> Result<OauthGrant, LoginFault> {
        // Such a grant belongs to no person.
        let source = TokenSource { authorization_endpoint: None, ..source };
        let (mut tokens, subject) = match self.oauth.grant {
            GrantKind::AuthorizationCode | GrantKind::ClientCredentials => {
                let tokens = source.ask(TokenGrant::Client).await?;
                return Ok(OauthGrant::new(tokens, source));
            }
            GrantKind::TokenExchange => {
                let subject = self.find_subject(seeker).await?;
                let actor = self.held.actor.as_ref();
                let actor = match actor {
                    Some(held) => Some(held.read(&self.files).await?),
                    None => None,
                };
                let exchange = TokenExchange {
                    subject: (&subject.text, self.subject_type()),
                    actor: actor.as_ref().map(|token| (token, self.oauth.actor_token_type)),
                    wanted: WantedToken::AccessToken,
                    audience: self.oauth.audience.as_deref(),
                };
                (source.ask(TokenGrant::Exchange(exchange)).await?, subject.digest)
            }
            GrantKind::IdJag => {
                let subject = self.find_subject(seeker).await?;
                let jwt = self.ask_idp(&subject.text, &source).await?;
                (source.ask(TokenGrant::Assertion { jwt: &jwt }).await?, subject.digest)
            }
            GrantKind::JwtBearer => (self.present_jwt(seeker.slot, &source).await?, None),
        };
        // These grants are renewed by the same request again, and in no other way.
        tokens.refresh = None;
        Ok(OauthGrant::new(tokens, source).exchanged_for(subject))
    }

    /// Returns the token to exchange: that of the call's client, or the operator's for the
    /// gateway's own requests. One owner's token never replaces another's.
    async fn find_subject(&self, seeker: &TokenSeeker<'_>) -> Result<ExchangedToken, LoginFault> {
        match seeker.owner {
            GrantOwner::Gateway => {
                let held = self.held.subject.as_ref().ok_or(LoginFault::NoOwnToken)?;
                Ok(ExchangedToken { text: held.read(&self.files).await?, digest: None })
            }
            GrantOwner::Client(principal) => {
                let sent = seeker.caller.cloned().or_else(|| seeker.slot.caller.lock().clone());
                let sent = sent.filter(|_| self.takes_tokens_of(principal));
                let sent = sent.ok_or(LoginFault::NoCallerToken)?;
                let text = Secret::new(sent.expose().to_owned());
                Ok(ExchangedToken { text, digest: Some(*sent.digest()) })
            }
        }
    }

    /// Returns true if tokens of the user's issuer may be sent to the server's authorization
    /// server, or to the identity provider.
    fn takes_tokens_of(&self, principal: &Principal) -> bool {
        let issuer = self.oauth.subject_issuer.as_deref();
        issuer.is_none_or(|name| principal.issuer() == Some(name))
    }

    /// Remembers a client's address for its login links, and its token for requests that are made
    /// for it without a call.
    pub fn note_caller(&self, context: &Context) {
        let owner = self.owner_of(Some(&context.principal));
        if owner == GrantOwner::Gateway {
            return;
        }
        let grants = context.grants.as_deref();
        let token = grants.and_then(|grants| grants.token.as_ref());
        match (self.oauth.grant, token) {
            (GrantKind::AuthorizationCode, _) => self.note_address(&owner, context.address),
            (grant, Some(token)) if grant.exchanges_callers() => {
                self.book.slot(self.key_of(&owner)).note_caller(token);
            }
            _ => {}
        }
    }

    /// Remembers the address of a client's request, because each address has a share of all links.
    pub fn note_address(&self, owner: &GrantOwner, address: IpAddr) {
        if *owner != GrantOwner::Gateway {
            *self.book.slot(self.key_of(owner)).address.lock() = Some(address);
        }
    }

    fn subject_type(&self) -> ExchangedType {
        self.oauth.subject_token_type.unwrap_or(match self.oauth.grant {
            GrantKind::IdJag => ExchangedType::IdToken,
            _ => ExchangedType::AccessToken,
        })
    }

    /// Exchanges an ID token at the identity provider for a grant at the server's authorization
    /// server (Enterprise-Managed Authorization, 4).
    async fn ask_idp(&self, subject: &Secret, source: &TokenSource) -> Result<Secret, LoginFault> {
        let idp = self.oauth.idp.as_ref().ok_or(LoginFault::NoOwnToken)?;
        let exchange = TokenExchange {
            subject: (subject, self.subject_type()),
            actor: None,
            wanted: WantedToken::IdJag,
            audience: Some(&source.issuer),
        };
        let (client, key) = (OauthClient::at_idp(idp), idp_key(idp));
        let request = TokenRequest {
            grant: TokenGrant::Exchange(exchange),
            client: &client,
            key: key.as_ref(),
            issuer: idp.token_endpoint.as_str(),
            resource: source.resource.as_deref(),
            scopes: &source.scopes,
        };
        let (headers, form) = request.write(clock::unix_now())?;
        let post = FormPost { url: &idp.token_endpoint, headers, form, client: &client };
        Ok(post.send(&self.outbound).await?.read(read_id_jag)?)
    }

    /// Presents the platform's JWT to get tokens. A JWT that was refused is not presented again
    /// (Workload Identity Federation: errors are surfaced, not retried).
    async fn present_jwt(
        &self,
        slot: &GrantSlot,
        source: &TokenSource,
    ) -> Result<GivenTokens, LoginFault> {
        let held = self.held.assertion.as_ref().ok_or(LoginFault::NoOwnToken)?;
        let jwt = held.read(&self.files).await?;
        if self.oauth.issuer.is_none() {
            check_audience(&jwt, &source.issuer, source.token_endpoint.as_str())?;
        }
        let given = format!("{}\n{}\n{}", source.issuer, source.scopes, jwt.expose());
        let given = sha256(given.as_bytes());
        if *slot.refused.lock() == Some(given) {
            return Err(LoginFault::RefusedBefore);
        }
        let tokens = source.ask(TokenGrant::Assertion { jwt: &jwt }).await;
        if let Err(LoginFault::Token(refusal)) = &tokens
            && refusal.is_verdict()
        {
            *slot.refused.lock() = Some(given);
        }
        tokens
    }
}

/// Tokens of the configuration that are exchanged for others.
pub(crate) struct HeldTokens {
    pub(crate) assertion: Option<HeldToken>,
    pub(crate) subject: Option<HeldToken>,
    pub(crate) actor: Option<HeldToken>,
}

impl HeldTokens {
    pub(crate) fn new(oauth: &OauthConfig) -> Self {
        let held = HeldToken::new;
        Self {
            assertion: held(oauth.assertion.as_ref(), oauth.assertion_file.as_ref()),
            subject: held(oauth.subject_token.as_ref(), oauth.subject_token_file.as_ref()),
            actor: held(oauth.actor_token.as_ref(), oauth.actor_token_file.as_ref()),
        }
    }
}

fn idp_key(idp: &IdpConfig) -> Option<AssertionKey> {
    let pem = idp.private_key.clone()?;
    Some(AssertionKey { pem, algorithm: idp.key_algorithm })
}
