//! The history of a run: the calls as their clients saw them, the received messages, and the
//! executions as the servers saw them.

mod check;
#[cfg(test)]
mod tests;

pub use check::{Violation, violations};

use std::time::Duration;

/// Everything that the check needs to know about a run.
#[derive(Debug, Default)]
pub struct History {
    pub calls: Vec<CallRecord>,
    pub deliveries: Vec<Delivery>,
    pub executions: Vec<Execution>,
}

/// A call as its client saw it.
#[derive(Debug, Clone)]
pub struct CallRecord {
    /// Mark of the call: `p07-L#12` is the twelfth call of the client `p07-L`.
    pub mark: String,
    /// Legacy session of the call.
    pub session: Option<String>,
    /// Number of requests that were sent for it: one, and another one for each round of input.
    pub rounds: u32,
    /// The end of the call, with its time.
    pub end: Option<(Duration, CallEnd)>,
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// The result of the server.
    Answer,
    /// A tool result of the gateway that reports an error.
    ToolError(String),
    /// An error that invites the client to try again: the request was not executed.
    Retryable(String),
    /// An error that does not exclude the execution.
    Error(String),
    /// A broken connection.
    Broken,
    /// The response ended regularly, without an answer or an error.
    Silent,
    /// None within the time limit.
    Hung,
}

/// A message that a client received.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub client: String,
    /// Mark of the message, or the resource of an update.
    pub mark: String,
}

/// An execution as a server saw it.
#[derive(Debug, Clone)]
pub struct Execution {
    pub mark: String,
    /// Number of the request among those of its call, from one.
    pub round: u32,
    /// The process that sent the request: a replica and the number of its start.
    pub process: String,
    pub at: Duration,
}

/// Returns the client in a mark.
pub fn client_of(mark: &str) -> &str {
    mark.split('#').next().unwrap_or_default()
}
