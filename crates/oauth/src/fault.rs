//! Reasons that the gateway has no token for a server.

use std::path::PathBuf;
use std::sync::Arc;

use http::StatusCode;

use trunkline_core::codec::file::{FileError, ReadError};
use trunkline_core::shared_records::SharingFault;
use trunkline_core::text::one_line;
use trunkline_http_client::outbound::OutboundFault;

use crate::vault::VaultError;

use crate::metadata::documents::MetadataFault;
use crate::metadata::registration::RegistrationFault;
use crate::proofs::authorization::AuthorizationAnswerError;
use crate::proofs::dpop::DpopFault;
use crate::proofs::pkce::RandomnessError;
use crate::proofs::token::TokenEndpointError;

/// Reason that the gateway has no token for a server. The texts contain no token, code or secret.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoginFault {
    /// A URL does not respond.
    #[error(transparent)]
    Outbound(#[from] OutboundFault),
    /// A URL responds with an error.
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
        /// URL of the document.
        url: String,
        /// The fault in the document.
        source: MetadataFault,
    },
    /// The authorization server has no metadata.
    #[error("the authorization server {issuer:?} has no metadata at its well-known URLs")]
    NoMetadata {
        /// The issuer.
        issuer: String,
    },
    /// There is no client to log in with.
    #[error(transparent)]
    Registration(#[from] RegistrationFault),
    /// The response of a login is not used.
    #[error(transparent)]
    Answer(#[from] AuthorizationAnswerError),
    /// There is no token in the response.
    #[error(transparent)]
    Token(#[from] TokenEndpointError),
    /// There are no random bytes.
    #[error(transparent)]
    Randomness(#[from] RandomnessError),
    /// The gateway has no URL to which a browser could return.
    #[error(
        "the gateway has no callback URL for the login: it has no `public_url`, and listens on no \
         address that a browser can reach"
    )]
    NoCallback,
    /// A token of the configuration cannot be used.
    #[error(transparent)]
    Held(#[from] HeldTokenFault),
    /// A proof of possession cannot be made.
    #[error(transparent)]
    Dpop(#[from] DpopFault),
    /// There is no token of the client to exchange.
    #[error(
        "no token to exchange: the client has not sent a token from the issuer that is configured \
         for this server"
    )]
    NoCallerToken,
    /// There is no token of the operator to exchange.
    #[error(
        "no token to exchange for the gateway's own token: set `subject_token` or \
         `subject_token_file`"
    )]
    NoOwnToken,
    /// The authorization server has refused the JWT, which is not sent again.
    #[error(
        "the authorization server has already refused this JWT: it is not sent again until it \
         changes"
    )]
    RefusedBefore,
    /// The server has no logins.
    #[error(
        "clients do not log in to the server: it has no `oauth` table with a person's login, or \
         one with `per = \"gateway\"`"
    )]
    NoLogin,
    /// The link has been used.
    #[error("the link was already used, or has expired")]
    UnknownLink,
    /// A login continues in a browser other than the one in which it began.
    #[error("the login was started in another browser, and continues only there")]
    OtherBrowser,
    /// The vault failed.
    #[error(transparent)]
    Vault(Arc<VaultError>),
    /// The store that replicas share does not have or take the grant.
    #[error(transparent)]
    Shared(SharingFault),
    /// The grant is too large for the store that replicas share.
    #[error(
        "the login has {bytes} bytes, and the store of the gateway's replicas takes at most {limit}: \
         the authorization server should issue smaller tokens"
    )]
    TooLarge {
        /// Its size, sealed.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The task of a login ended early.
    #[error("the login was interrupted")]
    Interrupted,
    /// The server refuses a token that has all scopes that it requests.
    #[error("the server requires the scopes {scopes:?}, which the gateway has already requested")]
    Futile {
        /// Scopes that it requests.
        scopes: String,
    },
    /// The server requests other scopes again and again.
    #[error(
        "the server has asked for other scopes {limit} times since the login: set `scopes` to all \
         that its calls need"
    )]
    StepUps {
        /// Maximum number of such requests.
        limit: usize,
    },
}

/// Fault in a token of the configuration. The texts never contain the token.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HeldTokenFault {
    /// The file cannot be read.
    #[error("cannot read the token in {path:?}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Arc<FileError>,
    },
    /// The file system does not respond.
    #[error("cannot read the token")]
    Read(#[source] Arc<ReadError>),
    /// The text is not a token.
    #[error("the token is empty, or has invalid characters")]
    Shape,
    /// The JWT is for a different audience.
    #[error(
        "the JWT is not for the authorization server {issuer:?}: expected its `aud` to name the \
         issuer or its token endpoint; set `issuer` if the server accepts it anyway"
    )]
    Audience {
        /// The authorization server that the server names.
        issuer: String,
    },
}

impl LoginFault {
    /// Returns true if no login waits for the response.
    pub fn is_of_no_login(&self) -> bool {
        matches!(
            self,
            Self::Answer(
                AuthorizationAnswerError::UnknownState | AuthorizationAnswerError::Duplicate
            )
        )
    }

    /// Returns true if the authorization server refuses the gateway's own credentials, so that an
    /// operator has to act before another attempt can succeed.
    pub fn is_refused_client(&self) -> bool {
        match self {
            Self::Token(fault) => fault.is_refused_client(),
            Self::Status { status, .. } => {
                matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
            }
            _ => false,
        }
    }

    /// Returns true if the store that replicas share cannot be reached.
    pub fn is_store_unavailable(&self) -> bool {
        matches!(self, Self::Shared(SharingFault::Unavailable | SharingFault::Busy))
    }

    /// Returns the reason for the audit log. It repeats no text of the response.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Outbound(_) | Self::Status { .. } => "unreachable",
            Self::Metadata { .. } | Self::NoMetadata { .. } => "metadata",
            Self::Registration(_) => "registration",
            Self::Answer(fault) => fault.label(),
            Self::Token(_) => "token_refused",
            Self::OtherBrowser => "other_browser",
            Self::Vault(_) => "vault",
            Self::Shared(_) | Self::TooLarge { .. } => "store",
            Self::Interrupted => "interrupted",
            _ => "failed",
        }
    }

    /// Returns the reason for clients: one line without details of connections.
    pub fn reason(&self) -> String {
        let reason = match self {
            Self::Metadata { source, .. } => format!("{self}: {source}"),
            fault => fault.to_string(),
        };
        one_line(&reason, MAX_REASON_CHARACTERS)
    }

    /// Returns true if the authorization server does not know the client.
    pub(super) fn is_unknown_client(&self) -> bool {
        matches!(self, Self::Token(TokenEndpointError::Refused { error }) if error.code == "invalid_client")
    }

    /// Adds the document's URL to a fault.
    pub(crate) fn in_document(url: String) -> impl FnOnce(MetadataFault) -> Self {
        move |source| Self::Metadata { url, source }
    }
}

impl From<SharingFault> for LoginFault {
    fn from(fault: SharingFault) -> Self {
        match fault {
            SharingFault::TooLarge { bytes, limit } => Self::TooLarge { bytes, limit },
            fault => Self::Shared(fault),
        }
    }
}

/// Maximum number of characters of a reason for clients.
const MAX_REASON_CHARACTERS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proofs::token::read_refusal;

    #[test]
    fn an_operator_has_to_mend_credentials_that_are_refused() {
        let of_token = |status, body: &str| LoginFault::from(read_refusal(status, body.as_bytes()));
        let of_status = |status| LoginFault::Status { url: "https://idp.example/".into(), status };
        let error = |code: &str| format!(r#"{{"error":"{code}"}}"#);
        for (fault, is_refused) in [
            (of_token(StatusCode::UNAUTHORIZED, &error("invalid_client")), true),
            (of_token(StatusCode::BAD_REQUEST, &error("invalid_client")), true),
            (of_token(StatusCode::BAD_REQUEST, &error("unauthorized_client")), true),
            (of_token(StatusCode::UNAUTHORIZED, "no"), true),
            (of_token(StatusCode::FORBIDDEN, ""), true),
            (of_token(StatusCode::BAD_REQUEST, &error("invalid_grant")), false),
            (of_token(StatusCode::BAD_REQUEST, &error("temporarily_unavailable")), false),
            (of_token(StatusCode::TOO_MANY_REQUESTS, "later"), false),
            (of_token(StatusCode::SERVICE_UNAVAILABLE, "later"), false),
            (of_status(StatusCode::UNAUTHORIZED), true),
            (of_status(StatusCode::FORBIDDEN), true),
            (of_status(StatusCode::NOT_FOUND), false),
            (of_status(StatusCode::TOO_MANY_REQUESTS), false),
            (LoginFault::NoCallerToken, false),
        ] {
            assert_eq!(fault.is_refused_client(), is_refused, "{fault:?}");
        }
    }
}
