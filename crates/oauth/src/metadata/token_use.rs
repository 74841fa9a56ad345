//! Use of access tokens, as servers request it and tokens state it.

/// Use of an access token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TokenUse {
    /// Usable by any holder.
    #[default]
    Bearer,
    /// Usable only with proofs of the key to which it is bound (RFC 9449).
    Dpop,
}

impl TokenUse {
    /// Returns the scheme in `Authorization` and `WWW-Authenticate`.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Bearer => "Bearer",
            Self::Dpop => "DPoP",
        }
    }
}
