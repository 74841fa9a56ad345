//! The two metadata documents of OAuth: where they may be, and what they have to say.

use serde::Deserialize;
use url::Url;

use crate::config::is_safe_url;
use crate::text::clip;

use super::members::{flag, null_as_absent, word_list};
use super::parameters::is_open_endpoint;
use super::scopes::ScopeSet;
use super::token::TokenUse;

/// What is wrong with a metadata document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataFault {
    /// It does not have the members that the standard defines.
    #[error("it is not JSON with the required members")]
    Shape,
    /// The document of another resource.
    #[error(
        "it is about the resource {found:?}, which is not the server's URL: set `oauth.resource` if \
         the server is a part of that resource"
    )]
    OtherResource {
        /// What it is about.
        found: String,
    },
    /// No authorization server that may be used.
    #[error("it names no authorization server at an HTTPS URL")]
    NoIssuer,
    /// The document of another authorization server.
    #[error("it is of the issuer {found:?} instead of {expected:?}")]
    OtherIssuer {
        /// The issuer in the document.
        found: String,
        /// The issuer that was asked for.
        expected: String,
    },
    /// An authorization server without PKCE.
    #[error("it does not list `S256` in `code_challenge_methods_supported`")]
    NoPkce,
    /// An authorization endpoint that belongs to another authorization server.
    #[error(
        "its authorization_endpoint is at {endpoint}, where people log in at the issuer {owner:?}: \
         set `oauth.issuer` of the server if they belong together"
    )]
    EndpointOfOther {
        /// The origin of the endpoint.
        endpoint: String,
        /// The issuer that it is known from.
        owner: String,
    },
    /// An endpoint that may not be used.
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
pub(super) struct ResourceMetadata {
    /// The identifier of the resource, as it is written.
    pub(super) resource: String,
    /// The authorization servers, as they are written; `None` if the document names none at all.
    pub(super) issuers: Option<Vec<String>>,
    pub(super) scopes: ScopeSet,
    /// Which tokens it takes (`dpop_bound_access_tokens_required`).
    pub(super) wants: TokenUse,
}

/// The metadata of an authorization server (RFC 8414, 2), as far as it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::upstream) struct AuthServerMetadata {
    /// The issuer, as it is written.
    pub(super) issuer: String,
    pub(in crate::upstream) authorization_endpoint: Option<Url>,
    pub(in crate::upstream) token_endpoint: Url,
    pub(super) registration_endpoint: Option<Url>,
    /// Where tokens are revoked (RFC 7009).
    pub(super) revocation_endpoint: Option<Url>,
    pub(super) scopes: ScopeSet,
    /// How clients may authenticate at the token endpoint; `None` if the document does not say.
    pub(super) auth_methods: Option<Vec<String>>,
    /// Whether answers to authorization requests have `iss` (RFC 9207).
    pub(super) iss_in_answers: IssAdvertised,
    /// Whether the URL of a metadata document is a client id.
    pub(super) metadata_documents: DocumentClients,
    /// The algorithms of proofs (RFC 9449, 5.1); `None` if the document does not say.
    pub(super) proof_algorithms: Option<Vec<String>>,
}

/// Whether an authorization server says that its answers name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IssAdvertised {
    Yes,
    No,
}

/// Whether an authorization server accepts client id metadata documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentClients {
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
    #[serde(default, deserialize_with = "flag")]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default, deserialize_with = "flag")]
    client_id_metadata_document_supported: bool,
    dpop_signing_alg_values_supported: Option<Vec<String>>,
}

/// Where the metadata of a server may be without a challenge that says so: below the well-known
/// path first, then at the root.
pub(super) fn resource_metadata_places(server: &Url) -> Vec<Url> {
    let path = server.path().trim_end_matches('/');
    let mut places = vec![at_path(server, &format!("{RESOURCE}{path}"))];
    if !path.is_empty() {
        places.push(at_path(server, RESOURCE));
    }
    places
}

/// The server's URL as the identifier of a resource, where no document has one.
pub(super) fn canonical_resource(server: &Url) -> String {
    let mut url = server.clone();
    url.set_query(None);
    url.set_fragment(None);
    let text = url.as_str();
    if url.path() == "/" { text.trim_end_matches('/').to_owned() } else { text.to_owned() }
}

/// A server's origin as an issuer, for servers of 2025-03-26.
pub(super) fn origin_issuer(server: &Url) -> String {
    server.origin().ascii_serialization()
}

/// Another path of a URL's origin.
pub(super) fn at_path(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

impl ResourceMetadata {
    /// Reads the document of a server. `named` is the resource that the configuration names.
    pub(super) fn parse(
        document: &[u8],
        server: &Url,
        named: Option<&Url>,
    ) -> Result<Self, MetadataFault> {
        let document: ResourceDocument =
            serde_json::from_slice(document).map_err(|_| MetadataFault::Shape)?;
        if !is_resource_of(&document.resource, server, named) {
            let found = clip(&document.resource, LONGEST_NAME).to_owned();
            return Err(MetadataFault::OtherResource { found });
        }
        let is_usable = |issuer: &String| {
            parse_endpoint(issuer)
                .is_some_and(|url| url.query().is_none() && url.fragment().is_none())
        };
        let named = Some(document.authorization_servers).filter(|named| !named.is_empty());
        let issuers =
            named.map(|named| named.into_iter().filter(is_usable).take(MOST_ISSUERS).collect());
        let scopes = document.scopes_supported.iter().map(String::as_str).collect();
        let is_bound = document.dpop_bound_access_tokens_required;
        let wants = if is_bound { TokenUse::Dpop } else { TokenUse::Bearer };
        Ok(Self { resource: document.resource, issuers, scopes, wants })
    }
}

/// Returns true if the identifier of a resource is a server's URL (RFC 9728, 3.3), or the parent of it
/// that the configuration names. A token for another parent would be good for all that is below it.
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
    /// Reads the document of an issuer. `pkce` says whether it has to list S256.
    pub(in crate::upstream) fn parse(
        document: &[u8],
        expected: ExpectedIssuer<'_>,
        pkce: PkceDemand,
    ) -> Result<Self, MetadataFault> {
        let document: IssuerDocument =
            serde_json::from_slice(document).map_err(|_| MetadataFault::Shape)?;
        // RFC 8414, 3.3: identical, or nothing of the document may be used.
        if !expected.admits(&document.issuer) {
            let found = clip(&document.issuer, LONGEST_NAME).to_owned();
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
            iss_in_answers: choose(document.authorization_response_iss_parameter_supported),
            metadata_documents: if accepts {
                DocumentClients::Accepted
            } else {
                DocumentClients::Unknown
            },
            proof_algorithms: document.dpop_signing_alg_values_supported,
        })
    }

    /// The endpoints of a server of 2025-03-26 without any metadata.
    pub(super) fn with_default_endpoints(server: &Url) -> Self {
        Self {
            issuer: origin_issuer(server),
            authorization_endpoint: Some(at_path(server, "/authorize")),
            token_endpoint: at_path(server, "/token"),
            registration_endpoint: Some(at_path(server, "/register")),
            revocation_endpoint: None,
            scopes: ScopeSet::default(),
            auth_methods: None,
            iss_in_answers: IssAdvertised::No,
            metadata_documents: DocumentClients::Unknown,
            proof_algorithms: None,
        }
    }
}

/// The issuer that a document has to be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum ExpectedIssuer<'a> {
    /// One of the configuration: compared byte for byte.
    Configured(&'a str),
    /// One that a server names. Servers on the Python SDK add a slash to an issuer without a path.
    Named(&'a str),
}

impl<'a> ExpectedIssuer<'a> {
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Configured(issuer) | Self::Named(issuer) => issuer,
        }
    }

    fn admits(self, found: &str) -> bool {
        found == self.text()
            || matches!(self, Self::Named(issuer) if differs_by_slash(found, issuer))
    }
}

/// Returns true if two issuers without a path differ by the slash of the empty path only.
pub(super) fn differs_by_slash(one: &str, other: &str) -> bool {
    let (shorter, longer) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let is_root = |url: Url| url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    longer.strip_suffix('/') == Some(shorter)
        && !shorter.ends_with('/')
        && Url::parse(shorter).is_ok_and(is_root)
}

/// Whether an authorization server has to support PKCE: for authorization codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum PkceDemand {
    Required,
    Unneeded,
}

/// The URL of an endpoint, if it may be used. One that has a parameter of the login in its query, such
/// as `client_id`, would have the authorization server see it twice (RFC 6749, 3.1).
fn parse_endpoint(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| is_safe_url(url) && is_open_endpoint(url))
}

/// RFC 9728, 3.
const RESOURCE: &str = "/.well-known/oauth-protected-resource";
/// The most authorization servers of a resource that are looked at.
const MOST_ISSUERS: usize = 20;
/// The most bytes of a name in a reason.
const LONGEST_NAME: usize = 200;

#[cfg(test)]
mod tests;
