//! Logs certificates and keys before they expire, and follows the CA certificates of servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::settings::judge_authorities;
use crate::admin::{Expiry, ExpiryKind, ExpiryState, StatusReport, wall_time};
use crate::codec::file::FileReader;

/// Starts the task, which looks at the calendar after each load of a configuration, whenever an
/// element of it needs more attention, and every few hours.
pub(super) fn watch_expiries(report: &Arc<StatusReport>) -> JoinHandle<()> {
    tokio::spawn(follow_calendar(Arc::clone(report)))
}

async fn follow_calendar(report: Arc<StatusReport>) {
    let (reader, mut logged) = (FileReader::default(), LoggedExpiries::default());
    loop {
        let config = report.configured();
        // A file that cannot be read in time is a fault of its server.
        let read = reader.run(move || judge_authorities(&config)).await;
        report.note_authorities(read.map(|judged| judged.expiries).unwrap_or_default());
        let (expiries, now) = (report.expiries(), wall_time());
        for (expiry, warning) in logged.add_all(&expiries, now) {
            if expiry.kind.is_certificate() && expiry.state(now) == ExpiryState::Expired {
                tracing::error!("{warning}");
            } else {
                tracing::warn!("{warning}");
            }
        }
        let _ = timeout(until_next_look(&expiries, now), report.next_load()).await;
    }
}

/// The elements that were logged, with their ends and the thresholds that followed.
#[derive(Default)]
struct LoggedExpiries(HashMap<String, (Timestamp, Option<Timestamp>)>);

impl LoggedExpiries {
    /// Returns the elements with a warning that is new: because of another end, or because a
    /// threshold has passed. Elements that are gone are forgotten.
    fn add_all<'a>(&mut self, expiries: &'a [Expiry], now: Timestamp) -> Vec<(&'a Expiry, String)> {
        let mut due = Vec::new();
        let mut logged = HashMap::new();
        for expiry in expiries {
            let mark = (expiry.at, expiry.next_threshold(now));
            let earlier = self.0.get(&expiry.name);
            let is_new = earlier != Some(&mark);
            // The start and the reload have logged it with its line.
            let is_fault = earlier.is_none_or(|(at, _)| *at != expiry.at)
                && expiry.state(now) == ExpiryState::Expired
                && is_judged_by_start(expiry.kind);
            let warning = expiry.warning(now).filter(|_| is_new && !is_fault);
            due.extend(warning.map(|warning| (expiry, warning)));
            logged.insert(expiry.name.clone(), mark);
        }
        self.0 = logged;
        due
    }
}

/// Returns true for certificates that the start and each reload judge.
fn is_judged_by_start(kind: ExpiryKind) -> bool {
    use ExpiryKind::{Certificate, ClientCa, ReplicaCa, ReplicaCertificate};
    matches!(kind, Certificate | ClientCa | ReplicaCertificate | ReplicaCa)
}

/// Returns the time until an element needs more attention, at most [`LOOK_EVERY`]: the clock may be set.
fn until_next_look(expiries: &[Expiry], now: Timestamp) -> Duration {
    let next = expiries.iter().filter_map(|expiry| expiry.next_threshold(now)).min();
    let wait = next.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    // The state changes just after the threshold.
    wait.map_or(LOOK_EVERY, |wait| (wait + Duration::from_secs(1)).min(LOOK_EVERY))
}

/// The longest time between two looks at the calendar: logins come without a load.
const LOOK_EVERY: Duration = Duration::from_hours(6);

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn expiry(kind: ExpiryKind, at: &str) -> Expiry {
        let (name, subject) = (kind.label().to_owned(), "it".to_owned());
        Expiry { kind, name, subject, at: at.parse().unwrap() }
    }

    #[test]
    fn each_threshold_is_logged_once_and_a_renewal_ends_the_warnings() {
        let end: Timestamp = "2026-12-31T00:00:00Z".parse().unwrap();
        let mut expiries = vec![expiry(ExpiryKind::Certificate, "2026-12-31T00:00:00Z")];
        let mut logged = LoggedExpiries::default();
        for (hours, count) in [
            (30 * 24, 0),
            (21 * 24 - 1, 1),
            (20 * 24, 0),
            (7 * 24 - 1, 1),
            (3 * 24, 0),
            (23, 1),
            (22, 0),
            (-1, 1),
            (-48, 0),
        ] {
            let now = end - SignedDuration::from_hours(hours);
            assert_eq!(logged.add_all(&expiries, now).len(), count, "{hours} hours before");
        }
        expiries[0].at = "2027-12-31T00:00:00Z".parse().unwrap();
        assert_eq!(logged.add_all(&expiries, end), [], "it is renewed");
    }

    #[test]
    fn an_expired_certificate_is_logged_by_the_start_and_other_expired_elements_here() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let all = [
            ExpiryKind::Certificate,
            ExpiryKind::ClientCa,
            ExpiryKind::ServerCa,
            ExpiryKind::ApiKey,
        ];
        let expiries = all.map(|kind| expiry(kind, "2026-11-01T00:00:00Z"));
        let mut logged = LoggedExpiries::default();
        let kinds: Vec<_> =
            logged.add_all(&expiries, now).iter().map(|(expiry, _)| expiry.kind).collect();
        assert_eq!(kinds, [ExpiryKind::ServerCa, ExpiryKind::ApiKey]);
    }

    #[test]
    fn issuer_keys_and_provider_secrets_are_logged_before_and_after_their_end() {
        let end: Timestamp = "2026-12-31T00:00:00Z".parse().unwrap();
        for (kind, before, after) in [
            (ExpiryKind::IssuerKey, "publish its next key", "its tokens are accepted here"),
            (ExpiryKind::ProviderSecret, "have users log in again", "the provider refuses"),
            (ExpiryKind::Grant, "log in again", "log in again"),
        ] {
            let expiries = [expiry(kind, "2026-12-31T00:00:00Z")];
            let mut logged = LoggedExpiries::default();
            for (hours, words) in [(20 * 24, before), (-1, after)] {
                let now = end - SignedDuration::from_hours(hours);
                let due = logged.add_all(&expiries, now);
                assert!(due[0].1.contains(words), "{kind:?}: {due:?}");
                assert!(logged.add_all(&expiries, now).is_empty(), "{kind:?}: once");
            }
        }
    }

    #[test]
    fn the_next_look_is_at_the_next_threshold_or_tomorrow() {
        let now: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
        let until = |at: &str| until_next_look(&[expiry(ExpiryKind::ApiKey, at)], now);
        assert_eq!(until("2026-12-22T05:00:00Z"), Duration::from_secs(5 * 3600 + 1));
        assert_eq!(until("2026-12-01T02:00:00Z"), Duration::from_secs(2 * 3600 + 1));
        assert_eq!(until("2030-01-01T00:00:00Z"), LOOK_EVERY);
        assert_eq!(until("2020-01-01T00:00:00Z"), LOOK_EVERY);
    }
}
