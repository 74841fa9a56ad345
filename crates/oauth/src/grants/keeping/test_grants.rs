//! A grant for tests.

use std::time::Duration;

use http::HeaderValue;
use url::Url;

use trunkline_config::Secret;
use trunkline_http_client::outbound::{OutboundClient, Remedy};

use crate::grants::grant::{OauthGrant, TokenSource};
use crate::metadata::registration::OauthClient;
use crate::metadata::scopes::ScopeSet;

/// Creates a grant with this token, and a refresh token.
pub(crate) fn grant(token: &str) -> OauthGrant {
    let token_endpoint: Url = "https://a.test/token".parse().unwrap();
    let source = TokenSource {
        outbound: OutboundClient::new(None, [&token_endpoint], &[], Remedy::AllowAddress),
        issuer: "https://a.test".to_owned(),
        authorization_endpoint: None,
        token_endpoint,
        revocation_endpoint: None,
        is_configured: true,
        client: OauthClient { id: "c".to_owned(), ..OauthClient::unregistered() },
        key: None,
        resource: None,
        scopes: ScopeSet::default(),
        dpop: None,
    };
    OauthGrant {
        authorization: HeaderValue::try_from(format!("Bearer {token}")).unwrap(),
        since: Some(Duration::from_secs(1)),
        token_hash: None,
        subject: None,
        refresh: Some(Secret::new("r".to_owned())),
        refresh_ends: None,
        renew_at: None,
        given: ScopeSet::default(),
        source,
    }
}
