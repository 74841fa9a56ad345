//! The health of a server, in metrics and lifecycle events.

use std::sync::atomic::Ordering;

use crate::mcp::ProtocolVersion;
use crate::telemetry::events::LifecycleEvent;
use crate::telemetry::metrics::Availability;

use super::{ServerShared, StopGuard};
use crate::upstream::supervisor::state::LifeState;

/// Health in the last event about a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ReportedHealth {
    /// No event yet, or the server has been idle since.
    #[default]
    Unknown,
    Ready,
    Lost,
    Failed,
}

impl ServerShared {
    pub(crate) fn hold(&self) -> StopGuard {
        StopGuard(self.users.token())
    }

    pub(crate) fn show(&self, state: &LifeState) {
        self.shown.store(true, Ordering::SeqCst);
        self.show_availability(state);
    }

    pub(crate) fn show_availability(&self, state: &LifeState) {
        if !self.shown.load(Ordering::SeqCst) || self.is_released() {
            return;
        }
        // An idle server is available, because the next call starts it.
        let takes_calls =
            matches!(state, LifeState::Idle | LifeState::Ready) || self.has_no_account();
        let availability = if takes_calls { Availability::Up } else { Availability::Down };
        self.metrics.set_availability(availability);
        self.report_health(state);
    }

    /// Sends an event if the server has begun or ceased to take calls.
    fn report_health(&self, state: &LifeState) {
        let mut reported = self.reported.lock();
        let health = match (state, *reported) {
            (LifeState::Ready, _) => ReportedHealth::Ready,
            (LifeState::Failed, _) => ReportedHealth::Failed,
            (LifeState::Backoff { .. }, ReportedHealth::Unknown | ReportedHealth::Ready)
            | (LifeState::Connecting, ReportedHealth::Ready) => ReportedHealth::Lost,
            (LifeState::Idle, _) => ReportedHealth::Unknown,
            (_, before) => before,
        };
        if std::mem::replace(&mut *reported, health) == health {
            return;
        }
        let server = self.config.name.as_str();
        self.context.events.send(&match health {
            ReportedHealth::Unknown => return,
            ReportedHealth::Ready => LifecycleEvent::ServerReady {
                server,
                protocol_version: self.version().map(ProtocolVersion::as_str),
                tools: self.lists.base.load().as_ref().map_or(0, |list| list.tools.len()),
            },
            ReportedHealth::Lost => LifecycleEvent::ServerLost { server },
            ReportedHealth::Failed => LifecycleEvent::ServerFailed { server },
        });
    }
}
