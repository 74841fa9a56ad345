//! The version that a server speaks, and how it is known.
//!
//! What an earlier run of the gateway has found out spares the server a probe,
//! to which some Legacy servers answer with a page of errors. It is no more than
//! an assumption: it fails with the first connection that contradicts it, and
//! it is given up when the server has become another version of itself, or
//! after a day.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::config::EraChoice;
use crate::mcp::{Era, ProtocolVersion};
use crate::upstream::lists::store::KnownServer;
use crate::upstream::transport::peer::Peer;

/// What is known of a server's version. Times are in seconds since 1970.
pub(in crate::upstream) struct RememberedEra(Mutex<EraKnowledge>);

struct EraKnowledge {
    version: Option<ProtocolVersion>,
    /// When the era was last found out by probing.
    probed: Option<u64>,
    /// Whether that was in this run.
    is_fresh: bool,
    /// The raw `serverInfo` of the server that was probed.
    info: Bytes,
}

impl RememberedEra {
    /// The knowledge before the server is first connected.
    pub(in crate::upstream) fn new(configured: EraChoice, known: Option<&KnownServer>) -> Self {
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

    /// The version that the server spoke last, possibly in an earlier run, or
    /// that its configuration demands; `None` if unknown.
    pub(in crate::upstream) fn version(&self) -> Option<ProtocolVersion> {
        self.0.lock().version
    }

    /// The era in which the first connection is opened without a probe.
    pub(in crate::upstream) fn assumed_era(&self, now: u64) -> Option<Era> {
        let knowledge = self.0.lock();
        let age = now.checked_sub(knowledge.probed?)?;
        let version = knowledge.version.filter(|_| age < LONGEST_ASSUMED.as_secs());
        version.map(ProtocolVersion::era)
    }

    /// Records that the server is being probed.
    pub(in crate::upstream) fn note_probe(&self, now: u64) {
        let mut knowledge = self.0.lock();
        (knowledge.probed, knowledge.is_fresh) = (Some(now), true);
    }

    /// Whether this is another version of the server that is known.
    pub(in crate::upstream) fn is_of_other_server(&self, peer: &Peer) -> bool {
        let knowledge = self.0.lock();
        !knowledge.info.is_empty() && knowledge.info != peer.info
    }

    /// Records what the main instance speaks; true if it was thought to speak
    /// another version.
    pub(in crate::upstream) fn confirm(&self, peer: &Peer) -> bool {
        let mut knowledge = self.0.lock();
        if !knowledge.is_fresh && knowledge.info != peer.info {
            // Another version of the server may speak other eras: the next start probes it.
            knowledge.probed = None;
        }
        knowledge.info = peer.info.clone();
        knowledge.version.replace(peer.version).is_some_and(|before| before != peer.version)
    }

    /// The version, the time of the probe and the `serverInfo`, to be kept for
    /// the next run.
    pub(in crate::upstream) fn to_keep(&self) -> Option<(ProtocolVersion, Option<u64>, Bytes)> {
        let knowledge = self.0.lock();
        Some((knowledge.version?, knowledge.probed, knowledge.info.clone()))
    }
}

/// How long an era is assumed without a probe.
pub(in crate::upstream) const LONGEST_ASSUMED: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_era_is_assumed_for_a_day_after_its_probe() {
        let probed = 1_000_000;
        let day = LONGEST_ASSUMED.as_secs();
        let era = RememberedEra::new(EraChoice::Legacy, None);
        assert_eq!(era.assumed_era(probed), None, "it was never probed");
        era.note_probe(probed);
        assert_eq!(era.assumed_era(probed + day - 1), Some(Era::Legacy));
        assert_eq!(era.assumed_era(probed + day), None);
        assert_eq!(era.assumed_era(probed - 1), None, "the clock was set back");
    }
}
