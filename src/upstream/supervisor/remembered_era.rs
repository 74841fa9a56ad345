//! Protocol version of a server, and the origin of this knowledge.
//!
//! The result of an earlier run spares the server a probe, to which some Legacy servers respond
//! with a page of errors. It is only an assumption. It is dropped with the first connection that
//! contradicts it, when a newer version has replaced the server, or after a day.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::config::EraChoice;
use crate::mcp::{Era, ProtocolVersion};
use crate::upstream::lists::store::KnownServer;
use crate::upstream::peer::Peer;

/// Known version of a server. Times are in seconds since 1970.
pub(crate) struct RememberedEra(Mutex<EraKnowledge>);

struct EraKnowledge {
    version: Option<ProtocolVersion>,
    /// Time of the last probe of the era.
    probed: Option<u64>,
    /// True if the probe was in this run.
    is_fresh: bool,
    /// Raw `serverInfo` of the probed server.
    info: Bytes,
}

impl RememberedEra {
    /// Creates the knowledge before the server is first connected.
    pub(crate) fn new(configured: EraChoice, known: Option<&KnownServer>) -> Self {
        let configured = match configured {
            EraChoice::Modern => Some(ProtocolVersion::LATEST_MODERN),
            EraChoice::Legacy => Some(ProtocolVersion::LATEST_LEGACY),
            EraChoice::Auto => None,
        };
        Self(Mutex::new(EraKnowledge {
            version: configured.or(known.map(|known| known.version)),
            probed: known.and_then(|known| known.probed),
            is_fresh: false,
            info: known.map(|known| known.info.clone()).unwrap_or_default(),
        }))
    }

    /// Returns the server's last version, possibly from an earlier run, or the configured one.
    /// Returns `None` if it is unknown.
    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        self.0.lock().version
    }

    /// Returns the era in which the first connection is opened without a probe.
    pub(super) fn assumed_era(&self, now: u64) -> Option<Era> {
        let knowledge = self.0.lock();
        let age = now.checked_sub(knowledge.probed?)?;
        let version = knowledge.version.filter(|_| age < MAX_ERA_AGE.as_secs());
        version.map(ProtocolVersion::era)
    }

    /// Records that the server is being probed.
    pub(super) fn note_probe(&self, now: u64) {
        let mut knowledge = self.0.lock();
        (knowledge.probed, knowledge.is_fresh) = (Some(now), true);
    }

    /// Returns true if the peer is another version of the server than the known one.
    pub(super) fn is_of_other_server(&self, peer: &Peer) -> bool {
        let knowledge = self.0.lock();
        !knowledge.info.is_empty() && knowledge.info != peer.info
    }

    /// Records the version of the main instance. Returns true if it differs from the assumed one.
    pub(crate) fn confirm(&self, peer: &Peer) -> bool {
        let mut knowledge = self.0.lock();
        if !knowledge.is_fresh && knowledge.info != peer.info {
            // Another version of the server may speak other eras, so the next start probes it.
            knowledge.probed = None;
        }
        knowledge.info = peer.info.clone();
        knowledge.version.replace(peer.version).is_some_and(|before| before != peer.version)
    }

    /// Returns the version, the time of the probe and the `serverInfo`, for storage until the next
    /// run.
    pub(crate) fn to_keep(&self) -> Option<(ProtocolVersion, Option<u64>, Bytes)> {
        let knowledge = self.0.lock();
        Some((knowledge.version?, knowledge.probed, knowledge.info.clone()))
    }
}

/// Maximum time that an era is assumed without a probe.
pub(super) const MAX_ERA_AGE: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_is_assumed_for_a_day_after_its_probe() {
        let probed = 1_000_000;
        let day = MAX_ERA_AGE.as_secs();
        let era = RememberedEra::new(EraChoice::Legacy, None);
        assert_eq!(era.assumed_era(probed), None, "it was never probed");
        era.note_probe(probed);
        assert_eq!(era.assumed_era(probed + day - 1), Some(Era::Legacy));
        assert_eq!(era.assumed_era(probed + day), None);
        assert_eq!(era.assumed_era(probed - 1), None, "the clock was set back");
    }
}
