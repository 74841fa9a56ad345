//! A request as a server gets it.

use http::{Method, Uri, Version};

use super::Headers;

/// A request that came in.
#[derive(Debug)]
pub struct Received<B> {
    /// What is asked for.
    pub method: Method,
    /// Of what.
    pub uri: Uri,
    /// In which HTTP it came.
    pub version: Version,
    /// Its header lines.
    pub headers: Headers,
    /// What follows them.
    pub body: B,
}

impl<B> Received<B> {
    /// The same request with another body.
    pub fn map<C>(self, other: impl FnOnce(B) -> C) -> Received<C> {
        let Self { method, uri, version, headers, body } = self;
        Received { method, uri, version, headers, body: other(body) }
    }
}

impl<B> From<http::Request<B>> for Received<B> {
    fn from(request: http::Request<B>) -> Self {
        let (head, body) = request.into_parts();
        let headers = Headers::from(&head.headers);
        Self { method: head.method, uri: head.uri, version: head.version, headers, body }
    }
}
