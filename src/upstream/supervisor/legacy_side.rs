//! Legacy support of a server with a Modern main instance.
//!
//! A Modern server does not have to announce it (2026-07-28, Versioning, "Backward Compatibility
//! with Initialization-Based Versions"), so the instances of its Legacy clients detect it. Nothing
//! is opened before there is such a client.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::clock;
use crate::mcp::{Era, ProtocolVersion, code};
use crate::upstream::UpstreamError;
use crate::upstream::lists::dependence::ListDependence;
use crate::upstream::lists::store::KnownServer;
use crate::upstream::owner::InstanceKey;
use crate::upstream::supervisor::remembered_era::MAX_ERA_AGE;

/// Known Legacy support of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegacySupport {
    /// No attempt at a Legacy connection has been completed.
    Untried,
    /// The server has opened a Legacy connection of this version, and has listed over it if clients
    /// share it.
    Spoken(ProtocolVersion),
    /// The server could not be used in Legacy, so the gateway adapts for its Legacy clients.
    Refuted,
}

/// Verdict on a server's Legacy support, with the time of its next revision.
#[derive(Debug)]
pub(crate) struct LegacySide(Mutex<LegacyVerdict>);

#[derive(Debug)]
struct LegacyVerdict {
    support: LegacySupport,
    /// Number of refusals since the last success.
    refusals: u32,
    /// Waits after failed attempts.
    waits: Backoff,
    /// Time at which the server refused to speak Legacy, in seconds since 1970, if the verdict is
    /// based on a refusal.
    refused_at: Option<u64>,
    /// True if the server has spoken Legacy in an earlier run.
    was_spoken: bool,
    /// Time from which refuted support may be tried again, or from which the next refusal of a
    /// server that has spoken Legacy counts.
    retry_at: Instant,
}

impl LegacySide {
    /// Restores the verdict of an earlier run. A recent refusal remains valid. Earlier Legacy
    /// support is only a reason for patience. `now` is in seconds since 1970.
    pub(crate) fn restored(known: Option<&KnownServer>, now: u64) -> Self {
        let refused_at = known.and_then(|known| known.legacy_refused);
        let refused_at = refused_at
            .filter(|at| now.checked_sub(*at).is_some_and(|age| age < MAX_ERA_AGE.as_secs()));
        let mut waits = Backoff::new(FIRST_RETRY, LAST_RETRY);
        let (support, wait) = match refused_at {
            Some(_) => {
                waits.next_wait();
                (LegacySupport::Refuted, LAST_RETRY)
            }
            None => (LegacySupport::Untried, Duration::ZERO),
        };
        // Only a Legacy child produces a verdict on the lists of a Modern server.
        let was_spoken = known.is_some_and(|known| {
            known.further.iter().any(|(told, _)| told.other_era.is_some())
                || known.version.era() == Era::Modern
                    && known.dependence.found == ListDependence::Independent
        });
        let retry_at = clock::now() + wait;
        let refusals = 0;
        let verdict = LegacyVerdict { support, refusals, waits, refused_at, was_spoken, retry_at };
        Self(Mutex::new(verdict))
    }

    /// Returns the time at which the server refused to speak Legacy, in seconds since 1970, if the
    /// refusal is still valid.
    pub(crate) fn refused_at(&self) -> Option<u64> {
        let verdict = self.0.lock();
        verdict.refused_at.filter(|_| verdict.support == LegacySupport::Refuted)
    }

    /// Returns true if the server has spoken Legacy in an earlier run.
    pub(crate) fn was_spoken(&self) -> bool {
        self.0.lock().was_spoken
    }

    /// Returns the current verdict.
    pub(crate) fn support(&self) -> LegacySupport {
        self.0.lock().support
    }

    /// Returns the Legacy version that the server is known to speak.
    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        match self.support() {
            LegacySupport::Spoken(version) => Some(version),
            LegacySupport::Untried | LegacySupport::Refuted => None,
        }
    }

    /// Returns true if refuted support is due to be tried again. Each time, only one caller
    /// receives true.
    pub(super) fn take_retry(&self) -> bool {
        let mut verdict = self.0.lock();
        let now = clock::now();
        if verdict.support != LegacySupport::Refuted || now < verdict.retry_at {
            return false;
        }
        verdict.retry_at = now + FIRST_RETRY;
        true
    }

    /// Records that an instance is ready. Returns true if the verdict has changed.
    pub(crate) fn confirm(&self, version: ProtocolVersion) -> bool {
        let mut verdict = self.0.lock();
        let confirmed = LegacySupport::Spoken(version);
        verdict.refusals = 0;
        verdict.waits.reset();
        std::mem::replace(&mut verdict.support, confirmed) != confirmed
    }

    /// Records that an instance did not become ready.
    ///
    /// One client's declaration must not decide for the others. So only the failure of an instance
    /// without capabilities counts, or a refusal that cannot concern them. A server that has spoken
    /// Legacy before has to refuse several times, with pauses in between.
    pub(crate) fn doubt(&self, owner: &InstanceKey, fault: &UpstreamError) -> LegacyDoubt {
        let (refuses, is_plain) = (is_refusal(fault), owner.told.capabilities == "{}");
        let now = clock::now();
        let mut verdict = self.0.lock();
        match verdict.support {
            LegacySupport::Spoken(_) => {
                if !refuses || now < verdict.retry_at {
                    return LegacyDoubt::None;
                }
                verdict.refusals += 1;
                if verdict.refusals < MAX_LEGACY_REFUSALS {
                    verdict.waits.next_wait();
                    verdict.retry_at = now + REFUSAL_PAUSE;
                    return LegacyDoubt::None;
                }
            }
            LegacySupport::Untried if refuses || is_plain || !is_answer(fault) => {}
            LegacySupport::Untried => return LegacyDoubt::Unclear,
            // Of many simultaneous attempts, only the one that was due counts.
            LegacySupport::Refuted if is_plain && owner.lists() => {}
            LegacySupport::Refuted => return LegacyDoubt::None,
        }
        verdict.refused_at = refuses.then(|| clock::unix_now().as_secs());
        let wait = verdict.waits.next_wait();
        verdict.retry_at = now + if refuses { LAST_RETRY } else { wait };
        match std::mem::replace(&mut verdict.support, LegacySupport::Refuted) {
            LegacySupport::Refuted => LegacyDoubt::None,
            LegacySupport::Untried | LegacySupport::Spoken(_) => LegacyDoubt::Refuted,
        }
    }
}

/// Conclusion from a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegacyDoubt {
    /// Nothing has changed.
    None,
    /// The failure may concern the client's declaration. An attempt without capabilities has to
    /// decide.
    Unclear,
    /// Legacy support counts as refuted from now on.
    Refuted,
}

/// Returns true if the server's error means that it supports no `initialize` or none of its
/// versions, or that it requires parts of Modern requests.
fn is_refusal(fault: &UpstreamError) -> bool {
    match fault {
        UpstreamError::Refused { code, .. } => {
            *code == code::METHOD_NOT_FOUND || code::is_modern_code(*code)
        }
        UpstreamError::Versions(_) => true,
        _ => false,
    }
}

/// Returns true if the server responded, so that it may have objected to the declaration.
fn is_answer(fault: &UpstreamError) -> bool {
    matches!(fault, UpstreamError::Refused { .. } | UpstreamError::Status { .. })
}

/// Time before the first new attempt after a failure in Legacy. Each further failure doubles it.
const FIRST_RETRY: Duration = Duration::from_mins(1);
/// Maximum of that time, which also applies after a refusal: a newer version may have replaced the
/// server.
const LAST_RETRY: Duration = Duration::from_hours(1);
/// Number of refusals in a row after which a server no longer counts as one that speaks Legacy, and
/// the time after one refusal from which the next one counts.
const MAX_LEGACY_REFUSALS: u32 = 3;
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;

    use super::*;
    use crate::upstream::lists::store::tests::known;
    use crate::upstream::owner::ClientDeclaration;

    /// Returns the key of a shared instance with these capabilities.
    fn shared(capabilities: &'static str) -> InstanceKey {
        let capabilities = Bytes::from_static(capabilities.as_bytes());
        let other_era = Some(Era::Legacy);
        InstanceKey::lister(ClientDeclaration { other_era, account: None, capabilities })
    }

    fn refused(code: i64) -> UpstreamError {
        UpstreamError::Refused { code, message: "no".into() }
    }

    #[test]
    fn a_refusal_of_an_earlier_run_holds_for_a_day() {
        let (refused_at, day) = (1_000_000, MAX_ERA_AGE.as_secs());
        let known = KnownServer { legacy_refused: Some(refused_at), ..known("one") };
        for (now, support) in [
            (refused_at - 1, LegacySupport::Untried),
            (refused_at, LegacySupport::Refuted),
            (refused_at + day - 1, LegacySupport::Refuted),
            (refused_at + day, LegacySupport::Untried),
        ] {
            let side = LegacySide::restored(Some(&known), now);
            assert_eq!(side.support(), support, "{now}");
            let holds = support == LegacySupport::Refuted;
            assert_eq!(side.refused_at(), holds.then_some(refused_at), "{now}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_declaration_of_one_client_refutes_nothing_for_the_others() {
        let side = LegacySide::restored(None, 0);
        let odd = shared(r#"{"experimental":{"x":1}}"#);
        let status = UpstreamError::of_status;
        let unclear = [
            refused(code::INVALID_PARAMS),
            status(StatusCode::TOO_MANY_REQUESTS),
            status(StatusCode::BAD_REQUEST),
        ];
        for fault in unclear {
            assert_eq!(side.doubt(&odd, &fault), LegacyDoubt::Unclear);
            assert_eq!(side.support(), LegacySupport::Untried);
        }
        let refusal = refused(code::METHOD_NOT_FOUND);
        assert_eq!(side.doubt(&odd, &refusal), LegacyDoubt::Refuted, "not about capabilities");
        assert_eq!(side.support(), LegacySupport::Refuted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_spoke_legacy_has_to_refuse_it_several_times_in_a_row() {
        let side = LegacySide::restored(None, 0);
        let (plain, version) = (shared("{}"), ProtocolVersion::LATEST_LEGACY);
        assert!(side.confirm(version) && !side.confirm(version));
        let refusal = refused(code::METHOD_NOT_FOUND);
        let doubt = async |fault: &UpstreamError| {
            tokio::time::advance(REFUSAL_PAUSE).await;
            side.doubt(&plain, fault)
        };
        for _ in 0..10 {
            assert_eq!(doubt(&UpstreamError::NoAnswer).await, LegacyDoubt::None, "not a refusal");
        }
        for _ in 1..MAX_LEGACY_REFUSALS {
            assert_eq!(doubt(&refusal).await, LegacyDoubt::None);
        }
        side.confirm(version);
        for _ in 1..MAX_LEGACY_REFUSALS {
            assert_eq!(doubt(&refusal).await, LegacyDoubt::None);
            assert_eq!(side.doubt(&plain, &refusal), LegacyDoubt::None, "at the same time");
        }
        assert_eq!(side.version(), Some(version));
        assert_eq!(doubt(&refusal).await, LegacyDoubt::Refuted);
        assert_eq!(side.support(), LegacySupport::Refuted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refuted_side_is_tried_again_by_one_caller_and_ever_more_rarely() {
        let side = LegacySide::restored(None, 0);
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            side.doubt(&shared("{}"), &UpstreamError::NoAnswer);
            // Attempts that began before do not count.
            side.doubt(&shared(r#"{"roots":{}}"#), &UpstreamError::NoAnswer);
            tokio::time::advance(Duration::from_secs(60 * minutes - 1)).await;
            assert!(!side.take_retry(), "{minutes}");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(side.take_retry() && !side.take_retry(), "{minutes}");
        }
        side.doubt(&shared("{}"), &refused(code::METHOD_NOT_FOUND));
        tokio::time::advance(Duration::from_mins(59)).await;
        assert!(!side.take_retry());
    }
}
