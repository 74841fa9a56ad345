//! The faults of `[issuers.NAME]` and of other settings of tokens.

/// A fault of the settings of tokens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerFault {
    /// The `NAME` of `[issuers.NAME]` is invalid.
    #[error("not the name of an issuer")]
    Name,
    /// Two issuers with the same `iss`.
    #[error("`{other}` accepts the same `iss`")]
    Taken {
        /// The setting with the first occurrence.
        other: String,
    },
    /// Both places of keys.
    #[error("the issuer has both `jwks_url` and `jwks_file`")]
    TwoKeySources,
    /// An empty list that would accept nothing.
    #[error("the list is empty, so no token would be accepted")]
    NoneAccepted,
    /// Issuers of a gateway that other machines can reach, without its URL.
    #[error("{address} is reachable by other machines, but there is no `public_url`")]
    NoPublicUrl {
        /// The listener's address.
        address: std::net::SocketAddr,
    },
    /// Not the name of a scope.
    #[error("not the name of a scope")]
    ScopeName,
    /// The scope `offline_access`, which grants no calls.
    #[error("`offline_access` is a matter of clients and authorization servers")]
    OfflineAccess,
    /// Scopes are needed, but no client can have one.
    #[error("scopes are needed, but there are neither `[clients]` nor `[issuers]`")]
    NoScopeHolder,
}

impl IssuerFault {
    /// Returns the correction of the fault.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            Self::Name => "use 1 to 32 characters of a-z, A-Z, 0-9, `_`, `-` and `.`",
            Self::Taken { .. } | Self::TwoKeySources => "keep one of them",
            Self::NoneAccepted => "name at least one, or remove the setting",
            Self::NoPublicUrl { .. } => {
                "add the URL by which clients reach the gateway, such as \
                 public_url = \"https://mcp.example.com\""
            }
            Self::ScopeName => "use visible ASCII characters without spaces, `\"` and `\\`",
            Self::OfflineAccess => "remove it",
            Self::NoScopeHolder => "add an [issuers.NAME] or a [clients.NAME], or remove them",
        }
    }
}
