//! The state of a destination of records or events.

/// State of a sink, for `/status`, `/readyz` and the metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkReport {
    /// `audit`, `events`, or `events_queue` for the folder of events that wait.
    pub sink: &'static str,
    /// Its path or address, without parts that may be secret.
    pub place: String,
    /// Reason that it cannot be opened or written; `None` if the last attempt succeeded.
    pub fault: Option<String>,
}
