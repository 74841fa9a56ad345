//! Access tokens: signed JWTs of the configured issuers.
//!
//! A token is parsed ([`jwt`]) and its issuer found. Its claims are checked against the issuer's
//! configuration and the addressed resource ([`claims`]), and its signature is verified with a key
//! of the issuer ([`key_set`]). The result is cached by the token's fingerprint ([`verified`])
//! until the token expires, or the configuration or the issuer's keys change.
//!
//! Nothing is fetched here: [`IssuerKeys`] holds the keys that `upstream` has fetched, and signals
//! when to fetch them again.

mod claims;
mod issuer_keys;
mod jwt;
mod key_set;
mod scopes;
#[cfg(test)]
mod tests;
mod verified;

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Failure, Principal, TokenFault};
#[cfg(test)]
use crate::config::TokenAlgorithm;
use crate::config::{Config, IssuerConfig};

pub use issuer_keys::{FetchState, IssuerKeys, KeyPlace, KeySource, KeyWait};
pub use key_set::{KeySet, KeySetFault};

use super::resource::ProtectedResource;
use jwt::ParsedToken;
pub(super) use scopes::ScopeRanks;
pub(super) use verified::VerifiedToken;
use verified::{CheckedToken, VerifiedTokens};

/// Returns the subject that a text claims as a token. Nothing of it is verified.
pub(super) fn claimed_subject(text: &[u8]) -> Option<String> {
    ParsedToken::parse(text).ok()?.text_claim("sub").map(ToOwned::to_owned)
}

/// An attempt to verify a token.
pub(super) struct TokenAttempt<A> {
    /// The time since 1970.
    pub(super) now: Duration,
    /// Decides if an unknown token may be tried.
    pub(super) admit: A,
}

/// Issuers of a configuration, and the tokens that were verified under it.
#[derive(Debug)]
pub(super) struct TokenIssuers {
    issuers: Vec<Arc<TokenIssuer>>,
    verified: VerifiedTokens,
}

/// One issuer.
#[derive(Debug)]
pub struct TokenIssuer {
    /// Its configuration.
    pub config: IssuerConfig,
    /// Its keys, which outlive the configuration.
    pub keys: Arc<IssuerKeys>,
    /// The configured base of the resources that its tokens name, if there is one.
    base: Option<String>,
    ranks: Arc<ScopeRanks>,
    /// True if a server exchanges its tokens, so that their texts are kept.
    keeps_texts: bool,
}

/// Reasons for a token not to identify its sender.
#[derive(Debug)]
pub(super) enum Unverified {
    /// It was not tried, or it was verified before and is not accepted here and now.
    Refused(Failure),
    /// The token is not acceptable.
    Faulty(TokenFault),
    /// It may be acceptable once the issuer's keys have been fetched.
    Pending(KeyWait),
}

impl From<TokenFault> for Unverified {
    fn from(fault: TokenFault) -> Self {
        Self::Faulty(fault)
    }
}

impl TokenIssuers {
    /// Creates the issuers of a configuration, with the keys that were fetched `before`; `None` if
    /// there are none.
    pub(super) fn new(
        config: &Config,
        ranks: &Arc<ScopeRanks>,
        before: Option<&Self>,
    ) -> Option<Self> {
        let base = config.gateway.public_url.as_ref().map(ToString::to_string);
        let servers = &config.servers;
        let issuer = |config: &IssuerConfig| {
            let source = KeySource::of(config);
            let known = before.into_iter().flat_map(|before| &before.issuers);
            let known = known.map(|issuer| &issuer.keys).find(|keys| keys.source == source);
            let keys = known.map_or_else(|| IssuerKeys::new(source), Arc::clone);
            let (config, base, ranks) = (config.clone(), base.clone(), Arc::clone(ranks));
            let keeps_texts = servers.iter().any(|server| server.exchanges_tokens_of(&config.name));
            Arc::new(TokenIssuer { config, keys, base, ranks, keeps_texts })
        };
        let issuers: Vec<_> = config.issuers.iter().map(issuer).collect();
        let verified = VerifiedTokens::new();
        (!issuers.is_empty()).then_some(Self { issuers, verified })
    }

    pub(super) fn all(&self) -> &[Arc<TokenIssuer>] {
        &self.issuers
    }

    /// Returns the issuer of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<TokenIssuer>> {
        self.issuers.iter().find(|issuer| issuer.config.name.as_str() == name)
    }

    /// Returns true if a text is a token of one of the issuers, valid or not.
    pub(super) fn claims_issuer(&self, text: &[u8]) -> bool {
        let parsed = ParsedToken::parse(text).ok();
        parsed.is_some_and(|token| self.issuer_of(&token).is_some())
    }

    fn issuer_of(&self, token: &ParsedToken<'_>) -> Option<&Arc<TokenIssuer>> {
        let said = token.text_claim("iss")?;
        self.issuers.iter().find(|issuer| issuer.config.accepts_issuer(said))
    }

    /// Returns the token with this text, if it was verified before with keys that its issuer still
    /// has, or the reason to refuse it here and now. `None` if it has to be verified.
    pub(super) fn recall(
        &self,
        text: &[u8],
        resource: &ProtectedResource,
        now: Duration,
    ) -> Option<Result<Arc<VerifiedToken>, Failure>> {
        let token = self.verified.find(text)?;
        let checked = if token.is_expired(now) {
            Err(TokenFault::Expired)
        } else if token.has_current_key() {
            token.check_resource(resource)
        } else {
            return None;
        };
        Some(checked.map(|()| token).map_err(Failure::TokenRefused))
    }

    /// Verifies a token that cannot be recalled, for a resource. One that was verified before, with
    /// other keys, needs no `admit`.
    ///
    /// # Errors
    /// [`Unverified`].
    pub(super) fn verify(
        &self,
        text: &[u8],
        digest: &[u8; 32],
        resource: &ProtectedResource,
        attempt: TokenAttempt<impl FnOnce() -> Result<(), Failure>>,
    ) -> Result<Arc<VerifiedToken>, Unverified> {
        let TokenAttempt { now, admit } = attempt;
        if self.verified.find(text).is_none() {
            admit().map_err(Unverified::Refused)?;
        }
        let parsed = ParsedToken::parse(text)?;
        let issuer = self.issuer_of(&parsed).ok_or(TokenFault::Issuer)?;
        let token = issuer.verify(&parsed, digest, resource, now)?;
        self.verified.insert(text, Arc::clone(&token), now);
        Ok(token)
    }

    /// Returns true if a token that was verified under an earlier configuration would still be
    /// accepted.
    pub(super) fn accepts(&self, token: &VerifiedToken, now: Duration) -> bool {
        let issuer = self.find(token.issuer.config.name.as_str());
        !token.is_expired(now) && issuer.is_some_and(|issuer| issuer.is_same_as(&token.issuer))
    }

    /// Returns true if the users of a token's issuer are still the same.
    pub(super) fn keeps_users(&self, token: &VerifiedToken) -> bool {
        let before = &token.issuer.config;
        self.find(before.name.as_str()).is_some_and(|issuer| {
            let config = &issuer.config;
            config.issuer == before.issuer && config.principal_claim == before.principal_claim
        })
    }

    /// Returns true if the issuer of a user may be used at a profile.
    pub(super) fn allows(&self, who: &Principal, profile: &str) -> bool {
        let issuer = who.issuer().and_then(|name| self.find(name));
        issuer.is_some_and(|issuer| issuer.config.allows_profile(profile))
    }
}

impl TokenIssuer {
    /// Returns true if both accept the same tokens.
    fn is_same_as(&self, other: &Self) -> bool {
        self.config == other.config && self.base == other.base
    }

    fn verify(
        self: &Arc<Self>,
        token: &ParsedToken<'_>,
        digest: &[u8; 32],
        resource: &ProtectedResource,
        now: Duration,
    ) -> Result<Arc<VerifiedToken>, Unverified> {
        let algorithm = token.check_header(&self.config.algorithms)?;
        // Before the keys, so that a token that is refused anyway does not cause a fetch.
        let claims = claims::check(&self.config, token, now)?;
        claims::check_audience(&self.config, &claims.audiences, resource)?;
        let Some(keys) = self.keys.current() else {
            return Err(match self.keys.pending() {
                Some(wait) => Unverified::Pending(wait),
                None => Unverified::Refused(Failure::IssuerUnavailable),
            });
        };
        match keys.verify(token, algorithm) {
            Ok(()) => Ok(VerifiedToken::new(self, CheckedToken { token, digest, claims }, keys)),
            Err(TokenFault::UnknownKey) => Err(match self.keys.ask_again(now) {
                Some(wait) => Unverified::Pending(wait),
                None => TokenFault::UnknownKey.into(),
            }),
            Err(fault) => Err(fault.into()),
        }
    }
}
