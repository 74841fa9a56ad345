//! Observability: the log, the access log, the audit log, metrics, traces and lifecycle events.
//!
//! Of the protocol, this crate knows only the notes that a call carries to its audit record
//! ([`trunkline_protocol::call::AuditNotes`]). Names, methods, versions and reasons are plain text
//! and numbers. Two rules follow. First, a metric's label is either `&'static str` or a name from
//! the configuration or the catalog, never a client's input, so that clients cannot create series.
//! Second, no argument, result, header, session id or secret is ever an input, so that none can
//! leak. Only [`audit`] receives arguments, for their digest and, at the operator's request, for
//! their redacted values.
//!
//! A measurement is recorded once, into handles that the caller keeps ([`metrics`]), and exported
//! in two ways: scraped from `/metrics`, or pushed over OTLP ([`otel`]). The push adds no cost to a
//! call. The sampling decision comes before a trace is built: an unsampled call pays for one
//! branch.
//!
//! [`events`] sends lifecycle events to a receiver of the operator: a webhook, a program or a file.
//!
//! [`log`] owns standard error. Lines go through a bounded buffer that a separate thread writes, so
//! a blocked reader loses lines but never delays calls.
//!
//! [`observation`] keeps recent calls and shows new ones, while an operator looks at them.
//!
//! Modules are listed in the order of use: a module uses those after it.

#![warn(unreachable_pub)]

pub mod otel;
pub mod events;
pub mod audit;
pub mod observation;
pub mod log;
pub mod metrics;
mod batch_queue;
mod recent;
mod record;
mod sink_report;
mod subject;
mod traceparent;
mod json_text;

pub use recent::{LiveItem, LiveItems, Numbered, RecentBounds, RecentItems, TooManyObserversError};
pub use record::{CallOutcome, CallRecord};
pub use sink_report::SinkReport;
pub use subject::CallSubject;
pub use traceparent::{Sampled, TraceIdText, TraceParent, TraceParentError};

/// The network transport of a peer, as in the semantic conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A socket: HTTP in all its versions.
    Tcp,
    /// The standard streams of a child process.
    Pipe,
}

impl Transport {
    /// The value of `network.transport`.
    #[inline]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Pipe => "pipe",
        }
    }
}

/// Maximum bytes of client-provided text in a log line or an attribute.
const MAX_CLIENT_TEXT_BYTES: usize = 128;
