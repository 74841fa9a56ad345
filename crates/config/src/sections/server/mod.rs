//! `[servers.NAME]`: one upstream MCP server.

pub(crate) mod aws;
pub(crate) mod breaker;
pub(crate) mod command;
pub(crate) mod memory;
pub(crate) mod oauth;
pub(crate) mod openapi;
pub(crate) mod process;
pub(crate) mod sandbox;
pub(crate) mod sent_secrets;
pub(crate) mod server_secrets;
pub(crate) mod tools;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use url::Url;

use trunkline_protocol::call::ServerName;

use super::call_text::CallText;
use super::confirm::ConfirmChoice;
use super::definitions::DefinitionSettings;
use super::interceptors::InterceptorName;
use super::issuers::ScopeName;
use super::quota::Quota;
use super::rate::Rate;
use super::transforms::{OutputCheck, ResultBounds};
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::{Section, SectionPart, Setting, SettingRow};
use crate::reader::values::header_name::HeaderSetting;
use crate::reader::values::numbers::{Count32, CountSetting};
use crate::reader::values::units::{DurationSetting, SizeSetting};
use crate::reader::{ConfigReader, ConfigTable};
use crate::source::secret::Secret;
use aws::AwsConfig;
use breaker::BreakerConfig;
use command::CommandConfig;
use oauth::OauthConfig;
use openapi::{OpenApiConfig, ServerProtocol};
use server_secrets::ServerSecrets;
use tools::ToolsConfig;

section! {
    /// One server: a child process (`command`) or an HTTP server (`url`) that speaks MCP, or a plain
    /// HTTP API (`openapi`). `NAME` has 1 to 32 characters of `a-z`, `A-Z`, `0-9`, `_` and `-`,
    /// without `__`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ServerConfig {
        parts {
            /// The `NAME` of its table.
            name: ServerName,
            /// The way to reach it.
            target: ServerKind,
            /// The secrets to hide from logs and status pages.
            secrets: ServerSecrets,
            /// The visibility of its definitions for clients.
            definitions: DefinitionSettings,
        }
        settings {
            /// The protocol era that the server speaks.
            era: EraChoice = "auto",
            /// The time at which the server is started or connected to.
            start: StartChoice = "eager",
            /// The idle time after which a child process is stopped; the next call starts it again.
            /// By default never.
            idle_stop: Option<Duration> as Option<DurationSetting>,
            /// The sharing of the server's child process or session between clients. By default
            /// each client has its own session with a Legacy HTTP server, and all clients share one
            /// child process. Modern servers are stateless and always shared; for a server of both
            /// eras the setting applies to its Legacy clients.
            isolation: Option<Isolation>,
            /// The child processes of the server in a cluster of replicas. Without `[cluster]` there is
            /// one gateway, and the setting has no effect.
            instances: InstancesChoice = "each",
            /// Declares the capabilities of clients to the server: the kinds of input they can
            /// give, and the extensions they know.
            client_capabilities: CapabilitiesChoice = "declare",
            /// The number of instances of the server besides the first one, which serves the lists:
            /// one for each client, or each set of client capabilities, that needs its own. By
            /// default 32 child processes, or 10000 sessions. With 0 all clients share the first
            /// instance, in its era, and no client capabilities are announced to the server.
            max_instances: Option<usize> as Option<CountSetting<0, 1_000_000>>,
            /// The idle time after which such an instance is closed. It is not idle while a Legacy
            /// client that called it keeps a stream open, unless `idle_stop` is set. A Legacy
            /// client's session with an HTTP server stays open as long as the client's own session.
            instance_idle: Duration as DurationSetting = "5m",
            /// The idle time after which an instance is closed that exists only for the
            /// capabilities of the clients that share it. Idle means: without a call, a call that
            /// waits for input, a subscription, or an open stream of a Legacy client that called
            /// it. At most `instance_idle`. Raise it for a server that keeps state between calls,
            /// such as a browser, for clients that open no stream.
            capability_idle: Duration as DurationSetting = "1m",
            /// The number of restarts of a child process within `restart_window`, and of failed
            /// starts in a row. Then the server is marked failed, until a start succeeds.
            max_restarts: u32 as Count32<0, 1000> = 5,
            /// The time window of `max_restarts`. A server that is marked failed is started again
            /// after each of them.
            restart_window: Duration as DurationSetting = "1m",
            /// The time limit for a call without an answer or a progress notification.
            timeout: Duration as DurationSetting = "30s",
            /// The total time limit of a call that reports progress. Not below `timeout`.
            max_timeout: Duration as DurationSetting = "10m",
            /// The time limit for connecting, including TLS.
            connect_timeout: Duration as DurationSetting = "5s",
            /// The time limit for the handshake and the first listing, without the time that a
            /// child process waits for its turn (`gateway.start_parallel`).
            start_timeout: Duration as DurationSetting = "30s",
            /// The time limit for a child process to exit after its input is closed, and again
            /// after SIGTERM.
            stop_timeout: Duration as DurationSetting = "5s",
            /// The rate of tool calls to this server.
            rate: Option<Rate>,
            /// The rate of each client's calls to this server, or of each address's if clients have
            /// no keys.
            rate_each: Option<Rate>,
            /// The number of each client's calls to this server in each second, minute, hour or day
            /// of UTC. With `gateway.state_dir` it survives a restart.
            quota_each: Option<Quota>,
            /// The scopes that every call to this server needs. Its elements are listed without
            /// them: a client that lacks one is asked to obtain it.
            scopes: Vec<ScopeName> = [],
            /// The number of concurrent calls.
            in_flight: usize as CountSetting<1, 100_000> = 256,
            /// The number of calls that may queue when `in_flight` is reached.
            queue: usize as CountSetting<0, 100_000> = 256,
            /// The time limit of a call in the queue.
            queue_timeout: Duration as DurationSetting = "5s",
            /// The largest response to one call.
            max_response: usize as SizeSetting = "64MiB",
            /// The size of the cache for resource contents, which are kept as long as the server
            /// allows. Not used if the server gets headers of clients.
            read_cache: Option<usize> as Option<SizeSetting> = "4MiB",
            /// The number of entries the server may list: tools, prompts, resources and resource
            /// templates each.
            max_tools: usize as CountSetting<1, 1_000_000> = 10000,
            /// The number of pages that each of its lists may have.
            max_pages: usize as CountSetting<1, 1_000_000> = 1000,
            /// Headers of the client's request that are forwarded to the server. By default none: a
            /// client's credentials are not meant for the server.
            forward_headers: Vec<HeaderName> as Vec<HeaderSetting> = [],
            /// Headers of the calls to the server with values from the client: from its request by
            /// `${header:NAME}`, and from its verified token by `${claim:NAME}`. A header is left
            /// out if the request does not have the one that it refers to; a call is refused if the
            /// token lacks the claim.
            call_headers: Vec<(HeaderName, CallText)> = {},
            /// Values for variables of its resource templates. A template is listed as a resource
            /// if all of its variables have a value. Clients cannot use other values, and can read
            /// only the resources that the server lists and those that its templates then cover.
            resource_vars: Vec<(String, String)> = {},
            /// Validation of arguments against the schema of their tool.
            arguments: ArgumentsChoice = "strict",
            /// The check of results against the `outputSchema` of their tool.
            check_output: OutputCheck = "off",
            /// The form and size of its tools' results.
            result: ResultBounds = {},
            /// The number of retries of a failed call of a tool, after a growing wait with jitter:
            /// of tools with the annotation `readOnlyHint` or `idempotentHint`, after lost
            /// connections and the statuses 429, 502, 503 and 504; of any other only if no
            /// connection to the server could be opened. At most ten in a row, and then one for
            /// every five calls. By default none.
            retries: Option<usize> as Option<CountSetting<0, 5>>,
            /// The circuit breaker: refuses calls for a while after failures. By default there is
            /// none.
            breaker: Option<BreakerConfig>,
            /// The time after which a client receives a notification about a slow call of a tool: a
            /// progress notification if it has sent a token, else a log message if it has asked for
            /// these, else nothing. By default never.
            slow_after: Option<Duration> as Option<DurationSetting>,
            /// The text of that notification. By default, that the gateway still works on the call.
            slow_message: Option<String>,
            /// Asks the user for consent before a tool of the server is called: by a form, in a
            /// client that can show one. Calls of other clients are refused.
            confirm: ConfirmChoice = false,
            /// The interceptors that its calls and results pass, in this order.
            interceptors: Vec<InterceptorName> = [],
            /// The tools that clients see, and their changes.
            tools: ToolsConfig = {},
        }
    }
}

section! {
    /// A server that speaks MCP over HTTP.
    #[derive(Clone, PartialEq)]
    pub struct HttpConfig {
        settings {
            /// The server's endpoint.
            url: Url,
            /// Headers for each request to the server.
            headers: Vec<(HeaderName, Secret)> = {},
            /// CA certificates to trust besides the system's, as PEM.
            ca: Option<PathBuf>,
            /// The HTTP transport that the server speaks.
            transport: HttpTransport = "auto",
            /// OAuth: the gateway logs in to the server, or has its users log in. By default it sends
            /// only `headers`.
            oauth: Option<OauthConfig>,
            /// Requests are signed for AWS. By default they are not.
            aws: Option<AwsConfig>,
        }
    }
}

choice! {
    /// Validation of arguments against the schema of their tool.
    pub enum ArgumentsChoice {
        /// the call is refused
        "strict" => Strict,
        /// strings are replaced by the one number, boolean, array or object that the schema wants
        /// there, if their text is the JSON of it, and `null` is dropped for an optional property
        /// if its schema does not allow it; the call is refused unless all arguments fit then
        "coerce" => Coerce,
        /// the server gets them unchanged
        "off" => Off,
    }
}

choice! {
    /// The protocol era that a server speaks.
    pub enum EraChoice {
        /// the gateway detects it, and uses each client's era with a server of both eras
        "auto" => Auto,
        /// sessions opened by `initialize`, 2024-11-05 to 2025-11-25
        "legacy" => Legacy,
        /// stateless, 2026-07-28 and later
        "modern" => Modern,
    }
}

choice! {
    /// The HTTP transport that a server speaks.
    pub enum HttpTransport {
        /// Streamable HTTP, or HTTP+SSE if the server rejects that
        "auto" => Auto,
        /// Streamable HTTP
        "streamable" => Streamable,
        /// HTTP+SSE, the transport of 2024-11-05
        "sse" => Sse,
    }
}

choice! {
    /// The time at which a server is started or connected to.
    pub enum StartChoice {
        /// with the gateway
        "eager" => Eager,
        /// when a client first needs it
        "lazy" => Lazy,
    }
}

choice! {
    /// The clients that share a child process of, or a session with, a Legacy server.
    pub enum Isolation {
        /// clients with the same capabilities share one
        "shared" => Shared,
        /// each client has its own
        "client" => Client,
    }
}

choice! {
    /// The replicas that run a child process of a server.
    pub enum InstancesChoice {
        /// each replica starts its own
        "each" => Each,
        /// one replica runs the only child process, which serves the clients of all replicas, and no
        /// client capabilities are announced to a Legacy server
        "one" => One,
    }
}

choice! {
    /// The capabilities of its clients that a server receives.
    pub enum CapabilitiesChoice {
        /// the capabilities of each client; a Legacy server then has an instance for each set of
        /// capabilities of the clients that call it
        "declare" => Declare,
        /// none: one instance serves all clients in its era, also over HTTP, unless
        /// `isolation = "client"` is set; requests of the server to a client are refused
        "hide" => Hide,
    }
}

/// The way to reach a server.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerKind {
    /// A child process.
    Command(Box<CommandConfig>),
    /// An HTTP server.
    Http(Box<HttpConfig>),
    /// A plain HTTP API with an OpenAPI document.
    OpenApi(Box<OpenApiConfig>),
}

impl SectionPart for ServerKind {
    fn part_rows() -> Vec<SettingRow> {
        // One of three keys is required, but none by itself.
        let mut rows = CommandConfig::setting_rows();
        for row in HttpConfig::setting_rows().into_iter().chain(OpenApiConfig::setting_rows()) {
            if rows.iter().all(|other| other.key != row.key) {
                rows.push(row);
            }
        }
        rows.into_iter().map(|row| SettingRow { required: false, ..row }).collect()
    }

    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let targets: Vec<_> =
            TARGET_KEYS.into_iter().filter_map(|key| Some((key, table.find_node(key)?))).collect();
        match targets.as_slice() {
            [] => {
                reader.report_fault(table.name_span.clone(), &table.key, SettingFault::NoTarget);
                None
            }
            [(key, _)] => {
                let is_command = *key == "command";
                let is_openapi = !is_command && is_openapi(table, reader)?;
                let owner = if is_openapi { "openapi" } else { *key };
                refuse_keys_of_others(owner, table, reader);
                match owner {
                    "command" => {
                        CommandConfig::read_fields(table, reader).map(Box::new).map(Self::Command)
                    }
                    "url" => HttpConfig::read_fields(table, reader)
                        .map(|http| Self::Http(Box::new(http))),
                    _ => OpenApiConfig::read_fields(table, reader)
                        .map(|openapi| Self::OpenApi(Box::new(openapi))),
                }
            }
            [_, (_, second), ..] => {
                second.report_fault_at_key(reader, SettingFault::TwoTargets);
                // All are read to report their own faults, and to collect their secrets.
                for (key, _) in &targets {
                    match *key {
                        "command" => drop(CommandConfig::read_fields(table, reader)),
                        "url" => drop(HttpConfig::read_fields(table, reader)),
                        _ => drop(OpenApiConfig::read_fields(table, reader)),
                    }
                }
                None
            }
        }
    }
}

/// Returns true if a server is a plain HTTP API; `None` if its `kind` is invalid.
pub(crate) fn is_openapi(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<bool> {
    let kind = table.find_node("kind").map(|kind| ServerProtocol::read_value(&kind, reader));
    let is_named = table.find_node("openapi").is_some();
    Some(is_named || kind.unwrap_or(Some(ServerProtocol::Mcp))? == ServerProtocol::OpenApi)
}

/// Reports the settings that only other kinds of servers have.
fn refuse_keys_of_others(
    owner: &'static str,
    table: &ConfigTable<'_>,
    reader: &mut ConfigReader<'_>,
) {
    let keys_of = |owner: &str| -> Vec<&'static str> {
        let keys = |rows: Vec<SettingRow>| rows.iter().map(|row| row.key).collect();
        match owner {
            "command" => keys(CommandConfig::setting_rows()),
            "url" => keys(HttpConfig::setting_rows()),
            _ => OpenApiConfig::owned_keys(),
        }
    };
    let mut own = keys_of(owner);
    // The two keys that name a server's location and protocol.
    own.extend((owner != "command").then_some(["kind", "url"]).into_iter().flatten());
    for other in TARGET_KEYS.into_iter().filter(|other| *other != owner) {
        for key in keys_of(other) {
            if own.contains(&key) {
                continue;
            }
            own.push(key);
            if let Some(node) = table.find_node(key) {
                node.report_fault_at_key(reader, SettingFault::OtherTarget { owner: other });
            }
        }
    }
}

/// The keys that select the way to reach a server: exactly one of them.
const TARGET_KEYS: [&str; 3] = ["command", "url", "openapi"];

impl ServerConfig {
    /// The sharing of its child process or session between clients.
    #[inline]
    pub fn isolation(&self) -> Isolation {
        self.isolation.unwrap_or(match (&self.target, self.client_capabilities) {
            (ServerKind::Http(_), CapabilitiesChoice::Declare) => Isolation::Client,
            _ => Isolation::Shared,
        })
    }

    /// Returns true if its first instance serves all clients, for any capabilities and in any era.
    #[inline]
    pub fn has_one_instance(&self) -> bool {
        let is_the_same_for_all = self.client_capabilities == CapabilitiesChoice::Hide
            && self.isolation() == Isolation::Shared;
        is_the_same_for_all || self.max_instances() == 0 || self.instances == InstancesChoice::One
    }

    /// The era to use. Plain HTTP has no sessions: the gateway serves it as a Modern server.
    #[inline]
    pub fn era(&self) -> EraChoice {
        match self.target {
            ServerKind::Command(_) | ServerKind::Http(_) => self.era,
            ServerKind::OpenApi(_) => EraChoice::Modern,
        }
    }

    /// The number of instances it may have besides the first.
    pub fn max_instances(&self) -> usize {
        self.max_instances.unwrap_or(match self.target {
            ServerKind::Command(_) => DEFAULT_MAX_CHILDREN,
            ServerKind::Http(_) => DEFAULT_MAX_SESSIONS,
            ServerKind::OpenApi(_) => 0,
        })
    }
}

/// The default of `max_instances` for child processes.
const DEFAULT_MAX_CHILDREN: usize = 32;
/// The default of `max_instances` for sessions with HTTP servers.
const DEFAULT_MAX_SESSIONS: usize = 10_000;

// Arguments and URLs may contain substituted secrets, but are plain strings for the other modules.
// Hence Debug omits them.
impl fmt::Debug for HttpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("url", &format_args!("{}/…", self.url.origin().ascii_serialization()))
            .field("headers", &self.headers)
            .field("ca", &self.ca)
            .field("transport", &self.transport)
            .field("oauth", &self.oauth)
            .field("aws", &self.aws)
            .finish()
    }
}
