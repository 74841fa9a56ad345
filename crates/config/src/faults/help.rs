//! Corrections of settings that are the same for every value.

use super::cluster::ClusterFault;
use super::issuer::IssuerFault;
use super::problem::SettingFault;
use super::url::UrlFault;

impl SettingFault {
    /// The help of problems with a constant help.
    #[expect(clippy::too_many_lines, reason = "a table with a row for each problem")]
    pub(crate) fn fixed_help(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => {
                "put strings in quotes, lists in [ ], and each setting on its own line"
            }
            Self::Json => "`trunkline import FILE --write` takes over the servers of a JSON file",
            Self::Yaml => "write [servers.NAME] above the settings of a server, and key = value",
            Self::NoProfile { .. } => "add a [profiles.NAME], or write \"default\" for /mcp itself",
            Self::NoServer { .. } => "add a [servers.NAME], or remove it here",
            Self::NoInterceptor { .. } => "add a [interceptors.NAME], or remove it here",
            Self::ServerName(_) => "rename the table, such as [servers.github]",
            Self::NoTarget => {
                "add command = \"…\" for a child process, url = \"https://…\" for a server over \
                 HTTP, or openapi = \"…\" for a plain HTTP API"
            }
            Self::TwoTargets => "keep one of them, or configure two servers",
            Self::InterceptorName => "write 1 to 32 characters of a-z, A-Z, 0-9, _ and -",
            Self::CostTooHigh { .. } => "lower the cost, or raise the rate or quota",
            Self::OtherTarget { .. } | Self::McpOnly => {
                "remove it, or use the other kind of server"
            }
            Self::SchemeName => "write the name as in `components.securitySchemes` of the document",
            Self::Url(UrlFault::Credentials) => {
                "send credentials as headers = { Authorization = \"…\" }"
            }
            Self::Url(UrlFault::Unencrypted) => "write https://, or an address of this machine",
            Self::Url(_) => "write a complete URL that starts with https:// or http://",
            Self::HeaderName => "write a name such as Authorization or X-Api-Key",
            Self::HeaderReserved { .. } | Self::KeyForwarded => "remove it",
            Self::HeaderValue => "headers are one line of visible characters",
            Self::Twice
            | Self::TwoHeaderSources { .. }
            | Self::Duplicate { .. }
            | Self::ManyReceivers
            | Self::ManyAuditSinks => "keep one of them",
            Self::EnvName => "write a name such as LOG_LEVEL",
            Self::MetaToolName { .. } => "give the tool another name",
            Self::NoDiscovery => "set discovery = \"search\", \"auto\" or \"code\", or remove it",
            Self::UnsupportedCode => {
                "use the image, or build with `cargo build --release --features code-mode`"
            }
            Self::ClientPattern => {
                "write 1 to 128 characters, such as \"claude-code\" or \"cursor*\""
            }
            Self::TemplateVariable => "write the name as it appears within { } in the template",
            Self::Nul => "remove the NUL byte",
            Self::EnvUnset { .. } => "set it before the gateway starts, or use ${file:PATH}",
            Self::EnvNotUtf8 { .. } => "use ${file:PATH} with a text file",
            Self::File { .. } => "a relative path starts at the configuration file's folder",
            Self::Command { .. } => {
                "run it by hand, as the user and with the environment of the gateway"
            }
            Self::Substitution { .. } => {
                "write ${env:NAME}, ${file:PATH} or ${command:PROGRAM ARG…}; a plain ${ is written $${"
            }
            Self::FixedCallText => "write it in `headers`, or use ${header:NAME} or ${claim:NAME}",
            Self::CallReference => {
                "they work in `call_headers` of a server; a text of an argument may have ${header:NAME}"
            }
            Self::NoSubstitution => "${…} works in headers, env, url, endpoint and args",
            Self::InputSchema => "write a schema with type = \"object\" at its root",
            Self::Expression { .. } => {
                "write a regular expression as in docs.rs/regex, such as '^iban$'"
            }
            Self::NoJsonNumber => "write a finite number of at most 64 bits, or a text",
            Self::HiddenArgument { .. } => "remove one of them",
            Self::ArgumentName => "choose a name that no other argument of the tool has",
            Self::ArgumentSource => "name an argument that clients or `value` set",
            Self::OwnAnswer => "set one of them; `text` can be combined with `calls`",
            Self::CallName => "use letters, digits, `_` and `-`, and not `arguments`",
            Self::ArgumentTemplate => "write `{{` and `}}` for braces",
            Self::NoSuchCall { .. } => "begin with `arguments` or with the name of a call",
            Self::CallCycle => "remove a path that refers back",
            Self::TooManyCalls { .. } => "divide it into several tools",
            Self::NestedOwnTool { .. } => "call the servers' tools themselves",
            Self::PublicName | Self::ProfileName | Self::RuleName => {
                "use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`"
            }
            Self::NameFormat => {
                "write {server} and {tool} once each, such as \"mcp_{server}_{tool}\", with at most \
                 16 of a-z, A-Z, 0-9, `_` and `-` around them"
            }
            Self::NoNaming => "remove it, or choose another `naming`",
            Self::HostsMissing { .. } => {
                "add the host names that clients use, such as allowed_hosts = [\"mcp.example.com\"], \
                 or public_url = \"https://mcp.example.com\""
            }
            Self::ClientsMissing { .. } => {
                "add a [clients.NAME] (see `trunkline key`), or write anonymous = \"anyone\" if a \
                 proxy in front of the gateway authenticates clients"
            }
            Self::ClientName => {
                "use 1 to 64 characters of a-z, A-Z, 0-9, `_`, `-`, `.` and `@`; not `anonymous`"
            }
            Self::Cluster(problem) => problem.help(),
            Self::Embeddings(problem) => problem.help(),
            Self::Issuer(problem) => problem.help(),
            Self::Oauth(problem) => problem.help(),
            Self::NoProfiles => "name at least one, or remove the setting to allow all",
            Self::NoKey | Self::KeyHash => HOW_TO_HASH,
            Self::NoClientCa => "name the CA certificates of your clients there",
            Self::CertificateTaken { .. } => "give the name to one of the clients",
            Self::KeyTaken { .. } => "create a key for each client: `trunkline key`",
            Self::SameAddress => "give the admin listener a port of its own, or write \"off\"",
            Self::TimeoutOrder => {
                "progress extends `timeout` up to `max_timeout`: increase `max_timeout`"
            }
            Self::NoInstances => "raise `max_instances`, or write isolation = \"shared\"",
            Self::SharedInstance => "remove `instances`, or write isolation = \"shared\"",
            Self::Filter => {
                "write a level, such as \"info\", or \"info,trunkline::upstream=debug\""
            }
            Self::NoEventType => {
                "write a name from docs/events.md, such as \"server.ready\", or a pattern such as \
                 \"server.*\""
            }
            Self::SigningSecret => "create one: echo \"whsec_$(openssl rand -base64 32)\"",
            Self::NoReceiver => "add url = \"https://…\", command = \"…\" or file = \"…\"",
            Self::Unsigned => "add secret = \"${env:WEBHOOK_SECRET}\"",
            Self::OtherReceiver { .. } => "remove it, or use the other receiver",
            Self::NoAuditSink => {
                "add file = \"audit.jsonl\", stdout = true or syslog = \"unix:/dev/log\""
            }
            Self::DatagramRecord => "write \"24KiB\" or less, or use tcp://",
            Self::AdminCertificateMissing => "add [gateway.tls], or remove this setting",
            Self::OtherAuditSetting { .. } => "add that one, or remove this one",
            Self::ShortChainKey | Self::ShortVaultKey => "create one: openssl rand -hex 32",
            _ => "see docs/configuration.md",
        }
    }

    /// Returns true if the problem depends on the other contents of the table: if the text does not
    /// parse, the report may be wrong.
    pub(crate) fn needs_whole_table(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::NoTarget
                | Self::TwoTargets
                | Self::HostsMissing { .. }
                | Self::ClientsMissing { .. }
                | Self::NoKey
                | Self::Issuer(IssuerFault::NoPublicUrl { .. })
                | Self::NoReceiver
                | Self::NoAuditSink
                | Self::OtherAuditSetting { .. }
                | Self::Unsigned
                | Self::Cluster(
                    ClusterFault::NoStateKeys
                        | ClusterFault::Incomplete { .. }
                        | ClusterFault::NoCertificates
                )
        )
    }
}

/// The help text for a missing or malformed hash.
pub(crate) const HOW_TO_HASH: &str =
    "`trunkline key` creates a key and its hash; `trunkline key --hash` hashes an existing key";

/// "did you mean" if there is a similar choice, otherwise the whole list.
pub(super) fn suggest_choice(meant: Option<&str>, all: &[&str]) -> String {
    match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if all.is_empty() => "remove it: no keys are allowed here".into(),
        None => format!("expected one of: {}", all.join(", ")),
    }
}
