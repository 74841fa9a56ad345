//! Where the clients of an endpoint get tokens.

use std::sync::Arc;

/// Where a client learns which authorization server gives tokens for its endpoint, and how that
/// server calls the scopes of the gateway.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenSource {
    /// The URL of the endpoint's Protected Resource Metadata (RFC 9728); `None` if it has none,
    /// because no issuer gives tokens for it.
    pub metadata: Option<String>,
    /// The scopes that the endpoint needs of every client.
    pub scopes: Vec<Arc<str>>,
    /// What clients ask for to get a scope, where it has another name there.
    pub requests: Arc<Vec<(Arc<str>, Arc<str>)>>,
}

impl TokenSource {
    /// The value of `scope` with which a client asks for these scopes.
    pub fn scope_request(&self, scopes: &[Arc<str>]) -> String {
        let name = |scope: &Arc<str>| {
            let other = self.requests.iter().find(|(own, _)| own == scope);
            other.map_or_else(|| Arc::clone(scope), |(_, asked)| Arc::clone(asked))
        };
        let names: Vec<_> = scopes.iter().map(name).collect();
        names.join(" ")
    }
}
