//! `[servers.NAME.oauth]`: the gateway as an OAuth client of one server.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use url::Url;

use super::{Isolation, ServerConfig, ServerKind};
use crate::faults::oauth::OauthFault;
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::{Section, TextSetting};
use crate::reader::values::units::DurationSetting;
use crate::reader::{ConfigNode, ConfigReader, ConfigTable, setting_value};
use crate::sections::issuers::{IssuerName, IssuerUrl, SafeUrl, TokenAlgorithm};
use crate::source::secret::Secret;

section! {
    /// OAuth 2.1 towards a server that asks for it, as MCP's authorization describes it. Without
    /// any setting the gateway finds out the rest: it reads the server's metadata, registers itself
    /// and returns a link for the login. The gateway never logs in to servers without this table.
    #[derive(Debug, Clone, PartialEq)]
    pub struct OauthConfig {
        settings {
            /// The owner of the account that the server sees.
            per: GrantOwnership = "user",
            /// The grant by which tokens are obtained.
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
            /// The scopes to request. By default those that the server names when it refuses a
            /// request, or else all that its metadata names. Scopes that it asks for later are
            /// added.
            scopes: Vec<String> as Vec<OauthScope> = [],
            /// The only authorization server that is used, compared byte for byte. Set it together
            /// with a `client_secret`: otherwise the first one that the server names receives the
            /// secret.
            issuer: Option<String> as Option<IssuerUrl>,
            /// The resource that the server's metadata may name besides the server's own URL: a URL
            /// of the same origin with a path that the server's path begins with. Tokens are then
            /// valid for everything below it.
            resource: Option<Url> as Option<SafeUrl>,
            /// Leaves the parameter `resource` (RFC 8707) out of every request to the authorization server.
            /// For providers that refuse it.
            drop_resource: bool = false,
            /// The gateway's authentication at the token endpoint.
            token_endpoint_auth: TokenEndpointAuth = "auto",
            /// The path to which browsers return after a login. The redirect URI has to be registered with
            /// the authorization server.
            callback: CallbackChoice = "auto",
            /// Refuses an answer to a login that does not name the authorization server (`iss`, RFC
            /// 9207), also if its metadata does not promise that. Set it where the provider sends
            /// `iss`.
            require_iss: bool = false,
            /// CA certificates to trust at the authorization server besides the system's, as PEM.
            ca: Option<PathBuf>,
            /// Private addresses that the URLs in metadata of the server or its authorization
            /// server may lead to. Public addresses are always allowed, and so are the hosts of
            /// `url` and `issuer`, and this machine if one of them is on it.
            allow_addresses: Vec<IpNet> = [],
            /// The time for which a login link can be used.
            login_time: Duration as DurationSetting = "10m",
            /// Binds tokens to a key of the gateway (DPoP, RFC 9449), so that a stolen token is
            /// useless without the key.
            dpop: DpopChoice = "auto",
            /// `jwt_bearer`: the JWT that is exchanged for a token.
            assertion: Option<Secret>,
            /// `jwt_bearer`: the file with that JWT, read for each token: platforms write new ones there.
            assertion_file: Option<PathBuf>,
            /// `token_exchange` and `id_jag`: the token that is exchanged for requests of the
            /// gateway itself, such as listing, and for all requests with `per = "gateway"`. With
            /// `per = "user"` calls use the token that their own client has sent, and never this
            /// one; without it, only clients that send a token to be exchanged see the server.
            subject_token: Option<Secret>,
            /// The file with that token, read for each exchange.
            subject_token_file: Option<PathBuf>,
            /// The type of that token, and of those of clients. By default `access_token` for
            /// `token_exchange`, and `id_token` for `id_jag`.
            subject_token_type: Option<ExchangedType>,
            /// The `NAME` of the `[issuers.NAME]` that issues the exchanged tokens; tokens of
            /// others are not exchanged. Required if there are several.
            subject_issuer: Option<String>,
            /// `token_exchange`: a token that identifies the party that acts for the user: the
            /// gateway.
            actor_token: Option<Secret>,
            /// The file with that token, read for each exchange.
            actor_token_file: Option<PathBuf>,
            /// The type of that token.
            actor_token_type: ExchangedType = "jwt",
            /// `token_exchange`: the `audience` of the request, for authorization servers that
            /// require one besides `resource`.
            audience: Option<String>,
            /// `id_jag`: the identity provider of the users.
            idp: Option<IdpConfig>,
        }
    }
}

section! {
    /// The identity provider of an enterprise, which exchanges the ID token of a user for a grant at
    /// the authorization server of a server (ID-JAG).
    #[derive(Debug, Clone, PartialEq)]
    pub struct IdpConfig {
        settings {
            /// Its token endpoint.
            token_endpoint: Url as SafeUrl,
            /// The id of the gateway there. ID tokens have it as their `aud`.
            client_id: String,
            /// The secret of that client.
            client_secret: Option<Secret>,
            /// The private key of that client, as PEM, for `private_key_jwt`.
            private_key: Option<Secret>,
            /// The algorithm that the private key signs with.
            key_algorithm: TokenAlgorithm = "ES256",
            /// The gateway's authentication there; `auto` sends the secret as members of the form.
            token_endpoint_auth: TokenEndpointAuth = "auto",
        }
    }
}

choice! {
    /// The owner of the account that a server sees.
    pub enum GrantOwnership {
        /// each client of the gateway logs in to an account of its own; without clients and issuers
        /// there is only one. The lists are fetched with a login of the operator, if they need one
        "user" => User,
        /// all clients use one account, and the operator logs in to it
        "gateway" => Gateway,
    }
}

choice! {
    /// The grant by which tokens are obtained.
    pub enum GrantKind {
        /// a user logs in with a browser
        "authorization_code" => AuthorizationCode,
        /// the gateway logs in by itself, as itself
        "client_credentials" => ClientCredentials,
        /// the token that a client has sent is exchanged for one at the server's authorization
        /// server (RFC 8693)
        "token_exchange" => TokenExchange,
        /// the ID token that a client has sent is exchanged at the `idp` for a grant, and the grant
        /// for a token (enterprise-managed authorization)
        "id_jag" => IdJag,
        /// a JWT that the gateway's platform issues is exchanged for a token (workload identity,
        /// RFC 7523)
        "jwt_bearer" => JwtBearer,
    }
}

choice! {
    /// The path to which browsers return after a login.
    pub enum CallbackChoice {
        /// `/oauth/callback/SERVER` for a client that the gateway registers by itself, and
        /// `/oauth/callback` for one with `client_id` or `client_metadata_url`
        "auto" => Auto,
        /// always `/oauth/callback/SERVER`, so that answers of different authorization servers cannot be
        /// mixed up
        "server" => Server,
    }
}

choice! {
    /// The binding of tokens to a key of the gateway.
    pub enum DpopChoice {
        /// if the server asks for it and its authorization server supports it
        "auto" => Auto,
        /// always: a token that is not bound is an error
        "required" => Required,
        /// never
        "off" => Off,
    }
}

choice! {
    /// The type of an exchanged token (RFC 8693, 3).
    pub enum ExchangedType {
        /// an OAuth access token
        "access_token" => AccessToken,
        /// an ID token of OpenID Connect
        "id_token" => IdToken,
        /// any other JWT
        "jwt" => Jwt,
    }
}

impl ExchangedType {
    /// Its name in requests.
    pub fn urn(self) -> &'static str {
        match self {
            Self::AccessToken => "urn:ietf:params:oauth:token-type:access_token",
            Self::IdToken => "urn:ietf:params:oauth:token-type:id_token",
            Self::Jwt => "urn:ietf:params:oauth:token-type:jwt",
        }
    }
}

impl GrantKind {
    /// Returns true if the exchanged token is the one that a client has sent.
    pub fn exchanges_callers(self) -> bool {
        matches!(self, Self::TokenExchange | Self::IdJag)
    }
}

choice! {
    /// The gateway's authentication at a token endpoint.
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

/// The name of a scope of an authorization server (RFC 6749, 3.3).
pub(crate) struct OauthScope;

impl TextSetting for OauthScope {
    type Value = String;
    const WORD: &'static str = "scope";
    const RULE: &'static str = "visible ASCII characters without spaces, `\"` and `\\`";
    const EXAMPLE: &'static str = "\"repo:read\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        Ok(is_scope_token(text).then(|| text.to_owned()))
    }
}

/// Returns true if a text is one scope.
pub fn is_scope_token(text: &str) -> bool {
    let visible = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    (1..=256).contains(&text.len()) && text.bytes().all(visible)
}

impl ServerConfig {
    /// The settings of the gateway's OAuth client for it; `None` without OAuth.
    pub fn oauth(&self) -> Option<&OauthConfig> {
        match &self.target {
            ServerKind::Http(http) => http.oauth.as_ref(),
            ServerKind::OpenApi(api) => api.oauth.as_ref(),
            ServerKind::Command(_) => None,
        }
    }

    /// Returns true if the tokens of an issuer's users are exchanged for tokens of this server.
    pub fn exchanges_tokens_of(&self, issuer: &IssuerName) -> bool {
        self.oauth().is_some_and(|oauth| {
            let of = oauth.subject_issuer.as_deref();
            let is_meant = of.is_none_or(|name| name == issuer.as_str());
            oauth.grant.exchanges_callers() && oauth.per == GrantOwnership::User && is_meant
        })
    }
}

impl OauthConfig {
    /// The faults between its settings, each with the key that it is reported at.
    pub(crate) fn faults(&self) -> Vec<(&'static str, OauthFault)> {
        let mut faults = Vec::new();
        if self.client_id.is_none() {
            if self.client_secret.is_some() {
                faults.push(("client_secret", OauthFault::NoClientId));
            }
            if self.private_key.is_some() {
                faults.push(("private_key", OauthFault::NoClientId));
            }
        }
        let has_credentials = self.client_secret.is_some() || self.private_key.is_some();
        let may_log_in = self.client_id.is_some() && has_credentials;
        if self.grant == GrantKind::ClientCredentials && !may_log_in {
            faults.push(("grant", OauthFault::NoCredentials));
        }
        faults.extend(self.missing().map(|fault| ("grant", fault)));
        faults.extend(self.misplaced());
        let needed = match self.token_endpoint_auth {
            TokenEndpointAuth::PrivateKeyJwt if self.private_key.is_none() => Some("`private_key`"),
            _ => None,
        };
        faults
            .extend(needed.map(|needed| ("token_endpoint_auth", OauthFault::AuthNeeds { needed })));
        faults
    }
}

impl OauthConfig {
    /// The settings that the grant lacks.
    fn missing(&self) -> Option<OauthFault> {
        let lacks = |needed| Some(OauthFault::GrantNeeds { grant: self.grant.as_str(), needed });
        match self.grant {
            // The tokens of clients would go to any authorization server that the server names.
            GrantKind::TokenExchange if self.client_id.is_none() || self.issuer.is_none() => {
                lacks("`client_id` and `issuer`")
            }
            GrantKind::IdJag if self.client_id.is_none() || self.idp.is_none() => {
                lacks("`client_id` and the table `idp`")
            }
            GrantKind::JwtBearer if self.assertion.is_none() && self.assertion_file.is_none() => {
                lacks("`assertion` or `assertion_file`")
            }
            GrantKind::TokenExchange | GrantKind::IdJag
                if self.per == GrantOwnership::Gateway
                    && self.subject_token.is_none()
                    && self.subject_token_file.is_none() =>
            {
                lacks("`subject_token` or `subject_token_file` for `per = \"gateway\"`")
            }
            _ => None,
        }
    }

    /// The settings that belong to other grants, or that contradict each other.
    fn misplaced(&self) -> Vec<(&'static str, OauthFault)> {
        use GrantKind::{AuthorizationCode, IdJag, JwtBearer, TokenExchange};
        let is_set = [
            ("callback", self.callback == CallbackChoice::Server, &[AuthorizationCode][..]),
            ("require_iss", self.require_iss, &[AuthorizationCode]),
            ("assertion", self.assertion.is_some(), &[JwtBearer]),
            ("assertion_file", self.assertion_file.is_some(), &[JwtBearer]),
            ("subject_token", self.subject_token.is_some(), &[TokenExchange, IdJag]),
            ("subject_token_file", self.subject_token_file.is_some(), &[TokenExchange, IdJag]),
            ("subject_issuer", self.subject_issuer.is_some(), &[TokenExchange, IdJag]),
            ("actor_token", self.actor_token.is_some(), &[TokenExchange]),
            ("actor_token_file", self.actor_token_file.is_some(), &[TokenExchange]),
            ("audience", self.audience.is_some(), &[TokenExchange]),
            ("idp", self.idp.is_some(), &[IdJag]),
        ];
        let name = |grants: &[GrantKind]| match grants {
            [AuthorizationCode] => "`authorization_code`",
            [JwtBearer] => "`jwt_bearer`",
            [IdJag] => "`id_jag`",
            [TokenExchange] => "`token_exchange`",
            _ => "`token_exchange` or `id_jag`",
        };
        let misplaced = is_set.iter().filter(|(_, set, of)| *set && !of.contains(&self.grant));
        let misplaced =
            misplaced.map(|(key, _, of)| (*key, OauthFault::OtherGrant { grants: name(of) }));
        let pairs = [
            ("assertion_file", self.assertion.is_some() && self.assertion_file.is_some()),
            (
                "subject_token_file",
                self.subject_token.is_some() && self.subject_token_file.is_some(),
            ),
            ("actor_token_file", self.actor_token.is_some() && self.actor_token_file.is_some()),
        ];
        let twice = pairs.into_iter().filter(|(_, both)| *both);
        misplaced.chain(twice.map(|(key, _)| (key, OauthFault::TwoPlaces))).collect()
    }
}

/// Requires a clear issuer of exchanged tokens: the authorization server of one issuer has no use
/// for a token of another.
fn check_subject_issuer(
    table: &ConfigTable<'_>,
    oauth: &OauthConfig,
    issuers: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    if !oauth.grant.exchanges_callers() {
        return;
    }
    match &oauth.subject_issuer {
        None if issuers.len() > 1 => {
            if let Some(node) = table.find_node("grant") {
                node.report_fault_at_key(reader, OauthFault::ManyIssuers.into());
            }
        }
        Some(name) if issuers.iter().all(|issuer| issuer.name != name.as_str()) => {
            if let Some(node) = table.find_node("subject_issuer") {
                node.report_fault(reader, OauthFault::UnknownIssuer.into());
            }
        }
        _ => {}
    }
}

/// Checks the settings of an OAuth client, together with those of its server.
pub(crate) fn check_oauth(
    server: &ConfigTable<'_>,
    issuers: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    let Some(table) = server.find_table("oauth") else { return };
    let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
    let Some(oauth) = OauthConfig::read_fields(&table, quiet) else { return };
    for (key, problem) in oauth.faults() {
        if let Some(node) = table.find_node(key) {
            node.report_fault_at_key(reader, problem.into());
        }
    }
    if let Some(node) = server.find_node("aws") {
        node.report_fault_at_key(reader, OauthFault::AwsToo.into());
    }
    check_subject_issuer(&table, &oauth, issuers, reader);
    let headers = ["headers", "call_headers"].map(|key| server.find_nodes(key));
    let is_token = |node: &&ConfigNode<'_>| {
        node.key.rsplit('.').next().is_some_and(|key| key.eq_ignore_ascii_case("authorization"))
    };
    if let Some(node) = headers.iter().flatten().find(is_token) {
        node.report_fault_at_key(reader, OauthFault::TwoAuthorizations.into());
    }
    let isolation =
        setting_value::<ServerConfig, Option<Isolation>>(server, "isolation", reader).flatten();
    if oauth.per == GrantOwnership::User
        && isolation == Some(Isolation::Shared)
        && let Some(node) = server.find_node("isolation")
    {
        node.report_fault(reader, OauthFault::SharedSession.into());
    }
}
