//! Errors between the gateway and a server.

mod child_exit;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::task::JoinError;

pub use child_exit::{ChildExit, ExitCause};

use super::quoted_output::FIRST_LINE_QUOTE;
use crate::call::{AnswerFault, Failure, ServerFault, ServerName, StatusNote, VersionFault};
use crate::child::SpawnError;
use crate::cluster::ServerLeaseFault;
use crate::codec::body::BodyError;
use crate::codec::file::ReadError;
use crate::config::ServerSecrets;
use crate::http_client::{HttpError, HttpSetupFault, TransportError};
use crate::jsonrpc::FrameFault;
use crate::oauth::{LinkAudience, LoginDemand, LoginFault};
use crate::openapi::DocumentFault;
use crate::shares::ShareBoundError;
use crate::text::{error_chain, error_chain_with};

/// Error of a call to a server. Cheap to clone, because a lost connection fails many calls. Rare
/// and large evidence is boxed, because results that may contain an error are moved on every call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum UpstreamError {
    /// The child process could not be started.
    Spawn(#[source] Arc<SpawnError>),
    /// The child process has exited, or closed its pipes.
    Exited(Box<ChildExit>),
    /// The connection could not be opened, or was lost.
    Connect(#[source] Arc<dyn Error + Send + Sync>),
    /// The connection was lost in the middle of a response.
    Broken(#[source] Arc<dyn Error + Send + Sync>),
    /// The stream ended before the response.
    NoAnswer,
    /// The server sent nothing within the configured time.
    Timeout {
        /// Time that the gateway waited.
        after: Duration,
    },
    /// The server did not introduce itself in time, and printed text that is no message.
    NoMessage {
        /// Time that the gateway waited.
        after: Duration,
        /// The first line of the text.
        first_line: Box<str>,
    },
    /// An HTTP error status.
    Status {
        /// The status.
        status: StatusCode,
        /// The rest of the response, as far as it helps.
        note: Option<Box<StatusNote>>,
    },
    /// A redirect that is not followed.
    Redirect {
        /// The `Location`.
        to: String,
    },
    /// A media type other than JSON and event streams.
    MediaType {
        /// The `Content-Type`.
        found: String,
    },
    /// A content coding that the gateway does not decode.
    Encoding {
        /// The `Content-Encoding`.
        found: String,
    },
    /// The body does not have the content coding that its head names.
    Undecodable {
        /// The coding.
        coding: &'static str,
        /// The fault in the encoded data.
        #[source]
        source: Arc<io::Error>,
    },
    /// The response exceeds the configured size.
    TooLarge {
        /// Maximum number of bytes.
        limit: usize,
    },
    /// Large responses use all memory that is allowed for them.
    MemoryUsedUp(ShareBoundError),
    /// The event stream has more lines without a message than allowed.
    Chatter {
        /// Maximum number of lines per second.
        limit: usize,
    },
    /// The message is not valid JSON-RPC.
    Frame(FrameFault),
    /// The payload of a response has the wrong shape.
    Answer(AnswerFault),
    /// A result does not have the members that its method defines.
    Shape(#[source] Arc<serde_json::Error>),
    /// The id of a response does not match the request.
    WrongId,
    /// The server responded with a JSON-RPC error.
    Refused {
        /// The JSON-RPC code.
        code: i64,
        /// The message, clipped to a sensible length.
        message: String,
    },
    /// The server and the gateway have no protocol version in common.
    Versions(VersionFault),
    /// A list does not end, or is longer than allowed.
    EndlessList {
        /// The limit.
        limit: usize,
        /// The unit of the limit.
        unit: &'static str,
    },
    /// A setting that turns out to be wrong only at run time, such as a certificate file.
    Setup(#[source] Box<SetupFault>),
    /// The OpenAPI document of a plain HTTP API cannot be used.
    Document(#[source] Box<DocumentFault>),
    /// The owner of the server's account has to log in.
    LoginNeeded(Box<LoginDemand>),
    /// The gateway has no token for the server, and cannot have one.
    Login(#[source] Box<LoginFault>),
    /// The server has reached its limit of instances.
    TooManyInstances {
        /// Maximum number of instances besides the main one.
        limit: usize,
    },
    /// The replica that runs the server's child cannot be used.
    Replica(ServerLeaseFault),
    /// The server is neither running nor starting, after this fault.
    Down(Box<ServerFault>),
}

impl From<ServerLeaseFault> for UpstreamError {
    fn from(fault: ServerLeaseFault) -> Self {
        Self::Replica(fault)
    }
}

impl From<FrameFault> for UpstreamError {
    fn from(fault: FrameFault) -> Self {
        Self::Frame(fault)
    }
}

impl From<AnswerFault> for UpstreamError {
    fn from(fault: AnswerFault) -> Self {
        Self::Answer(fault)
    }
}

impl From<HttpError> for UpstreamError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Connect(source) => Self::Connect(source),
            HttpError::Broken(fault) => Self::Broken(fault),
            HttpError::Redirect { to } => Self::Redirect { to },
            HttpError::Encoding { found } => Self::Encoding { found },
            HttpError::Undecodable { coding, source } => Self::Undecodable { coding, source },
            HttpError::TooLarge { limit } => Self::TooLarge { limit },
            HttpError::Chatter { limit } => Self::Chatter { limit },
            HttpError::Setup(fault) => SetupFault::Http(*fault).into(),
        }
    }
}

impl From<TransportError> for UpstreamError {
    fn from(fault: TransportError) -> Self {
        HttpError::from(fault).into()
    }
}

impl From<BodyError<TransportError>> for UpstreamError {
    fn from(error: BodyError<TransportError>) -> Self {
        HttpError::from(error).into()
    }
}

impl From<HttpSetupFault> for UpstreamError {
    fn from(fault: HttpSetupFault) -> Self {
        SetupFault::Http(fault).into()
    }
}

impl From<SetupFault> for UpstreamError {
    fn from(fault: SetupFault) -> Self {
        Self::Setup(Box::new(fault))
    }
}

/// A setting, or a resource of this machine, that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SetupFault {
    /// A setting of the requests to the server.
    #[error(transparent)]
    Http(HttpSetupFault),
    /// The certificate files were not read in time.
    #[error("the certificates cannot be read")]
    Files(#[source] Arc<ReadError>),
    /// The pipe from a child cannot be used.
    #[error("the pipe to the child cannot be used")]
    Pipe(#[source] Arc<io::Error>),
    /// A task of the gateway that works for the server panicked or was cancelled.
    #[error("a task of the gateway failed")]
    Task(#[source] Arc<JoinError>),
}

impl From<DocumentFault> for UpstreamError {
    fn from(fault: DocumentFault) -> Self {
        Self::Document(Box::new(fault))
    }
}

impl UpstreamError {
    /// Returns the error for a status without further details.
    pub fn of_status(status: StatusCode) -> Self {
        Self::Status { status, note: None }
    }

    /// Returns the chain of causes in one line, for a log or a status page.
    pub fn chain(&self) -> String {
        error_chain(self)
    }

    /// Like [`Self::chain`], without the server's secrets, which servers may repeat in their
    /// responses.
    pub fn chain_without(&self, secrets: &ServerSecrets) -> String {
        error_chain_with(&self.without(secrets), |chain| secrets.hide_in(chain))
    }

    /// Returns the same error without the server's secrets in its quotes of a response. The quotes
    /// are clipped, so the secrets have to be hidden in each of them.
    #[must_use]
    pub fn without(&self, secrets: &ServerSecrets) -> Self {
        let hide = |text: &String| secrets.hide_in_cut(text).into_owned();
        match self {
            Self::Redirect { to } => Self::Redirect { to: hide(to) },
            Self::MediaType { found } => Self::MediaType { found: hide(found) },
            Self::Encoding { found } => Self::Encoding { found: hide(found) },
            Self::Refused { code, message } => {
                Self::Refused { code: *code, message: hide(message) }
            }
            Self::Status { status, note: Some(note) } => {
                Self::Status { status: *status, note: Some(Box::new(note.map(hide))) }
            }
            Self::Versions(VersionFault::Unsupported { offered }) => {
                let offered = offered.iter().map(hide).collect();
                Self::Versions(VersionFault::Unsupported { offered })
            }
            other => other.clone(),
        }
    }

    /// Returns the part of the error that clients may see: no addresses, no file names, and no
    /// output of the server's process besides its messages.
    pub fn public(&self) -> ServerFault {
        match self {
            Self::Spawn(_) => ServerFault::NotStarted,
            Self::Exited(_) => ServerFault::Exited,
            Self::Connect(_) | Self::Replica(_) => ServerFault::Unreachable,
            Self::Broken(_) => ServerFault::Disconnected,
            Self::NoAnswer => ServerFault::NoResponse,
            Self::Timeout { after } | Self::NoMessage { after, .. } => {
                ServerFault::Timeout { after: *after }
            }
            Self::Status { status, note } => {
                ServerFault::Status { status: *status, note: note.clone() }
            }
            Self::Redirect { .. } => ServerFault::Redirect,
            Self::MediaType { found } => ServerFault::MediaType { found: found.clone() },
            Self::Encoding { found } => ServerFault::Encoding { found: found.clone() },
            Self::Undecodable { coding, .. } => ServerFault::Undecodable { coding },
            Self::TooLarge { limit } => ServerFault::TooLarge { limit: *limit },
            Self::MemoryUsedUp(bound) => ServerFault::MemoryUsedUp { setting: name_bound(*bound) },
            Self::Chatter { limit } => ServerFault::Chatter { limit: *limit },
            Self::Frame(fault) => ServerFault::Frame(*fault),
            Self::Answer(fault) => ServerFault::Answer(*fault),
            Self::Shape(_) => ServerFault::ResultShape,
            Self::WrongId => ServerFault::WrongId,
            Self::Refused { code, message } => {
                ServerFault::Refused { code: *code, message: message.clone() }
            }
            Self::Versions(fault) => ServerFault::Versions(fault.clone()),
            Self::EndlessList { limit, unit } => ServerFault::EndlessList { limit: *limit, unit },
            Self::Setup(_) => ServerFault::Misconfigured,
            Self::Document(_) => ServerFault::Document,
            Self::LoginNeeded(_) => ServerFault::LoginNeeded,
            Self::Login(fault) => ServerFault::LoginImpossible { reason: fault.reason() },
            Self::TooManyInstances { limit } => ServerFault::TooManyInstances { limit: *limit },
            Self::Down(fault) => (**fault).clone(),
        }
    }

    /// Converts the error to its outward form, without the server's secrets. Details that a client
    /// may not see are only logged.
    pub fn into_failure(self, server: &ServerName, secrets: &ServerSecrets) -> Failure {
        let (server, fault) = (server.clone(), self.without(secrets).public());
        match self {
            Self::Timeout { after } | Self::NoMessage { after, .. } => {
                Failure::ServerTimeout { server, after }
            }
            Self::LoginNeeded(demand) => match demand.audience {
                LinkAudience::Caller => Failure::LoginNeeded { server, link: demand.link },
                LinkAudience::Operator => Failure::server_down(server, fault),
            },
            Self::Exited(_) | Self::Broken(_) | Self::NoAnswer => {
                Failure::server_broke(server, fault)
            }
            Self::Login(fault) if fault.is_store_unavailable() => Failure::StoreUnavailable,
            Self::Replica(ServerLeaseFault::StoreUnavailable) => Failure::StoreUnavailable,
            Self::Spawn(_)
            | Self::Connect(_)
            | Self::Down(_)
            | Self::Replica(_)
            | Self::TooManyInstances { .. }
            | Self::Login(_)
            | Self::Setup(_)
            | Self::Document(_)
            | Self::Redirect { .. }
            | Self::Versions(_) => Failure::server_down(server, fault),
            Self::Status { .. }
            | Self::MediaType { .. }
            | Self::Encoding { .. }
            | Self::Undecodable { .. }
            | Self::TooLarge { .. }
            | Self::MemoryUsedUp(_)
            | Self::Chatter { .. }
            | Self::Frame(_)
            | Self::Answer(_)
            | Self::Shape(_)
            | Self::WrongId
            | Self::Refused { .. }
            | Self::EndlessList { .. } => Failure::bad_answer(server, fault),
        }
    }
}

/// The form for operators: the public part, and the details that clients may not see.
impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(exit) => write!(f, "it exited ({exit})"),
            Self::Redirect { to } => {
                write!(f, "it redirects to {to}, which is not followed: set `url` to that address")
            }
            Self::NoMessage { after, first_line } => {
                write!(f, "no response within {after:?}{FIRST_LINE_QUOTE}{first_line}")
            }
            Self::Replica(fault) => fault.fmt(f),
            other => other.public().fmt(f),
        }
    }
}

/// Returns the name of a limit's setting.
fn name_bound(bound: ShareBoundError) -> &'static str {
    match bound {
        ShareBoundError::All => "responses",
        ShareBoundError::Each => "responses_each",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_client::TlsSetupError;

    #[test]
    fn a_secret_is_hidden_before_the_error_is_clipped_and_escaped() {
        let secret = "first line of a key\nsecond line of a key";
        let secrets = ServerSecrets::new([secret]);
        for before in (0..1).chain(4000..4096) {
            let text = format!("{}{secret}", "x".repeat(before));
            let fault = UpstreamError::Broken(Arc::new(io::Error::other(text)));
            let shown = fault.chain_without(&secrets);
            assert!(!shown.contains("line of") && !shown.contains("first"), "{shown}");
        }
    }

    #[test]
    fn a_client_learns_no_secret_that_the_server_repeats() {
        let (secrets, server) = (ServerSecrets::default(), ServerName::new("s").unwrap());
        secrets.note_sent("Bearer live-token-1");
        let text = || "no live-token-1, and no live-tok".to_owned();
        for fault in [
            UpstreamError::MediaType { found: text() },
            UpstreamError::Encoding { found: text() },
            UpstreamError::Refused { code: 1, message: text() },
            UpstreamError::Status {
                status: StatusCode::BAD_REQUEST,
                note: Some(Box::new(StatusNote { text: Some(text()), retry_after: None })),
            },
            UpstreamError::Versions(VersionFault::Unsupported { offered: [text()].into() }),
        ] {
            let shown = fault.into_failure(&server, &secrets).to_string();
            assert!(shown.contains("no ***, and no ***") && !shown.contains("live"), "{shown}");
        }
    }

    #[test]
    fn an_error_of_the_http_client_keeps_its_text() {
        let error = || Arc::new(io::Error::other("cause"));
        for error in [
            HttpError::Connect(error()),
            HttpError::Broken(Arc::new(TransportError::Closed)),
            HttpError::Redirect { to: "https://a.test/".to_owned() },
            HttpError::Encoding { found: "zstd".to_owned() },
            HttpError::Undecodable { coding: "br", source: error() },
            HttpError::TooLarge { limit: 7 },
            HttpError::Chatter { limit: 7 },
            HttpSetupFault::Tls(TlsSetupError::Ca { path: "ca.pem".into(), source: error() })
                .into(),
            HttpSetupFault::Url.into(),
        ] {
            let shown = error_chain(&error);
            assert_eq!(UpstreamError::from(error).chain(), shown);
        }
    }

    #[test]
    fn a_client_learns_no_path_no_address_and_nothing_that_the_child_wrote() {
        let secret = "hunter2";
        let error = || Arc::new(io::Error::other(secret));
        let last_line = Some(format!("token {secret} is wrong"));
        let first_line = Some(format!("usage: --token {secret}"));
        let faults = [
            UpstreamError::Exited(Box::new(ChildExit {
                cause: ExitCause::OutputClosed,
                first_line,
                last_line,
            })),
            HttpSetupFault::Tls(TlsSetupError::Ca { path: secret.into(), source: error() }).into(),
            UpstreamError::Redirect { to: format!("https://a.test/?key={secret}") },
            UpstreamError::Connect(error()),
            UpstreamError::Broken(error()),
        ];
        for fault in faults {
            assert!(fault.chain().contains(secret), "the log tells all: {fault:?}");
            let failure =
                fault.into_failure(&ServerName::new("s").unwrap(), &ServerSecrets::default());
            assert!(!failure.to_string().contains(secret), "{failure}");
        }
    }
}
