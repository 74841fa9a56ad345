//! The two metadata documents of OAuth: their possible URLs, and their contents.

use serde::Deserialize;
use url::Url;

use trunkline_config::is_safe_url;
use trunkline_core::text::clip;

use super::members::{flag, null_as_absent, word_list};
use super::parameters::is_open_endpoint;
use super::scopes::ScopeSet;
use super::token_use::TokenUse;

/// Fault in a metadata document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataFault {
    /// It lacks members that the standard defines.
    #[error("it is not JSON with the required members")]
    Shape,
    /// It describes another resource.
    #[error(
        "it is about the resource {found:?}, which is not the server's URL: set `oauth.resource` if \
         the server is a part of that resource"
    )]
    OtherResource {
        /// The resource that it describes.
        found: String,
    },
    /// It names no usable authorization server.
    #[error("it names no authorization server at an HTTPS URL")]
    NoIssuer,
    /// It describes another authorization server.
    #[error("it names the issuer {found:?}, expected {expected:?}")]
    OtherIssuer {
        /// The issuer in the document.
        found: String,
        /// The issuer that was requested.
        expected: String,
    },
    /// The authorization server does not support PKCE.
    #[error("it does not list `S256` in `code_challenge_methods_supported`")]
    NoPkce,
    /// The authorization endpoint belongs to another authorization server.
    #[error(
        "its authorization_endpoint is at {endpoint}, where people log in at the issuer {owner:?}: \
         set `oauth.issuer` of the server if they belong together"
    )]
    EndpointOfOther {
        /// The origin of the endpoint.
        endpoint: String,
        /// The issuer from which it is known.
        owner: String,
    },
    /// An endpoint may not be used.
    #[error(
        "its {member} is missing, is neither HTTPS nor of this machine, or sets a parameter of the \
         login itself"
    )]
    Endpoint {
        /// The member of the document.
        member: &'static str,
    },
}

/// Protected Resource Metadata (RFC 9728, 2), as far as it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceMetadata {
    /// The identifier of the resource, unchanged.
    pub(crate) resource: String,
    /// The authorization servers, unchanged. `None` if the document has no such member.
    pub(crate) issuers: Option<Vec<String>>,
    pub(crate) scopes: ScopeSet,
    /// Type of tokens that the resource requires (`dpop_bound_access_tokens_required`).
    pub(crate) wants: TokenUse,
}

/// The metadata of an authorization server (RFC 8414, 2), as far as it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthServerMetadata {
    /// The issuer, unchanged.
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<Url>,
    pub(crate) token_endpoint: Url,
    pub(crate) registration_endpoint: Option<Url>,
    /// URL at which tokens are revoked (RFC 7009).
    pub(crate) revocation_endpoint: Option<Url>,
    pub(crate) scopes: ScopeSet,
    /// Client authentication methods of the token endpoint. `None` if the document lists none.
    pub(crate) auth_methods: Option<Vec<String>>,
    /// Supported grant types, if the authorization server lists them.
    pub(crate) grant_types: Option<Vec<String>>,
    /// Announces `iss` in responses to authorization requests (RFC 9207).
    pub(crate) iss_in_answers: IssAdvertised,
    /// Accepts the URL of a metadata document as a client id.
    pub(crate) metadata_documents: DocumentClients,
    /// Algorithms of proofs (RFC 9449, 5.1). `None` if the document lists none.
    pub(crate) proof_algorithms: Option<Vec<String>>,
}

/// Announcement of an authorization server that its responses name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IssAdvertised {
    Yes,
    No,
}

/// Support of an authorization server for client id metadata documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DocumentClients {
    Accepted,
    Unknown,
}

#[derive(Deserialize)]
struct ResourceDocument {
    resource: String,
    #[serde(default, deserialize_with = "null_as_absent")]
    authorization_servers: Vec<String>,
    #[serde(default, deserialize_with = "word_list")]
    scopes_supported: Vec<String>,
    #[serde(default, deserialize_with = "flag")]
    dpop_bound_access_tokens_required: bool,
}

#[derive(Deserialize)]
struct IssuerDocument {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    #[serde(default, deserialize_with = "word_list")]
    scopes_supported: Vec<String>,
    #[serde(default, deserialize_with = "null_as_absent")]
    code_challenge_methods_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    grant_types_supported: Option<Vec<String>>,
    #[serde(default, deserialize_with = "flag")]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default, deserialize_with = "flag")]
    client_id_metadata_document_supported: bool,
    dpop_signing_alg_values_supported: Option<Vec<String>>,
}

/// Returns the URLs for a server's metadata if no challenge names one: below the well-known path
/// first, then at the root.
pub(crate) fn resource_metadata_places(server: &Url) -> Vec<Url> {
    let path = server.path().trim_end_matches('/');
    let mut places = vec![at_path(server, &format!("{RESOURCE_METADATA_PATH}{path}"))];
    if !path.is_empty() {
        places.push(at_path(server, RESOURCE_METADATA_PATH));
    }
    places
}

/// Returns the server's URL as the identifier of a resource, for servers without a document.
pub(crate) fn canonical_resource(server: &Url) -> String {
    let mut url = server.clone();
    url.set_query(None);
    url.set_fragment(None);
    let text = url.as_str();
    if url.path() == "/" { text.trim_end_matches('/').to_owned() } else { text.to_owned() }
}

/// Returns a server's origin as an issuer, for servers of 2025-03-26.
pub(crate) fn origin_issuer(server: &Url) -> String {
    server.origin().ascii_serialization()
}

/// Returns another path of a URL's origin.
pub(crate) fn at_path(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

impl ResourceMetadata {
    /// Reads the document of a server. `named` is the resource that the configuration names.
    pub(crate) fn parse(
        document: &[u8],
        server: &Url,
        named: Option<&Url>,
    ) -> Result<Self, MetadataFault> {
        let document: ResourceDocument =
            serde_json::from_slice(document).map_err(|_| MetadataFault::Shape)?;
        if !is_resource_of(&document.resource, server, named) {
            let found = clip(&document.resource, MAX_SHOWN_NAME_BYTES).to_owned();
            return Err(MetadataFault::OtherResource { found });
        }
        let is_usable = |issuer: &String| {
            parse_endpoint(issuer)
                .is_some_and(|url| url.query().is_none() && url.fragment().is_none())
        };
        let named = Some(document.authorization_servers).filter(|named| !named.is_empty());
        let issuers =
            named.map(|named| named.into_iter().filter(is_usable).take(MAX_AUTH_SERVERS).collect());
        let scopes = document.scopes_supported.iter().map(String::as_str).collect();
        let is_bound = document.dpop_bound_access_tokens_required;
        let wants = if is_bound { TokenUse::Dpop } else { TokenUse::Bearer };
        Ok(Self { resource: document.resource, issuers, scopes, wants })
    }
}

/// Returns true if the identifier of a resource is a server's URL (RFC 9728, 3.3), or the parent of
/// it that the configuration names. A token for another parent would be valid for everything below
/// it.
fn is_resource_of(resource: &str, server: &Url, named: Option<&Url>) -> bool {
    let Ok(found) = Url::parse(resource) else { return false };
    let mut own = server.clone();
    own.set_fragment(None);
    let is_own = found == own || {
        own.set_query(None);
        found == own
    };
    is_own || named.is_some_and(|named| found == *named && is_parent(named, server))
}

fn is_parent(resource: &Url, server: &Url) -> bool {
    let path = resource.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(path);
    resource.origin() == server.origin()
        && resource.fragment().is_none()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl AuthServerMetadata {
    /// Reads the document of an issuer. With [`PkceDemand::Required`] it must list S256.
    pub(crate) fn parse(
        document: &[u8],
        expected: ExpectedIssuer<'_>,
        pkce: PkceDemand,
    ) -> Result<Self, MetadataFault> {
        let document: IssuerDocument =
            serde_json::from_slice(document).map_err(|_| MetadataFault::Shape)?;
        // RFC 8414, 3.3: identical, or nothing in the document may be used.
        if !expected.admits(&document.issuer) {
            let found = clip(&document.issuer, MAX_SHOWN_NAME_BYTES).to_owned();
            return Err(MetadataFault::OtherIssuer { found, expected: expected.text().to_owned() });
        }
        let methods = &document.code_challenge_methods_supported;
        if pkce == PkceDemand::Required && !methods.iter().any(|method| method == "S256") {
            return Err(MetadataFault::NoPkce);
        }
        let token_endpoint = document.token_endpoint.as_deref().and_then(parse_endpoint);
        let choose = |says: bool| if says { IssAdvertised::Yes } else { IssAdvertised::No };
        let accepts = document.client_id_metadata_document_supported;
        Ok(Self {
            issuer: document.issuer,
            authorization_endpoint: document
                .authorization_endpoint
                .as_deref()
                .and_then(parse_endpoint),
            token_endpoint: token_endpoint
                .ok_or(MetadataFault::Endpoint { member: "token_endpoint" })?,
            registration_endpoint: document
                .registration_endpoint
                .as_deref()
                .and_then(parse_endpoint),
            revocation_endpoint: document.revocation_endpoint.as_deref().and_then(parse_endpoint),
            scopes: document.scopes_supported.iter().map(String::as_str).collect(),
            auth_methods: document.token_endpoint_auth_methods_supported,
            grant_types: document.grant_types_supported,
            iss_in_answers: choose(document.authorization_response_iss_parameter_supported),
            metadata_documents: if accepts {
                DocumentClients::Accepted
            } else {
                DocumentClients::Unknown
            },
            proof_algorithms: document.dpop_signing_alg_values_supported,
        })
    }

    /// Returns the default endpoints of a server of 2025-03-26 without any metadata.
    pub(crate) fn with_default_endpoints(server: &Url) -> Self {
        Self {
            issuer: origin_issuer(server),
            authorization_endpoint: Some(at_path(server, "/authorize")),
            token_endpoint: at_path(server, "/token"),
            registration_endpoint: Some(at_path(server, "/register")),
            revocation_endpoint: None,
            scopes: ScopeSet::default(),
            auth_methods: None,
            grant_types: None,
            iss_in_answers: IssAdvertised::No,
            metadata_documents: DocumentClients::Unknown,
            proof_algorithms: None,
        }
    }
}

/// The issuer that a document must describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedIssuer<'a> {
    /// An issuer in the configuration, compared byte for byte.
    Configured(&'a str),
    /// An issuer that a server names. Servers on the Python SDK add a slash to an issuer without a
    /// path.
    Named(&'a str),
}

impl<'a> ExpectedIssuer<'a> {
    pub(crate) fn text(self) -> &'a str {
        match self {
            Self::Configured(issuer) | Self::Named(issuer) => issuer,
        }
    }

    fn admits(self, found: &str) -> bool {
        found == self.text()
            || matches!(self, Self::Named(issuer) if differs_by_slash(found, issuer))
    }
}

/// Returns true if two issuers without a path differ only by the slash of the empty path.
pub(crate) fn differs_by_slash(one: &str, other: &str) -> bool {
    let (shorter, longer) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let is_root = |url: Url| url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    longer.strip_suffix('/') == Some(shorter)
        && !shorter.ends_with('/')
        && Url::parse(shorter).is_ok_and(is_root)
}

/// Requirement that an authorization server supports PKCE, which authorization codes need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PkceDemand {
    Required,
    Unneeded,
}

/// Returns the URL of an endpoint if it may be used. If its query set a parameter of the login,
/// such as `client_id`, the authorization server would see that parameter twice (RFC 6749, 3.1).
fn parse_endpoint(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| is_safe_url(url) && is_open_endpoint(url))
}

/// RFC 9728, 3.
const RESOURCE_METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Maximum number of authorization servers of a resource that are considered.
const MAX_AUTH_SERVERS: usize = 20;
/// Maximum number of bytes of a name in a reason.
const MAX_SHOWN_NAME_BYTES: usize = 200;

#[cfg(test)]
mod tests;
