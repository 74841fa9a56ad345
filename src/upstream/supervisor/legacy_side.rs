//! Whether a server whose main instance is Modern speaks Legacy as well.
//!
//! A Modern server need not say so (2026-07-28, Versioning, "Backward
//! Compatibility with Initialization-Based Versions"), so the instances of its
//! Legacy clients find out. Nothing is opened before there is such a client.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::mcp::{Era, ProtocolVersion, code};
use crate::upstream::UpstreamError;
use crate::upstream::lists::dependence::ListDependence;
use crate::upstream::lists::store::KnownServer;
use crate::upstream::owner::InstanceKey;
use crate::upstream::supervisor::remembered_era::LONGEST_ASSUMED;

/// What is known of a server's Legacy side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum LegacySupport {
    /// No Legacy connection has been tried to the end.
    Untried,
    /// The server has opened a Legacy connection of this version, and listed over
    /// it if clients share it.
    Spoken(ProtocolVersion),
    /// The server could not be used in Legacy: the gateway adapts for its
    /// Legacy clients.
    Refuted,
}

/// The verdict on a server's Legacy side, and when it is due to be revised.
#[derive(Debug)]
pub(in crate::upstream) struct LegacySide(Mutex<LegacyVerdict>);

#[derive(Debug)]
struct LegacyVerdict {
    support: LegacySupport,
    /// How many attempts have failed since the last one that did not.
    failures: u32,
    /// When the server refused to speak Legacy, in seconds since 1970, if that
    /// is why the side is refuted.
    refused_at: Option<u64>,
    /// Whether the server has spoken Legacy in an earlier run.
    was_spoken: bool,
    /// When a refuted side may be tried again, or the next refusal by a server
    /// that has spoken Legacy counts.
    retry_at: Instant,
}

impl LegacySide {
    /// The verdict of an earlier run. A recent refusal still holds; that the
    /// server spoke Legacy is only a reason to be patient. `now` is in seconds
    /// since 1970.
    pub(in crate::upstream) fn restored(known: Option<&KnownServer>, now: u64) -> Self {
        let refused_at = known.and_then(|known| known.legacy_refused);
        let refused_at = refused_at
            .filter(|at| now.checked_sub(*at).is_some_and(|age| age < LONGEST_ASSUMED.as_secs()));
        let (support, failures, wait) = match refused_at {
            Some(_) => (LegacySupport::Refuted, 1, LAST_RETRY),
            None => (LegacySupport::Untried, 0, Duration::ZERO),
        };
        // Only a Legacy child gives a verdict on the lists of a Modern server.
        let was_spoken = known.is_some_and(|known| {
            known.further.iter().any(|(told, _)| told.other_era.is_some())
                || known.version.era() == Era::Modern
                    && known.dependence.found == ListDependence::Independent
        });
        let retry_at = clock::now() + wait;
        Self(Mutex::new(LegacyVerdict { support, failures, refused_at, was_spoken, retry_at }))
    }

    /// When the server refused to speak Legacy, in seconds since 1970, if the
    /// refusal holds.
    pub(in crate::upstream) fn refused_at(&self) -> Option<u64> {
        let verdict = self.0.lock();
        verdict.refused_at.filter(|_| verdict.support == LegacySupport::Refuted)
    }

    /// Whether the server has spoken Legacy in an earlier run.
    pub(in crate::upstream) fn was_spoken(&self) -> bool {
        self.0.lock().was_spoken
    }

    /// What is known now.
    pub(in crate::upstream) fn support(&self) -> LegacySupport {
        self.0.lock().support
    }

    /// The Legacy version that the server is known to speak.
    pub(in crate::upstream) fn version(&self) -> Option<ProtocolVersion> {
        match self.support() {
            LegacySupport::Spoken(version) => Some(version),
            LegacySupport::Untried | LegacySupport::Refuted => None,
        }
    }

    /// Whether a refuted side is due to be tried again; true for one caller
    /// each time.
    pub(in crate::upstream) fn take_retry(&self) -> bool {
        let mut verdict = self.0.lock();
        let now = clock::now();
        if verdict.support != LegacySupport::Refuted || now < verdict.retry_at {
            return false;
        }
        verdict.retry_at = now + FIRST_RETRY;
        true
    }

    /// Records that an instance is ready; true if that is news.
    pub(in crate::upstream) fn confirm(&self, version: ProtocolVersion) -> bool {
        let mut verdict = self.0.lock();
        let confirmed = LegacySupport::Spoken(version);
        verdict.failures = 0;
        std::mem::replace(&mut verdict.support, confirmed) != confirmed
    }

    /// Records that an instance did not become ready.
    ///
    /// What one client declares must not decide for the others: only the
    /// failure of an instance without capabilities does, or a refusal that
    /// cannot be about them. A server that has spoken Legacy before has to
    /// refuse several times, some time apart.
    pub(in crate::upstream) fn doubt(
        &self,
        owner: &InstanceKey,
        fault: &UpstreamError,
    ) -> LegacyDoubt {
        let (refuses, is_plain) = (is_refusal(fault), owner.told.capabilities == "{}");
        let now = clock::now();
        let mut verdict = self.0.lock();
        match verdict.support {
            LegacySupport::Spoken(_) => {
                if !refuses || now < verdict.retry_at {
                    return LegacyDoubt::None;
                }
                verdict.failures += 1;
                verdict.retry_at = now + REFUSAL_PAUSE;
                if verdict.failures < MOST_REFUSALS {
                    return LegacyDoubt::None;
                }
            }
            LegacySupport::Untried if refuses || is_plain || !is_answer(fault) => {
                verdict.failures = 1;
            }
            LegacySupport::Untried => return LegacyDoubt::Unclear,
            // Of many attempts at once, only the one that was due counts.
            LegacySupport::Refuted if is_plain && owner.lists() => {
                verdict.failures = verdict.failures.saturating_add(1);
            }
            LegacySupport::Refuted => return LegacyDoubt::None,
        }
        verdict.refused_at = refuses.then(|| clock::unix_now().as_secs());
        let wait = if refuses { LAST_RETRY } else { retry_after(verdict.failures) };
        verdict.retry_at = now + wait;
        match std::mem::replace(&mut verdict.support, LegacySupport::Refuted) {
            LegacySupport::Refuted => LegacyDoubt::None,
            LegacySupport::Untried | LegacySupport::Spoken(_) => LegacyDoubt::Refuted,
        }
    }
}

/// The conclusion of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum LegacyDoubt {
    /// Nothing has changed.
    None,
    /// The failure may be about what the client declares: an attempt without
    /// capabilities has to tell.
    Unclear,
    /// The side counts as refuted from now on.
    Refuted,
}

/// Whether the server itself says that it knows no `initialize`, or none of its
/// versions; or that it demands what only Modern requests have.
fn is_refusal(fault: &UpstreamError) -> bool {
    match fault {
        UpstreamError::Refused { code, .. } => {
            *code == code::METHOD_NOT_FOUND || code::is_modern_code(*code)
        }
        UpstreamError::Versions(_) => true,
        _ => false,
    }
}

/// Whether the server answered, so that it may have objected to what it was
/// told.
fn is_answer(fault: &UpstreamError) -> bool {
    matches!(fault, UpstreamError::Refused { .. } | UpstreamError::Status { .. })
}

fn retry_after(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(LAST_RETRY)
}

/// How long a server that failed in Legacy is not tried again, at first; twice
/// as long after each further failure.
const FIRST_RETRY: Duration = Duration::from_mins(1);
/// How long at most, and after a refusal: the server may have been replaced by
/// another version of itself.
const LAST_RETRY: Duration = Duration::from_hours(1);
/// After how many refusals in a row a server no longer counts as one that
/// speaks Legacy, and how long after one the next one counts.
const MOST_REFUSALS: u32 = 3;
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;

    use super::*;
    use crate::upstream::lists::store::tests::known;
    use crate::upstream::owner::ClientDeclaration;

    /// A shared instance with these capabilities.
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
        let (refused_at, day) = (1_000_000, LONGEST_ASSUMED.as_secs());
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
    async fn what_one_client_declares_refutes_nothing_for_the_others() {
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
        for _ in 1..MOST_REFUSALS {
            assert_eq!(doubt(&refusal).await, LegacyDoubt::None);
        }
        side.confirm(version);
        for _ in 1..MOST_REFUSALS {
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
            // Of the attempts that began before, none counts.
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
