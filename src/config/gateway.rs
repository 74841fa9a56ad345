//! `[gateway]`, `[admin]`, `[log]` and `[telemetry]`: the gateway itself.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::telemetry::log::check_directives;
use http::HeaderName;
use url::Url;

use super::macros::{choice, section};
use super::network::{Host, Icon, Origin};
use super::numbers::{Count, NonZero, Share};
use super::problem::Problem;
use super::rate::Rate;
use super::reader::Reader;
use super::secret::Secret;
use super::setting::Text;
use super::units::{Lasting, Size};

section! {
    /// Where clients connect, and what holds for all of them.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Gateway {
        settings {
            /// The address that clients connect to: the endpoint is `/mcp` there. One that other
            /// machines can reach needs `allowed_hosts`.
            listen: SocketAddr = "127.0.0.1:8080",
            /// How the tools and prompts of all servers get names of their own.
            naming: Naming = "prefix",
            /// Which URIs clients see of the servers' resources and templates.
            uris: Uris = "prefix",
            /// When this file is read again. A file with faults changes nothing.
            reload: Reload = "watch",
            /// How many entries a page of a list has; without it every list is served whole,
            /// because many clients read only the first page.
            page_size: Option<NonZeroUsize> as Option<NonZero<10_000>>,
            /// Serves clients of the transport of 2024-11-05 as well: their URL ends in `/sse`.
            sse: bool = false,
            /// The host names that clients may call the gateway by, with a port where only that
            /// one will do. Loopback names are always allowed.
            allowed_hosts: Vec<String> as Vec<Host> = [],
            /// The web pages that may call the gateway, by what their browser sends in `Origin`.
            /// Loopback ones are always allowed.
            allowed_origins: Vec<String> as Vec<Origin> = [],
            /// How many requests all clients together may send.
            rate: Option<Rate>,
            /// How many requests each client may send: each of `[clients]`, or, where there are
            /// none, each address. Requests with a wrong key count by their address.
            client_rate: Option<Rate>,
            /// Who is served without a key, as long as there are no `[clients]`.
            anonymous: Anonymous = "loopback",
            /// On how many threads clients are served; without it one for each core.
            threads: Option<NonZeroUsize> as Option<NonZero<1024>>,
            /// How long calls in flight may take when the gateway stops.
            drain: Duration = "10s",
            /// How often a quiet stream carries a comment, so that nothing on its way closes it.
            keep_alive: Duration as Lasting = "15s",
            /// How long clients may keep a list before they ask again (`ttlMs`).
            list_ttl: Duration = "1m",
            /// What seals the states that clients hold while a server waits for their input: long
            /// random texts, the newest first. States that an older one sealed stay good, so that
            /// keys can be changed. Without any, a key is made at each start; gateways that share
            /// their clients need the same ones.
            state_keys: Vec<Secret> = [],
            /// What clients show as the gateway's name.
            title: Option<String>,
            /// Pictures that clients may show beside that name: URLs, or `data:image/…`.
            icons: Vec<String> as Vec<Icon> = [],
            /// Where people read more about the gateway.
            website_url: Option<Url>,
            /// What clients tell their model about the gateway. What its servers say of themselves
            /// follows, each under its name.
            instructions: Option<String>,
            /// Serves HTTPS, and plain HTTP no longer. `trunkline cert` writes files to begin with.
            tls: Option<Tls>,
            /// What one client may take.
            limits: Limits = {},
        }
    }
}

section! {
    /// The gateway's certificate. Both files are read again when they change.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Tls {
        settings {
            /// The certificate and those that vouch for it, as PEM.
            cert: PathBuf,
            /// Its private key, as PEM.
            key: PathBuf,
        }
    }
}

section! {
    /// Bounds for what clients send and hold. What is over one is refused with its name.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Limits {
        settings {
            /// The largest request body.
            body: usize as Size = "4MiB",
            /// The largest head of a request: its line and headers.
            header: usize as Size = "32KiB",
            /// How deep the JSON of a request may nest.
            depth: usize as Count<8, 1024> = 64,
            /// How many connections may be open.
            connections: usize as Count<1, 1_000_000> = 1024,
            /// How long a connection without a request stays open.
            idle: Duration as Lasting = "60s",
            /// How long TLS, the first byte and the head of a request may each take.
            handshake: Duration as Lasting = "10s",
            /// How many Legacy sessions may be open.
            sessions: usize as Count<1, 10_000_000> = 10000,
            /// How many of them one client may have: one with a name, or else one address.
            sessions_each: usize as Count<1, 10_000_000> = 1000,
            /// How long a Legacy session lasts without a request.
            session_idle: Duration as Lasting = "30m",
            /// How many streams that wait for notifications may be open.
            streams: usize as Count<1, 1_000_000> = 1024,
            /// How many calls may wait for their clients' input.
            parked: usize as Count<1, 1_000_000> = 1024,
            /// How many of them may be one principal's.
            parked_each: usize as Count<1, 1_000_000> = 64,
            /// How long a call waits for its client's input, and how long a state is good that a
            /// client holds meanwhile.
            parked_time: Duration as Lasting = "10m",
            /// How many resources one Legacy session, or one `subscriptions/listen`, may be
            /// subscribed to.
            subscriptions: usize as Count<1, 100_000> = 1000,
            /// How many subscriptions to resources there may be in all.
            all_subscriptions: usize as Count<1, 10_000_000> = 100_000,
            /// How many bytes of each stream of a Legacy session are kept for a client whose
            /// connection breaks, so that it can resume.
            replay: usize as Size = "256KiB",
            /// How many bytes of all streams together are kept once they were sent.
            replay_all: usize as Size = "64MiB",
            /// How long they are kept once they were sent.
            replay_time: Duration as Lasting = "1m",
            /// How many messages a Legacy batch may have.
            batch: usize as Count<1, 10_000> = 32,
        }
    }
}

section! {
    /// The listener for operators: `/healthz`, `/readyz`, `/status` and `/metrics`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Admin {
        settings {
            /// Its address, never that of `gateway.listen`. One that other machines can reach
            /// needs `allowed_hosts`.
            listen: Option<SocketAddr> = "127.0.0.1:8081",
            /// The host names that it may be called by. Loopback names are always allowed.
            allowed_hosts: Vec<String> as Vec<Host> = [],
        }
    }
}

section! {
    /// What the gateway writes to its standard error.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Log {
        settings {
            /// A level (`error`, `warn`, `info`, `debug`, `trace`), then levels for parts, such as
            /// `info,trunkline::upstream=debug`.
            level: String as Filter = "info",
            /// How a line looks.
            format: LogFormat = "human",
            /// Whether every call has its line.
            access: bool = true,
        }
    }
}

section! {
    /// OpenTelemetry traces and metrics, sent by OTLP over HTTP once there is an endpoint.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Telemetry {
        settings {
            /// The collector, such as `http://127.0.0.1:4318`.
            endpoint: Option<Url>,
            /// Headers for the collector.
            headers: Vec<(HeaderName, Secret)> = {},
            /// The share of calls that are traced when the client has not decided.
            sample: f64 as Share = 0.01,
            /// What the gateway is called there.
            service_name: String = "trunkline",
            /// How often metrics are sent.
            interval: Duration as Lasting = "1m",
        }
    }
}

choice! {
    /// How the tools and prompts of all servers get names of their own.
    pub enum Naming {
        /// every tool is `SERVER__TOOL`
        "prefix" => Prefix,
        /// only a tool whose name another server has, too, is `SERVER__TOOL`
        "conflict" => Conflict,
        /// tools keep their names; of two that are the same, the first in the file is shown
        "none" => None,
    }
}

choice! {
    /// Who is served without a key, as long as there are no `[clients]`.
    pub enum Anonymous {
        /// whoever is on this machine; to `listen` where others get in is a fault
        "loopback" => Loopback,
        /// whoever reaches the gateway
        "anyone" => Anyone,
    }
}

choice! {
    /// Which URIs clients see of the servers' resources and templates.
    pub enum Uris {
        /// every URI is `mcp://SERVER/` and then the server's own
        "prefix" => Prefix,
        /// a URI stays as its server has it, as long as no other server could be meant
        "original" => Original,
    }
}

choice! {
    /// When the configuration is read again.
    pub enum Reload {
        /// when the file changes, and on SIGHUP
        "watch" => Watch,
        /// on SIGHUP
        "signal" => Signal,
        /// never
        "off" => Off,
    }
}

choice! {
    /// How a line of the log looks.
    pub enum LogFormat {
        /// for people
        "human" => Human,
        /// an object a line, for machines
        "json" => Json,
    }
}

/// A filter for the log, kept as text and known to parse.
pub(super) struct Filter;

impl Text for Filter {
    type Value = String;
    const WORD: &'static str = "log filter";
    const EXAMPLE: &'static str = "\"info\"";

    fn parse(text: &str, _: &Reader<'_>) -> Result<Option<String>, Problem> {
        filter(text).map(Some)
    }
}

/// Checks a filter for the log.
pub(super) fn filter(text: &str) -> Result<String, Problem> {
    match check_directives(text) {
        Ok(()) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => Err(Problem::Filter),
    }
}
