//! Reasons that the running gateway gives a command no answer.

use std::io;
use std::path::PathBuf;

use http::StatusCode;

use crate::cli::{FAILURE_EXIT, FailureExit, UNREACHABLE_EXIT, WRONG_USE};
use crate::text::{error_chain, one_line};

/// Reason that there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunningGatewayError {
    /// No socket accepts a connection.
    #[error(
        "no gateway runs with {}: start it with `trunkline serve --config {}`, or name another one \
         with --config or --url{}", config.display(), config.display(), describe_attempts(attempts)
    )]
    NotRunning {
        /// The configuration.
        config: PathBuf,
        /// The sockets that were tried.
        attempts: Vec<SocketAttempt>,
    },
    /// The configuration disables the socket.
    #[error(
        "{}: admin.socket is \"off\": use --url and --key-file, or remove the setting and restart \
         the gateway", config.display()
    )]
    NoSocket {
        /// The configuration.
        config: PathBuf,
    },
    /// The other end of the socket is not the gateway's user.
    #[error("{} belongs to a process of the user {uid}: expected your own user or root", path.display())]
    ForeignSocket {
        /// The socket.
        path: PathBuf,
        /// The user of the process.
        uid: u32,
    },
    /// An option cannot be used.
    #[error("{option}: {reason}")]
    Option {
        /// The option.
        option: &'static str,
        /// The reason, with the correction.
        reason: String,
    },
    /// The address does not answer.
    #[error("the gateway at {place} does not answer: {reason}")]
    Unreachable {
        /// The address.
        place: String,
        /// The error and its causes.
        reason: String,
    },
    /// The gateway refused the request.
    #[error("{}", describe_refusal(*status, code, detail))]
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// The stable code of the problem; empty for an answer without one.
        code: String,
        /// The reason.
        detail: String,
    },
    /// The answer is not a document of the API.
    #[error("the answer of {place} is not that of a gateway: expected the admin address of one")]
    Unreadable {
        /// The address.
        place: String,
    },
    /// The document is not the expected one.
    #[error("the gateway has another version: its answer has {0}")]
    OtherVersion(serde_json::Error),
    /// No runtime could be started.
    #[error("no runtime could be started")]
    Runtime(#[source] io::Error),
}

/// A socket that was tried.
#[derive(Debug)]
pub(crate) struct SocketAttempt {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The error; not found is the usual one.
    pub(crate) error: io::Error,
}

impl RunningGatewayError {
    /// Returns true if no gateway of this user can run: there is no socket, or its gateway has ended.
    pub(crate) fn shows_none_runs(&self) -> bool {
        let Self::NotRunning { attempts, .. } = self else { return false };
        attempts.iter().all(|attempt| {
            matches!(
                attempt.error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            )
        })
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self) -> FailureExit {
        match self {
            Self::NotRunning { .. }
            | Self::NoSocket { .. }
            | Self::ForeignSocket { .. }
            | Self::Unreachable { .. } => UNREACHABLE_EXIT,
            Self::Option { .. } => WRONG_USE,
            // Something answers: waiting for it to start does not help.
            Self::Refused { .. }
            | Self::Unreadable { .. }
            | Self::OtherVersion(_)
            | Self::Runtime(_) => FAILURE_EXIT,
        }
    }

    /// Returns the text for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Runtime(source) => error_chain(source),
            error => error.to_string(),
        }
    }
}

fn describe_attempts(attempts: &[SocketAttempt]) -> String {
    let reason = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        io::ErrorKind::ConnectionRefused => "its gateway has ended".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "it belongs to another user: run the command as that user".to_owned()
        }
        io::ErrorKind::WouldBlock => "its gateway accepts no connections".to_owned(),
        _ => error.to_string(),
    };
    let line = |attempt: &SocketAttempt| {
        format!("\n  tried {}: {}", attempt.path.display(), reason(&attempt.error))
    };
    attempts.iter().map(line).collect()
}

fn describe_refusal(status: StatusCode, code: &str, detail: &str) -> String {
    let detail = one_line(detail, MAX_DETAIL_CHARS);
    if code.is_empty() {
        return format!("the gateway answered {status}");
    }
    format!("{detail} ({})", one_line(code, MAX_DETAIL_CHARS))
}

/// Limit of the characters of a refusal that are printed.
const MAX_DETAIL_CHARS: usize = 1000;
