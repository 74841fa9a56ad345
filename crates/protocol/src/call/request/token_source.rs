//! Sources of tokens for the clients of an endpoint.

use std::sync::Arc;

/// The source of tokens for an endpoint: the metadata that names its authorization server, and that
/// server's names for the gateway's scopes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenSource {
    /// The URL of the endpoint's Protected Resource Metadata (RFC 9728); `None` if no issuer
    /// provides tokens for it.
    pub metadata: Option<String>,
    /// The scopes that the endpoint requires of every client.
    pub scopes: Vec<Arc<str>>,
    /// The issuer's names of scopes that differ from the gateway's.
    pub requests: Arc<Vec<(Arc<str>, Arc<str>)>>,
}

impl TokenSource {
    /// Returns the value of `scope` with which a client requests these scopes.
    pub fn scope_request(&self, scopes: &[Arc<str>]) -> String {
        let name = |scope: &Arc<str>| {
            let other = self.requests.iter().find(|(own, _)| own == scope);
            other.map_or_else(|| Arc::clone(scope), |(_, asked)| Arc::clone(asked))
        };
        let names: Vec<_> = scopes.iter().map(name).collect();
        names.join(" ")
    }
}
