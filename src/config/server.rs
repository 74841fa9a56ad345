//! `[servers.NAME]`: one upstream MCP server.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use url::Url;

use crate::call::{NativeName, PublicName, ServerName};

use super::macros::{choice, section};
use super::network::Header;
use super::numbers::{Count, Count32};
use super::pattern::Pattern;
use super::problem::Problem;
use super::process::{Program, Variable};
use super::rate::Rate;
use super::reader::{Reader, Table};
use super::secret::Secret;
use super::setting::{Part, Row, Section, Text};
use super::substitute::Filled;
use super::units::{Lasting, Size};

section! {
    /// One MCP server: a child process (`command`) or an HTTP server (`url`). `NAME` is 1 to 32
    /// characters of `a-z`, `A-Z`, `0-9`, `_` and `-`, without `__`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Server {
        parts {
            /// The `NAME` of its table.
            name: ServerName,
            /// How it is reached.
            target: Target,
        }
        settings {
            /// Which protocol era it speaks.
            era: EraChoice = "auto",
            /// When it is started or connected to.
            start: Start = "eager",
            /// How long a child may be without a call before it is stopped until the next one.
            idle_stop: Option<Duration> as Option<Lasting>,
            /// Whether clients share the server's child or session. Without it: each client has its
            /// own session with an HTTP server of the Legacy era, and all share one child. A server
            /// of the Modern era keeps nothing between requests, and is shared by all.
            isolation: Option<Isolation>,
            /// How many instances of the server there may be besides the first, which lists for all:
            /// one for each client, or for each set of client capabilities, that needs its own.
            /// Without it: 32 children, or 10000 sessions. With 0 all clients share the first
            /// one, which is told that none of them can do anything.
            max_instances: Option<usize> as Option<Count<0, 1_000_000>>,
            /// How long such an instance may be without a call before it is closed. A session with
            /// an HTTP server stays for as long as the Legacy client whose it is.
            instance_idle: Duration as Lasting = "5m",
            /// How many times a child may be started again within `restart_window` before it is
            /// marked failed.
            max_restarts: u32 as Count32<0, 1000> = 5,
            /// See `max_restarts`.
            restart_window: Duration as Lasting = "1m",
            /// How long a call may be without an answer or a sign of progress.
            timeout: Duration as Lasting = "30s",
            /// How long a call may take with all the progress it reports. Not below `timeout`.
            max_timeout: Duration as Lasting = "10m",
            /// How long a connection may take, TLS included.
            connect_timeout: Duration as Lasting = "5s",
            /// How long the first hello and listing may take.
            start_timeout: Duration as Lasting = "30s",
            /// How long a child may take to end once its input is closed, and again after SIGTERM.
            stop_timeout: Duration as Lasting = "5s",
            /// How often its tools may be called.
            rate: Option<Rate>,
            /// How many calls it gets at once.
            in_flight: usize as Count<1, 100_000> = 256,
            /// How many more calls may wait for their turn.
            queue: usize as Count<0, 100_000> = 256,
            /// How long they wait.
            queue_timeout: Duration as Lasting = "5s",
            /// The largest answer to one call.
            max_response: usize as Size = "64MiB",
            /// How much of what clients read of its resources is kept for as long as the server says
            /// that it may be. Nothing is, where the client's own headers go on to it.
            read_cache: Option<usize> as Option<Size> = "4MiB",
            /// How many tools, prompts, resources and resource templates it may list of each.
            max_tools: usize as Count<1, 1_000_000> = 10000,
            /// How many pages each of its lists may have.
            max_pages: usize as Count<1, 1_000_000> = 1000,
            /// Headers of the client's own request that are sent on to it. None by default: a
            /// client's credentials are not the server's.
            forward_headers: Vec<HeaderName> as Vec<Header> = [],
            /// Values for variables of its resource templates: one whose variables all have a value
            /// is listed as a resource, and clients can ask for no other values.
            resource_vars: Vec<(String, String)> = {},
            /// Which of its tools clients see, and how.
            tools: Tools = {},
        }
    }
}

section! {
    /// A child process that speaks MCP on its standard input and output.
    #[derive(Clone, PartialEq)]
    pub struct Command {
        settings {
            /// The program: a name for `PATH`, or a path. `trunkline` is the running gateway's own.
            "command" => program: String as Program,
            /// Its arguments. Other users of the machine can see them: secrets belong into `env`.
            args: Vec<String> as Vec<Filled> = [],
            /// Variables for its environment.
            env: Vec<(String, Secret)> = {},
            /// Variables of the gateway's own environment that it gets too, by name or by `NAME_*`.
            /// `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TMPDIR`, `TZ`, `LANG`, `LC_*`
            /// and `XDG_*` it gets anyway; nothing else.
            pass_env: Vec<String> as Vec<Variable> = [],
            /// The folder it starts in; the gateway's own without it.
            cwd: Option<PathBuf>,
        }
    }
}

/// The variables of the gateway's own environment that every child gets: what
/// programs need to find themselves, and nothing that is a credential.
pub const PASSED_ENV: [&str; 11] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_*", "XDG_*"];

section! {
    /// A server that speaks MCP over HTTP.
    #[derive(Clone, PartialEq)]
    pub struct Http {
        settings {
            /// Its endpoint.
            url: Url,
            /// Headers for each request to it.
            headers: Vec<(HeaderName, Secret)> = {},
            /// Certificates that are trusted besides the system's, as PEM.
            ca: Option<PathBuf>,
            /// How it speaks HTTP.
            transport: HttpTransport = "auto",
        }
    }
}

section! {
    /// Which tools clients see. A tool that is hidden cannot be called either. Every table in it
    /// is one tool's (a tool that is itself called `allow` or `deny` cannot have one).
    #[derive(Debug, Clone, PartialEq)]
    pub struct Tools {
        parts {
            /// What clients see of single tools, by the server's own name, in file order.
            overrides: Vec<(NativeName, ToolOverride)>,
        }
        settings {
            /// The tools that are shown, by the server's own names: `*` is any run of characters,
            /// `?` any one. All of them when empty.
            allow: Vec<Pattern> = [],
            /// The tools that are hidden, also from what `allow` shows.
            deny: Vec<Pattern> = [],
        }
    }
}

section! {
    /// What clients see of one tool: `TOOL` is the server's own name for it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ToolOverride {
        settings {
            /// The public name, instead of what `gateway.naming` gives: 1 to 64 characters of
            /// `a-z`, `A-Z`, `0-9`, `_` and `-`, and no other tool's.
            name: Option<PublicName>,
            /// What clients tell their model about it, instead of the server's own words.
            description: Option<String>,
            /// How often it may be called.
            rate: Option<Rate>,
        }
    }
}

choice! {
    /// Which protocol era a server speaks.
    pub enum EraChoice {
        /// the gateway finds out
        "auto" => Auto,
        /// sessions opened by `initialize`: 2024-11-05 to 2025-11-25
        "legacy" => Legacy,
        /// stateless: 2026-07-28 and later
        "modern" => Modern,
    }
}

choice! {
    /// How a server speaks HTTP.
    pub enum HttpTransport {
        /// Streamable HTTP, or the transport of 2024-11-05 where the server refuses that
        "auto" => Auto,
        /// Streamable HTTP
        "streamable" => Streamable,
        /// HTTP with SSE, the transport of 2024-11-05
        "sse" => Sse,
    }
}

choice! {
    /// When a server is started or connected to.
    pub enum Start {
        /// with the gateway
        "eager" => Eager,
        /// when a client first needs it
        "lazy" => Lazy,
    }
}

choice! {
    /// Which clients share a child of, or a session with, a server of the Legacy era.
    pub enum Isolation {
        /// all that can do the same for it
        "shared" => Shared,
        /// none: each has its own
        "client" => Client,
    }
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// As a child process.
    Command(Command),
    /// Over HTTP.
    Http(Http),
}

impl Part for Target {
    fn rows() -> Vec<Row> {
        // Which of the two keys is required depends on the other.
        let rows = Command::rows().into_iter().chain(Http::rows());
        rows.map(|row| Row { required: false, ..row }).collect()
    }

    fn read(table: &Table<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let refuse_keys = |rows: Vec<Row>, owner, reader: &mut Reader<'_>| {
            for node in rows.iter().filter_map(|row| table.node(row.key)) {
                node.fault_at_name(reader, Problem::OtherTarget { owner });
            }
        };
        match (table.node("command"), table.node("url")) {
            (Some(_), None) => {
                refuse_keys(Http::rows(), "url", reader);
                Command::fields(table, reader).map(Self::Command)
            }
            (None, Some(_)) => {
                refuse_keys(Command::rows(), "command", reader);
                Http::fields(table, reader).map(Self::Http)
            }
            (Some(_), Some(url)) => {
                url.fault_at_name(reader, Problem::TwoTargets);
                // Both are read for their own faults, and so that their secrets are known.
                let _ = (Command::fields(table, reader), Http::fields(table, reader));
                None
            }
            (None, None) => {
                reader.fault(table.name_span.clone(), &table.key, Problem::NoTarget);
                None
            }
        }
    }
}

impl Server {
    /// Whether clients share its child or session.
    pub fn isolation(&self) -> Isolation {
        self.isolation.unwrap_or(match self.target {
            Target::Command(_) => Isolation::Shared,
            Target::Http(_) => Isolation::Client,
        })
    }

    /// How many instances it may have besides the first.
    pub fn max_instances(&self) -> usize {
        self.max_instances.unwrap_or(match self.target {
            Target::Command(_) => CHILDREN,
            Target::Http(_) => SESSIONS,
        })
    }
}

/// Instances of a server that is a child process.
const CHILDREN: usize = 32;
/// Instances of one that is not.
const SESSIONS: usize = 10_000;

impl Command {
    /// Whether the child gets a variable of the gateway's own environment.
    pub fn passes(&self, variable: &str) -> bool {
        let names = |name: &str| match name.strip_suffix('*') {
            Some(stem) => variable.starts_with(stem),
            None => variable == name,
        };
        PASSED_ENV.into_iter().any(names) || self.pass_env.iter().any(|name| names(name))
    }
}

impl Tools {
    /// Whether clients may see and call a tool, by the server's own name for it.
    pub fn admits(&self, native: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(native));
        (self.allow.is_empty() || any(&self.allow)) && !any(&self.deny)
    }
}

// Arguments and URLs may hold what a substitution brought; the types that the
// rooms use for them do not say so. Hence these two print only what cannot.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("args", &format_args!("[{} arguments]", self.args.len()))
            .field("env", &self.env)
            .field("pass_env", &self.pass_env)
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("url", &format_args!("{}/…", self.url.origin().ascii_serialization()))
            .field("headers", &self.headers)
            .field("ca", &self.ca)
            .field("transport", &self.transport)
            .finish()
    }
}

impl Text for PublicName {
    type Value = Self;
    const WORD: &'static str = "public tool name";
    const EXAMPLE: &'static str = "\"find_issue\"";

    fn parse(text: &str, _: &Reader<'_>) -> Result<Option<Self>, Problem> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let valid = (1..=64).contains(&text.len()) && text.chars().all(allowed);
        if valid { Ok(Some(Self::new(text))) } else { Err(Problem::PublicName) }
    }

    fn pattern() -> Option<&'static str> {
        Some("^[a-zA-Z0-9_-]{1,64}$")
    }
}
