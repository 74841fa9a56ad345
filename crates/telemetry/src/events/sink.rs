//! Receivers of events: a webhook, a program or a file.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use tokio::io::AsyncWrite;
use tokio::time::timeout;
use url::Url;

use trunkline_https::TlsSetupError;

use super::line_file::LineFile;
use super::program::ProgramInput;
use super::queue::QueuedEvent;
use super::signature::SigningKey;
use super::webhook::Webhook;

/// Destination of the events.
#[derive(Debug, Clone)]
pub enum EventReceiver {
    /// A webhook, one request for each event.
    Webhook {
        /// Its address: `https`, or `http` on this machine.
        url: Url,
        /// The key that signs requests.
        key: SigningKey,
    },
    /// The standard input of a program, one line for each event.
    Program(Arc<dyn EventProgram>),
    /// A file that receives appended lines.
    File(PathBuf),
}

impl EventReceiver {
    /// Returns the path or address, without parts that may be secret: the path and the query of a
    /// webhook often are.
    pub fn place(&self) -> String {
        match self {
            Self::Webhook { url, .. } => url.origin().ascii_serialization(),
            Self::Program(program) => program.path(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// A program that reads events. Another module starts processes: this one knows none.
#[async_trait]
pub trait EventProgram: fmt::Debug + Send + Sync {
    /// Returns its path or name.
    fn path(&self) -> String;

    /// Checks that the program exists, and does not start it.
    ///
    /// # Errors
    /// There is no such program.
    fn check(&self) -> io::Result<()>;

    /// Starts the program.
    ///
    /// # Errors
    /// The program cannot be started.
    async fn start(&self) -> io::Result<Box<dyn RunningProgram>>;
}

/// A started program; it is killed on drop.
#[async_trait]
pub trait RunningProgram: Send + Sync {
    /// Its standard input.
    fn input(&mut self) -> &mut (dyn AsyncWrite + Send + Sync + Unpin);

    /// Closes its standard input, and waits for its exit.
    async fn stop(self: Box<Self>);
}

/// Error of a delivery.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error("no answer within {after:?}")]
    Timeout { after: Duration },
    #[error("it cannot be started")]
    Program(#[source] io::Error),
    #[error("it could not be reached")]
    Unreachable(#[from] hyper_util::client::legacy::Error),
    #[error("it answered {status}")]
    Status { status: StatusCode },
    #[error("it redirects to another address, which is not followed")]
    Redirect,
    #[error("the address cannot be requested")]
    Request(#[from] http::Error),
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    #[error("it cannot be written")]
    Write(#[from] io::Error),
    #[error("expected a regular file")]
    NotRegular,
}

impl DeliveryError {
    /// Returns true if the receiver rejects this event, and false if it only cannot take events
    /// now.
    pub(super) fn is_rejection(&self) -> bool {
        match self {
            Self::Status { status } => {
                let passes = [
                    StatusCode::REQUEST_TIMEOUT,
                    StatusCode::TOO_EARLY,
                    StatusCode::TOO_MANY_REQUESTS,
                ];
                status.is_client_error() && !passes.contains(status)
            }
            _ => false,
        }
    }
}

/// Result of opening a destination without an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenResult {
    /// It can be written, as far as is known.
    Opened,
    /// Only an event can show it.
    Untested,
}

/// An open destination.
pub(super) enum EventSink {
    Webhook(Box<Webhook>),
    Program(ProgramInput),
    File(LineFile),
}

impl EventSink {
    pub(super) fn new(receiver: &EventReceiver) -> Self {
        match receiver {
            EventReceiver::Webhook { url, key } => {
                Self::Webhook(Box::new(Webhook::new(url.clone(), key.clone())))
            }
            EventReceiver::Program(program) => {
                Self::Program(ProgramInput::new(Arc::clone(program)))
            }
            EventReceiver::File(path) => Self::File(LineFile::new(path.clone())),
        }
    }

    /// Opens the destination as far as possible without an event: a file is created, a program has
    /// to exist, and a webhook is not tested.
    pub(super) async fn open(&mut self, limit: Duration) -> Result<OpenResult, DeliveryError> {
        match self {
            Self::Webhook(_) => return Ok(OpenResult::Untested),
            Self::Program(program) => within(limit, program.check()).await?,
            Self::File(file) => within(limit, file.open()).await?,
        }
        Ok(OpenResult::Opened)
    }

    /// Delivers one event within a time limit.
    pub(super) async fn deliver(
        &mut self,
        event: &Arc<QueuedEvent>,
        limit: Duration,
    ) -> Result<(), DeliveryError> {
        match self {
            Self::Webhook(webhook) => webhook.post(event, limit).await,
            Self::Program(program) => {
                let written = within(limit, program.write_line(&event.json)).await;
                if written.is_err() {
                    // The program may have read a part of the line.
                    program.kill();
                }
                written
            }
            Self::File(file) => within(limit, file.append_line(event)).await,
        }
    }

    /// Stops a program once it has read all its input.
    pub(super) async fn close(self) {
        if let Self::Program(program) = self {
            program.stop().await;
        }
    }
}

/// Awaits a step of a delivery, with a time limit.
pub(super) async fn within<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, DeliveryError>>,
) -> Result<T, DeliveryError> {
    timeout(limit, step).await.unwrap_or(Err(DeliveryError::Timeout { after: limit }))
}
