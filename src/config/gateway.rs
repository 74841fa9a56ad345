//! `[gateway]`, `[admin]`, `[log]` and `[telemetry]`: settings of the gateway itself.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::call::PublicName;
use crate::jsonrpc::MAX_CLIENT_DEPTH;
use crate::telemetry::log::check_directives;
use http::HeaderName;
use url::Url;

use super::definitions::{PinsChoice, ScanChoice};
use super::issuers::{PublicUrl, ScopeName};
use super::macros::{choice, section};
use super::naming::{NameCase, NameFormat, NamingChoice};
use super::network::{HostSetting, IconSetting, OriginSetting};
use super::numbers::{CountSetting, NonZeroSetting, ShareSetting};
use super::problem::ConfigProblem;
use super::rate::Rate;
use super::reader::ConfigReader;
use super::sandbox::UidRange;
use super::secret::Secret;
use super::setting::TextSetting;
use super::units::{DurationSetting, PercentSetting, SizeSetting};

section! {
    /// The listener for clients, and what applies to all of them.
    #[derive(Debug, Clone, PartialEq)]
    pub struct GatewayConfig {
        settings {
            /// The address that clients connect to; the endpoint is `/mcp`. An address that other
            /// machines can reach needs `allowed_hosts`.
            listen: SocketAddr = "127.0.0.1:8080",
            /// How the public names of tools and prompts are made.
            naming: NamingChoice = "prefix",
            /// The form of a public name with a prefix: `{server}` and `{tool}` once each, and up to 16
            /// of `a-z`, `A-Z`, `0-9`, `_` and `-` around them.
            name_format: NameFormat = "{server}__{tool}",
            /// The case of public names.
            name_case: NameCase = "keep",
            /// Names that no tool gets, such as those of a client's own tools: a tool of such a name
            /// gets the form with the prefix.
            reserved_names: Vec<PublicName> = [],
            /// Which URIs clients see for resources and resource templates.
            uris: UriChoice = "prefix",
            /// When the configuration is reloaded. An invalid file changes nothing.
            reload: ReloadTrigger = "watch",
            /// How often the programs of `${command:PROGRAM ARG…}` run again, with `reload = "watch"`. An
            /// output that has changed is a change of the configuration.
            command_refresh: Duration as DurationSetting = "5m",
            /// The number of entries per page of a list. By default lists are not paginated,
            /// because many clients read only the first page.
            page_size: Option<NonZeroUsize> as Option<NonZeroSetting<10_000>>,
            /// Also serves clients with the HTTP+SSE transport of 2024-11-05, at `/sse`.
            sse: bool = false,
            /// The host names accepted in the `Host` header, with a port to accept only that port.
            /// Loopback names are always allowed.
            allowed_hosts: Vec<String> as Vec<HostSetting> = [],
            /// The origins of web pages that may call the gateway (the `Origin` header). Loopback
            /// origins are always allowed.
            allowed_origins: Vec<String> as Vec<OriginSetting> = [],
            /// The URL by which clients reach the gateway, without `/mcp`. Tokens are issued for
            /// `PUBLIC_URL/mcp`, or `PUBLIC_URL/mcp/NAME` for a profile. Needed beside `[issuers]`,
            /// unless `listen` is a loopback address: then the `Host` header says it.
            public_url: Option<Url> as Option<PublicUrl>,
            /// Scopes that imply others: `{ "mcp:admin" = ["mcp:write"], "mcp:write" = ["mcp:read"] }`.
            scopes: Vec<(ScopeName, Vec<ScopeName>)> = {},
            /// The request rate of all clients together.
            rate: Option<Rate>,
            /// The request rate of each client: each of `[clients]`, each user of `[issuers]`, or each
            /// IP address if neither is configured. Requests with an invalid key or token count by IP
            /// address.
            client_rate: Option<Rate>,
            /// How many wrong keys and tokens each IP address may try. Above that, only keys of
            /// `[clients]` and tokens that were verified before are let in from there. Behind a
            /// proxy all clients have its address: set it to `"off"`, and limit attempts there.
            failed_logins: Option<Rate> = "30/min",
            /// Who is served without a key if neither `[clients]` nor `[issuers]` are configured.
            anonymous: AnonymousAccess = "loopback",
            /// The number of threads that serve clients. By default one per core.
            threads: Option<NonZeroUsize> as Option<NonZeroSetting<1024>>,
            /// Whether a crash may write a core dump, which holds the keys and tokens that the gateway
            /// has in memory. Read at the start.
            core_dumps: bool = false,
            /// How long calls in flight may take to finish when the gateway stops.
            drain: Duration = "10s",
            /// How often an idle stream carries a comment, so that no proxy on the path closes it.
            keep_alive: Duration as DurationSetting = "15s",
            /// How long the first list of a client waits for servers that are still starting. It is
            /// answered as soon as all of them have listed or failed. With `0s` it does not wait.
            list_wait: Duration = "3s",
            /// How many child processes start side by side; the others wait, first those that a
            /// client is waiting for. By default twice the number of cores.
            start_parallel: Option<NonZeroUsize> as Option<NonZeroSetting<1024>>,
            /// How long clients may cache a list (`ttlMs`).
            list_ttl: Duration = "1m",
            /// What happens to definitions of servers that are not what the gateway first saw, or
            /// what was approved.
            pins: PinsChoice = "warn",
            /// What happens to definitions of servers with hidden characters, instructions for the
            /// model, encoded text or a misleading name.
            scan: ScanChoice = "hold",
            /// The folder in which the first seen and the approved definitions of servers are
            /// stored. By default `state_dir`; without either they last as long as the process, and
            /// cannot be approved. It must be one that no other user can write to. Read at the start.
            pin_dir: Option<PathBuf>,
            /// The keys that seal the state a client holds while a server waits for its input: long
            /// random texts, the newest first. States sealed with an older key stay valid, so that
            /// keys can be rotated. By default a key is generated at each start; gateways that
            /// share clients need the same keys.
            state_keys: Vec<Secret> = [],
            /// The folder in which the last known lists of servers are kept, so that the next start
            /// serves them before the servers are ready. It must be one that no other user can write
            /// to; the files are sealed with `state_keys`, or else with a key in the folder. `"auto"`
            /// is the user's cache folder for `trunkline stdio` and `"off"` for `trunkline serve`.
            /// Read at the start.
            state_dir: StateDir as StateDirSetting = "auto",
            /// The users of children with a sandbox, for a gateway that runs as root: each server has one of
            /// these numbers as its user and group, the same at every start, and a folder of its own in
            /// `sandbox_dir` as its home. `user` of a sandbox takes precedence.
            sandbox_uids: Option<UidRange>,
            /// The folder with the homes of children, which keep their users and their caches. Other users
            /// must be able to pass through the folders above it.
            sandbox_dir: PathBuf = "/var/cache/trunkline",
            /// The name of the gateway that clients display.
            title: Option<String>,
            /// Icons that clients may display with the name: URLs, or `data:image/…`.
            icons: Vec<String> as Vec<IconSetting> = [],
            /// A web page about the gateway.
            website_url: Option<Url>,
            /// Instructions about the gateway for the client's model. The instructions of the
            /// servers follow, each under the server's name.
            instructions: Option<String>,
            /// Serves HTTPS instead of plain HTTP. `trunkline cert` creates certificates for
            /// development.
            tls: Option<TlsConfig>,
            /// Limits on requests, connections, sessions and streams.
            limits: LimitsConfig = {},
        }
    }
}

choice! {
    /// Whether connections need a client certificate.
    pub enum ClientCertificates {
        /// a client without a certificate identifies itself by its key or token
        "optional" => Optional,
        /// the handshake fails without a valid certificate
        "required" => Required,
    }
}

section! {
    /// The gateway's certificate. The files are reloaded when they change.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TlsConfig {
        settings {
            /// The certificate chain, as PEM.
            cert: PathBuf,
            /// Its private key, as PEM.
            key: PathBuf,
            /// The CA certificates, as PEM, whose client certificates are accepted. The names in these
            /// identify clients (`[clients.NAME] certificates`). By default no client is asked for a
            /// certificate.
            client_ca: Option<PathBuf>,
            /// Whether each connection needs a certificate of `client_ca`.
            client_certificates: ClientCertificates = "optional",
        }
    }
}

section! {
    /// Limits on what clients send and hold open. A request over a limit is rejected with the
    /// limit's name.
    #[derive(Debug, Clone, PartialEq)]
    pub struct LimitsConfig {
        settings {
            /// The largest request body.
            body: usize as SizeSetting = "4MiB",
            /// How many bytes of all request bodies are in memory at a time, from their first piece
            /// until their requests are served. Bodies that arrive in one piece, as small ones do, are
            /// not counted. Not below `body`.
            bodies: usize as SizeSetting = "256MiB",
            /// How many of these bytes are of one client, or of one IP address if no clients are
            /// configured. Not below `body`.
            bodies_each: usize as SizeSetting = "64MiB",
            /// The largest request head: request line and headers.
            header: usize as SizeSetting = "32KiB",
            /// The nesting depth of a request's JSON.
            depth: usize as CountSetting<8, MAX_CLIENT_DEPTH> = 64,
            /// The number of open connections.
            connections: usize as CountSetting<1, 1_000_000> = 1024,
            /// How long a connection without a request stays open.
            idle: Duration as DurationSetting = "60s",
            /// How long the TLS handshake, the first byte and the head of a request may each take.
            handshake: Duration as DurationSetting = "10s",
            /// How many bytes of responses may wait for clients that leave them unread. Beyond it
            /// an HTTP/2 stream is reset, an HTTP/1.1 connection closed, and an answer on a stream
            /// of `sse` replaced by an error.
            unread: usize as SizeSetting = "256MiB",
            /// How many of these bytes may wait for one IP address (on streams of `sse`, for one
            /// client). The answers to a batch together have no more; what is more is replaced by
            /// errors.
            unread_each: usize as SizeSetting = "64MiB",
            /// The bytes of large responses of servers in memory at a time, until they have been
            /// rewritten for their clients. Responses below 256 KiB and those that are passed on as
            /// they arrive are not counted. A response beyond it is replaced by an error. Not below
            /// `max_response`.
            responses: usize as SizeSetting = "512MiB",
            /// The bytes of these for one client, or for one IP address if no clients are configured. Not
            /// below `max_response`.
            responses_each: usize as SizeSetting = "256MiB",
            /// How many bytes of results that are larger than their `max_size` are kept for all clients
            /// together (`when_larger = "resource"`). Each client may have its `share` of them. Where there
            /// is no room, the client's oldest ones are dropped, or the result is cut only.
            kept_results: usize as SizeSetting = "64MiB",
            /// How long such a result can be read.
            kept_result_time: Duration as DurationSetting = "10m",
            /// The number of open Legacy sessions. A client for whom there is no room loses the one
            /// of its own sessions that has been idle for longest, without a stream or a call, and
            /// is refused if it has no such session.
            sessions: usize as CountSetting<1, 10_000_000> = 10000,
            /// The number of open Legacy sessions per client, or per IP address if no clients are
            /// configured.
            sessions_each: usize as CountSetting<1, 10_000_000> = 1000,
            /// How long a Legacy session lasts without a request.
            session_idle: Duration as DurationSetting = "30m",
            /// How long a Legacy session lasts whose client has sent no request but `initialize`, and
            /// has opened no stream. At most `session_idle`.
            session_unused: Duration as DurationSetting = "5m",
            /// The number of open streams for notifications.
            streams: usize as CountSetting<1, 1_000_000> = 1024,
            /// The number of calls that may wait for their client's input.
            parked: usize as CountSetting<1, 1_000_000> = 1024,
            /// The number of such calls per client: per key, or per IP address without one.
            parked_each: usize as CountSetting<1, 1_000_000> = 64,
            /// How long a call waits for its client's input, and how long the state that the client
            /// holds meanwhile stays valid.
            parked_time: Duration as DurationSetting = "10m",
            /// The number of resource subscriptions per Legacy session or `subscriptions/listen`.
            subscriptions: usize as CountSetting<1, 100_000> = 1000,
            /// The number of resource subscriptions of all clients together.
            all_subscriptions: usize as CountSetting<1, 10_000_000> = 100_000,
            /// How many bytes of each Legacy session's streams are kept for resumption after a lost
            /// connection.
            replay: usize as SizeSetting = "256KiB",
            /// How many bytes of all streams together are kept after they were sent. Beyond it, an
            /// answer that comes while its client is disconnected is replaced by an error.
            replay_all: usize as SizeSetting = "64MiB",
            /// How long bytes are kept after they were sent.
            replay_time: Duration as DurationSetting = "1m",
            /// How much one client may have of what all share: of `connections` (by IP address),
            /// `streams` and `all_subscriptions`, and of each server's `in_flight`, `queue` and
            /// `max_instances`. Applies where clients can be distinguished: by their keys if more than
            /// one of `[clients]` is configured, by their IP addresses with `anonymous = "anyone"`.
            share: usize as PercentSetting = "75%",
            /// The number of messages in a Legacy batch.
            batch: usize as CountSetting<1, 10_000> = 32,
        }
    }
}

impl LimitsConfig {
    /// [`Self::share`] of a limit, at least one.
    pub fn share_of(&self, limit: usize) -> usize {
        (limit.saturating_mul(self.share) / 100).max(1).min(limit)
    }
}

section! {
    /// The admin listener: `/healthz`, `/readyz`, `/status`, `/definitions`, `/metrics` and
    /// `POST /servers/NAME/refresh`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct AdminConfig {
        settings {
            /// Its address, different from `gateway.listen`. An address that other machines can
            /// reach needs `allowed_hosts`.
            listen: Option<SocketAddr> = "127.0.0.1:8081",
            /// The host names accepted in the `Host` header. Loopback names are always allowed.
            allowed_hosts: Vec<String> as Vec<HostSetting> = [],
            /// The origins of web pages that may read its pages. By default none, not even pages of
            /// this machine.
            allowed_origins: Vec<String> as Vec<OriginSetting> = [],
        }
    }
}

section! {
    /// What the gateway writes to its standard error.
    #[derive(Debug, Clone, PartialEq)]
    pub struct LogConfig {
        settings {
            /// A level (`error`, `warn`, `info`, `debug`, `trace`), optionally followed by levels
            /// for modules, such as `info,trunkline::upstream=debug`.
            level: String as LogFilter = "info",
            /// The format of log lines.
            format: LogFormatChoice = "human",
            /// Whether the access log, one line per call, is written.
            access: bool = true,
        }
    }
}

section! {
    /// OpenTelemetry traces and metrics, sent by OTLP over HTTP once there is an endpoint.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TelemetryConfig {
        settings {
            /// The collector, such as `http://127.0.0.1:4318`.
            endpoint: Option<Url>,
            /// Headers for the collector.
            headers: Vec<(HeaderName, Secret)> = {},
            /// The share of calls that are traced if the client did not decide.
            sample: f64 as ShareSetting = 0.01,
            /// The `service.name` of the gateway.
            service_name: String = "trunkline",
            /// How often metrics are sent.
            interval: Duration as DurationSetting = "1m",
        }
    }
}

choice! {
    /// Who is served without a key if no `[clients]` are configured.
    pub enum AnonymousAccess {
        /// only clients on this machine; `listen` must be a loopback address
        "loopback" => Loopback,
        /// every client that reaches the gateway
        "anyone" => Anyone,
    }
}

choice! {
    /// Which URIs clients see for resources and resource templates.
    pub enum UriChoice {
        /// every URI is `mcp://SERVER/` followed by the server's own URI
        "prefix" => Prefix,
        /// a URI stays as its server lists it, unless another server could be meant
        "original" => Original,
    }
}

choice! {
    /// When the configuration is reloaded.
    pub enum ReloadTrigger {
        /// when the file changes, and on SIGHUP
        "watch" => Watch,
        /// on SIGHUP
        "signal" => Signal,
        /// never
        "off" => Off,
    }
}

choice! {
    /// The format of log lines.
    pub enum LogFormatChoice {
        /// for people
        "human" => Human,
        /// one JSON object per line
        "json" => Json,
    }
}

/// Where the gateway keeps what it knows from one run to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateDir {
    /// The default of the command.
    Auto,
    /// Nowhere.
    Off,
    /// In this folder.
    Folder(PathBuf),
}

impl StateDir {
    /// The folder; `None` if nothing is kept.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Auto | Self::Off => None,
            Self::Folder(path) => Some(path),
        }
    }
}

impl GatewayConfig {
    /// The folder in which accepted definitions are stored; `None` if they are not.
    pub fn baseline_folder(&self) -> Option<&Path> {
        self.pin_dir.as_deref().or_else(|| self.state_dir.folder())
    }
}

/// A folder, `"auto"` or `"off"`.
pub(super) struct StateDirSetting;

impl TextSetting for StateDirSetting {
    type Value = StateDir;
    const WORD: &'static str = "path";
    const EXAMPLE: &'static str = "\"/var/cache/trunkline\"";

    fn parse_text(
        text: &str,
        reader: &ConfigReader<'_>,
    ) -> Result<Option<StateDir>, ConfigProblem> {
        Ok(match text {
            "auto" => Some(StateDir::Auto),
            "off" => Some(StateDir::Off),
            path => PathBuf::parse_text(path, reader)?.map(StateDir::Folder),
        })
    }
}

/// A log filter: kept as text, and checked by parsing it.
pub(super) struct LogFilter;

impl TextSetting for LogFilter {
    type Value = String;
    const WORD: &'static str = "log filter";
    const EXAMPLE: &'static str = "\"info\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, ConfigProblem> {
        check_log_filter(text).map(Some)
    }
}

/// Checks a log filter.
pub(super) fn check_log_filter(text: &str) -> Result<String, ConfigProblem> {
    match check_directives(text) {
        Ok(()) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => Err(ConfigProblem::Filter),
    }
}
