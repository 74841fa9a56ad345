//! Faults of tokens, and the scopes that a call needs.

use std::fmt;
use std::sync::Arc;

use crate::call::{Failure, TokenSource};

/// Reasons to refuse a token. The text contains nothing of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// The text has neither the form of a key nor that of a signed JWT.
    #[error("unknown key, and not a signed JWT")]
    Form,
    /// The token exceeds the length limit.
    #[error("the token has more than {limit} bytes")]
    TooLong {
        /// Limit of the bytes.
        limit: usize,
    },
    /// `iss` is not configured.
    #[error("the token is not from an accepted issuer")]
    Issuer,
    /// The issuer's users may not use this profile.
    #[error("the token's issuer is not accepted at this URL")]
    Profile,
    /// `alg` is not allowed, or does not fit the key.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// `typ` names another kind of JWT.
    #[error("the JWT is not an access token")]
    Kind,
    /// `crit` requires an extension that the gateway does not support.
    #[error("the token has critical headers that are not supported")]
    Critical,
    /// `cnf` binds the token to a key, and the request does not prove possession of that key.
    #[error("the token is bound to a key: bearer tokens only")]
    Bound,
    /// No key of the issuer has this `kid`.
    #[error("the token is signed with an unknown key")]
    UnknownKey,
    /// The signature does not verify.
    #[error("the token's signature is not valid")]
    Signature,
    /// `exp` is missing.
    #[error("the token has no expiry")]
    NoExpiry,
    /// `exp` is in the past.
    #[error("the token has expired")]
    Expired,
    /// `nbf` is in the future.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// `aud` is another resource.
    #[error("the token is for another resource: request one for the resource in the metadata")]
    Audience,
    /// The claim that names the principal is missing or too long.
    #[error("the token does not name its subject")]
    Subject,
}

impl TokenFault {
    /// Returns the metric label.
    pub fn label(self) -> &'static str {
        if self == Self::Expired { "token_expired" } else { "token_refused" }
    }
}

impl Failure {
    /// Returns the metric label of a failure about credentials.
    pub(super) fn credential_label(&self) -> &'static str {
        match self {
            Self::KeyMissing => "key_missing",
            Self::KeyExpired => "key_expired",
            Self::TokenMissing => "token_missing",
            Self::TokenRefused(fault) => fault.label(),
            _ => "key_unknown",
        }
    }
}

/// The scopes of an operation, for a client that lacks one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededScopes {
    /// All scopes that the operation needs.
    pub scopes: Vec<Arc<str>>,
    /// The client's source of tokens; `None` for a key.
    pub source: Option<Arc<TokenSource>>,
}

impl fmt::Display for NeededScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "insufficient scope, this needs: {}", self.scopes.join(" "))
    }
}
