//! Faults of whole documents.

use super::tree::TreeFault;

/// Fault that makes a document unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFault {
    /// It cannot be parsed.
    #[error("{0}")]
    Tree(#[from] TreeError),
    /// It is not an OpenAPI document of a supported version.
    #[error("at /openapi: expected version 3.0 or 3.1, found {found}")]
    Version {
        /// The version, clipped.
        found: String,
    },
    /// It has no paths.
    #[error("at /paths: expected an object, found none")]
    NoPaths,
    /// Too many operations.
    #[error("at {place}: the document has more than {max} operations")]
    TooManyOperations {
        /// JSON pointer of the path with the first operation beyond the limit.
        place: String,
        /// The bound.
        max: usize,
    },
    /// There is no address to send requests to.
    #[error("at /servers/0/url: {url:?} is not usable: set `base_url`")]
    Server {
        /// The URL with its variables filled in, clipped.
        url: String,
    },
    /// The address has another origin than the document.
    #[error(
        "at /servers/0/url: the server {url} has another origin than the document: to send \
         requests there, set `base_url` to it"
    )]
    OtherOrigin {
        /// The URL, clipped.
        url: String,
    },
    /// Only a local document names the address, and there are credentials that would go there.
    #[error(
        "at /servers/0/url: `auth` and `headers` would go to {url}, which only the document names: \
         set `base_url`"
    )]
    Credentials {
        /// The URL, clipped.
        url: String,
    },
    /// The document names another origin than at the start of the server.
    #[error("at /servers/0/url: the origin has changed to {url}: start the server again")]
    OriginChanged {
        /// The origin.
        url: String,
    },
    /// The file cannot be read, or the server has no document at the usual places.
    #[error("{place}: {reason}")]
    Unreadable {
        /// Path or URL, without secrets.
        place: String,
        /// The reason, clipped.
        reason: String,
    },
}

/// A fault of the bytes, opaque to other modules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct TreeError(TreeFault);

impl From<TreeFault> for DocumentFault {
    fn from(fault: TreeFault) -> Self {
        Self::Tree(TreeError(fault))
    }
}
