//! Errors that prevent a measurement.

use std::io;

use http::StatusCode;

use trunkline_core::text::error_chain;
use trunkline_https::TlsSetupError;
use trunkline_protocol::mcp::ProtocolVersion;

use super::connection::BenchConnectionError;

/// Reason that a run could not begin. Each message contains a remedy.
#[derive(Debug, thiserror::Error)]
pub enum BenchFault {
    /// The address is not a testable URL.
    #[error("{url}: not an http:// or https:// URL of an MCP endpoint")]
    Url {
        /// The URL as given.
        url: String,
    },
    /// The host has no address.
    #[error("{host}: no such host")]
    Host {
        /// The host.
        host: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A header cannot be sent.
    #[error("--header: {0}")]
    Header(String),
    /// TLS cannot be set up.
    #[error("{}", error_chain(.0))]
    Tls(TlsSetupError),
    /// The server does not accept connections.
    #[error("cannot connect to {url}")]
    Connect {
        /// The URL.
        url: String,
        /// The error of the system or of TLS.
        source: io::Error,
    },
    /// The process may not open as many connections as requested.
    #[error(
        "only {open} of {wanted} connections could be opened; ulimit -n raises the limit of a process"
    )]
    Connections {
        /// The number of open connections.
        open: usize,
        /// The number requested.
        wanted: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// The server answers the handshake, but not as an MCP endpoint.
    #[error("{url} is not an MCP endpoint: {answer}; most have a path such as /mcp")]
    NotMcp {
        /// The URL.
        url: String,
        /// The answer.
        answer: String,
    },
    /// The server requires credentials.
    #[error(
        "{url} answers {status}: add credentials, such as --header 'Authorization: Bearer KEY'"
    )]
    Credentials {
        /// The URL.
        url: String,
        /// 401 or 403.
        status: StatusCode,
    },
    /// The server does not speak the requested era.
    #[error("{url} does not speak {wanted}: {answer}")]
    Era {
        /// The URL.
        url: String,
        /// The newest version of the era.
        wanted: ProtocolVersion,
        /// The answer.
        answer: String,
    },
    /// The connection is unusable.
    #[error("{url}: {during}")]
    Connection {
        /// The URL.
        url: String,
        /// The request.
        during: &'static str,
        /// The error.
        source: BenchConnectionError,
    },
    /// The answer to a first request did not arrive in time.
    #[error("{url}: no answer to {during} within {seconds} s")]
    Silent {
        /// The URL.
        url: String,
        /// The request.
        during: &'static str,
        /// Seconds that the bench waited.
        seconds: u64,
    },
    /// The answer to a first request is an error.
    #[error("{url}: {during}: {answer}")]
    Refused {
        /// The URL.
        url: String,
        /// The request.
        during: &'static str,
        /// The answer.
        answer: String,
    },
    /// An unknown tool.
    #[error("{url} has no tool {name:?}; {near}")]
    UnknownTool {
        /// The URL.
        url: String,
        /// The requested name.
        name: String,
        /// Similar names, in a sentence.
        near: String,
    },
    /// No tool was chosen, and the server has no tool that is safe to call.
    #[error("{url}: choose a tool with --tool NAME: {why}")]
    NoTool {
        /// The URL.
        url: String,
        /// The reason.
        why: String,
    },
    /// The arguments are not a JSON object.
    #[error("--args: {0}")]
    Args(String),
    /// The arguments violate the tool's schema.
    #[error(
        "--args violate the inputSchema of {tool:?}:\n  {violations}\n--unchecked sends them anyway"
    )]
    Schema {
        /// The tool.
        tool: String,
        /// One line per violation.
        violations: String,
    },
    /// No arguments could be generated.
    #[error("cannot generate arguments for {tool:?}: {why}; pass --args JSON")]
    Generate {
        /// The tool.
        tool: String,
        /// The reason.
        why: String,
    },
    /// Two options conflict.
    #[error("{0}")]
    Options(String),
    /// A process cannot be measured.
    #[error("--pid {pid}: {why}")]
    Process {
        /// The process id.
        pid: u32,
        /// The reason.
        why: String,
    },
    /// A helper process did not start.
    #[error("the {what} did not start: {why}")]
    Start {
        /// The process.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// A thread of the load generator failed.
    #[error("a thread of the load generator failed")]
    Thread,
}
