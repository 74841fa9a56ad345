//! `[servers.NAME.oauth]`: the gateway as an OAuth client of one server.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use url::Url;

use super::check::setting_value;
use super::issuers::{IssuerUrl, SafeUrl, TokenAlgorithm};
use super::macros::{choice, section};
use super::problem::ConfigProblem;
use super::reader::{ConfigNode, ConfigReader, ConfigTable};
use super::secret::Secret;
use super::server::{Isolation, ServerConfig};
use super::setting::{Section, TextSetting};
use super::units::DurationSetting;

section! {
    /// OAuth 2.1 towards a server that asks for it, as MCP's authorization describes it. Without any
    /// setting the gateway finds out the rest: it reads the server's metadata, registers itself and
    /// gives out a link to log in by. Servers without this table are never logged in to.
    #[derive(Debug, Clone, PartialEq)]
    pub struct OauthConfig {
        settings {
            /// Whose account the server sees.
            per: GrantOwnership = "user",
            /// How tokens are obtained.
            grant: GrantKind = "authorization_code",
            /// The id of a client that is registered with the authorization server. By default the
            /// gateway uses `client_metadata_url`, or registers itself, if the authorization server
            /// allows it.
            client_id: Option<String>,
            /// The secret of that client.
            client_secret: Option<Secret>,
            /// The private key of that client, as PEM, for `private_key_jwt`.
            private_key: Option<Secret>,
            /// The algorithm that the private key signs with.
            key_algorithm: TokenAlgorithm = "ES256",
            /// The URL of the gateway's client id metadata document, which the operator hosts. It is the
            /// client id at authorization servers that read such documents.
            client_metadata_url: Option<Url> as Option<SafeUrl>,
            /// The scopes to ask for. By default those that the server asks for when it refuses a
            /// request, or else all that its metadata names. What it asks for later is added.
            scopes: Vec<String> as Vec<OauthScope> = [],
            /// The only authorization server that is used, compared byte for byte. Set it together
            /// with a `client_secret`: otherwise the first one that the server names receives it.
            issuer: Option<String> as Option<IssuerUrl>,
            /// How the gateway authenticates at the token endpoint.
            token_endpoint_auth: TokenEndpointAuth = "auto",
            /// CA certificates to trust at the authorization server besides the system's, as PEM.
            ca: Option<PathBuf>,
            /// Private addresses that URLs may lead to which the server or its authorization server
            /// names. Public addresses may always be asked, and so may the hosts of `url` and
            /// `issuer`, and this machine if one of them is on it.
            allow_addresses: Vec<IpNet> = [],
            /// How long a link to log in by can be used.
            login_time: Duration as DurationSetting = "10m",
        }
    }
}

choice! {
    /// Whose account a server sees.
    pub enum GrantOwnership {
        /// each client of the gateway logs in to an account of its own; without clients and issuers
        /// there is only one. The lists come with a login of the operator, if they need one
        "user" => User,
        /// all clients use one account, which the operator logs in to
        "gateway" => Gateway,
    }
}

choice! {
    /// How tokens are obtained.
    pub enum GrantKind {
        /// a person logs in with a browser
        "authorization_code" => AuthorizationCode,
        /// the gateway logs in by itself, as itself
        "client_credentials" => ClientCredentials,
    }
}

choice! {
    /// How the gateway authenticates at a token endpoint.
    pub enum TokenEndpointAuth {
        /// as the authorization server's metadata allows it
        "auto" => Auto,
        /// by the `Authorization` header
        "client_secret_basic" => Basic,
        /// by members of the form
        "client_secret_post" => Post,
        /// by a signed assertion
        "private_key_jwt" => PrivateKeyJwt,
        /// by its id alone
        "none" => None,
    }
}

/// The name of a scope that an authorization server knows (RFC 6749, 3.3).
pub(super) struct OauthScope;

impl TextSetting for OauthScope {
    type Value = String;
    const WORD: &'static str = "scope";
    const RULE: &'static str = "visible ASCII characters without spaces, `\"` and `\\`";
    const EXAMPLE: &'static str = "\"repo:read\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, ConfigProblem> {
        Ok(is_scope_token(text).then(|| text.to_owned()))
    }
}

/// Whether a text is one scope.
pub fn is_scope_token(text: &str) -> bool {
    let visible = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    (1..=256).contains(&text.len()) && text.bytes().all(visible)
}

/// What is wrong with the settings of an OAuth client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OauthProblem {
    /// A secret or a key without the client that it belongs to.
    #[error("the setting belongs to a registered client, but there is no `client_id`")]
    NoClientId,
    /// A grant without a person, and no client that may have it.
    #[error(
        "the grant `client_credentials` needs `client_id`, and `client_secret` or `private_key`"
    )]
    NoCredentials,
    /// A way to authenticate without what it needs.
    #[error("the way to authenticate needs {needed}")]
    AuthNeeds {
        /// The missing setting.
        needed: &'static str,
    },
    /// A fixed header where tokens are sent.
    #[error("the server has both OAuth and a fixed `Authorization` header")]
    TwoAuthorizations,
    /// One session for all clients, whose requests need tokens of their own.
    #[error("with `per = \"user\"` each client of a Legacy server needs a session of its own")]
    SharedSession,
}

impl OauthProblem {
    /// How to correct the fault.
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::NoClientId => "add the client_id, or remove the setting",
            Self::NoCredentials => "add them",
            Self::AuthNeeds { .. } => "add it, or write token_endpoint_auth = \"auto\"",
            Self::TwoAuthorizations => "keep one of them",
            Self::SharedSession => {
                "write isolation = \"client\" for the server, or per = \"gateway\" in this table"
            }
        }
    }
}

impl OauthConfig {
    /// The faults between its settings, each with the key that it is reported at.
    pub(super) fn faults(&self) -> Vec<(&'static str, OauthProblem)> {
        let mut faults = Vec::new();
        if self.client_id.is_none() {
            if self.client_secret.is_some() {
                faults.push(("client_secret", OauthProblem::NoClientId));
            }
            if self.private_key.is_some() {
                faults.push(("private_key", OauthProblem::NoClientId));
            }
        }
        let has_credentials = self.client_secret.is_some() || self.private_key.is_some();
        let may_log_in = self.client_id.is_some() && has_credentials;
        if self.grant == GrantKind::ClientCredentials && !may_log_in {
            faults.push(("grant", OauthProblem::NoCredentials));
        }
        let needed = match self.token_endpoint_auth {
            TokenEndpointAuth::PrivateKeyJwt if self.private_key.is_none() => Some("`private_key`"),
            _ => None,
        };
        faults.extend(
            needed.map(|needed| ("token_endpoint_auth", OauthProblem::AuthNeeds { needed })),
        );
        faults
    }
}

/// Checks the settings of an OAuth client, together with those of its server.
pub(super) fn check_oauth(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let Some(table) = server.find_node("oauth").and_then(|node| node.as_table()) else { return };
    let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
    let Some(oauth) = OauthConfig::read_fields(&table, quiet) else { return };
    for (key, problem) in oauth.faults() {
        if let Some(node) = table.find_node(key) {
            node.report_fault_at_key(reader, problem.into());
        }
    }
    let headers = ["headers", "call_headers"].map(|key| server.find_node(key)?.as_table());
    let headers = headers.iter().flatten().flat_map(ConfigTable::all_nodes).collect::<Vec<_>>();
    let is_token = |node: &&ConfigNode<'_>| {
        node.key.rsplit('.').next().is_some_and(|key| key.eq_ignore_ascii_case("authorization"))
    };
    if let Some(node) = headers.iter().find(is_token) {
        node.report_fault_at_key(reader, OauthProblem::TwoAuthorizations.into());
    }
    let isolation =
        setting_value::<ServerConfig, Option<Isolation>>(server, "isolation", reader).flatten();
    if oauth.per == GrantOwnership::User
        && isolation == Some(Isolation::Shared)
        && let Some(node) = server.find_node("isolation")
    {
        node.report_fault(reader, OauthProblem::SharedSession.into());
    }
}
