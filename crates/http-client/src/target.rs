//! Targets of requests, and references to others within one origin.

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};

use trunkline_core::text::{clip, hide_password};

use crate::error::HttpError;

/// The target of a request, in the forms that HTTP requires.
#[derive(Debug, Clone)]
pub struct RequestTarget {
    /// The absolute URI.
    pub(crate) uri: Uri,
    /// Path and query, as in an HTTP/1.1 request line.
    pub(crate) origin_form: Uri,
    pub(crate) host: HeaderValue,
}

impl RequestTarget {
    /// Returns the target that an absolute URI names, or `None` if it is not absolute.
    pub fn new(uri: Uri) -> Option<Self> {
        let origin_form = uri.path_and_query()?.clone().into();
        let host = uri.host()?;
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let host = match uri.port_u16().filter(|port| *port != default) {
            Some(port) => HeaderValue::from_str(&format!("{host}:{port}")),
            None => HeaderValue::from_str(host),
        };
        Some(Self { origin_form, host: host.ok()?, uri })
    }

    /// Returns the absolute URI.
    #[inline]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns another path of the same origin.
    pub(crate) fn with_path(&self, path: PathAndQuery) -> Option<Self> {
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok().and_then(Self::new)
    }
}

/// Resolves a reference relative to `from`.
///
/// # Errors
/// [`HttpError::Redirect`] for a reference to another origin.
pub(crate) fn same_origin_as(from: &Uri, to: &str) -> Result<RequestTarget, HttpError> {
    let refused = || refused_redirect(to);
    let base = url::Url::parse(&from.to_string()).map_err(|_| refused())?;
    let target = base.join(to.trim()).map_err(|_| refused())?;
    if target.origin() != base.origin() {
        return Err(refused());
    }
    target.as_str().parse().ok().and_then(RequestTarget::new).ok_or_else(refused)
}

/// Returns the error of a redirect that is not followed.
pub(crate) fn refused_redirect(to: &str) -> HttpError {
    HttpError::Redirect { to: clip(&hide_password(to), 200).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_that_is_refused_does_not_tell_a_password() {
        let from = "http://127.0.0.1/mcp".parse().unwrap();
        let to = "http://user:hunter2@example.com/";
        for refused in [same_origin_as(&from, to).err().unwrap(), refused_redirect(to)] {
            let refused = refused.to_string();
            assert!(refused.contains("http://***@example.com/"), "{refused}");
        }
    }

    #[test]
    fn a_redirect_is_followed_only_within_its_origin() {
        let from: Uri = "http://a.test:80/mcp".parse().unwrap();
        for (to, followed) in [
            ("/mcp/", Some("http://a.test/mcp/")),
            ("http://a.test/x", Some("http://a.test/x")),
            ("//b.test/mcp", None),
            ("https://a.test/mcp", None),
            ("http://a.test:81/mcp", None),
        ] {
            let uri = same_origin_as(&from, to).ok().map(|target| target.uri.to_string());
            assert_eq!(uri.as_deref(), followed, "{to}");
        }
    }
}
