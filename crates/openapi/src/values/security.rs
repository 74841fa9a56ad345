//! Security schemes: the credentials that an operation requires, and their positions in a request.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};

use trunkline_config::{LoginConfig, OpenApiConfig, SchemeCredential};

use super::parameters::encode;
use crate::schemas::references::Node;

/// A credential in the position that its scheme names.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum AppliedCredential {
    /// A header. Its value is marked as sensitive.
    Header(HeaderName, HeaderValue),
    /// Name and value of a query parameter, encoded.
    Query(String, String),
    /// Name and value of a cookie, encoded.
    Cookie(String, String),
}

/// The credentials of one operation.
#[derive(Clone, Default)]
pub(crate) struct OperationSecurity {
    pub(crate) credentials: Vec<AppliedCredential>,
    /// Schemes without a value, if none of the alternatives is complete.
    pub(crate) missing: Vec<String>,
}

impl OperationSecurity {
    /// Returns true if one of the credentials is the value of this parameter.
    pub(crate) fn supplies(&self, parameter: Node<'_>) -> bool {
        let name = parameter.text("name").unwrap_or_default();
        let place = parameter.text("in").unwrap_or_default();
        self.credentials.iter().any(|credential| match credential {
            AppliedCredential::Header(own, _) => {
                place == "header" && own.as_str().eq_ignore_ascii_case(name)
            }
            AppliedCredential::Query(own, _) => place == "query" && *own == encode(name),
            AppliedCredential::Cookie(own, _) => place == "cookie" && *own == encode(name),
        })
    }
}

/// The schemes of a document, with the configured credentials.
pub(crate) struct SecuritySchemes<'a> {
    root: Node<'a>,
    config: &'a OpenApiConfig,
    /// Names of the schemes that operations require.
    asked: HashSet<&'a str>,
}

impl<'a> SecuritySchemes<'a> {
    pub(crate) fn new(root: Node<'a>, config: &'a OpenApiConfig) -> Self {
        Self { root, config, asked: HashSet::new() }
    }

    /// Returns the credentials for an operation: those of the first alternative in which every
    /// scheme has a value. If there is none, returns the missing schemes.
    pub(crate) fn apply(&mut self, operation: Node<'a>) -> OperationSecurity {
        let wanted = operation.find("security").or_else(|| self.root.find("security"));
        let requirements = wanted.into_iter().flat_map(Node::items).flat_map(Node::members);
        self.asked.extend(requirements.map(|(name, _)| name));
        let mut missing = Vec::new();
        let mut is_optional = false;
        for alternative in wanted.into_iter().flat_map(Node::items) {
            let names: Vec<_> = alternative.members().map(|(name, _)| name).collect();
            is_optional |= names.is_empty();
            if names.is_empty() {
                continue;
            }
            let found: Vec<_> = names.iter().map(|name| self.credential(name)).collect();
            if found.iter().all(Option::is_some) {
                let credentials = found.into_iter().flatten().flatten().collect();
                return OperationSecurity { credentials, missing: Vec::new() };
            }
            let absent = names.iter().zip(&found).filter(|(_, found)| found.is_none());
            missing.extend(absent.map(|(name, _)| (*name).to_owned()));
        }
        if is_optional {
            missing.clear();
        }
        OperationSecurity { credentials: Vec::new(), missing }
    }

    /// Returns the names in `auth` that are not schemes of the document, or with a value that does
    /// not fit the scheme.
    pub(crate) fn unknown_names(&self) -> Vec<String> {
        let known = |name: &str| {
            self.find_scheme(name).is_some_and(|scheme| {
                let mut configured = self.config.auth.iter().filter(|(known, _)| known == name);
                configured.any(|(_, value)| apply_credential(scheme, value).is_some())
            })
        };
        let names = self.config.auth.iter().map(|(name, _)| name);
        names.filter(|name| !known(name)).cloned().collect()
    }

    /// Returns the names in `auth` of schemes that no operation requires.
    pub(crate) fn unused_names(&self) -> Vec<String> {
        let names = self.config.auth.iter().map(|(name, _)| name);
        let is_unused = |name: &&String| {
            self.find_scheme(name).is_some() && !self.asked.contains(name.as_str())
        };
        names.filter(is_unused).cloned().collect()
    }

    fn find_scheme(&self, name: &str) -> Option<Node<'a>> {
        let schemes = self.root.find("components")?.find("securitySchemes")?;
        schemes.follow(name).ok().flatten()
    }

    /// Returns the credential of a scheme, or an empty list if a configured header provides it.
    /// Returns `None` if there is no value.
    fn credential(&self, name: &str) -> Option<Vec<AppliedCredential>> {
        let scheme = self.find_scheme(name)?;
        let configured = self.config.auth.iter().find(|(known, _)| known == name);
        match configured {
            Some((_, credential)) => Some(vec![apply_credential(scheme, credential)?]),
            None => self.is_among_headers(scheme).then(Vec::new),
        }
    }

    fn is_among_headers(&self, scheme: Node<'_>) -> bool {
        let header = match (scheme.text("type"), scheme.text("in")) {
            (Some("apiKey"), Some("header")) => scheme.text("name"),
            (Some("apiKey"), Some("cookie")) => Some("cookie"),
            (Some("apiKey"), _) => None,
            _ => Some(AUTHORIZATION.as_str()),
        };
        header.is_some_and(|header| {
            self.config.headers.iter().any(|(name, _)| name.as_str().eq_ignore_ascii_case(header))
        })
    }
}

/// Returns the credential in the position that the scheme names, or `None` if it does not fit the
/// scheme.
fn apply_credential(scheme: Node<'_>, credential: &SchemeCredential) -> Option<AppliedCredential> {
    let name = scheme.text("name").unwrap_or_default();
    match (scheme.text("type")?, scheme.text("in"), credential) {
        ("apiKey", Some("header"), SchemeCredential::Value(key)) if !is_connection_header(name) => {
            sensitive(HeaderName::from_bytes(name.as_bytes()).ok()?, key.expose())
        }
        ("apiKey", Some("query"), SchemeCredential::Value(key)) => {
            Some(AppliedCredential::Query(encode(name), encode(key.expose())))
        }
        ("apiKey", Some("cookie"), SchemeCredential::Value(key)) => {
            Some(AppliedCredential::Cookie(encode(name), encode(key.expose())))
        }
        ("http", _, SchemeCredential::Login(LoginConfig { username, password })) => {
            let pair = STANDARD.encode(format!("{username}:{}", password.expose()));
            sensitive(AUTHORIZATION, &format!("Basic {pair}"))
        }
        ("http", _, SchemeCredential::Value(value)) if is_scheme(scheme, "basic") => {
            sensitive(AUTHORIZATION, &format!("Basic {}", STANDARD.encode(value.expose())))
        }
        ("http" | "oauth2" | "openIdConnect", _, SchemeCredential::Value(token)) => {
            let word = scheme.text("scheme").filter(|_| !is_scheme(scheme, "bearer"));
            sensitive(AUTHORIZATION, &format!("{} {}", word.unwrap_or("Bearer"), token.expose()))
        }
        _ => None,
    }
}

/// Returns true if only the gateway may set a header: it belongs to the connection or to the body.
pub(crate) fn is_connection_header(name: &str) -> bool {
    const OWN_HEADERS: [&str; 14] = [
        "accept",
        "content-type",
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "proxy-authorization",
        "proxy-connection",
        "accept-encoding",
    ];
    OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own))
}

fn is_scheme(scheme: Node<'_>, name: &str) -> bool {
    scheme.text("scheme").is_some_and(|word| word.eq_ignore_ascii_case(name))
}

fn sensitive(name: HeaderName, text: &str) -> Option<AppliedCredential> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
    value.set_sensitive(true);
    Some(AppliedCredential::Header(name, value))
}
