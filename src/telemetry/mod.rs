//! What the gateway says about itself: log lines, an access line per call,
//! metrics and traces.
//!
//! Any room may write to this one and it knows none of them: names, methods,
//! versions and reasons come in as plain text and numbers. Two rules follow.
//! A label that ends in a metric is either `&'static str` or a name from the
//! configuration or the catalog, never what a client sent, so that nobody
//! outside can grow the set of series. And no argument, result, header,
//! session id or secret is ever an input, so that none can leak.
//!
//! What is measured is recorded once, into handles that the caller keeps
//! ([`metrics`]), and leaves on two ways: read by a scraper (`/metrics`) or
//! pushed over OTLP ([`otel`]). Turning the push on costs a call nothing.
//! Traces are sampled first and built after: a call that is not sampled pays
//! for one branch.
//!
//! [`log`] owns standard error. Lines go through a bounded buffer that a
//! thread of its own empties, so a reader that stopped reading costs lines,
//! never calls.

pub mod log;
pub mod metrics;
pub mod otel;
mod record;
mod subject;
mod traceparent;

pub use record::{CallOutcome, CallRecord};
pub use subject::CallSubject;
pub use traceparent::{Sampled, TraceIdText, TraceParent, TraceParentError};

/// How bytes travel to a peer, in the words of the semantic conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A socket: HTTP in all its versions.
    Tcp,
    /// The standard streams of a child process.
    Pipe,
}

impl Transport {
    /// The value of `network.transport`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Pipe => "pipe",
        }
    }
}

/// The longest piece of client-given text in a log line or an attribute, in bytes.
const CLIP: usize = 128;
