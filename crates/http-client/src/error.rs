//! Errors of requests, and of the settings for them.

use std::error::Error;
use std::io;
use std::sync::Arc;

use http::{HeaderName, Uri};

use trunkline_config::ServerSecrets;
use trunkline_core::codec::body::BodyError;
use trunkline_https::TlsSetupError;

/// Error of a request. Cheap to clone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HttpError {
    /// The connection could not be opened.
    #[error("it could not be reached")]
    Connect(#[source] Arc<dyn Error + Send + Sync>),
    /// The connection was lost before the end of the response.
    #[error("the connection was lost")]
    Broken(#[source] Arc<TransportError>),
    /// A redirect that is not followed.
    #[error("it redirects to {to}, which is not followed: set `url` to that address")]
    Redirect {
        /// The `Location`.
        to: String,
    },
    /// A content coding that is not decoded.
    #[error("its response is encoded with {found:?}, expected no content coding, gzip or br")]
    Encoding {
        /// The `Content-Encoding`.
        found: String,
    },
    /// The body does not have the content coding that its head names.
    #[error("its response is not valid {coding}, which its Content-Encoding names")]
    Undecodable {
        /// The coding.
        coding: &'static str,
        /// The fault in the encoded data.
        source: Arc<io::Error>,
    },
    /// The body is larger than allowed.
    #[error("its response is larger than {limit} bytes")]
    TooLarge {
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The event stream has more lines without a message than allowed.
    #[error("it sent more than {limit} lines without a message within a second")]
    Chatter {
        /// Maximum number of lines per second.
        limit: usize,
    },
    /// A setting that turns out to be wrong only at run time, such as a certificate file.
    #[error("its configuration cannot be used")]
    Setup(#[source] Box<HttpSetupFault>),
}

impl HttpError {
    /// Returns the same error without these secrets in its quotes of a response.
    #[must_use]
    pub fn without(&self, secrets: &ServerSecrets) -> Self {
        let hide = |text: &String| secrets.hide_in_cut(text).into_owned();
        match self {
            Self::Redirect { to } => Self::Redirect { to: hide(to) },
            Self::Encoding { found } => Self::Encoding { found: hide(found) },
            other => other.clone(),
        }
    }
}

impl From<TransportError> for HttpError {
    fn from(fault: TransportError) -> Self {
        match fault {
            TransportError::Connect(error) => Self::Connect(error.into()),
            TransportError::Undecodable { coding, source } => {
                Self::Undecodable { coding, source: Arc::new(source) }
            }
            fault => Self::Broken(Arc::new(fault)),
        }
    }
}

impl From<BodyError<TransportError>> for HttpError {
    fn from(error: BodyError<TransportError>) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::TooLarge { limit },
            BodyError::Chatter { limit } => Self::Chatter { limit },
            BodyError::Broken(error) => error.into(),
        }
    }
}

impl From<HttpSetupFault> for HttpError {
    fn from(fault: HttpSetupFault) -> Self {
        Self::Setup(Box::new(fault))
    }
}

/// A setting of requests that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HttpSetupFault {
    /// Requests cannot be sent to the URL.
    #[error("the url is not an absolute http or https URL")]
    Url,
    /// The value of a configured header is invalid.
    #[error("the header {name} has an invalid value")]
    Header {
        /// The header.
        name: HeaderName,
    },
    /// A request cannot be signed.
    #[error(transparent)]
    Signature(SignatureFault),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
}

/// Error while signing a request. The texts contain no header value and no key.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SignatureFault {
    /// A header value is not text.
    #[error("the request cannot be signed: the value of the header {name} is not plain text")]
    Header {
        /// The header.
        name: HeaderName,
    },
    /// The request or a setting cannot be signed.
    #[error("the request cannot be signed for AWS")]
    Request,
}
/// Error of a request without a complete response.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection could be opened.
    #[error("no connection: {0}")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The server closed the connection before the response was complete.
    #[error("the server closed the connection")]
    Closed,
    /// The response head is too large.
    #[error("the response head is larger than {limit} bytes")]
    HeadTooLarge {
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The response is not valid HTTP/1.1.
    #[error("the response is not valid HTTP/1.1")]
    Malformed(#[source] hyper::Error),
    /// The connection was lost.
    #[error("the connection broke")]
    Broken(#[source] hyper::Error),
    /// The HTTP/2 stream or connection failed.
    #[error("the HTTP/2 stream failed")]
    Http2(#[source] hyper::Error),
    /// The body does not have the content coding that its head names.
    #[error("the body is not valid {coding}")]
    Undecodable {
        /// The coding.
        coding: &'static str,
        /// The fault in the encoded data.
        source: io::Error,
    },
    /// The first response on a connection without TLS is not HTTP, or the connection was reset.
    #[error("{origin} did not answer in HTTP: if it is an HTTPS server, write https:// in the URL")]
    Plain {
        /// Scheme, host and port.
        origin: String,
        /// The fault of the connection.
        source: Box<Self>,
    },
    /// The lost connection had been kept from an earlier request.
    #[error(transparent)]
    Kept(Box<Self>),
}

impl TransportError {
    /// Explains the fault of a new connection to a server without TLS: one that speaks TLS answers a
    /// request in plain text with an alert, and resets the connection.
    #[cold]
    pub(crate) fn on_plain(self, uri: &Uri) -> Self {
        let is_reset = |error: &hyper::Error| {
            let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
            io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionReset)
        };
        let may_be_tls = match &self {
            Self::Malformed(_) => true,
            Self::Broken(error) => is_reset(error),
            _ => false,
        };
        if uri.scheme_str() != Some("http") || !may_be_tls {
            return self;
        }
        Self::Plain { origin: origin_of(uri), source: Box::new(self) }
    }

    /// Marks the fault as one of a connection kept from an earlier request.
    #[cold]
    pub(crate) fn on_kept(self) -> Self {
        match self {
            Self::Closed | Self::Broken(_) | Self::Http2(_) => Self::Kept(Box::new(self)),
            other => other,
        }
    }
}

/// Returns scheme, host and port of a URI. A path or query may hold a secret.
pub(crate) fn origin_of(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}")
}
