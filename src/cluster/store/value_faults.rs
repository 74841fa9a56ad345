//! Values of the store that are refused, in the log.
//!
//! A replica uses a value only if it was sealed by a replica, under the name that it is read by, and not
//! before a later one that is known. Programs that may write to the store can make it return others.

use crate::telemetry::log::SharedFaultLog;

/// Reasons to refuse a value of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueFault {
    /// It cannot be opened under its name.
    #[error(
        "it was changed, is the value of another name, or is sealed with a key that \
         `gateway.state_keys` does not have"
    )]
    Unsealed,
    /// It is above the size limit.
    #[error("it is longer than any value that a replica writes")]
    TooLong,
    /// It is a list or another type without bytes.
    #[error("it has another type than the values that replicas write")]
    OtherType,
    /// A later value of the same name is known.
    #[error("it is older than a value that the store had before")]
    Outdated,
}

/// The refused values of a store: at most one line a minute for each kind and reason.
#[derive(Debug)]
pub(crate) struct ValueFaultLog {
    /// The address of the store.
    place: String,
    faults: SharedFaultLog,
}

impl ValueFaultLog {
    pub(crate) fn new(place: String) -> Self {
        Self { place, faults: SharedFaultLog::holding(MAX_VALUE_FAULTS) }
    }

    /// Warns of a refused value of this kind. Neither its name nor its bytes are logged.
    pub(crate) fn note(&self, kind: &str, fault: ValueFault) {
        let text = format!("a value of the store {} ({kind}) is refused: {fault}", self.place);
        if let Some(line) = self.faults.note_about(&format!("{kind} {fault:?}"), &text) {
            tracing::warn!("{line}");
        }
    }
}

/// Maximum number of kinds and reasons that are counted.
const MAX_VALUE_FAULTS: usize = 64;
