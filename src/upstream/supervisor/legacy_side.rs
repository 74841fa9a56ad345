//! Whether a server whose main instance is Modern speaks Legacy as well.
//!
//! The first Legacy client has it found out: nothing that a Modern server says
//! tells it (2026-07-28, Versioning, "Backward Compatibility with
//! Initialization-Based Versions"). Until then nothing is opened for it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::clock;
use crate::mcp::ProtocolVersion;
use crate::upstream::UpstreamError;

/// What is known of the server's Legacy side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum LegacySupport {
    /// No Legacy client has come yet.
    Unknown,
    /// The server has opened a Legacy connection, of this version.
    Spoken(ProtocolVersion),
    /// The server could not be spoken to in Legacy, and is left alone with it
    /// until then.
    Refuted { until: Instant },
}

/// The verdict on a server's Legacy side, which instances reach by trying.
#[derive(Debug)]
pub(in crate::upstream) struct LegacySide(watch::Sender<LegacySupport>);

impl Default for LegacySide {
    fn default() -> Self {
        Self(watch::Sender::new(LegacySupport::Unknown))
    }
}

impl LegacySide {
    /// What is known now. A verdict that is too old counts for nothing.
    pub(in crate::upstream) fn support(&self) -> LegacySupport {
        match *self.0.borrow() {
            LegacySupport::Refuted { until } if until <= clock::now() => LegacySupport::Unknown,
            support => support,
        }
    }

    /// The Legacy version that the server is known to speak.
    pub(in crate::upstream) fn version(&self) -> Option<ProtocolVersion> {
        match self.support() {
            LegacySupport::Spoken(version) => Some(version),
            LegacySupport::Unknown | LegacySupport::Refuted { .. } => None,
        }
    }

    /// Whether it is known that the server cannot be spoken to in Legacy.
    pub(in crate::upstream) fn is_refuted(&self) -> bool {
        matches!(self.support(), LegacySupport::Refuted { .. })
    }

    /// Draws the conclusion of an attempt to open a Legacy connection; true if
    /// the server is now known not to speak Legacy, and was not before.
    pub(in crate::upstream) fn learn(
        &self,
        opened: Result<ProtocolVersion, &UpstreamError>,
    ) -> bool {
        let verdict = match opened {
            Ok(version) => LegacySupport::Spoken(version),
            Err(fault) if refuses(fault) => {
                LegacySupport::Refuted { until: clock::now() + REFUSED_FOR }
            }
            // A server that spoke it before has another problem now.
            Err(_) if self.version().is_some() => return false,
            Err(_) => LegacySupport::Refuted { until: clock::now() + FAILED_FOR },
        };
        let before = self.0.send_replace(verdict);
        opened.is_err() && !matches!(before, LegacySupport::Refuted { .. })
    }

    /// Waits for a verdict; false if the server is not spoken to in Legacy.
    pub(in crate::upstream) async fn is_spoken(&self, patience: Duration) -> bool {
        let mut support = self.0.subscribe();
        let known = |support: &LegacySupport| match *support {
            LegacySupport::Unknown => false,
            LegacySupport::Spoken(_) => true,
            LegacySupport::Refuted { until } => until > clock::now(),
        };
        let verdict = timeout(patience, support.wait_for(known)).await;
        matches!(verdict, Ok(Ok(support)) if matches!(*support, LegacySupport::Spoken(_)))
    }
}

/// Whether the server itself says that it does not speak Legacy.
fn refuses(fault: &UpstreamError) -> bool {
    match fault {
        UpstreamError::Refused { .. } | UpstreamError::Versions(_) => true,
        UpstreamError::Status { status } => status.is_client_error(),
        _ => false,
    }
}

/// How long a server that refused Legacy is left alone with it: it may have been
/// replaced by another version of itself.
const REFUSED_FOR: Duration = Duration::from_hours(1);
/// How long a server that failed otherwise is left alone with it.
const FAILED_FOR: Duration = Duration::from_mins(1);
