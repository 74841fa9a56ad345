//! The gateway's client at an authorization server: configured, a metadata document, or registered
//! by itself (2026-07-28, Client Registration), and its authentication.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use trunkline_config::{IdpConfig, OauthConfig, Secret, TokenEndpointAuth};
use trunkline_core::text::clip;

use super::documents::{AuthServerMetadata, DocumentClients};
use super::members::seconds;
use super::provider_error::ProviderError;

/// Client authentication at a token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    Basic,
    Post,
    PrivateKeyJwt,
    None,
    /// No authentication: the gateway is not a client there, and the token or JWT that it presents
    /// is sufficient.
    Unregistered,
}

impl ClientAuth {
    const ALL: [(&'static str, Self); 4] = [
        ("client_secret_basic", Self::Basic),
        ("client_secret_post", Self::Post),
        ("private_key_jwt", Self::PrivateKeyJwt),
        ("none", Self::None),
    ];

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(name, _)| *name == text).map(|(_, auth)| auth)
    }

    pub(crate) fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, auth)| *auth == self).map_or("none", |(name, _)| name)
    }
}

/// The gateway as one authorization server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OauthClient {
    pub(crate) id: String,
    pub(crate) secret: Option<Secret>,
    pub(crate) auth: ClientAuth,
    /// The end of the secret, as time since 1970, if the authorization server has announced one.
    pub(crate) secret_ends: Option<Duration>,
}

impl OauthClient {
    /// Returns the gateway as an unregistered client. Only the token or JWT that it presents
    /// counts.
    pub(crate) fn unregistered() -> Self {
        Self { id: String::new(), secret: None, auth: ClientAuth::Unregistered, secret_ends: None }
    }

    /// Returns the gateway's client at an identity provider.
    pub(crate) fn at_idp(idp: &IdpConfig) -> Self {
        let auth = match idp.token_endpoint_auth {
            TokenEndpointAuth::Basic => ClientAuth::Basic,
            TokenEndpointAuth::Post => ClientAuth::Post,
            TokenEndpointAuth::PrivateKeyJwt => ClientAuth::PrivateKeyJwt,
            TokenEndpointAuth::Auto if idp.private_key.is_some() => ClientAuth::PrivateKeyJwt,
            TokenEndpointAuth::Auto if idp.client_secret.is_some() => ClientAuth::Post,
            TokenEndpointAuth::None | TokenEndpointAuth::Auto => ClientAuth::None,
        };
        let (id, secret) = (idp.client_id.clone(), idp.client_secret.clone());
        Self { id, secret, auth, secret_ends: None }
    }
}

/// Origin of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientOrigin {
    /// The client is known.
    Known(OauthClient),
    /// The client has to be registered at this URL.
    Registered(Url),
}

/// Error while choosing or registering a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationFault {
    /// The configured client belongs to another authorization server.
    #[error(
        "the server's authorization server is {found:?}, but the configured client is registered \
         with {expected:?}"
    )]
    OtherIssuer {
        /// The authorization server that the server names.
        found: String,
        /// The authorization server of the client.
        expected: String,
    },
    /// None of the ways is possible.
    #[error(
        "the authorization server {issuer:?} registers no clients: set `client_id`, or \
         `client_metadata_url` if it reads such documents"
    )]
    NoWay {
        /// The authorization server.
        issuer: String,
    },
    /// The authorization server did not register the gateway.
    #[error("the authorization server refused to register the gateway: {error}")]
    Refused {
        /// Its status.
        status: StatusCode,
        /// Its error, or its status in words.
        error: ProviderError,
    },
    /// The response has no client.
    #[error("the answer to the registration has no `client_id`, or an unknown way to authenticate")]
    Shape,
}

impl RegistrationFault {
    /// Returns true if an operator has to act before another attempt can succeed.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                let is_busy =
                    matches!(*status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
                status.is_client_error() && !is_busy
            }
            Self::OtherIssuer { .. } | Self::NoWay { .. } | Self::Shape => true,
        }
    }
}

/// Chooses the client: configured → metadata document → dynamic registration.
pub(crate) fn choose_client(
    oauth: &OauthConfig,
    metadata: &AuthServerMetadata,
) -> Result<ClientOrigin, RegistrationFault> {
    if let Some(id) = &oauth.client_id {
        let secret = oauth.client_secret.clone();
        let auth = choose_auth(oauth, metadata);
        return Ok(ClientOrigin::Known(OauthClient {
            id: id.clone(),
            secret,
            auth,
            secret_ends: None,
        }));
    }
    if let Some(url) = &oauth.client_metadata_url
        && metadata.metadata_documents == DocumentClients::Accepted
    {
        let client = OauthClient {
            id: url.to_string(),
            secret: None,
            auth: ClientAuth::None,
            secret_ends: None,
        };
        return Ok(ClientOrigin::Known(client));
    }
    match &metadata.registration_endpoint {
        Some(endpoint) => Ok(ClientOrigin::Registered(endpoint.clone())),
        None => Err(RegistrationFault::NoWay { issuer: clip(&metadata.issuer, 200).to_owned() }),
    }
}

/// Returns the authentication of a configured client: the configured method, or one that it can use
/// and that the metadata allows.
fn choose_auth(oauth: &OauthConfig, metadata: &AuthServerMetadata) -> ClientAuth {
    let preferred: &[ClientAuth] = match oauth.token_endpoint_auth {
        TokenEndpointAuth::Basic => return ClientAuth::Basic,
        TokenEndpointAuth::Post => return ClientAuth::Post,
        TokenEndpointAuth::PrivateKeyJwt => return ClientAuth::PrivateKeyJwt,
        TokenEndpointAuth::Auto if oauth.private_key.is_some() => &[ClientAuth::PrivateKeyJwt],
        TokenEndpointAuth::Auto if oauth.client_secret.is_some() => {
            &[ClientAuth::Basic, ClientAuth::Post]
        }
        TokenEndpointAuth::Auto | TokenEndpointAuth::None => return ClientAuth::None,
    };
    let first = preferred.first().copied().unwrap_or(ClientAuth::None);
    first_supported(preferred, metadata).unwrap_or(first)
}

/// Returns the first of these methods that an authorization server supports. Without a list in its
/// metadata, it supports the first one (RFC 8414, 2).
fn first_supported(ways: &[ClientAuth], metadata: &AuthServerMetadata) -> Option<ClientAuth> {
    let Some(supported) = &metadata.auth_methods else { return ways.first().copied() };
    ways.iter().copied().find(|way| supported.iter().any(|name| name == way.as_str()))
}

/// Returns the authentication method to request in a registration.
pub(crate) fn registered_auth(metadata: &AuthServerMetadata) -> ClientAuth {
    let ways = [ClientAuth::Basic, ClientAuth::Post, ClientAuth::None];
    first_supported(&ways, metadata).unwrap_or(ClientAuth::None)
}

/// Returns the grant types to request in a registration: those of the gateway's logins that the
/// authorization server lists, because some refuse a registration with others. Without a list, both
/// are requested: many authorization servers with refresh tokens publish none.
fn registered_grant_types(metadata: &AuthServerMetadata) -> Vec<&'static str> {
    let listed = metadata.grant_types.as_ref();
    let is_listed = |grant: &&str| listed.is_none_or(|listed| listed.iter().any(|it| it == grant));
    let refresh = Some("refresh_token").filter(is_listed);
    // Needed in any case: a list without it is wrong.
    ["authorization_code"].into_iter().chain(refresh).collect()
}

/// Returns the body of a registration (RFC 7591, 2).
pub(crate) fn registration_request(
    metadata: &AuthServerMetadata,
    redirect: &Url,
    auth: ClientAuth,
) -> Vec<u8> {
    let is_loopback = redirect.scheme() == "http";
    let request = json!({
        "client_name": "Trunkline",
        "redirect_uris": [redirect.as_str()],
        "grant_types": registered_grant_types(metadata),
        "response_types": ["code"],
        "token_endpoint_auth_method": auth.as_str(),
        // OpenID Connect Dynamic Client Registration, 2: web clients have HTTPS redirects.
        "application_type": if is_loopback { "native" } else { "web" },
    });
    request.to_string().into_bytes()
}

/// Reads the response to a registration (RFC 7591, 3.2.1).
pub(crate) fn read_registration(
    document: &[u8],
    asked: ClientAuth,
) -> Result<OauthClient, RegistrationFault> {
    #[derive(Deserialize)]
    struct RegistrationDocument {
        client_id: String,
        client_secret: Option<String>,
        /// Zero for a secret without an end.
        #[serde(default, deserialize_with = "seconds")]
        client_secret_expires_at: Option<f64>,
        token_endpoint_auth_method: Option<String>,
    }
    let document: RegistrationDocument =
        serde_json::from_slice(document).map_err(|_| RegistrationFault::Shape)?;
    let auth = match document.token_endpoint_auth_method.as_deref() {
        None | Some("") => asked,
        Some(name) => ClientAuth::parse(name).ok_or(RegistrationFault::Shape)?,
    };
    let needs_secret = matches!(auth, ClientAuth::Basic | ClientAuth::Post);
    let secret =
        document.client_secret.filter(|secret| needs_secret && !secret.is_empty()).map(Secret::new);
    if auth == ClientAuth::PrivateKeyJwt || document.client_id.is_empty() {
        return Err(RegistrationFault::Shape);
    }
    // A client without a secret cannot authenticate.
    let auth = if secret.is_none() { ClientAuth::None } else { auth };
    let ends = document.client_secret_expires_at.filter(|at| *at > 0.0 && secret.is_some());
    let secret_ends = ends.and_then(|at| Duration::try_from_secs_f64(at).ok());
    Ok(OauthClient { id: document.client_id, secret, auth, secret_ends })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the settings of an OAuth client, from the text of `[servers.s.oauth]`.
    fn oauth_settings(text: &str) -> trunkline_config::OauthConfig {
        let text =
            format!("[servers.s]\nurl = \"http://127.0.0.1:1/mcp\"\n[servers.s.oauth]\n{text}\n");
        let source = trunkline_config::ConfigSource {
            name: "gateway.toml".into(),
            folder: ".".into(),
            bytes: text.into_bytes(),
        };
        let config =
            trunkline_config::Config::read(&source, &trunkline_config::SystemEnvironment).unwrap();
        let trunkline_config::ServerKind::Http(http) = &config.servers[0].target else {
            panic!("it is an HTTP server")
        };
        http.oauth.clone().unwrap()
    }

    fn metadata(methods: Option<&[&str]>) -> AuthServerMetadata {
        let mut metadata =
            AuthServerMetadata::with_default_endpoints(&"https://i.test".parse().unwrap());
        metadata.auth_methods =
            methods.map(|methods| methods.iter().map(ToString::to_string).collect());
        metadata
    }

    fn settings(text: &str) -> OauthConfig {
        oauth_settings(text)
    }

    #[test]
    fn a_client_is_chosen_in_the_order_of_the_specification() {
        let document = "client_metadata_url = \"https://g.test/c.json\"\n";
        let mut reads_documents = metadata(None);
        reads_documents.metadata_documents = DocumentClients::Accepted;
        let id = |origin| match origin {
            Ok(ClientOrigin::Known(client)) => client.id,
            Ok(ClientOrigin::Registered(_)) => "registered".to_owned(),
            Err(fault) => format!("{fault:?}"),
        };
        let configured = settings(&format!("{document}client_id = \"c\""));
        assert_eq!(id(choose_client(&configured, &reads_documents)), "c");
        let by_document = settings(document);
        assert_eq!(id(choose_client(&by_document, &reads_documents)), "https://g.test/c.json");
        assert_eq!(id(choose_client(&by_document, &metadata(None))), "registered");
        let mut closed = metadata(None);
        closed.registration_endpoint = None;
        assert!(id(choose_client(&settings(""), &closed)).contains("NoWay"));
    }

    #[test]
    fn a_configured_client_authenticates_as_the_metadata_allows() {
        use ClientAuth::{Basic, None as NoAuth, Post, PrivateKeyJwt};
        let secret = "client_id = \"c\"\nclient_secret = \"secret\"\n";
        let post = format!("{secret}token_endpoint_auth = \"client_secret_post\"");
        let key = "client_id = \"c\"\nprivate_key = \"key\"";
        for (text, methods, auth) in [
            (secret, None, Basic),
            (secret, Some(&["client_secret_post", "client_secret_basic"][..]), Basic),
            (secret, Some(&["client_secret_post"]), Post),
            (secret, Some(&["none"]), Basic),
            (&post, Some(&["client_secret_basic"]), Post),
            ("client_id = \"c\"", None, NoAuth),
            (key, None, PrivateKeyJwt),
        ] {
            let client = choose_client(&settings(text), &metadata(methods));
            let Ok(ClientOrigin::Known(client)) = client else { panic!("{text}") };
            assert_eq!(client.auth, auth, "{text} {methods:?}");
        }
    }

    #[test]
    fn a_registration_requests_supported_features_only() {
        for (methods, auth) in [
            (None, ClientAuth::Basic),
            (Some(&["none"][..]), ClientAuth::None),
            (Some(&["none", "client_secret_post"]), ClientAuth::Post),
            (Some(&["tls_client_auth"]), ClientAuth::None),
        ] {
            assert_eq!(registered_auth(&metadata(methods)), auth, "{methods:?}");
        }
        for (redirect, kind) in [("http://127.0.0.1:1/cb", "native"), ("https://g.test/cb", "web")]
        {
            let metadata = metadata(None);
            let body =
                registration_request(&metadata, &redirect.parse().unwrap(), ClientAuth::None);
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["application_type"], kind);
            assert_eq!(body["redirect_uris"], json!([redirect]));
            assert_eq!(body["grant_types"], json!(["authorization_code", "refresh_token"]));
        }
        for (listed, requested) in [
            (None, &["authorization_code", "refresh_token"][..]),
            (
                Some(&["authorization_code", "refresh_token", "x"][..]),
                &["authorization_code", "refresh_token"],
            ),
            (Some(&["authorization_code", "client_credentials"]), &["authorization_code"]),
            (Some(&[]), &["authorization_code"]),
        ] {
            let listed = listed.map(|listed| listed.iter().map(ToString::to_string).collect());
            let metadata = AuthServerMetadata { grant_types: listed, ..metadata(None) };
            assert_eq!(registered_grant_types(&metadata), requested);
        }
    }

    #[test]
    fn the_answer_to_a_registration_prevails() {
        for (answer, auth, secret) in [
            (json!({"client_id": "c", "client_secret": "s"}), Some(ClientAuth::Post), true),
            (json!({"client_id": "c"}), Some(ClientAuth::None), false),
            (
                json!({"client_id": "c", "client_secret": "s", "token_endpoint_auth_method": "client_secret_basic"}),
                Some(ClientAuth::Basic),
                true,
            ),
            (
                json!({"client_id": "c", "client_secret": "s", "token_endpoint_auth_method": "none"}),
                Some(ClientAuth::None),
                false,
            ),
            (
                json!({"client_id": "c", "client_secret": "s", "token_endpoint_auth_method": ""}),
                Some(ClientAuth::Post),
                true,
            ),
            (
                json!({"client_id": "c", "client_secret": "s", "token_endpoint_auth_method": null}),
                Some(ClientAuth::Post),
                true,
            ),
            (
                json!({"client_id": "c", "client_secret": "", "token_endpoint_auth_method": ""}),
                Some(ClientAuth::None),
                false,
            ),
            (json!({"client_id": "c", "client_secret": null}), Some(ClientAuth::None), false),
            (json!({"client_id": "c", "token_endpoint_auth_method": "magic"}), None, false),
            (json!({"client_id": ""}), None, false),
            (json!({}), None, false),
        ] {
            let read = read_registration(answer.to_string().as_bytes(), ClientAuth::Post).ok();
            let found = read.as_ref().map(|client| client.auth);
            assert_eq!(found, auth, "{answer}");
            assert_eq!(read.is_some_and(|client| client.secret.is_some()), secret, "{answer}");
        }
    }

    #[test]
    fn the_end_of_a_secret_is_read_unless_it_is_zero() {
        for (end, seconds) in
            [(json!(1_900_000_000), Some(1_900_000_000)), (json!(0), None), (json!(null), None)]
        {
            let answer = json!({
                "client_id": "c", "client_secret": "s", "client_secret_expires_at": end
            });
            let client = read_registration(answer.to_string().as_bytes(), ClientAuth::Post);
            let found = client.unwrap().secret_ends.map(|at| at.as_secs());
            assert_eq!(found, seconds, "{answer}");
        }
    }
}
