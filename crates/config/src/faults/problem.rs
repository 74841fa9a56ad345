//! The faults of settings, with their help.

use trunkline_core::codec::file::FileError;
use trunkline_protocol::call::ServerNameError;

use super::cluster::ClusterFault;
use super::condition::ConditionFault;
use super::embeddings::EmbeddingSettingsFault;
use super::expression::ExpressionFault;
use super::help::suggest_choice;
use super::issuer::IssuerFault;
use super::oauth::OauthFault;
use super::url::UrlFault;
use crate::source::command_output::CommandFault;

/// A violation of the configuration's rules. `Display` describes the fault,
/// [`SettingFault::help_text`] its correction. Neither ever contains a value from `${env:…}` or
/// `${file:…}`.
#[derive(Debug, thiserror::Error)]
pub enum SettingFault {
    /// The file is not UTF-8.
    #[error("the file is not UTF-8 text")]
    NotUtf8,
    /// The text is not TOML.
    #[error("{message}")]
    Syntax {
        /// The mistake, or the parser's message.
        message: String,
        /// The correction of this mistake, as an imperative.
        help: Option<String>,
    },
    /// A table or a key that is there already.
    #[error("`{name}` is there twice: first on line {first}")]
    Duplicate {
        /// The table with its brackets, or the key.
        name: String,
        /// The line of the first one.
        first: usize,
    },
    /// The file is JSON.
    #[error("the file is JSON, and a configuration is TOML")]
    Json,
    /// The file is YAML.
    #[error("the file looks like YAML, and a configuration is TOML")]
    Yaml,
    /// An unknown key.
    #[error("unknown key")]
    UnknownKey {
        /// The most similar known key.
        meant: Option<String>,
        /// All keys that are allowed here.
        known: Vec<&'static str>,
    },
    /// A value of the wrong TOML type.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// The expected kind.
        expected: String,
        /// The TOML type found, with its article.
        found: &'static str,
        /// The correction, as an imperative.
        right: String,
    },
    /// A text that cannot be parsed as the expected kind.
    #[error("{found:?} is not {expected}")]
    Text {
        /// The expected kind.
        expected: String,
        /// The text, truncated.
        found: String,
        /// The correction, as an imperative.
        right: String,
    },
    /// A number or a duration outside its bounds.
    #[error("out of range")]
    Range {
        /// The smallest value allowed.
        min: String,
        /// The largest value allowed.
        max: String,
    },
    /// A word that is not one of the choices.
    #[error("{found:?} is not one of the choices")]
    Choice {
        /// The word, truncated.
        found: String,
        /// The most similar choice.
        meant: Option<String>,
        /// Every choice.
        choices: Vec<&'static str>,
    },
    /// A required setting is missing.
    #[error("`{key}` is missing")]
    Missing {
        /// The key that is missing.
        key: &'static str,
        /// A valid value, as written in the file.
        example: String,
    },
    /// The `NAME` of `[servers.NAME]` is invalid.
    #[error(transparent)]
    ServerName(#[from] ServerNameError),
    /// The server has none of `command`, `url` and `openapi`.
    #[error("the server has none of `command`, `url` and `openapi`")]
    NoTarget,
    /// The server has more than one of `command`, `url` and `openapi`.
    #[error("the server has more than one of `command`, `url` and `openapi`")]
    TwoTargets,
    /// A setting for the other kind of server.
    #[error("this setting is only for servers with `{owner}`")]
    OtherTarget {
        /// `command`, `url` or `openapi`.
        owner: &'static str,
    },
    /// The `NAME` of `[interceptors.NAME]` is invalid.
    #[error("not the name of an interceptor")]
    InterceptorName,
    /// An interceptor that does not exist.
    #[error("there is no interceptor {name:?}")]
    NoInterceptor {
        /// The name, truncated.
        name: String,
        /// The most similar one.
        meant: Option<String>,
    },
    /// A tool of the gateway itself with the name of a meta-tool.
    #[error("`{name}` is the tool that finds or calls others, in a profile with `discovery`")]
    MetaToolName {
        /// The name.
        name: &'static str,
    },
    /// A setting of meta-tools in a profile that has none.
    #[error("this setting needs `discovery` in the profile")]
    NoDiscovery,
    /// Code mode in a build without its feature.
    #[error("this build cannot run code")]
    UnsupportedCode,
    /// A fault of `[cluster]`.
    #[error(transparent)]
    Cluster(#[from] ClusterFault),
    /// A fault of `[search.embeddings]`.
    #[error(transparent)]
    Embeddings(#[from] EmbeddingSettingsFault),
    /// An invalid pattern for the names of clients.
    #[error("not a pattern for the name of a client")]
    ClientPattern,
    /// A call that costs more than a rate or quota ever allows.
    #[error("a call would never pass `{limit}`, which allows {most} at once")]
    CostTooHigh {
        /// The key of the rate or quota.
        limit: String,
        /// The most that it allows.
        most: u32,
    },
    /// A setting of the protocol, for a server that does not speak it.
    #[error("this setting is only for servers that speak MCP")]
    McpOnly,
    /// An empty name of a security scheme.
    #[error("not the name of a security scheme")]
    SchemeName,
    /// A URL that does not parse, is not HTTP or has a forbidden part.
    #[error("not a usable URL: {0}")]
    Url(#[from] UrlFault),
    /// An invalid header name.
    #[error("not a header name")]
    HeaderName,
    /// A header that the gateway writes itself.
    #[error("this header cannot be configured: {reason}")]
    HeaderReserved {
        /// The reason.
        reason: &'static str,
    },
    /// A header value with forbidden characters.
    #[error("the header value contains a character that is not allowed in headers")]
    HeaderValue,
    /// Two keys of one table are spellings of the same name.
    #[error("duplicate name in another spelling")]
    Twice,
    /// A header with two sources.
    #[error("`{other}` contains this header too")]
    TwoHeaderSources {
        /// The other setting.
        other: &'static str,
    },
    /// A header of calls that is the same for all of them.
    #[error("the value is the same for every call")]
    FixedCallText,
    /// A reference to a call where there is none.
    #[error("`${{header:…}}` and `${{claim:…}}` have no value here")]
    CallReference,
    /// An invalid name of an environment variable.
    #[error("not the name of an environment variable")]
    EnvName,
    /// An invalid name of a URI template's variable.
    #[error("not the name of a template's variable")]
    TemplateVariable,
    /// An environment variable's value, or an argument, with a NUL byte.
    #[error("the value contains a NUL byte")]
    Nul,
    /// `${env:NAME}` names a variable that is not set.
    #[error("the environment variable `{name}` is not set")]
    EnvUnset {
        /// The variable.
        name: String,
    },
    /// `${env:NAME}` names a variable with a value that is not UTF-8.
    #[error("the environment variable `{name}` is not UTF-8 text")]
    EnvNotUtf8 {
        /// The variable.
        name: String,
    },
    /// `${file:PATH}` names a file that cannot be read.
    #[error("the file `{path}` cannot be read: {error}")]
    File {
        /// The path as written.
        path: String,
        /// The fault.
        error: FileError,
    },
    /// The output of the program of a `${command:…}` cannot be used as a value.
    #[error("the command `{program}` fails: {fault}")]
    Command {
        /// The program.
        program: String,
        /// The fault.
        fault: CommandFault,
    },
    /// A `${…}` of no known kind, or one that is not closed.
    #[error("unknown substitution after `${{`, expected `env:`, `file:` or `command:`")]
    Substitution {
        /// The text in the braces, if it is the name of an environment variable.
        name: Option<String>,
    },
    /// A substitution in a setting that does not support it.
    #[error("substitution is not supported in this setting")]
    NoSubstitution,
    /// A number that JSON does not have, or that no integer of 64 bits holds.
    #[error("JSON has no such number")]
    NoJsonNumber,
    /// A schema that no tool can have.
    #[error("not a JSON Schema of an object")]
    InputSchema,
    /// An argument that clients do not see has a second source, or something for clients.
    #[error("it has no effect beside `{owner}`, which hides the argument from clients")]
    HiddenArgument {
        /// The setting that hides it.
        owner: &'static str,
    },
    /// Two arguments of a tool with one name, or an empty name.
    #[error("not a free name for an argument")]
    ArgumentName,
    /// `from` names the argument itself, or one that has no value to copy.
    #[error("not an argument with a value of its own")]
    ArgumentSource,
    /// A tool of the gateway has no answer, or more than one.
    #[error("a tool has one answer: `text`, `json` or `calls`")]
    OwnAnswer,
    /// The `NAME` of a call within a tool is invalid.
    #[error("not the name of a call")]
    CallName,
    /// A condition that cannot be used.
    #[error("at character {place}: {fault}")]
    Condition {
        /// The fault.
        fault: ConditionFault,
        /// The character, counted from 1.
        place: usize,
    },
    /// A regular expression that cannot be used.
    #[error("at character {place}: {fault}")]
    Expression {
        /// The fault.
        fault: ExpressionFault,
        /// The character, counted from 1.
        place: usize,
    },
    /// The `NAME` of `[policy.rules.NAME]` is invalid.
    #[error("not the name of a rule")]
    RuleName,
    /// A text in the arguments of a call is not a template.
    #[error("not a template: unmatched brace, or no path within braces")]
    ArgumentTemplate,
    /// A path begins with the name of no call.
    #[error("a path begins with `{name}`, which is not a call of this tool")]
    NoSuchCall {
        /// The first step of the path.
        name: String,
    },
    /// Calls need the results of one another.
    #[error("its calls depend on one another")]
    CallCycle,
    /// A tool has too many calls.
    #[error("a tool has at most {max} calls")]
    TooManyCalls {
        /// The bound.
        max: usize,
    },
    /// A call within a tool calls a tool of the same kind.
    #[error("`{name}` is a tool of the gateway itself")]
    NestedOwnTool {
        /// Its name.
        name: String,
    },
    /// A public name outside `[a-zA-Z0-9_-]{1,64}`.
    #[error("not a public tool name")]
    PublicName,
    /// A `name_format` without both names, or with characters that no name may have.
    #[error("not a format of names")]
    NameFormat,
    /// A setting of names where `naming = "none"` leaves them alone.
    #[error("this setting has no effect with naming = \"none\"")]
    NoNaming,
    /// A duplicate public name.
    #[error("`{other}` has the same public name")]
    PublicNameTaken {
        /// The key of the first tool.
        other: String,
    },
    /// A listener that other machines can reach, without allowed host names.
    #[error("{address} is reachable by other machines, but `allowed_hosts` is empty")]
    HostsMissing {
        /// The listener's address.
        address: std::net::SocketAddr,
    },
    /// A gateway without clients that other machines can reach.
    #[error("{address} is reachable by other machines, but there are no `[clients]`")]
    ClientsMissing {
        /// The listener's address.
        address: std::net::SocketAddr,
    },
    /// The `NAME` of `[clients.NAME]` is invalid.
    #[error("not a client's name")]
    ClientName,
    /// The `NAME` of `[profiles.NAME]` is invalid.
    #[error("not a profile's name")]
    ProfileName,
    /// An unknown profile.
    #[error("unknown profile `{name}`")]
    NoProfile {
        /// The name.
        name: String,
        /// The most similar name.
        meant: Option<String>,
    },
    /// An empty list of profiles.
    #[error("the list of profiles is empty")]
    NoProfiles,
    /// An unknown server.
    #[error("unknown server `{name}`")]
    NoServer {
        /// The name.
        name: String,
        /// The most similar name.
        meant: Option<String>,
    },
    /// The settings of tokens and scopes are wrong.
    #[error(transparent)]
    Issuer(#[from] IssuerFault),
    /// The settings of an OAuth client are wrong.
    #[error(transparent)]
    Oauth(#[from] OauthFault),
    /// A client without a key or a certificate.
    #[error("the client has neither `key` nor `keys`")]
    NoKey,
    /// Client certificates are named, but no CA is configured to request them.
    #[error("no client is asked for a certificate: `gateway.tls.client_ca` is missing")]
    NoClientCa,
    /// A name in certificates identifies two clients.
    #[error("`{other}` has the same name in certificates")]
    CertificateTaken {
        /// The other client's setting.
        other: String,
    },
    /// A text that is not a SHA-256 in hexadecimal; possibly the key itself.
    #[error("not a SHA-256 hash in hexadecimal: only a key's hash belongs here")]
    KeyHash,
    /// A duplicate key.
    #[error("`{other}` has the same key")]
    KeyTaken {
        /// The setting with the first occurrence.
        other: String,
    },
    /// A forwarded header that carries clients' keys.
    #[error("this header carries client keys, which are never forwarded")]
    KeyForwarded,
    /// `gateway.listen` and `admin.listen` have the same address.
    #[error("`gateway.listen` and `admin.listen` are the same address")]
    SameAddress,
    /// `max_timeout` below `timeout`.
    #[error("`max_timeout` is shorter than `timeout`")]
    TimeoutOrder,
    /// `isolation = "client"` with `max_instances = 0`.
    #[error("`isolation = \"client\"` needs instances, but `max_instances` is 0")]
    NoInstances,
    /// `isolation = "client"` with `instances = "one"`.
    #[error("`instances = \"one\"` needs a child that all clients share")]
    SharedInstance,
    /// A log filter that does not parse.
    #[error("not a log filter")]
    Filter,
    /// A pattern that matches no type of event.
    #[error("no type of event matches")]
    NoEventType,
    /// A text that is not the key of a webhook.
    #[error("not a signing key: expected `whsec_` and 24 to 64 bytes in Base64")]
    SigningSecret,
    /// More than one receiver of events.
    #[error("`[events]` has more than one of `url`, `command` and `file`")]
    ManyReceivers,
    /// Settings of events without a receiver.
    #[error("`[events]` has none of `url`, `command` and `file`")]
    NoReceiver,
    /// A webhook without a key.
    #[error("`url` needs a `secret`, which signs the requests")]
    Unsigned,
    /// A setting for another receiver of events.
    #[error("this setting is only for events with `{owner}`")]
    OtherReceiver {
        /// `url` or `command`.
        owner: &'static str,
    },
    /// More than one sink of the audit log.
    #[error("`[audit]` has more than one of `file`, `stdout` and `syslog`")]
    ManyAuditSinks,
    /// Settings of the audit log without a sink.
    #[error("`[audit]` has none of `file`, `stdout` and `syslog`")]
    NoAuditSink,
    /// A setting of the audit log without the one that it belongs to.
    #[error("this setting has no effect without `{owner}`")]
    OtherAuditSetting {
        /// `file`, `chain` or `arguments`.
        owner: &'static str,
    },
    /// Records of a required audit log that a datagram may not hold.
    #[error("a required record has to fit into a datagram")]
    DatagramRecord,
    /// HTTPS for operators without certificates.
    #[error("`[gateway.tls]` is missing, whose certificates this listener uses")]
    AdminCertificateMissing,
    /// The key of the audit log's chain is too short.
    #[error("the key of the chain has fewer than 32 bytes")]
    ShortChainKey,
    /// A key of the vault is too short.
    #[error("the key of the vault has fewer than 32 bytes")]
    ShortVaultKey,
    /// A fault that appeared when the setting was used.
    #[error("{text}")]
    AtUse {
        /// The violated rule.
        text: String,
        /// The correction, as an imperative.
        help: String,
    },
    /// Further faults were left out.
    #[error("{count} more faults are not shown")]
    More {
        /// The number of faults left out.
        count: usize,
    },
}

impl SettingFault {
    /// Returns the correction of the fault, as one sentence without a full stop.
    pub fn help_text(&self) -> String {
        match self {
            Self::NotUtf8 => "is this a configuration of the gateway?".into(),
            Self::UnknownKey { meant, known } => suggest_choice(meant.as_deref(), known),
            Self::Choice { meant, choices, .. } => suggest_choice(meant.as_deref(), choices),
            Self::NoProfile { meant: Some(meant), .. }
            | Self::NoServer { meant: Some(meant), .. }
            | Self::NoInterceptor { meant: Some(meant), .. } => format!("did you mean `{meant}`?"),
            Self::Condition { fault, .. } => fault.help_text(),
            Self::AtUse { help, .. } | Self::Syntax { help: Some(help), .. } => help.clone(),
            Self::Kind { right, .. } | Self::Text { right, .. } => right.clone(),
            Self::Range { min, max } => format!("expected a value from {min} to {max}"),
            Self::Missing { key, example } => format!("add {key} = {example}"),
            Self::Duplicate { name, .. } if name.starts_with('[') => {
                "rename one, or merge them".into()
            }
            Self::Substitution { name: Some(name) } => format!("write ${{env:{name}}}"),
            Self::PublicNameTaken { .. } => "give one of them another `name`".into(),
            Self::More { .. } => "fix the faults above, then check again".into(),
            other => other.fixed_help().into(),
        }
    }
}
