//! Faults of a server, or of the gateway itself: the evidence in failures, as far as a client may
//! learn it.

use std::time::Duration;

use http::StatusCode;

use trunkline_jsonrpc::FrameFault;

use crate::call::{AnswerFault, ParamsFault, ServerName};

use super::Failure;

/// Faults of a server. The texts contain no addresses, no file names, and no output of the server's
/// process besides its messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerFault {
    /// Neither running nor starting.
    #[error("it is not running")]
    NotRunning,
    /// The child process could not be started.
    #[error("it could not be started")]
    NotStarted,
    /// The child process has exited, or closed its pipes.
    #[error("it exited")]
    Exited,
    /// No connection could be opened.
    #[error("it could not be reached")]
    Unreachable,
    /// The connection was lost.
    #[error("the connection was lost")]
    Disconnected,
    /// The stream ended before the response.
    #[error("the stream ended without a response")]
    NoResponse,
    /// The server sent nothing for the configured time.
    #[error("no response within {after:?}")]
    Timeout {
        /// The time that the gateway waited.
        after: Duration,
    },
    /// An HTTP error status.
    #[error("it responded with HTTP {status}{}{}", shown_note(note.as_deref()), status_hint(*status))]
    Status {
        /// The status.
        status: StatusCode,
        /// The rest of the response, as far as it helps.
        note: Option<Box<StatusNote>>,
    },
    /// A redirect that is not followed.
    #[error("it redirects to another address, which is not followed")]
    Redirect,
    /// A media type other than JSON and event streams.
    #[error("it responded with {found:?} instead of JSON or an event stream")]
    MediaType {
        /// The `Content-Type`, truncated.
        found: String,
    },
    /// A content coding that the gateway does not decode.
    #[error("its response is encoded with {found:?}, expected no content coding, gzip or br")]
    Encoding {
        /// The `Content-Encoding`, truncated.
        found: String,
    },
    /// The body does not have the content coding that its head names.
    #[error("its response is not valid {coding}, which its Content-Encoding names")]
    Undecodable {
        /// The coding.
        coding: &'static str,
    },
    /// The response is larger than the configuration allows.
    #[error("its response is larger than {limit} bytes")]
    TooLarge {
        /// Limit of the response's bytes.
        limit: usize,
    },
    /// Large responses have used up their memory limit.
    #[error(
        "its response was dropped: the memory limit for large responses is reached \
             (limits.{setting})"
    )]
    MemoryUsedUp {
        /// The setting below `limits`.
        setting: &'static str,
    },
    /// The stream of events has more lines without a message than allowed.
    #[error("it sent more than {limit} lines without a message within a second")]
    Chatter {
        /// Limit of the lines.
        limit: usize,
    },
    /// The message is not valid JSON-RPC.
    #[error("invalid JSON-RPC message: {0}")]
    Frame(FrameFault),
    /// The payload of a response has the wrong shape.
    #[error("{0}")]
    Answer(AnswerFault),
    /// A result does not have the members that its method defines.
    #[error("the result does not have the expected members")]
    ResultShape,
    /// The id of a response does not match the request.
    #[error("the response has the id of another request")]
    WrongId,
    /// The server responded with a JSON-RPC error.
    #[error("it responded with error {code}: {message}")]
    Refused {
        /// The JSON-RPC code.
        code: i64,
        /// The message, truncated.
        message: String,
    },
    /// The server and the gateway have no protocol version in common.
    #[error("{0}")]
    Versions(VersionFault),
    /// A list does not end, or is longer than allowed.
    #[error("its list is longer than {limit} {unit}")]
    EndlessList {
        /// The limit.
        limit: usize,
        /// The unit of the limit.
        unit: &'static str,
    },
    /// The OpenAPI document of a plain HTTP API cannot be used.
    #[error("its OpenAPI document cannot be used")]
    Document,
    /// A setting cannot be used.
    #[error("its configuration cannot be used")]
    Misconfigured,
    /// The server requires a login.
    #[error("its operator has to log in to it first: the gateway's status has the link")]
    LoginNeeded,
    /// A login to the server is impossible.
    #[error("the gateway cannot log in to it: {reason}")]
    LoginImpossible {
        /// The reason, truncated.
        reason: String,
    },
    /// The server has reached its limit of instances.
    #[error("all {limit} instances that `max_instances` allows are running: try again later")]
    TooManyInstances {
        /// Limit of the instances besides the main one.
        limit: usize,
    },
    /// A task does not conform to the protocol.
    #[error("{0}")]
    Task(TaskFault),
}

/// The helpful part of a response with an error status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusNote {
    /// A short text of its body, on one line.
    pub text: Option<String>,
    /// The value of its `Retry-After`.
    pub retry_after: Option<String>,
}

impl StatusNote {
    /// Changes each text of the note.
    #[must_use]
    pub fn map(&self, change: impl Fn(&String) -> String) -> Self {
        let Self { text, retry_after } = self;
        Self { text: text.as_ref().map(&change), retry_after: retry_after.as_ref().map(&change) }
    }
}

fn shown_note(note: Option<&StatusNote>) -> String {
    let Some(StatusNote { text, retry_after }) = note else { return String::new() };
    let text = text.iter().map(|text| format!(": {text}"));
    let retry_after = retry_after.iter().map(|wait| format!(" (Retry-After: {wait})"));
    text.chain(retry_after).collect()
}

impl ServerFault {
    /// Returns the fault of a status without anything else.
    pub fn of_status(status: StatusCode) -> Self {
        Self::Status { status, note: None }
    }

    /// Removes the text of the server.
    #[must_use]
    pub fn without_quotes(self) -> Self {
        let withheld = || "(withheld)".to_owned();
        match self {
            Self::MediaType { .. } => Self::MediaType { found: withheld() },
            Self::Encoding { .. } => Self::Encoding { found: withheld() },
            Self::Refused { code, .. } => Self::Refused { code, message: withheld() },
            Self::Status { status, note: Some(_) } => {
                let note = StatusNote { text: Some(withheld()), retry_after: None };
                Self::Status { status, note: Some(Box::new(note)) }
            }
            Self::LoginImpossible { .. } => Self::LoginImpossible { reason: withheld() },
            Self::Versions(VersionFault::Unsupported { .. }) => {
                Self::Versions(VersionFault::Unsupported { offered: [withheld()].into() })
            }
            other => other,
        }
    }
}

fn status_hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            " (it expects other credentials: see `headers` of the server)"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            " (is the path of the url right?)"
        }
        _ => "",
    }
}

/// Reasons that the gateway and a server have no protocol version in common.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionFault {
    /// The configuration expects a Modern server, and this one is Legacy.
    #[error("it speaks Legacy protocol versions only, and is configured as Modern")]
    NotModern,
    /// The server rejects the version that it had offered.
    #[error("it rejects the protocol version that it offered before")]
    Withdrawn,
    /// The server offers other versions.
    #[error("it speaks none of the gateway's protocol versions, it offers {}", quoted(offered))]
    Unsupported {
        /// The versions that it offers, truncated.
        offered: Box<[String]>,
    },
}

fn quoted(offered: &[String]) -> String {
    match offered {
        [] => "none".to_owned(),
        _ => offered.join(", "),
    }
}

/// Faults of a server's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TaskFault {
    /// A task without an id or a status.
    #[error("the task has no id or no status")]
    Malformed,
    /// A task that was cancelled while a client waited for its result.
    #[error("the task was cancelled")]
    Cancelled,
    /// A task that has ended without a result or an error.
    #[error("the task ended without a result or an error")]
    NoOutcome,
}

/// Reasons for `trunkline stdio --connect` to have no answer from its gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GatewayFault {
    /// The request or its response failed.
    #[error("{0}")]
    Transport(ServerFault),
    /// An HTTP response that is not an answer.
    #[error("it responded with HTTP {status}{}", gateway_hint(*status))]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// The gateway opened no session to replace the lost one.
    #[error("it opened no new session")]
    NoSession,
}

fn gateway_hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => " (set the variable TRUNKLINE_KEY to a valid key)",
        StatusCode::NOT_FOUND => " (is the path of the URL right?)",
        _ => "",
    }
}

/// A fault of the gateway itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InternalFault {
    /// The system has no random bytes.
    #[error("no random bytes are available")]
    Random,
    /// A cursor or a state could not be sealed.
    #[error("a cursor or a state could not be sealed")]
    Seal,
    /// A server in the catalog is missing from the snapshot.
    #[error("a server of the catalog is not part of the snapshot")]
    ServerMissing {
        /// The server.
        server: ServerName,
    },
    /// A result arrived for a call that has no server.
    #[error("the call has no server")]
    NoServer,
    /// Params that the gateway has written are not valid.
    #[error("invalid params after a rewrite: {0}")]
    Params(ParamsFault),
    /// A result that the gateway has written is not valid.
    #[error("invalid result after a rewrite: {0}")]
    Result(AnswerFault),
    /// A result without input requests was passed to a client as a request for input.
    #[error("a result without input requests was treated as a request for input")]
    NoQuestions,
    /// The entry of a task's input requests has been released.
    #[error("the task's input requests were released")]
    TaskReleased,
    /// The work on a large message of a call failed, or waited for too long.
    #[error("the work on a large message failed, or waited for too long")]
    LargeWork,
}

impl From<GatewayFault> for Failure {
    fn from(fault: GatewayFault) -> Self {
        Self::Unreachable(Box::new(fault))
    }
}

impl From<InternalFault> for Failure {
    fn from(fault: InternalFault) -> Self {
        Self::Internal(Box::new(fault))
    }
}
