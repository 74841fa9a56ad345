//! The resources of the gateway, as tokens and their issuers name them (RFC 8707, RFC 9728).

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use url::Url;

use crate::call::{ProfileName, TokenSource};
use crate::config::{Config, IssuerConfig, IssuerName, ProfileConfig, ScopeName};

/// An endpoint that requires tokens: `/mcp`, or `/mcp/NAME` for a profile.
#[derive(Debug)]
pub struct ProtectedResource {
    /// The profile that it serves.
    pub profile: String,
    /// Its canonical URI, which tokens have as `aud`.
    pub uri: String,
    /// The length of the URI's scheme and host.
    origin: usize,
    /// The source of its clients' tokens.
    pub source: Arc<TokenSource>,
    /// Authorization servers with tokens that are accepted there.
    servers: Vec<String>,
}

impl ProtectedResource {
    /// Returns true if a text is its URI. Scheme and host may be in capitals (MCP 2026-07-28,
    /// Authorization, "Canonical Server URI"); nothing else is normalised.
    pub(super) fn is_named(&self, said: &str) -> bool {
        let (Some((origin, path)), Some((said_origin, said_path))) =
            (self.uri.split_at_checked(self.origin), said.split_at_checked(self.origin))
        else {
            return false;
        };
        path == said_path && origin.eq_ignore_ascii_case(said_origin)
    }

    /// Returns the document of the resource (RFC 9728, 2). `None` without an authorization server:
    /// there has to be at least one (MCP 2026-07-28, Authorization, "Authorization Server
    /// Location").
    pub fn metadata(&self) -> Option<Value> {
        if self.servers.is_empty() {
            return None;
        }
        let mut document = json!({
            "resource": self.uri,
            "authorization_servers": self.servers,
            "bearer_methods_supported": ["header"],
        });
        let scopes = self.source.scope_request(&self.source.scopes);
        let scopes: Vec<_> = scopes.split_ascii_whitespace().map(Value::from).collect();
        if let (false, Some(members)) = (scopes.is_empty(), document.as_object_mut()) {
            members.insert("scopes_supported".into(), scopes.into());
        }
        Some(document)
    }
}

/// Common settings of a configuration's resources, and those with URIs that are known in advance.
#[derive(Debug)]
pub(super) struct Resources {
    /// `gateway.public_url`.
    base: Option<Url>,
    known: HashMap<String, Arc<ProtectedResource>>,
    issuers: Vec<ResourceIssuer>,
    scopes: HashMap<ProfileName, Vec<Arc<str>>>,
}

#[derive(Debug)]
struct ResourceIssuer {
    server: LoginServer,
    profiles: Option<Vec<ProfileName>>,
    requests: Arc<Vec<(Arc<str>, Arc<str>)>>,
}

/// The login server for an issuer's clients.
#[derive(Debug)]
enum LoginServer {
    /// At this URL.
    There(String),
    /// The gateway, which passes the login on to this issuer.
    Here(IssuerName),
}

impl Resources {
    pub(super) fn new(config: &Config) -> Self {
        let scopes = |profile: &ProfileConfig| {
            let scopes = profile.scopes.iter().map(ScopeName::shared).collect();
            (profile.name.clone(), scopes)
        };
        let mut resources = Self {
            base: config.gateway.public_url.clone(),
            known: HashMap::new(),
            issuers: config.issuers.iter().map(ResourceIssuer::new).collect(),
            scopes: config.profiles.iter().map(scopes).collect(),
        };
        if let Some(base) = &resources.base {
            let names = config.profiles.iter().map(|profile| profile.name.clone());
            let made = names.chain([ProfileName::default()]).map(|name| {
                let resource = resources.make(base, name.as_str());
                (name.as_str().to_owned(), Arc::new(resource))
            });
            resources.known = made.collect();
        }
        resources
    }

    /// Returns the resource of a profile. Without `public_url`, `host` provides the gateway's URL.
    pub(super) fn find(
        &self,
        profile: &str,
        host: impl FnOnce() -> Option<Url>,
    ) -> Option<Arc<ProtectedResource>> {
        if let Some(known) = self.known.get(profile) {
            return Some(Arc::clone(known));
        }
        let base = self.base.clone().or_else(host)?;
        Some(Arc::new(self.make(&base, profile)))
    }

    /// Returns the path of `public_url`, without a slash at its end.
    pub(super) fn base_path(&self) -> &str {
        self.base.as_ref().map_or("", |base| base.path().trim_end_matches('/'))
    }

    /// Returns the login URL of an issuer with logins that the gateway passes on; clients see it as
    /// the issuer. `host` provides the gateway's URL if it is not configured.
    pub(super) fn login_url(
        &self,
        issuer: &IssuerName,
        host: impl FnOnce() -> Option<Url>,
    ) -> Option<String> {
        Some(login_url(&self.base.clone().or_else(host)?, issuer))
    }

    fn make(&self, base: &Url, profile: &str) -> ProtectedResource {
        let origin = base.origin().ascii_serialization();
        let path = base.path().trim_end_matches('/');
        let path = match profile {
            ProfileName::DEFAULT => format!("{path}/mcp"),
            name => format!("{path}/mcp/{name}"),
        };
        let admits = |issuer: &&ResourceIssuer| {
            issuer.profiles.as_ref().is_none_or(|all| all.iter().any(|it| it.as_str() == profile))
        };
        let issuers: Vec<_> = self.issuers.iter().filter(admits).collect();
        // A client uses the first issuer, unless it is configured otherwise.
        let requests = issuers.first().map(|issuer| Arc::clone(&issuer.requests));
        let source = TokenSource {
            metadata: (!issuers.is_empty()).then(|| format!("{origin}{WELL_KNOWN}{path}")),
            scopes: self.scopes.get(profile).cloned().unwrap_or_default(),
            requests: requests.unwrap_or_default(),
        };
        ProtectedResource {
            profile: profile.to_owned(),
            uri: format!("{origin}{path}"),
            origin: origin.len(),
            source: Arc::new(source),
            servers: issuers.iter().map(|issuer| issuer.server.url(base)).collect(),
        }
    }
}

impl LoginServer {
    fn url(&self, base: &Url) -> String {
        match self {
            Self::There(url) => url.clone(),
            Self::Here(issuer) => login_url(base, issuer),
        }
    }
}

fn login_url(base: &Url, issuer: &IssuerName) -> String {
    let origin = base.origin().ascii_serialization();
    format!("{origin}{}{LOGIN_PATH}{issuer}", base.path().trim_end_matches('/'))
}

impl ResourceIssuer {
    fn new(config: &IssuerConfig) -> Self {
        let requests = config.scope_requests.iter();
        let requests = requests.map(|(own, asked)| (own.shared(), asked.shared())).collect();
        Self {
            server: if config.relays_logins() {
                LoginServer::Here(config.name.clone())
            } else {
                LoginServer::There(config.login_server().to_owned())
            },
            profiles: config.profiles.clone(),
            requests: Arc::new(requests),
        }
    }
}

/// Parent path of the logins that are passed on, by the issuer's name.
pub const LOGIN_PATH: &str = "/login/";
/// Path of the metadata of resources (RFC 9728, 3.1).
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
