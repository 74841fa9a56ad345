//! Counts of lifecycle events, by fate.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// Fate of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventFate {
    /// The receiver accepted it.
    Delivered,
    /// The queue was full.
    Dropped,
    /// The receiver did not accept it in time, or rejected it.
    GivenUp,
}

impl EventFate {
    /// Returns the value of the label `outcome`.
    fn label(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Dropped => "dropped",
            Self::GivenUp => "given_up",
        }
    }
}

/// Counters for all fates.
#[derive(Debug, Clone, Default)]
pub struct EventCounts(Family<[(&'static str, &'static str); 1], Counter>);

impl EventCounts {
    /// Counts events that left the queue.
    pub fn count(&self, fate: EventFate, events: u64) {
        self.0.get_or_create(&[("outcome", fate.label())]).inc_by(events);
    }

    pub(super) fn family(&self) -> Family<[(&'static str, &'static str); 1], Counter> {
        self.0.clone()
    }

    #[cfg(test)]
    pub(crate) fn of(&self, fate: EventFate) -> u64 {
        self.0.get_or_create(&[("outcome", fate.label())]).get()
    }
}
