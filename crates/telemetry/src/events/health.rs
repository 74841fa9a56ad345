//! The state of the receiver of events, and of the folder of events that wait.

use parking_lot::Mutex;

use crate::SinkReport;

/// The state of both. Each is `None` if it is not configured.
#[derive(Debug, Default)]
pub(super) struct EventHealth {
    pub(super) receiver: SinkHealth,
    pub(super) folder: SinkHealth,
}

/// The place of a sink, and the fault of the last attempt.
#[derive(Debug, Default)]
pub(super) struct SinkHealth(Mutex<Option<SinkPlace>>);

#[derive(Debug)]
struct SinkPlace {
    place: String,
    fault: Option<String>,
}

impl EventHealth {
    /// Returns the configured sinks.
    pub(super) fn reports(&self) -> Vec<SinkReport> {
        let receiver = self.receiver.report("events");
        receiver.into_iter().chain(self.folder.report("events_queue")).collect()
    }
}

impl SinkHealth {
    /// Sets the place; `None` if there is no sink any more. The fault of the same place stays.
    pub(super) fn set_place(&self, place: Option<String>) {
        let mut known = self.0.lock();
        let same = known.take().filter(|known| Some(&known.place) == place.as_ref());
        *known = same.or_else(|| place.map(|place| SinkPlace { place, fault: None }));
    }

    /// Notes the result of an attempt.
    pub(super) fn note_fault(&self, fault: Option<String>) {
        if let Some(known) = &mut *self.0.lock() {
            known.fault = fault;
        }
    }

    fn report(&self, sink: &'static str) -> Option<SinkReport> {
        let known = self.0.lock();
        let SinkPlace { place, fault } = known.as_ref()?;
        Some(SinkReport { sink, place: place.clone(), fault: fault.clone() })
    }
}
