//! Reasons why a URL is not usable.

/// Reason why a URL is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// It does not parse.
    #[error("{0}")]
    Parse(url::ParseError),
    /// It has no scheme.
    #[error("it has no scheme")]
    NoScheme,
    /// It is neither `http` nor `https`.
    #[error("its scheme is neither `http` nor `https`")]
    Scheme,
    /// It has `user:password@`.
    #[error("it carries a user name or a password")]
    Credentials,
    /// It is plain `http`, and not on this machine.
    #[error("it is plain `http` to another machine")]
    Unencrypted,
    /// It has a `#fragment`.
    #[error("it has a fragment")]
    Fragment,
}

impl From<url::ParseError> for UrlFault {
    fn from(error: url::ParseError) -> Self {
        match error {
            url::ParseError::RelativeUrlWithoutBase => Self::NoScheme,
            error => Self::Parse(error),
        }
    }
}
