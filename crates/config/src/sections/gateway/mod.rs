//! `[gateway]`, `[log]` and `[telemetry]`: settings of the gateway itself.

pub(crate) mod admin;
pub(crate) mod audit;
pub(crate) mod cluster;
pub(crate) mod discovery;
pub(crate) mod embeddings;
pub(crate) mod events;
pub(crate) mod gateway_files;
pub(crate) mod naming;
pub(crate) mod network;
pub(crate) mod store_url;
pub(crate) mod vault;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trunkline_jsonrpc::MAX_CLIENT_DEPTH;
use trunkline_protocol::call::PublicName;
use trunkline_telemetry::log::check_directives;

use http::HeaderName;
use url::Url;

use super::definitions::{PinsChoice, ScanChoice};
use super::issuers::{PublicUrl, ScopeName};
use super::rate::Rate;
use super::server::sandbox::UidRange;
use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::macros::{choice, section};
use crate::reader::setting::TextSetting;
use crate::reader::values::numbers::{CountSetting, NonZeroSetting, ShareSetting};
use crate::reader::values::units::{DurationSetting, PercentSetting, SizeSetting};
use crate::source::secret::Secret;
use naming::{NameCase, NameFormat, NamingChoice};
use network::{HostSetting, IconSetting, OriginSetting};

section! {
    /// The listener for clients, and settings for all of them.
    #[derive(Debug, Clone, PartialEq)]
    pub struct GatewayConfig {
        settings {
            /// The address that clients connect to; the endpoint is `/mcp`. An address that other
            /// machines can reach needs `allowed_hosts`.
            listen: SocketAddr = "127.0.0.1:8080",
            /// The scheme of the public names of tools and prompts.
            naming: NamingChoice = "prefix",
            /// The form of a public name with a prefix: `{server}` and `{tool}` once each, and up to 16
            /// of `a-z`, `A-Z`, `0-9`, `_` and `-` around them.
            name_format: NameFormat = "{server}__{tool}",
            /// The case of public names.
            name_case: NameCase = "keep",
            /// Names that no tool may have, such as those of a client's own tools: a tool with such
            /// a name gets the form with the prefix.
            reserved_names: Vec<PublicName> = [],
            /// The URIs of resources and resource templates, as clients see them.
            uris: UriChoice = "prefix",
            /// The triggers of a reload of the configuration. An invalid file changes nothing.
            reload: ReloadTrigger = "watch",
            /// The interval at which the programs of `${command:PROGRAM ARG…}` run again, with
            /// `reload = "watch"`. A changed output is a change of the configuration.
            command_refresh: Duration as DurationSetting = "5m",
            /// The number of entries per page of a list. By default lists are not paginated,
            /// because many clients read only the first page.
            page_size: Option<NonZeroUsize> as Option<NonZeroSetting<10_000>>,
            /// Also serves clients with the HTTP+SSE transport of 2024-11-05, at `/sse`.
            sse: bool = false,
            /// The host names accepted in the `Host` header, with a port to accept only that port.
            /// Loopback names and the host of `public_url` are always allowed.
            allowed_hosts: Vec<String> as Vec<HostSetting> = [],
            /// The origins of web pages that may call the gateway (the `Origin` header). Loopback
            /// origins are always allowed.
            allowed_origins: Vec<String> as Vec<OriginSetting> = [],
            /// The URL by which clients reach the gateway, without `/mcp`. Tokens are issued for
            /// `PUBLIC_URL/mcp`, or `PUBLIC_URL/mcp/NAME` for a profile. Needed beside `[issuers]`,
            /// unless `listen` is a loopback address: then the `Host` header of a request counts.
            public_url: Option<Url> as Option<PublicUrl>,
            /// Scopes that imply others: `{ "mcp:admin" = ["mcp:write"], "mcp:write" = ["mcp:read"] }`.
            scopes: Vec<(ScopeName, Vec<ScopeName>)> = {},
            /// The request rate of all clients together.
            rate: Option<Rate>,
            /// The request rate of each client: each of `[clients]`, each user of `[issuers]`, or each
            /// IP address if neither is configured. Requests with an invalid key or token count by IP
            /// address.
            client_rate: Option<Rate>,
            /// The rate of wrong keys and tokens from each IP address. Above it, only keys of
            /// `[clients]` and tokens that were verified before are accepted from there. Behind a
            /// proxy all clients have its address: set it to `"off"`, and limit attempts there.
            failed_logins: Option<Rate> = "30/min",
            /// The clients that are served without a key if neither `[clients]` nor `[issuers]` are
            /// configured.
            anonymous: AnonymousAccess = "loopback",
            /// The number of threads that serve clients. By default one per core.
            threads: Option<NonZeroUsize> as Option<NonZeroSetting<1024>>,
            /// Allows a crash to write a core dump, which holds the keys and tokens that the
            /// gateway has in memory. Read at the start.
            core_dumps: bool = false,
            /// The time that calls in flight may take to finish when the gateway stops.
            drain: Duration = "10s",
            /// The interval of comments on an idle stream, which keep proxies on the path from
            /// closing it.
            keep_alive: Duration as DurationSetting = "15s",
            /// The time that the first list of a client waits for servers that are still starting.
            /// It is answered as soon as all of them have listed or failed. With `0s` it does not
            /// wait.
            list_wait: Duration = "3s",
            /// The number of child processes that start at the same time. The others wait; those
            /// that a client is waiting for start first. By default twice the number of cores.
            start_parallel: Option<NonZeroUsize> as Option<NonZeroSetting<1024>>,
            /// The time that clients may cache a list (`ttlMs`).
            list_ttl: Duration = "1m",
            /// Action for definitions of servers that differ from the first seen or the approved
            /// ones.
            pins: PinsChoice = "warn",
            /// Action for definitions of servers with hidden characters, instructions for the
            /// model, encoded text or a misleading name.
            scan: ScanChoice = "hold",
            /// The folder in which the first seen and the approved definitions of servers are
            /// stored. By default `state_dir`; without either they last as long as the process, and
            /// cannot be approved. No other user may be able to write to it. Read at the start.
            pin_dir: Option<PathBuf>,
            /// The keys that seal the state a client holds while a server waits for its input: long
            /// random texts, the newest first. States sealed with an older key stay valid, so that
            /// keys can be rotated. By default a key is generated at each start; gateways that
            /// share clients need the same keys.
            state_keys: Vec<Secret> = [],
            /// The folder in which the last known lists of servers are kept, so that the next start
            /// serves them before the servers are ready. No other user may be able to write to it;
            /// the files are sealed with `state_keys`, or else with a key in the folder. `"auto"`
            /// is the user's cache folder for `trunkline stdio` and `"off"` for `trunkline serve`. The
            /// last ten applied versions of the configuration are kept there, too, as they are in
            /// the file. Read at the start.
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
    /// Optional or required client certificates.
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
            /// The CA certificates, as PEM, that issue client certificates. The names in client
            /// certificates identify clients (`[clients.NAME] certificates`). By default no client
            /// is asked for a certificate.
            client_ca: Option<PathBuf>,
            /// Optional or required certificates of `client_ca` for all connections.
            client_certificates: ClientCertificates = "optional",
        }
    }
}

section! {
    /// Limits on the messages, connections and sessions of clients. A request over a limit is
    /// rejected with the limit's name.
    #[derive(Debug, Clone, PartialEq)]
    pub struct LimitsConfig {
        settings {
            /// The largest request body.
            body: usize as SizeSetting = "4MiB",
            /// The most bytes of all request bodies in memory at a time, from their first piece
            /// until their requests are served. Bodies that arrive in one piece, as small ones do,
            /// are not counted. Not below `body`.
            bodies: usize as SizeSetting = "256MiB",
            /// The most bytes of these for one client, or for one IP address if no clients are
            /// configured. Not below `body`.
            bodies_each: usize as SizeSetting = "64MiB",
            /// The largest request head: request line and headers.
            header: usize as SizeSetting = "32KiB",
            /// The nesting depth of a request's JSON.
            depth: usize as CountSetting<8, MAX_CLIENT_DEPTH> = 64,
            /// The number of open connections.
            connections: usize as CountSetting<1, 1_000_000> = 1024,
            /// The time that a connection without a request stays open.
            idle: Duration as DurationSetting = "60s",
            /// The time limit for each of: the TLS handshake, the first byte, and the head of a
            /// request.
            handshake: Duration as DurationSetting = "10s",
            /// The most bytes of responses that may wait for clients that leave them unread. Beyond
            /// it an HTTP/2 stream is reset, an HTTP/1.1 connection closed, and an answer on a
            /// stream of `sse` replaced by an error.
            unread: usize as SizeSetting = "256MiB",
            /// The most bytes of these for one IP address (on streams of `sse`, for one client).
            /// The answers to a batch together have no more; further answers are replaced by
            /// errors.
            unread_each: usize as SizeSetting = "64MiB",
            /// The most bytes of large responses of servers in memory at a time, until they have
            /// been rewritten for their clients. Responses below 256 KiB and those that are passed
            /// on as they arrive are not counted. A response beyond it is replaced by an error. Not
            /// below `max_response`.
            responses: usize as SizeSetting = "512MiB",
            /// The most bytes of these for one client, or for one IP address if no clients are
            /// configured. Not below `max_response`.
            responses_each: usize as SizeSetting = "256MiB",
            /// The most bytes of results larger than their `max_size` that are kept for all clients
            /// together (`when_larger = "resource"`). Each client may have its `share` of them. If
            /// there is no room, the client's oldest ones are dropped, or the result is only cut.
            kept_results: usize as SizeSetting = "64MiB",
            /// The time that such a result can be read.
            kept_result_time: Duration as DurationSetting = "10m",
            /// The number of open Legacy sessions. If there is no room for a client's new session,
            /// it replaces the client's own session that has been idle for longest, without a
            /// stream or a call. A client without such a session is refused.
            sessions: usize as CountSetting<1, 10_000_000> = 10000,
            /// The number of open Legacy sessions per client, or per IP address if no clients are
            /// configured.
            sessions_each: usize as CountSetting<1, 10_000_000> = 1000,
            /// The time that a Legacy session lasts without a request.
            session_idle: Duration as DurationSetting = "30m",
            /// The time that a Legacy session lasts if its client has sent no request but
            /// `initialize`, and has opened no stream. At most `session_idle`.
            session_unused: Duration as DurationSetting = "5m",
            /// The number of open streams for notifications.
            streams: usize as CountSetting<1, 1_000_000> = 1024,
            /// The number of calls that may wait for their client's input.
            parked: usize as CountSetting<1, 1_000_000> = 1024,
            /// The number of such calls per client: per key, or per IP address without one.
            parked_each: usize as CountSetting<1, 1_000_000> = 64,
            /// The time that a call waits for its client's input. The state that the client holds
            /// meanwhile is valid for the same time.
            parked_time: Duration as DurationSetting = "10m",
            /// The number of resource subscriptions per Legacy session or `subscriptions/listen`.
            subscriptions: usize as CountSetting<1, 100_000> = 1000,
            /// The number of resource subscriptions of all clients together.
            all_subscriptions: usize as CountSetting<1, 10_000_000> = 100_000,
            /// The most bytes of each Legacy session's streams that are kept for resumption after a
            /// lost connection.
            replay: usize as SizeSetting = "256KiB",
            /// The most bytes of all streams together that are kept after they were sent. Beyond
            /// it, an answer that arrives while its client is disconnected is replaced by an error.
            replay_all: usize as SizeSetting = "64MiB",
            /// The time that bytes are kept after they were sent.
            replay_time: Duration as DurationSetting = "1m",
            /// The share of one client in the limits for all of them: in `connections` (by IP
            /// address), `streams` and `all_subscriptions`, and in each server's `in_flight`,
            /// `queue` and `max_instances`. Applies if clients can be distinguished: by their keys
            /// if more than one of `[clients]` is configured, by their IP addresses with
            /// `anonymous = "anyone"`.
            share: usize as PercentSetting = "75%",
            /// The number of messages in a Legacy batch.
            batch: usize as CountSetting<1, 10_000> = 32,
        }
    }
}

impl LimitsConfig {
    /// [`Self::share`] of a limit, at least one.
    #[inline]
    pub fn share_of(&self, limit: usize) -> usize {
        (limit.saturating_mul(self.share) / 100).max(1).min(limit)
    }
}

section! {
    /// The gateway's log, on its standard error.
    #[derive(Debug, Clone, PartialEq)]
    pub struct LogConfig {
        settings {
            /// A level (`error`, `warn`, `info`, `debug`, `trace`), optionally followed by levels
            /// for modules, such as `info,trunkline::upstream=debug`.
            level: String as LogFilter = "info",
            /// The format of log lines.
            format: LogFormatChoice = "human",
            /// Writes the access log, one line per call, list and introduction.
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
            /// The interval at which metrics are sent.
            interval: Duration as DurationSetting = "1m",
        }
    }
}

choice! {
    /// The clients that are served without a key if no `[clients]` are configured.
    pub enum AnonymousAccess {
        /// only clients on this machine; `listen` must be a loopback address
        "loopback" => Loopback,
        /// every client that reaches the gateway
        "anyone" => Anyone,
    }
}

choice! {
    /// The URIs of resources and resource templates, as clients see them.
    pub enum UriChoice {
        /// every URI is `mcp://SERVER/` followed by the server's own URI
        "prefix" => Prefix,
        /// a URI stays as its server lists it, unless it is relative or could be another server's
        "original" => Original,
    }
}

choice! {
    /// The triggers of a reload of the configuration.
    pub enum ReloadTrigger {
        /// when the file changes, and on SIGHUP
        "watch" => Watch,
        /// on SIGHUP only
        "signal" => Signal,
        /// none
        "off" => Off,
    }
}

choice! {
    /// The format of log lines.
    pub enum LogFormatChoice {
        /// for people: time, level, server or client, sentence, fields
        "human" => Human,
        /// one JSON object per line
        "json" => Json,
    }
}

/// The folder of the state that outlives the process.
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
    /// The folder in which accepted definitions are stored; `None` if they are not stored.
    pub fn baseline_folder(&self) -> Option<&Path> {
        self.pin_dir.as_deref().or_else(|| self.state_dir.folder())
    }
}

/// A folder, `"auto"` or `"off"`.
pub(crate) struct StateDirSetting;

impl TextSetting for StateDirSetting {
    type Value = StateDir;
    const WORD: &'static str = "path";
    const EXAMPLE: &'static str = "\"/var/cache/trunkline\"";

    fn parse_text(text: &str, reader: &ConfigReader<'_>) -> Result<Option<StateDir>, SettingFault> {
        Ok(match text {
            "auto" => Some(StateDir::Auto),
            "off" => Some(StateDir::Off),
            path => PathBuf::parse_text(path, reader)?.map(StateDir::Folder),
        })
    }
}

/// A log filter: kept as text, and checked by parsing it.
pub(crate) struct LogFilter;

impl TextSetting for LogFilter {
    type Value = String;
    const WORD: &'static str = "log filter";
    const EXAMPLE: &'static str = "\"info\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<String>, SettingFault> {
        check_log_filter(text).map(Some)
    }
}

/// Checks a log filter.
pub(crate) fn check_log_filter(text: &str) -> Result<String, SettingFault> {
    match check_directives(text) {
        Ok(()) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => Err(SettingFault::Filter),
    }
}
