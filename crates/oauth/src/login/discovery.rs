//! Finds the authorization server of an MCP server, and the metadata of both (2026-07-28,
//! Authorization Server Discovery). Uses the first document that exists.

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Method};
use url::Url;

use trunkline_http_client::outbound::{OutboundClient, OutboundRequest, json_object, shown_url};
use trunkline_protocol::mcp::MediaType;

use crate::fault::LoginFault;
use crate::metadata::challenge::BearerChallenge;
use crate::metadata::documents::{
    AuthServerMetadata, ExpectedIssuer, MetadataFault, PkceDemand, ResourceMetadata, at_path,
    canonical_resource, differs_by_slash, origin_issuer, resource_metadata_places,
};
use crate::metadata::registration::RegistrationFault;
use crate::metadata::scopes::ScopeSet;
use crate::metadata::token_use::TokenUse;

/// A server's authorization server, and the data of both that a login needs.
pub(crate) struct DiscoveredServer {
    /// Identifier of the server, for `resource`.
    pub(crate) resource: String,
    /// Scopes in the server's metadata.
    pub(crate) scopes: ScopeSet,
    pub(crate) metadata: AuthServerMetadata,
    /// Type of tokens that the server requires, by its metadata or its challenge.
    pub(crate) wants: TokenUse,
}

/// Parameters of the search for a server's authorization server.
pub(crate) struct Discovery<'a> {
    pub(crate) outbound: &'a OutboundClient,
    pub(crate) server: &'a Url,
    /// Resource that the configuration names: a parent of the server.
    pub(crate) resource: Option<&'a Url>,
    /// The only permitted issuer, if one is configured.
    pub(crate) issuer: Option<&'a str>,
    pub(crate) pkce: PkceDemand,
}

impl Discovery<'_> {
    /// Finds the server's metadata, and that of its authorization server.
    pub(crate) async fn run(
        &self,
        challenge: &BearerChallenge,
    ) -> Result<DiscoveredServer, LoginFault> {
        let Some((place, found)) = self.find_resource(challenge).await? else {
            return self.run_without_resource(challenge).await;
        };
        let wants = if found.wants == TokenUse::Dpop { TokenUse::Dpop } else { challenge.wants };
        let Some(issuers) = &found.issuers else {
            // As the official SDKs read it: the server is its own authorization server.
            let metadata = self.run_without_resource(challenge).await?.metadata;
            let (resource, scopes) = (found.resource, found.scopes);
            return Ok(DiscoveredServer { resource, scopes, metadata, wants });
        };
        let issuer = self.choose_issuer(&place, issuers)?;
        let metadata = self.find_issuer(issuer).await?;
        let missing = || LoginFault::NoMetadata { issuer: issuer.to_owned() };
        Ok(DiscoveredServer {
            metadata: metadata.ok_or_else(missing)?,
            resource: found.resource,
            scopes: found.scopes,
            wants,
        })
    }

    /// Finds the authorization server of a server without metadata: the configured one, or the
    /// server itself as in 2025-03-26.
    async fn run_without_resource(
        &self,
        challenge: &BearerChallenge,
    ) -> Result<DiscoveredServer, LoginFault> {
        let issuer = origin_issuer(self.server);
        let resource = canonical_resource(self.server);
        let (scopes, wants) = (ScopeSet::default(), challenge.wants);
        if let Some(issuer) = self.issuer.filter(|configured| *configured != issuer) {
            // A server that names no issuer, such as a plain HTTP API, needs the operator's
            // setting.
            let missing = || LoginFault::NoMetadata { issuer: issuer.to_owned() };
            let metadata = self.find_issuer(issuer).await?.ok_or_else(missing)?;
            return Ok(DiscoveredServer { resource, scopes, metadata, wants });
        }
        let place = at_path(self.server, "/.well-known/oauth-authorization-server");
        let metadata = match fetch(self.outbound, &place).await? {
            Some(document) => self.parse_issuer(shown_url(&place), &document, &issuer)?,
            // These endpoints are unverified. Only a login that S256 protects uses them, and no
            // secret or JWT is sent there.
            None if self.pkce == PkceDemand::Unneeded => {
                return Err(LoginFault::NoMetadata { issuer });
            }
            None => AuthServerMetadata::with_default_endpoints(self.server),
        };
        Ok(DiscoveredServer { resource, scopes, metadata, wants })
    }

    /// Returns the server's metadata with its URL.
    async fn find_resource(
        &self,
        challenge: &BearerChallenge,
    ) -> Result<Option<(Url, ResourceMetadata)>, LoginFault> {
        let named = challenge.resource_metadata.as_deref().and_then(|url| Url::parse(url).ok());
        let places = named.into_iter().chain(resource_metadata_places(self.server));
        for place in places {
            if let Some(document) = fetch(self.outbound, &place).await? {
                let parsed = ResourceMetadata::parse(&document, self.server, self.resource);
                let parsed = parsed.map_err(LoginFault::in_document(shown_url(&place)))?;
                return Ok(Some((place, parsed)));
            }
        }
        Ok(None)
    }

    /// Returns the issuer to use: the configured one if the server names it, and otherwise the
    /// first that it names.
    fn choose_issuer<'a>(
        &'a self,
        place: &Url,
        issuers: &'a [String],
    ) -> Result<&'a str, LoginFault> {
        let first = issuers.first();
        let first = first.ok_or(MetadataFault::NoIssuer);
        let first = first.map_err(LoginFault::in_document(shown_url(place)))?;
        let Some(expected) = self.issuer else { return Ok(first) };
        // Servers on the Python SDK add a slash to an issuer without a path. The configured issuer
        // is used unchanged from here on.
        let is_named = |issuer: &String| {
            issuer == expected
                || issuer.strip_suffix('/') == Some(expected)
                || differs_by_slash(issuer, expected)
        };
        if issuers.iter().any(is_named) {
            return Ok(expected);
        }
        Err(other_issuer(first, expected))
    }

    /// Returns the metadata of an issuer, or `None` if there is none.
    async fn find_issuer(&self, issuer: &str) -> Result<Option<AuthServerMetadata>, LoginFault> {
        match find_auth_server(self.outbound, issuer).await? {
            Some((place, document)) => self.parse_issuer(place, &document, issuer).map(Some),
            None => Ok(None),
        }
    }

    fn parse_issuer(
        &self,
        place: String,
        document: &[u8],
        issuer: &str,
    ) -> Result<AuthServerMetadata, LoginFault> {
        let expected = match self.issuer {
            Some(_) => ExpectedIssuer::Configured(issuer),
            None => ExpectedIssuer::Named(issuer),
        };
        let parsed = AuthServerMetadata::parse(document, expected, self.pkce);
        let metadata = parsed.map_err(LoginFault::in_document(place))?;
        if metadata.issuer != issuer {
            tracing::warn!(
                target: "trunkline::upstream::credentials::login::discovery",
                named = issuer,
                issuer = metadata.issuer,
                "the server and the issuer's metadata differ in the final slash of the issuer: \
                 the form in the metadata is used"
            );
        }
        Ok(metadata)
    }
}

/// Returns the metadata document of an authorization server with its URL, or `None` if there is
/// none.
///
/// # Errors
/// [`LoginFault`] if a URL does not respond, or if the response is neither a document nor a
/// statement that there is none.
pub(crate) async fn find_auth_server(
    outbound: &OutboundClient,
    issuer: &str,
) -> Result<Option<(String, Bytes)>, LoginFault> {
    let Ok(base) = Url::parse(issuer) else { return Ok(None) };
    for place in metadata_places(&base) {
        if let Some(document) = fetch(outbound, &place).await? {
            return Ok(Some((shown_url(&place), document)));
        }
    }
    Ok(None)
}

/// Returns the URLs for the metadata of an issuer, in the order in which MCP clients try them
/// (2026-07-28, Authorization Server Discovery).
pub fn metadata_places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let places = match path {
        "" => vec![OAUTH_METADATA.to_owned(), OPENID_METADATA.to_owned()],
        path => {
            vec![
                format!("{OAUTH_METADATA}{path}"),
                format!("{OPENID_METADATA}{path}"),
                format!("{path}{OPENID_METADATA}"),
            ]
        }
    };
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url
    };
    places.into_iter().map(at).collect()
}

/// Fetches a document. Returns `None` if there is none.
async fn fetch(outbound: &OutboundClient, url: &Url) -> Result<Option<Bytes>, LoginFault> {
    let headers = HeaderMap::from_iter([(ACCEPT, MediaType::JSON)]);
    let request = OutboundRequest { method: Method::GET, url, headers, body: Bytes::new() };
    let answer = outbound.send(request).await?;
    match answer.status {
        status if status.is_success() => {
            let document = json_object(&answer.body);
            if document.is_none() {
                tracing::warn!(
                    target: "trunkline::upstream::credentials::login::discovery",
                    url = shown_url(url),
                    "{NO_DOCUMENT}"
                );
            }
            Ok(document)
        }
        status if status.is_client_error() => Ok(None),
        status => Err(LoginFault::Status { url: shown_url(url), status }),
    }
}

/// Warning in the log about a page at a metadata URL.
pub const NO_DOCUMENT: &str =
    "the response with status 200 is not a JSON object: it is treated as missing metadata";

fn other_issuer(found: &str, expected: &str) -> LoginFault {
    let (found, expected) = (found.to_owned(), expected.to_owned());
    RegistrationFault::OtherIssuer { found, expected }.into()
}

/// RFC 8414, 3.
const OAUTH_METADATA: &str = "/.well-known/oauth-authorization-server";
/// OpenID Connect Discovery, 4.
const OPENID_METADATA: &str = "/.well-known/openid-configuration";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_looked_for_where_the_specification_says() {
        for (issuer, paths) in [
            ("https://a.test", &[OAUTH_METADATA, OPENID_METADATA][..]),
            ("https://a.test/", &[OAUTH_METADATA, OPENID_METADATA]),
            (
                "https://a.test/t/v2.0",
                &[
                    "/.well-known/oauth-authorization-server/t/v2.0",
                    "/.well-known/openid-configuration/t/v2.0",
                    "/t/v2.0/.well-known/openid-configuration",
                ],
            ),
        ] {
            let places = metadata_places(&Url::parse(issuer).unwrap());
            let found: Vec<_> = places.iter().map(Url::path).collect();
            assert_eq!(found, paths, "{issuer}");
        }
    }
}
