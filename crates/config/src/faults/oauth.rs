//! The faults of `[servers.NAME.oauth]`.

/// A fault of the settings of an OAuth client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OauthFault {
    /// A secret or a key without its client.
    #[error("the setting belongs to a registered client, but there is no `client_id`")]
    NoClientId,
    /// A grant without a user, and no client that may have it.
    #[error(
        "the grant `client_credentials` needs `client_id`, and `client_secret` or `private_key`"
    )]
    NoCredentials,
    /// A grant without a setting that it needs.
    #[error("the grant `{grant}` needs {needed}")]
    GrantNeeds {
        /// The grant.
        grant: &'static str,
        /// The missing settings.
        needed: &'static str,
    },
    /// A setting of another grant.
    #[error("this setting is only for the grant {grants}")]
    OtherGrant {
        /// The grants that have it.
        grants: &'static str,
    },
    /// A value and the file of that value.
    #[error("the token is here and in a file")]
    TwoPlaces,
    /// Tokens of several issuers.
    #[error("there are several issuers, but this server has no `subject_issuer`")]
    ManyIssuers,
    /// A name without a table of issuers.
    #[error("there is no issuer of this name")]
    UnknownIssuer,
    /// A way to authenticate without a setting that it needs.
    #[error("this authentication method needs {needed}")]
    AuthNeeds {
        /// The missing setting.
        needed: &'static str,
    },
    /// A fixed header that would replace the token.
    #[error("the server has both OAuth and a fixed `Authorization` header")]
    TwoAuthorizations,
    /// Two ways to authenticate requests.
    #[error("the server has both OAuth and signatures for AWS")]
    AwsToo,
    /// One session for all clients, although their requests need tokens of their own.
    #[error("with `per = \"user\"` each client of a Legacy server needs a session of its own")]
    SharedSession,
}

impl OauthFault {
    /// Returns the correction of the fault.
    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::NoClientId => "add the client_id, or remove the setting",
            Self::NoCredentials | Self::GrantNeeds { .. } => "add them",
            Self::OtherGrant { .. } => "remove it, or choose that grant",
            Self::ManyIssuers => "write subject_issuer = \"NAME\" with the NAME of [issuers.NAME]",
            Self::UnknownIssuer => "write the NAME of a table [issuers.NAME]",
            Self::AuthNeeds { .. } => "add it, or write token_endpoint_auth = \"auto\"",
            Self::TwoPlaces | Self::TwoAuthorizations | Self::AwsToo => "keep one of them",
            Self::SharedSession => {
                "write isolation = \"client\" for the server, or per = \"gateway\" in this table"
            }
        }
    }
}
