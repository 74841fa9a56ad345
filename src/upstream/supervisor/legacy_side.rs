//! Whether a server whose main instance is Modern speaks Legacy as well.
//!
//! A Modern server need not say so (2026-07-28, Versioning, "Backward
//! Compatibility with Initialization-Based Versions"), so the instances of its
//! Legacy clients find out. Nothing is opened before there is such a client.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::mcp::{ProtocolVersion, code};
use crate::upstream::UpstreamError;
use crate::upstream::owner::ClientDeclaration;

/// What is known of a server's Legacy side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum LegacySupport {
    /// No Legacy connection has been tried to the end.
    Untried,
    /// The server has listed over a Legacy connection of this version.
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
    /// When a refuted side may be tried again.
    retry_at: Instant,
}

impl Default for LegacySide {
    fn default() -> Self {
        let support = LegacySupport::Untried;
        Self(Mutex::new(LegacyVerdict { support, failures: 0, retry_at: clock::now() }))
    }
}

impl LegacySide {
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

    /// Records that an instance did not become ready; true if the side counts
    /// as refuted from now on.
    ///
    /// What one client declares must not decide for the others: only the
    /// failure of an instance without capabilities does, or a refusal that
    /// cannot be about them. A server that has spoken Legacy before has to
    /// refuse several times.
    pub(in crate::upstream) fn doubt(
        &self,
        told: &ClientDeclaration,
        fault: &UpstreamError,
    ) -> bool {
        let refusal = is_refusal(fault);
        let mut verdict = self.0.lock();
        let counts = match verdict.support {
            LegacySupport::Spoken(_) => refusal,
            LegacySupport::Untried | LegacySupport::Refuted => {
                refusal || told.capabilities == "{}" || !is_answer(fault)
            }
        };
        if !counts {
            return false;
        }
        verdict.failures = verdict.failures.saturating_add(1);
        if verdict.version_is_known() && verdict.failures < MOST_REFUSALS {
            return false;
        }
        let wait = if refusal { LAST_RETRY } else { retry_after(verdict.failures) };
        verdict.retry_at = clock::now() + wait;
        std::mem::replace(&mut verdict.support, LegacySupport::Refuted) != LegacySupport::Refuted
    }
}

impl LegacyVerdict {
    fn version_is_known(&self) -> bool {
        matches!(self.support, LegacySupport::Spoken(_))
    }
}

/// Whether the server itself says that it knows no `initialize`, or none of its
/// versions.
fn is_refusal(fault: &UpstreamError) -> bool {
    match fault {
        UpstreamError::Refused { code, .. } => {
            matches!(*code, code::METHOD_NOT_FOUND | code::UNSUPPORTED_VERSION)
        }
        UpstreamError::Versions(_) => true,
        UpstreamError::Status { status } => matches!(status.as_u16(), 400 | 404 | 405),
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
/// speaks Legacy.
const MOST_REFUSALS: u32 = 3;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::StatusCode;

    use super::*;
    use crate::mcp::Era;

    fn told(capabilities: &'static str) -> ClientDeclaration {
        let capabilities = Bytes::from_static(capabilities.as_bytes());
        ClientDeclaration { other_era: Some(Era::Legacy), capabilities }
    }

    fn refused(code: i64) -> UpstreamError {
        UpstreamError::Refused { code, message: "no".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_client_declares_refutes_nothing_for_the_others() {
        let side = LegacySide::default();
        let odd = told(r#"{"experimental":{"x":1}}"#);
        let busy = UpstreamError::Status { status: StatusCode::TOO_MANY_REQUESTS };
        for fault in [refused(code::INVALID_PARAMS), busy] {
            assert!(!side.doubt(&odd, &fault));
            assert_eq!(side.support(), LegacySupport::Untried);
        }
        assert!(side.doubt(&odd, &refused(code::METHOD_NOT_FOUND)), "not about capabilities");
        assert_eq!(side.support(), LegacySupport::Refuted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_spoke_legacy_has_to_refuse_it_several_times_in_a_row() {
        let side = LegacySide::default();
        let (plain, version) = (told("{}"), ProtocolVersion::LATEST_LEGACY);
        assert!(side.confirm(version) && !side.confirm(version));
        for _ in 0..10 {
            assert!(!side.doubt(&plain, &UpstreamError::NoAnswer), "another problem");
        }
        let refusal = refused(code::METHOD_NOT_FOUND);
        assert!(!side.doubt(&plain, &refusal) && !side.doubt(&plain, &refusal));
        side.confirm(version);
        assert!(!side.doubt(&plain, &refusal) && !side.doubt(&plain, &refusal));
        assert_eq!(side.version(), Some(version));
        assert!(side.doubt(&plain, &refusal));
        assert_eq!(side.support(), LegacySupport::Refuted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refuted_side_is_tried_again_by_one_caller_and_ever_more_rarely() {
        let side = LegacySide::default();
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            side.doubt(&told("{}"), &UpstreamError::NoAnswer);
            tokio::time::advance(Duration::from_secs(60 * minutes - 1)).await;
            assert!(!side.take_retry(), "{minutes}");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(side.take_retry() && !side.take_retry(), "{minutes}");
        }
        side.doubt(&told("{}"), &refused(code::METHOD_NOT_FOUND));
        tokio::time::advance(Duration::from_mins(59)).await;
        assert!(!side.take_retry());
    }
}
