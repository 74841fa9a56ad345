//! What goes wrong between the gateway and a server.

use std::time::Duration;

use http::StatusCode;

use crate::call::{AnswerFault, Failure, ServerName};
use crate::jsonrpc;

/// Why a server did not answer, or not with an answer.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The child process could not be started.
    #[error("it could not be started")]
    Spawn(#[source] crate::upstream::transport::child::SpawnError),
    /// The child process has ended, or closed its output.
    #[error("it ended ({0})")]
    Exited(String),
    /// No connection, or it broke.
    #[error("it could not be reached")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection ended in the middle of an answer.
    #[error("the connection broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The stream ended before its answer.
    #[error("the stream ended without an answer")]
    NoAnswer,
    /// Nothing came for as long as the configuration allows.
    #[error("no answer within {after:?}")]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// An HTTP status that is no answer.
    #[error("it answered HTTP {status}{}", hint(*status))]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// A redirect that is not followed.
    #[error("it redirects to {to}, which is not followed: set the url to where it really is")]
    Redirect {
        /// The `Location`.
        to: String,
    },
    /// A media type that is neither JSON nor an event stream.
    #[error("it answered with {found:?} instead of JSON or an event stream")]
    MediaType {
        /// The `Content-Type`.
        found: String,
    },
    /// What came is larger than the configuration allows.
    #[error("its answer is larger than {limit} bytes")]
    TooLarge {
        /// The most bytes allowed.
        limit: usize,
    },
    /// What came is no JSON-RPC message.
    #[error("it sent no valid JSON-RPC message: {0}")]
    Frame(#[from] jsonrpc::FrameFault),
    /// A response's payload is of the wrong shape.
    #[error("it sent an invalid answer: {0}")]
    Answer(#[from] AnswerFault),
    /// It answered another request than the one asked.
    #[error("it answered with another request's id")]
    WrongId,
    /// It refused with a JSON-RPC error.
    #[error("it answered {code}: {message}")]
    Refused {
        /// The JSON-RPC code.
        code: i64,
        /// The message, cut to a sensible length.
        message: String,
    },
    /// It and the gateway have no protocol version in common.
    #[error("it speaks none of the gateway's protocol versions, but {0}")]
    Versions(String),
    /// A list has no end, or is longer than allowed.
    #[error("its list is longer than {limit} {unit}")]
    EndlessList {
        /// How many.
        limit: usize,
        /// Of what.
        unit: &'static str,
    },
    /// A setting that shows to be wrong only now, such as a certificate file.
    #[error("{0}")]
    Setup(String),
    /// It has as many instances as it may have.
    #[error("as many instances of it run as `max_instances` allows ({limit}): try again later")]
    TooManyInstances {
        /// How many it may have besides the first.
        limit: usize,
    },
    /// It is not running, and not being started: the reason, as a client may
    /// know it.
    #[error("{0}")]
    Down(String),
}

impl UpstreamError {
    /// The chain of causes in one line, for a log or a status page.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// What a client may know of it: no addresses, no file names, and nothing
    /// that the server's own process wrote, which may be anything.
    pub fn public(&self) -> String {
        match self {
            Self::Exited(_) => "it ended".into(),
            Self::Setup(_) => "its configuration cannot be used".into(),
            Self::Redirect { .. } => "it redirects elsewhere".into(),
            // The rest of each says nothing but what the protocol has names for.
            other => other.to_string(),
        }
    }

    /// The outward form. What a client may not see is left to the log.
    pub fn into_failure(self, server: &ServerName) -> Failure {
        let server = server.clone();
        let reason = self.public();
        match self {
            Self::Timeout { after } => Failure::ServerTimeout { server, after },
            Self::Exited(_) | Self::Broken(_) | Self::NoAnswer => {
                Failure::ServerBroke { server, reason }
            }
            Self::Spawn(_)
            | Self::Connect(_)
            | Self::Down(_)
            | Self::TooManyInstances { .. }
            | Self::Setup(_)
            | Self::Redirect { .. }
            | Self::Versions(_) => Failure::ServerDown { server, reason },
            Self::Status { .. }
            | Self::MediaType { .. }
            | Self::TooLarge { .. }
            | Self::Frame(_)
            | Self::Answer(_)
            | Self::WrongId
            | Self::Refused { .. }
            | Self::EndlessList { .. } => Failure::BadAnswer { server, reason },
        }
    }
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            " (it wants other credentials: see `headers` of the server)"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            " (is the path of the url right?)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_reads_holds_no_path_no_address_and_no_word_of_the_childs() {
        let secret = "hunter2";
        let faults = [
            UpstreamError::Exited(format!("exit status: 1; it said: token {secret} is wrong")),
            UpstreamError::Setup(format!("the CA file /etc/{secret} cannot be used")),
            UpstreamError::Redirect { to: format!("https://a.test/?key={secret}") },
            UpstreamError::Connect(format!("tcp connect error: {secret}:80").into()),
            UpstreamError::Broken(secret.into()),
        ];
        for fault in faults {
            assert!(fault.chain().contains(secret), "the log tells all: {fault:?}");
            let failure = fault.into_failure(&ServerName::new("s").unwrap());
            assert!(!failure.to_string().contains(secret), "{failure}");
        }
    }
}
