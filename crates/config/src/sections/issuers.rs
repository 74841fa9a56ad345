//! `[issuers.NAME]`: the authorization servers of accepted tokens, and the names of scopes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use trunkline_protocol::call::ProfileName;

use super::gateway::admin::AdminRole;
use super::gateway::network::parse_safe_url;
use super::named_tables::NameKey;
use super::quota::Quota;
use crate::faults::issuer::IssuerFault;
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::{SectionPart, TextSetting};
use crate::reader::values::units::DurationSetting;
use crate::reader::{ConfigReader, ConfigTable};

section! {
    /// An authorization server (OAuth 2.1) that issues accepted access tokens: signed JWTs, sent as
    /// `Authorization: Bearer`. As soon as one is configured, requests without a valid token or key
    /// are rejected. `NAME` has 1 to 32 characters of `a-z`, `A-Z`, `0-9`, `_`, `-` and `.`; users
    /// are `NAME:SUBJECT` in logs, so a new authorization server needs a new name.
    /// [Authentication](authentication.md) has a section for each of the usual providers.
    #[derive(Debug, Clone, PartialEq)]
    pub struct IssuerConfig {
        parts {
            /// The `NAME` of its table.
            name: IssuerName,
        }
        settings {
            /// The `iss` of its tokens, compared byte for byte: with or without a slash at the end,
            /// as the authorization server writes it.
            issuer: String as IssuerUrl,
            /// Other spellings of `iss` that its tokens may have.
            issuer_aliases: Vec<String> = [],
            /// The accepted values of `aud` in its tokens. By default the URL of the called
            /// endpoint (`gateway.public_url` and `/mcp`, or `/mcp/NAME` for a profile), so that a
            /// token for one profile is refused at another. For authorization servers that write
            /// something else, such as the client id, or `api://…`; then a token is accepted at all
            /// `profiles`.
            audience: Vec<String> = [],
            /// The URL of its keys (JWKS). By default the URL in its metadata, which is looked up
            /// below `issuer` (RFC 8414, OpenID Connect Discovery).
            jwks_url: Option<Url> as Option<SafeUrl>,
            /// A file with its keys, instead of `jwks_url`.
            jwks_file: Option<PathBuf>,
            /// The interval at which the keys are fetched again. An unknown key causes a fetch at
            /// once, at most once a minute.
            jwks_refresh: Duration as DurationSetting = "15m",
            /// CA certificates to trust besides the system's, as PEM.
            ca: Option<PathBuf>,
            /// The algorithms of signatures that are accepted.
            algorithms: Vec<TokenAlgorithm> = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"],
            /// The largest difference between the clocks of gateway and authorization server.
            clock_skew: Duration = "1m",
            /// The claim that names the user or the program. Its value must never be reassigned to
            /// another.
            principal_claim: String = "sub",
            /// The claim with the groups: its name, or a path such as `realm_access.roles`. A list or
            /// one text with spaces.
            groups_claim: Option<String>,
            /// The rights of its users at the [admin API](api.md), by group, such as
            /// `{ "platform-team" = "operator" }`; the highest applies. It needs `groups_claim`. By
            /// default none.
            roles: Vec<(String, AdminRole)> = {},
            /// The claims with the scopes, each a list or one text with spaces.
            scope_claims: Vec<String> = ["scope", "scp"],
            /// The names of its tokens' scopes at the gateway, such as
            /// `{ "Tools.Read" = ["mcp:read"] }`. A scope without an entry keeps its name.
            scope_map: Vec<(ScopeName, Vec<ScopeName>)> = {},
            /// The scopes that clients have to request from the authorization server to get a scope
            /// of the gateway, such as `{ "mcp:read" = "api://gateway/Tools.Read" }`. By default
            /// the scope itself.
            scope_requests: Vec<(ScopeName, ScopeName)> = {},
            /// The profiles that its users may use; `default` is `/mcp` itself. By default all.
            profiles: Option<Vec<ProfileName>>,
            /// The number of calls of each of its users in each second, minute, hour or day of UTC.
            quota_each: Option<Quota>,
            /// The authorization server that clients are sent to, if it is not `issuer`.
            authorization_server: Option<String> as Option<IssuerUrl>,
            /// The id of a public client at the authorization server, for one without client
            /// registration. Clients are then sent to the gateway (`/login/NAME`), which returns
            /// this id to clients that register, and passes their logins on. The redirect URIs of
            /// the clients have to be registered for it.
            client_id: Option<String> as Option<ClientId>,
            /// Omits `resource` (RFC 8707) from logins. MCP clients always send it, and some
            /// authorization servers refuse it. Clients are then sent to the gateway
            /// (`/login/NAME`), which passes their logins on without it.
            drop_resource: bool = false,
        }
    }
}

impl IssuerConfig {
    /// Returns true if tokens with this `iss` are its own, compared byte for byte (RFC 9207, RFC
    /// 8414).
    pub fn accepts_issuer(&self, said: &str) -> bool {
        self.issuer == said || self.issuer_aliases.iter().any(|alias| alias == said)
    }

    /// Returns true if its users may use a profile.
    pub fn allows_profile(&self, profile: &str) -> bool {
        let listed = self.profiles.as_ref();
        listed.is_none_or(|all| all.iter().any(|one| one.as_str() == profile))
    }

    /// The authorization server for the logins of its users, as the configuration writes it.
    #[inline]
    pub fn login_server(&self) -> &str {
        self.authorization_server.as_ref().unwrap_or(&self.issuer)
    }

    /// Returns true if clients log in through the gateway.
    #[inline]
    pub fn relays_logins(&self) -> bool {
        self.client_id.is_some() || self.drop_resource
    }
}

/// The name of an issuer: the `NAME` of `[issuers.NAME]`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IssuerName(Arc<str>);

impl IssuerName {
    /// The name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IssuerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IssuerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl SectionPart for IssuerName {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        // No colon: it ends the issuer's name in the name of a user.
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !(1..=32).contains(&table.name.len()) || !table.name.chars().all(allowed) {
            let problem = IssuerFault::Name.into();
            reader.report_fault(table.name_span.clone(), &table.key, problem);
            return None;
        }
        Some(Self(table.name.into()))
    }
}

choice! {
    /// An algorithm of signatures. Only asymmetric ones: with a shared secret, a program that can
    /// check a token can make one.
    pub enum TokenAlgorithm {
        /// RSA (PKCS #1 v1.5) with SHA-256
        "RS256" => Rs256,
        /// RSA (PKCS #1 v1.5) with SHA-384
        "RS384" => Rs384,
        /// RSA (PKCS #1 v1.5) with SHA-512
        "RS512" => Rs512,
        /// RSA (PSS) with SHA-256
        "PS256" => Ps256,
        /// RSA (PSS) with SHA-384
        "PS384" => Ps384,
        /// RSA (PSS) with SHA-512
        "PS512" => Ps512,
        /// ECDSA with P-256 and SHA-256
        "ES256" => Es256,
        /// ECDSA with P-384 and SHA-384
        "ES384" => Es384,
        /// Ed25519
        "EdDSA" => EdDsa,
    }
}

/// The URL of an authorization server, kept as it is written.
pub(crate) struct IssuerUrl;

impl TextSetting for IssuerUrl {
    type Value = String;
    const WORD: &'static str = "URL of an authorization server";
    const EXAMPLE: &'static str = "\"https://login.example.com/realms/acme\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        let url = parse_safe_url(text)?;
        Ok(url.query().is_none().then(|| text.to_owned()))
    }
}

/// The id of a client (RFC 6749, A.1).
pub(crate) struct ClientId;

impl TextSetting for ClientId {
    type Value = String;
    const WORD: &'static str = "client id";
    const RULE: &'static str = "1 to 256 visible ASCII characters";
    const EXAMPLE: &'static str = "\"6e74172b-f56f-4843-9a4a-16c6a4d5c4d0\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        let is_valid =
            (1..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        Ok(is_valid.then(|| text.to_owned()))
    }
}

/// A URL that is HTTPS, or of this machine.
pub(crate) struct SafeUrl;

impl TextSetting for SafeUrl {
    type Value = Url;
    const WORD: &'static str = "HTTPS URL";
    const EXAMPLE: &'static str = "\"https://mcp.example.com\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Url>, SettingFault> {
        Ok(Some(parse_safe_url(text)?))
    }
}

/// The URL of the gateway itself: HTTPS or of this machine, without a query.
pub(crate) struct PublicUrl;

impl TextSetting for PublicUrl {
    type Value = Url;
    const WORD: &'static str = "HTTPS URL without a query";
    const EXAMPLE: &'static str = "\"https://mcp.example.com\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Url>, SettingFault> {
        let url = parse_safe_url(text)?;
        Ok(Some(url).filter(|url| url.query().is_none()))
    }
}

/// The name of a scope (RFC 6749, 3.3).
///
/// Shape: 1 to 256 visible ASCII characters without `"` and `\`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeName(Arc<str>);

impl ScopeName {
    /// Validates a name.
    pub fn new(text: &str) -> Option<Self> {
        let visible = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        let valid = (1..=256).contains(&text.len()) && text.bytes().all(visible);
        valid.then(|| Self(text.into()))
    }

    /// The name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    #[inline]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for ScopeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TextSetting for ScopeName {
    type Value = Self;
    const WORD: &'static str = "scope";
    const RULE: &'static str = "visible ASCII characters without spaces, `\"` and `\\`";
    const EXAMPLE: &'static str = "\"mcp:read\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        if text == OFFLINE_ACCESS {
            return Err(IssuerFault::OfflineAccess.into());
        }
        Ok(Self::new(text))
    }
}

impl NameKey<Vec<Self>> for ScopeName {
    const WORD: &'static str = "scope";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        Self::new(text).ok_or(IssuerFault::ScopeName.into())
    }
}

/// A scope's name as the value of a pair.
impl NameKey<Self> for ScopeName {
    const WORD: &'static str = "scope";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        Self::new(text).ok_or(IssuerFault::ScopeName.into())
    }
}

const OFFLINE_ACCESS: &str = "offline_access";
