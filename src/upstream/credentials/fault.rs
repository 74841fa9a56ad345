//! Why the gateway has no token for a server.

use std::sync::Arc;

use http::StatusCode;

use crate::text::one_line;
use crate::upstream::outbound::OutboundFault;
use crate::vault::VaultError;

use super::authorization::AnswerRefusal;
use super::dpop::DpopFault;
use super::held_token::HeldTokenFault;
use super::metadata::MetadataFault;
use super::pkce::NoRandomness;
use super::registration::RegistrationFault;
use super::token::TokenRefusal;

/// Why the gateway has no token for a server. The texts hold no token, code or secret.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoginFault {
    /// A URL has no answer.
    #[error(transparent)]
    Outbound(#[from] OutboundFault),
    /// A URL answers with an error.
    #[error("{url} answered {status}")]
    Status {
        /// The URL.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// A metadata document is not usable.
    #[error("the metadata at {url} cannot be used")]
    Metadata {
        /// Where it is.
        url: String,
        /// What is wrong.
        source: MetadataFault,
    },
    /// An authorization server without metadata.
    #[error("the authorization server {issuer:?} has no metadata where it must be")]
    NoMetadata {
        /// The issuer.
        issuer: String,
    },
    /// There is no client to log in with.
    #[error(transparent)]
    Registration(#[from] RegistrationFault),
    /// The answer of a login is not used.
    #[error(transparent)]
    Answer(#[from] AnswerRefusal),
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenRefusal),
    /// There are no random bytes.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// The gateway has no URL that a browser could come back to.
    #[error(
        "nobody can log in, because the gateway has no URL to come back to: it listens on no \
         address that a browser can reach, and has no `public_url`"
    )]
    NoCallback,
    /// A token of the configuration cannot be used.
    #[error(transparent)]
    Held(#[from] HeldTokenFault),
    /// A proof of possession cannot be made.
    #[error(transparent)]
    Dpop(#[from] DpopFault),
    /// There is no token of the client that could be exchanged.
    #[error(
        "there is nothing to exchange for a token: the client has not sent a token of the issuer \
         whose tokens this server exchanges"
    )]
    NoCallerToken,
    /// There is no token of the operator that could be exchanged.
    #[error(
        "there is nothing to exchange for a token of the gateway's own: set `subject_token` or \
         `subject_token_file`"
    )]
    NoOwnToken,
    /// The authorization server has refused the JWT, which is not sent a second time.
    #[error(
        "the authorization server has refused the JWT before: it is not sent again until there is \
         another"
    )]
    RefusedBefore,
    /// A server that nobody logs in to.
    #[error(
        "nobody logs in to the server: it has no `oauth` table with a person's login, or one with \
         `per = \"gateway\"`, which has no accounts of clients"
    )]
    NoLogin,
    /// A link that is used up.
    #[error("the link is used up, or it is too old")]
    UnknownLink,
    /// A login goes on in another browser than it was begun in.
    #[error("the login was begun in another browser, and goes on there only")]
    OtherBrowser,
    /// The vault does not do what it should.
    #[error(transparent)]
    Vault(Arc<VaultError>),
    /// The task that looked after a login ended early.
    #[error("the login was interrupted")]
    Interrupted,
    /// The server refuses a token that has all that it asks for.
    #[error("the server asks for the scopes {scopes:?}, which the gateway has asked for already")]
    Futile {
        /// What it asks for.
        scopes: String,
    },
    /// The server asks for other scopes again and again.
    #[error(
        "the server has asked for other scopes {limit} times since the login: set `scopes` to all \
         that its calls need"
    )]
    StepUps {
        /// How often it may.
        limit: usize,
    },
}

impl LoginFault {
    /// Whether no login waits for what came.
    pub fn is_of_no_login(&self) -> bool {
        matches!(self, Self::Answer(AnswerRefusal::UnknownState | AnswerRefusal::Duplicate))
    }

    /// The reason as clients may learn it: one line without the details of connections.
    pub(in crate::upstream) fn reason(&self) -> String {
        let reason = match self {
            Self::Metadata { source, .. } => format!("{self}: {source}"),
            fault => fault.to_string(),
        };
        one_line(&reason, MAX_REASON_CHARACTERS)
    }

    /// Whether the authorization server does not know the client.
    pub(super) fn is_unknown_client(&self) -> bool {
        matches!(self, Self::Token(TokenRefusal::Refused { error }) if error.code == "invalid_client")
    }

    /// The fault of a document, with the place where it is.
    pub(in crate::upstream) fn in_document(url: String) -> impl FnOnce(MetadataFault) -> Self {
        move |source| Self::Metadata { url, source }
    }
}

/// The most characters of a reason that clients learn.
const MAX_REASON_CHARACTERS: usize = 500;
