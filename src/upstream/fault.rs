//! Errors between the gateway and a server.

use std::time::Duration;

use http::StatusCode;

use crate::call::{AnswerFault, Failure, ServerName};
use crate::jsonrpc;

/// Why a call to a server failed.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The child process could not be started.
    #[error("it could not be started")]
    Spawn(#[source] crate::upstream::transport::child::SpawnError),
    /// The child process has exited, or closed its output.
    #[error("it ended ({0})")]
    Exited(String),
    /// The connection could not be opened, or was lost.
    #[error("it could not be reached")]
    Connect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was lost in the middle of a response.
    #[error("the connection broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The stream ended before the response.
    #[error("the stream ended without an answer")]
    NoAnswer,
    /// The server sent nothing for as long as the configuration allows.
    #[error("no answer within {after:?}")]
    Timeout {
        /// How long the gateway waited.
        after: Duration,
    },
    /// An HTTP error status.
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
    /// A media type other than JSON and event streams.
    #[error("it answered with {found:?} instead of JSON or an event stream")]
    MediaType {
        /// The `Content-Type`.
        found: String,
    },
    /// The response is larger than the configuration allows.
    #[error("its answer is larger than {limit} bytes")]
    TooLarge {
        /// The most bytes allowed.
        limit: usize,
    },
    /// The message is not valid JSON-RPC.
    #[error("it sent no valid JSON-RPC message: {0}")]
    Frame(#[from] jsonrpc::FrameFault),
    /// The payload of a response has the wrong shape.
    #[error("it sent an invalid answer: {0}")]
    Answer(#[from] AnswerFault),
    /// The id of a response does not match the request.
    #[error("it answered with another request's id")]
    WrongId,
    /// The server responded with a JSON-RPC error.
    #[error("it answered {code}: {message}")]
    Refused {
        /// The JSON-RPC code.
        code: i64,
        /// The message, clipped to a sensible length.
        message: String,
    },
    /// The server and the gateway have no protocol version in common.
    #[error("it speaks none of the gateway's protocol versions, but {0}")]
    Versions(String),
    /// A list does not end, or is longer than allowed.
    #[error("its list is longer than {limit} {unit}")]
    EndlessList {
        /// The limit.
        limit: usize,
        /// The unit of the limit.
        unit: &'static str,
    },
    /// A setting that turns out to be wrong only at run time, such as a
    /// certificate file.
    #[error("{0}")]
    Setup(String),
    /// The server has reached its limit of instances.
    #[error("as many instances of it run as `max_instances` allows ({limit}): try again later")]
    TooManyInstances {
        /// The most instances that it may have besides the main one.
        limit: usize,
    },
    /// The server is neither running nor starting: the reason, as a client may
    /// see it.
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

    /// The text that a client may see: without addresses, file names, or
    /// anything that the server's process wrote.
    pub fn public(&self) -> String {
        match self {
            Self::Exited(_) => "it ended".into(),
            Self::Setup(_) => "its configuration cannot be used".into(),
            Self::Redirect { .. } => "it redirects elsewhere".into(),
            // The other texts use only the protocol's terms.
            other => other.to_string(),
        }
    }

    /// The outward form. Details that a client may not see are only logged.
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
