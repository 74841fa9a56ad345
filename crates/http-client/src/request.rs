//! Requests: their headers, which are written straight into them, and their signatures.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri};

use crate::error::HttpError;
use crate::target::RequestTarget;

/// A request, besides the headers that every request of its client has.
pub struct OutgoingRequest<'a, H> {
    /// The target, at the client's server.
    pub target: &'a RequestTarget,
    /// The method.
    pub method: &'a Method,
    /// The headers.
    pub headers: &'a H,
    /// The body.
    pub body: Bytes,
}

/// The headers of one request, besides the fixed ones. They are written straight into the request,
/// and once more for each redirect.
pub trait RequestHeaders {
    /// Adds the headers, and replaces those of the same name.
    fn add_to(&self, headers: &mut HeaderMap);
}

/// Adds headers that depend on the whole request and all its other headers, such as a signature.
pub trait RequestSigner {
    /// Error of a request with such headers.
    type Error: From<HttpError>;

    /// Adds the headers.
    ///
    /// # Errors
    /// The reason that such a header cannot be made.
    fn sign(
        &self,
        request: &SignableRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), Self::Error>;
}

/// A request without its headers, as signatures and proofs name it.
pub struct SignableRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The absolute URI.
    pub uri: &'a Uri,
    /// The value of `Host`.
    pub host: &'a HeaderValue,
    /// The body.
    pub body: &'a [u8],
}

impl RequestHeaders for HeaderMap {
    fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// A request's headers together with those of its session. The session's headers prevail.
impl<H: RequestHeaders, S: RequestHeaders> RequestHeaders for (&H, Option<&S>) {
    fn add_to(&self, headers: &mut HeaderMap) {
        let (own, session) = self;
        own.add_to(headers);
        if let Some(session) = session {
            session.add_to(headers);
        }
    }
}

/// Signs nothing.
pub(crate) struct Unsigned;

impl RequestSigner for Unsigned {
    type Error = HttpError;

    fn sign(&self, _: &SignableRequest<'_>, _: &mut HeaderMap) -> Result<(), HttpError> {
        Ok(())
    }
}
