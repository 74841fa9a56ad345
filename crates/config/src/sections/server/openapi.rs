//! `[servers.NAME]` of a plain HTTP API: its OpenAPI document, and the offered operations.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};
use serde_json::{Value as Json, json};
use toml::de::DeValue;
use url::Url;

use super::aws::AwsConfig;
use super::oauth::OauthConfig;
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::{Section, SectionPart, Setting, SettingRow};
use crate::reader::values::pattern::Pattern;
use crate::reader::values::substitute::SubstitutedText;
use crate::reader::values::units::DurationSetting;
use crate::reader::{ConfigNode, ConfigReader, ConfigTable};
use crate::sections::gateway::network::parse_http_url;
use crate::sections::named_tables::NameKey;
use crate::source::secret::Secret;

section! {
    /// A plain HTTP API with an OpenAPI document (3.0 or 3.1): its operations become tools.
    #[derive(Clone, PartialEq)]
    pub struct OpenApiConfig {
        parts {
            /// Its document.
            document: DocumentSource,
        }
        settings {
            /// The interval at which the document is read again. A document that cannot be read
            /// leaves the last good one in place.
            "openapi_refresh" => refresh: Option<Duration> as Option<DurationSetting> = "5m",
            /// The URL that the paths of the document are appended to, instead of the first of its
            /// `servers` that it may choose: one of the origin of the document's own URL. Required
            /// if there is none, or if the document is a file and there are `auth`, `headers`,
            /// `oauth` or `aws`: credentials go only to hosts that this file names.
            base_url: Option<Url>,
            /// Values for the variables in the document's `servers`, instead of their defaults.
            server_variables: Vec<(String, String)> = {},
            /// Headers for each request to the server.
            headers: Vec<(HeaderName, Secret)> = {},
            /// CA certificates to trust besides the system's, as PEM.
            ca: Option<PathBuf>,
            /// Credentials for the security schemes of the document, by the scheme's name: a text (an
            /// API key, a bearer token), or `{ username = "…", password = "…" }`.
            auth: Vec<(String, SchemeCredential)> = {},
            /// OAuth: the gateway logs in to the API, or has its users log in. Its token replaces
            /// any other in `Authorization`. The document is read without it.
            oauth: Option<OauthConfig>,
            /// Requests to the API are signed for AWS, and so is the request for the document if it
            /// is at the same place. By default they are not.
            aws: Option<AwsConfig>,
            /// The operations to offer; if empty, all. Each entry is an `operationId`,
            /// `METHOD /path`, `/path` or `tag:NAME`, with `*` for any number of characters and `?`
            /// for one; or a table of conditions that must all hold: `tag`, `method`, `path`,
            /// `operation`. With `as = "resource"` in the table, a `GET` operation is offered as a
            /// resource, or as a template if it has parameters; the last entry that matches decides.
            include: Vec<OperationRule> as Vec<OperationRuleSetting> = [],
            /// The operations to leave out; takes precedence over `include`.
            exclude: Vec<OperationRule> as Vec<OperationRuleSetting> = [],
            /// Keeps or drops arguments that are empty strings, for optional parameters.
            empty_strings: EmptyStrings = "keep",
            /// Keeps or drops the schemas of answers. Clients reject an answer that does not fit
            /// the `outputSchema` of its tool, and the schemas of many documents are too strict.
            output_schemas: OutputSchemas = "keep",
        }
    }
}

/// The location of an OpenAPI document.
#[derive(Clone, PartialEq, Eq)]
pub enum DocumentSource {
    /// At this URL.
    Url(Url),
    /// In this file.
    File(PathBuf),
    /// At one of the usual locations below this URL.
    Search(Url),
}

impl DocumentSource {
    /// Returns true if the document is a file.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::File(_))
    }
}

section! {
    /// Conditions for operations, all of which must hold.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct OperationRule {
        settings {
            /// One of the operation's tags.
            tag: Option<Pattern>,
            /// Its method.
            method: Option<HttpVerb>,
            /// Its path, as it is written in the document.
            path: Option<Pattern>,
            /// Its `operationId`.
            operation: Option<Pattern>,
            /// The form in which clients see it. The last entry of `include` that an operation
            /// matches decides.
            "as" => form: OperationForm = "tool",
        }
    }
}

choice! {
    /// The form of an operation for clients.
    pub enum OperationForm {
        /// a tool
        "tool" => Tool,
        /// a resource, or a resource template if it has parameters; only for `GET`
        "resource" => Resource,
    }
}

choice! {
    /// The method of an operation.
    pub enum HttpVerb {
        /// reads
        "GET" => Get,
        /// reads only the headers
        "HEAD" => Head,
        /// processes
        "POST" => Post,
        /// creates or replaces
        "PUT" => Put,
        /// changes a part
        "PATCH" => Patch,
        /// removes
        "DELETE" => Delete,
        /// asks for options
        "OPTIONS" => Options,
        /// echoes
        "TRACE" => Trace,
    }
}

choice! {
    /// Keeps or drops arguments that are empty strings.
    pub enum EmptyStrings {
        /// they are sent
        "keep" => Keep,
        /// they count as absent if the parameter is optional
        "drop" => Drop,
    }
}

choice! {
    /// Keeps or drops the schemas of answers.
    pub enum OutputSchemas {
        /// tools have an `outputSchema`
        "keep" => Keep,
        /// tools have none
        "drop" => Drop,
    }
}

choice! {
    /// The protocol of a server at a `url`.
    pub enum ServerProtocol {
        /// MCP
        "mcp" => Mcp,
        /// HTTP, as described by an OpenAPI document. The document is searched at `/openapi.json`,
        /// `/`, `/api/openapi.json` and `/docs/openapi.json` below the `url`
        "openapi" => OpenApi,
    }
}

section! {
    /// The credential of a security scheme for HTTP Basic authentication.
    #[derive(Debug, Clone, PartialEq)]
    pub struct LoginConfig {
        settings {
            /// The user's name.
            username: String as SubstitutedText,
            /// The password.
            password: Secret,
        }
    }
}

/// The configured credential of a security scheme.
#[derive(Debug, Clone, PartialEq)]
pub enum SchemeCredential {
    /// An API key or a token.
    Value(Secret),
    /// A name and a password.
    Login(LoginConfig),
}

#[expect(clippy::derivable_impls, reason = "`choice!` derives no default")]
impl Default for OperationForm {
    fn default() -> Self {
        Self::Tool
    }
}

impl HttpVerb {
    /// The verb of an HTTP method, if an operation can have it.
    pub fn of_method(method: &Method) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == method.as_str())
    }

    const ALL: [Self; 8] = [
        Self::Get,
        Self::Head,
        Self::Post,
        Self::Put,
        Self::Patch,
        Self::Delete,
        Self::Options,
        Self::Trace,
    ];
}

impl SectionPart for DocumentSource {
    fn part_rows() -> Vec<SettingRow> {
        const DOCUMENT_DOC: &[&str] =
            &["The OpenAPI document of a plain HTTP API: a URL or the path \
                                     of a file, in JSON or YAML. Its operations become tools."];
        const KIND_DOC: &[&str] = &["Protocol of the server at `url`."];
        vec![
            SettingRow::for_setting::<DocumentSetting>("openapi", DOCUMENT_DOC, None),
            SettingRow::for_setting::<ServerProtocol>("kind", KIND_DOC, Some("\"mcp\"")),
        ]
    }

    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match (table.find_node("openapi"), table.find_node("url")) {
            (Some(document), _) => DocumentSetting::read_value(&document, reader),
            (None, Some(url)) => <Url as Setting>::read_value(&url, reader).map(Self::Search),
            (None, None) => None,
        }
    }
}

/// A URL, or the path of a file.
struct DocumentSetting;

impl Setting for DocumentSetting {
    type Value = DocumentSource;

    fn kind_word() -> String {
        "URL or path, with substitution".into()
    }

    fn example_value() -> String {
        "\"https://api.example.com/openapi.json\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<DocumentSource> {
        let text = node.value.as_str().unwrap_or_default();
        if !text.contains("://") && !text.contains("${") {
            return <PathBuf as Setting>::read_value(node, reader).map(DocumentSource::File);
        }
        if text.contains('@') {
            // It may contain a password, which the excerpt of a fault must not show.
            reader.hidden.push(node.span.clone());
        }
        let text = node.substitute_text::<Self>(reader)?;
        if !text.contains("://") {
            return Some(DocumentSource::File(reader.resolve_path(&text)));
        }
        let url = parse_http_url(&text).map_err(|fault| node.report_fault(reader, fault.into()));
        url.ok().map(DocumentSource::Url)
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
    }
}

/// A rule as a table, or as a text for the usual ones.
struct OperationRuleSetting;

impl Setting for OperationRuleSetting {
    type Value = OperationRule;

    fn kind_word() -> String {
        "operation".into()
    }

    fn example_value() -> String {
        "\"GET /pets/*\"".into()
    }

    fn correction() -> String {
        "write an operationId, \"METHOD /path\", \"tag:NAME\", or a table such as \
         { method = \"GET\", path = \"/pets/*\" }"
            .into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<OperationRule> {
        if matches!(node.value, DeValue::Table(_)) {
            return <OperationRule as Setting>::read_value(node, reader);
        }
        let text = node.expect_plain_string::<Self>(reader)?;
        let rule = parse_rule(text);
        if rule.is_none() {
            node.refuse_text::<Self>(text, reader);
        }
        rule
    }

    fn json_schema() -> Json {
        json!({ "anyOf": [{ "type": "string" }, OperationRule::json_schema()] })
    }
}

/// Reads the short form of a rule.
fn parse_rule(text: &str) -> Option<OperationRule> {
    let verb = |word: &str| HttpVerb::ALL.into_iter().find(|verb| verb.as_str() == word);
    let mut rule = OperationRule::default();
    if let Some(tag) = text.strip_prefix("tag:") {
        rule.tag = Some(Pattern::new(tag.trim())?);
    } else if text.starts_with('/') {
        rule.path = Some(Pattern::new(text)?);
    } else if let Some((word, path)) = text.split_once(' ') {
        rule.method = Some(verb(word)?);
        rule.path = Some(Pattern::new(path.trim())?);
    } else {
        rule.operation = Some(Pattern::new(text)?);
    }
    Some(rule)
}

impl NameKey<SchemeCredential> for String {
    const WORD: &'static str = "security scheme";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        if text.is_empty() { Err(SettingFault::SchemeName) } else { Ok(text.to_owned()) }
    }

    fn check_value(value: &SchemeCredential) -> Result<(), SettingFault> {
        let texts = match value {
            SchemeCredential::Value(value) => [value.expose(), ""],
            SchemeCredential::Login(login) => [login.username.as_str(), login.password.expose()],
        };
        // It becomes part of a header or a URL.
        let is_clean = texts.iter().all(|text| !text.contains(char::is_control));
        if is_clean { Ok(()) } else { Err(SettingFault::HeaderValue) }
    }
}

impl Setting for SchemeCredential {
    type Value = Self;

    fn kind_word() -> String {
        "text with substitution, or a table of `username` and `password`".into()
    }

    fn example_value() -> String {
        "\"${env:NAME}\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if matches!(node.value, DeValue::Table(_)) {
            reader.hidden.push(node.span.clone());
            return <LoginConfig as Setting>::read_value(node, reader).map(Self::Login);
        }
        Secret::read_value(node, reader).map(Self::Value)
    }

    fn json_schema() -> Json {
        json!({ "anyOf": [{ "type": "string" }, LoginConfig::json_schema()] })
    }
}

impl OpenApiConfig {
    /// Returns true if requests carry credentials of the configuration.
    pub fn has_credentials(&self) -> bool {
        let has_own = !self.auth.is_empty() || !self.headers.is_empty();
        has_own || self.oauth.is_some() || self.aws.is_some()
    }

    /// The keys of the settings, with those of the document's location.
    pub(crate) fn owned_keys() -> Vec<&'static str> {
        Self::setting_rows().iter().map(|row| row.key).collect()
    }
}

impl OpenApiConfig {
    /// The resource URL of tokens for the API: its base, or the origin of its document. `None` if
    /// the document is a file, and there is no base.
    pub fn resource(&self) -> Option<Url> {
        let origin = |url: &Url| url.join("/").ok();
        match (&self.base_url, &self.document) {
            (Some(base), _) => Some(base.clone()),
            (None, DocumentSource::Url(url) | DocumentSource::Search(url)) => origin(url),
            (None, DocumentSource::File(_)) => None,
        }
    }
}

// URLs may contain substituted secrets. Hence Debug shows only their origins.
impl fmt::Debug for DocumentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) | Self::Search(url) => {
                write!(f, "{}/…", url.origin().ascii_serialization())
            }
            Self::File(path) => path.fmt(f),
        }
    }
}

impl fmt::Debug for OpenApiConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenApi")
            .field("document", &self.document)
            .field("headers", &self.headers)
            .field("auth", &self.auth)
            .field("oauth", &self.oauth)
            .field("aws", &self.aws)
            .field("include", &self.include)
            .field("exclude", &self.exclude)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_rule_is_read_by_its_form() {
        let pattern = |text: &str| Pattern::new(text);
        for (text, rule) in [
            ("get*", OperationRule { operation: pattern("get*"), ..Default::default() }),
            ("tag:pets", OperationRule { tag: pattern("pets"), ..Default::default() }),
            ("/pets/*", OperationRule { path: pattern("/pets/*"), ..Default::default() }),
            (
                "GET /pets/{id}",
                OperationRule {
                    method: Some(HttpVerb::Get),
                    path: pattern("/pets/{id}"),
                    ..Default::default()
                },
            ),
        ] {
            assert_eq!(parse_rule(text), Some(rule), "{text}");
        }
        for text in ["", "tag:", "FETCH /pets", "get /pets"] {
            assert_eq!(parse_rule(text), None, "{text}");
        }
    }
}
