//! Why there is nothing to measure.

use std::io;

use http::StatusCode;

use super::connection::BenchConnectionError;
use crate::mcp::ProtocolVersion;

/// Why a run could not begin. Each says what would help.
#[derive(Debug, thiserror::Error)]
pub enum BenchFault {
    /// The address is none that can be tested.
    #[error("{url}: not an http:// or https:// URL of an MCP endpoint")]
    Url {
        /// What was given.
        url: String,
    },
    /// Its host has no address.
    #[error("{host}: no such host")]
    Host {
        /// The host.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// A header cannot be sent.
    #[error("--header: {0}")]
    Header(String),
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(String),
    /// Nobody answers there.
    #[error("cannot connect to {url}")]
    Connect {
        /// Where.
        url: String,
        /// What the system or TLS says.
        source: io::Error,
    },
    /// More connections are asked for than this process may have.
    #[error(
        "only {open} of {wanted} connections could be opened; ulimit -n raises the limit of a process"
    )]
    Connections {
        /// How many are open.
        open: usize,
        /// How many were asked for.
        wanted: usize,
        /// What the system says.
        source: io::Error,
    },
    /// It answered the introduction with something else.
    #[error("{url} is not an MCP endpoint: {answer}; most have a path such as /mcp")]
    NotMcp {
        /// Where.
        url: String,
        /// What came.
        answer: String,
    },
    /// It wants to know who asks.
    #[error(
        "{url} answers {status}: it wants credentials, such as --header 'Authorization: Bearer KEY'"
    )]
    Credentials {
        /// Where.
        url: String,
        /// 401 or 403.
        status: StatusCode,
    },
    /// The server does not speak the era that was asked for.
    #[error("{url} does not speak {wanted}: {answer}")]
    Era {
        /// Where.
        url: String,
        /// The newest version of the era.
        wanted: ProtocolVersion,
        /// What it said.
        answer: String,
    },
    /// The connection is of no use.
    #[error("{url}: {during}")]
    Connection {
        /// Where.
        url: String,
        /// What was asked.
        during: &'static str,
        /// What went wrong.
        source: BenchConnectionError,
    },
    /// A first answer did not come in time.
    #[error("{url}: no answer to {during} within {seconds} s")]
    Silent {
        /// Where.
        url: String,
        /// What was asked.
        during: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// A first answer says that something is wrong.
    #[error("{url}: {during}: {answer}")]
    Refused {
        /// Where.
        url: String,
        /// What was asked.
        during: &'static str,
        /// What came.
        answer: String,
    },
    /// There is no such tool.
    #[error("{url} has no tool {name:?}; {near}")]
    UnknownTool {
        /// Where.
        url: String,
        /// What was asked for.
        name: String,
        /// What is near, in a sentence.
        near: String,
    },
    /// No tool was chosen, and none is safe to choose.
    #[error("{url}: say which tool to call with --tool NAME: {why}")]
    NoTool {
        /// Where.
        url: String,
        /// Why none was chosen.
        why: String,
    },
    /// The arguments are no JSON object.
    #[error("--args: {0}")]
    Args(String),
    /// The arguments break the tool's schema.
    #[error(
        "--args break the inputSchema of {tool:?}:\n  {violations}\n--unchecked sends them all the same"
    )]
    Schema {
        /// The tool.
        tool: String,
        /// One line each.
        violations: String,
    },
    /// No arguments could be made.
    #[error("cannot make arguments for {tool:?}: {why}; give some with --args JSON")]
    Generate {
        /// The tool.
        tool: String,
        /// What stands in the way.
        why: String,
    },
    /// Two options do not go together.
    #[error("{0}")]
    Options(String),
    /// A process cannot be looked at.
    #[error("--pid {pid}: {why}")]
    Process {
        /// Its id.
        pid: u32,
        /// Why.
        why: String,
    },
    /// A process of the bench's own did not start.
    #[error("the {what} did not start: {why}")]
    Start {
        /// Which.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A thread of the bench's own failed.
    #[error("a thread of the load generator failed")]
    Thread,
}
