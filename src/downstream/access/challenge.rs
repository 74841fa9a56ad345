//! `WWW-Authenticate`: the challenge to a client that is refused (RFC 6750, 3; RFC 9728, 5.1).

use std::fmt::Write as _;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};

use crate::call::{Failure, RequestFault, TokenSource};

/// Adds the challenge for a failure that better credentials would prevent. `source` is the source
/// of tokens, unless the failure itself has one.
pub(crate) fn add_challenge(
    headers: &mut HeaderMap,
    failure: &Failure,
    source: Option<&Arc<TokenSource>>,
) {
    if let Some(value) = challenge(failure, source) {
        headers.insert(header::WWW_AUTHENTICATE, value);
    }
}

fn challenge(failure: &Failure, source: Option<&Arc<TokenSource>>) -> Option<HeaderValue> {
    // RFC 6750, 3.1: without an error if the request has no credentials.
    let error = match failure {
        Failure::KeyMissing | Failure::TokenMissing => None,
        Failure::KeyUnknown | Failure::KeyExpired | Failure::TokenRefused(_) => {
            Some("invalid_token")
        }
        Failure::ScopesNeeded(_) => Some("insufficient_scope"),
        Failure::InvalidRequest(fault) if is_about_credentials(fault) => Some("invalid_request"),
        _ => return None,
    };
    let (source, scopes) = match failure {
        Failure::ScopesNeeded(needed) => (needed.source.as_ref(), &needed.scopes[..]),
        _ => (source, source.map_or(&[][..], |source| &source.scopes)),
    };
    let mut text = String::from("Bearer realm=\"mcp\"");
    if let Some(metadata) = source.and_then(|source| source.metadata.as_ref()) {
        let _ = write!(text, ", resource_metadata=\"{metadata}\"");
    }
    if !scopes.is_empty() {
        let request = source.map_or_else(|| scopes.join(" "), |it| it.scope_request(scopes));
        let _ = write!(text, ", scope=\"{request}\"");
    }
    if let Some(error) = error {
        let _ = write!(text, ", error=\"{error}\"");
    }
    // Some clients show this to their users instead of the body.
    let described = format!("{text}, error_description=\"{failure}\"");
    HeaderValue::try_from(described).or_else(|_| HeaderValue::try_from(text)).ok()
}

fn is_about_credentials(fault: &RequestFault) -> bool {
    matches!(fault, RequestFault::DuplicateCredentials | RequestFault::TokenInQuery)
}
