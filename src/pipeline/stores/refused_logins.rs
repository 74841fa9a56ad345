//! Warnings of refused logins: at most one line a minute for each address.
//!
//! The first refusal of an address is logged at once. Further ones are counted, and logged as one
//! line after a minute, by a task that exists only while there are counts. A bounded number of
//! addresses has lines of its own; refusals from all others share a line.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::call::Failure;
use crate::clock;
use crate::identity::CredentialMark;
use crate::shares::network;

/// Refused logins that have been logged, or will be.
#[derive(Debug, Default)]
pub(crate) struct RefusedLogins(Mutex<RefusalTable>);

#[derive(Debug, Default)]
struct RefusalTable {
    addresses: HashMap<IpAddr, RefusalCount>,
    /// Refusals from other addresses that are not logged yet, and the time of the first.
    others: Option<(u64, Instant)>,
    /// True while a task logs the counts.
    is_watched: bool,
}

/// Refused logins from one address.
#[derive(Debug)]
struct RefusalCount {
    /// Time of the last line.
    logged_at: Instant,
    /// Number of refusals since the last line.
    count: u64,
    /// The first refusal since the last line.
    example: Option<RefusedLogin>,
}

/// One refused login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusedLogin {
    address: IpAddr,
    /// Metric label of the reason.
    reason: &'static str,
    text: String,
    mark: CredentialMark,
}

/// Lines that are due.
#[derive(Debug, Default, PartialEq, Eq)]
struct DueLines {
    /// Examples of refusals, with the number of refusals from the same address.
    addresses: Vec<(RefusedLogin, u64)>,
    /// Number of refusals from other addresses.
    others: Option<u64>,
}

impl RefusedLogins {
    /// Notes a refusal, and logs it if it is the first of its address. `describe` is called only if
    /// the refusal is logged, now or later.
    pub(crate) fn note(self: &Arc<Self>, address: IpAddr, describe: impl FnOnce() -> RefusedLogin) {
        let mut table = self.0.lock();
        let first = table.note(address, clock::now(), describe);
        let is_watched = std::mem::replace(&mut table.is_watched, true);
        drop(table);
        if let Some(login) = first {
            login.log(1, "login refused");
        }
        if !is_watched {
            tokio::spawn(Arc::clone(self).watch());
        }
    }

    /// Logs the counts as they become due, until there are none.
    async fn watch(self: Arc<Self>) {
        loop {
            sleep(WATCH_INTERVAL).await;
            let (due, is_empty) = {
                let mut table = self.0.lock();
                let due = table.take_due(clock::now());
                let is_empty = table.addresses.is_empty() && table.others.is_none();
                table.is_watched = !is_empty;
                (due, is_empty)
            };
            for (login, count) in due.addresses {
                login.log(count, "further logins refused");
            }
            if let Some(count) = due.others {
                tracing::warn!(count, "logins from further addresses refused");
            }
            if is_empty {
                return;
            }
        }
    }
}

impl RefusalTable {
    /// Counts a refusal. Returns it if it is to be logged at once.
    fn note(
        &mut self,
        address: IpAddr,
        now: Instant,
        describe: impl FnOnce() -> RefusedLogin,
    ) -> Option<RefusedLogin> {
        let network = network(address);
        if let Some(counted) = self.addresses.get_mut(&network) {
            counted.count += 1;
            counted.example.get_or_insert_with(describe);
            return None;
        }
        if self.addresses.len() >= MAX_LOGGED_ADDRESSES {
            self.others.get_or_insert((0, now)).0 += 1;
            return None;
        }
        let counted = RefusalCount { logged_at: now, count: 0, example: None };
        self.addresses.insert(network, counted);
        Some(describe())
    }

    /// Takes the counts whose address had no line for [`LINE_INTERVAL`]. Forgets addresses without
    /// refusals in this time.
    fn take_due(&mut self, now: Instant) -> DueLines {
        let mut due = DueLines::default();
        self.addresses.retain(|_, counted| {
            if now - counted.logged_at < LINE_INTERVAL {
                return true;
            }
            let Some(example) = counted.example.take() else { return false };
            due.addresses.push((example, std::mem::take(&mut counted.count)));
            counted.logged_at = now;
            true
        });
        let others = self.others.take_if(|(_, since)| now - *since >= LINE_INTERVAL);
        due.others = others.map(|(count, _)| count);
        due
    }
}

impl RefusedLogin {
    /// Describes the refusal of a request for its credential.
    pub(crate) fn of_failure(address: IpAddr, failure: &Failure, mark: CredentialMark) -> Self {
        let text = match &mark {
            CredentialMark::Certificate(_) => {
                format!("the certificate identifies no client, and {failure}")
            }
            _ => failure.to_string(),
        };
        Self { address, reason: failure.wire().label, text, mark }
    }

    /// Describes the refusal of a connection for its certificate.
    pub(crate) fn of_certificate(address: IpAddr, reason: &'static str, text: &str) -> Self {
        Self { address, reason, text: text.to_owned(), mark: CredentialMark::Absent }
    }

    fn log(&self, count: u64, message: &str) {
        let Self { address, reason, text, mark } = self;
        let (digest, subject, certificate) = match mark {
            CredentialMark::Absent => (None, None, None),
            CredentialMark::Digest(digits) => (Some(digits.as_str()), None, None),
            CredentialMark::Subject(subject) => (None, Some(subject.as_str()), None),
            CredentialMark::Certificate(digits) => (None, None, Some(digits.as_str())),
        };
        tracing::warn!(
            %address,
            reason,
            count,
            unverified_sha256 = digest,
            unverified_subject = subject,
            certificate_sha256 = certificate,
            "{message}: {text}"
        );
    }
}

/// The least time between two lines about one address.
const LINE_INTERVAL: Duration = Duration::from_mins(1);
/// Interval at which the counts are checked.
const WATCH_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of addresses with lines of their own.
const MAX_LOGGED_ADDRESSES: usize = 200;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn login(address: IpAddr, digits: &str) -> RefusedLogin {
        let mark = CredentialMark::Digest(digits.into());
        RefusedLogin { address, reason: "key_unknown", text: "unknown key".into(), mark }
    }

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn after(now: Instant, seconds: u64) -> Instant {
        now + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_refusal_of_an_address_is_logged_and_then_one_line_a_minute() {
        let (mut table, now) = (RefusalTable::default(), clock::now());
        let (one, two) = (address(1), address(2));
        assert_eq!(table.note(one, now, || login(one, "a")), Some(login(one, "a")));
        assert_eq!(table.note(one, after(now, 1), || login(one, "b")), None);
        assert_eq!(table.note(one, after(now, 2), || panic!("not logged")), None);
        assert_eq!(table.note(two, after(now, 2), || login(two, "c")), Some(login(two, "c")));
        assert_eq!(table.take_due(after(now, 59)), DueLines::default());
        let due = DueLines { addresses: vec![(login(one, "b"), 2)], others: None };
        assert_eq!(table.take_due(after(now, 60)), due);
        assert_eq!(table.note(one, after(now, 61), || login(one, "d")), None, "logged just now");
        assert_eq!(table.take_due(after(now, 119)), DueLines::default());
        assert_eq!(table.addresses.len(), 1, "the other address had no further refusal");
        let due = DueLines { addresses: vec![(login(one, "d"), 1)], others: None };
        assert_eq!(table.take_due(after(now, 120)), due);
        assert_eq!(table.take_due(after(now, 180)), DueLines::default());
        assert!(table.note(one, after(now, 181), || login(one, "e")).is_some(), "a new beginning");
    }

    #[test]
    fn a_flood_of_addresses_takes_bounded_memory_and_lines() {
        let (mut table, now) = (RefusalTable::default(), clock::now());
        let mut lines = 0;
        for round in 0..3 {
            for number in 0..10_000 {
                let address = address(number);
                let logged = table.note(address, after(now, round), || login(address, "a"));
                lines += usize::from(logged.is_some());
            }
        }
        assert_eq!((lines, table.addresses.len()), (200, 200));
        let due = table.take_due(after(now, 62));
        assert_eq!((due.addresses.len(), due.others), (200, Some(3 * 9_800)));
        assert!(due.addresses.iter().all(|(_, count)| *count == 2));
        assert_eq!(table.take_due(after(now, 122)), DueLines::default());
        assert!(table.addresses.is_empty(), "{table:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn counted_refusals_are_logged_without_another_request() {
        let refused = Arc::new(RefusedLogins::default());
        let note = |times: usize| {
            for _ in 0..times {
                let absent = CredentialMark::Absent;
                let describe =
                    || RefusedLogin::of_failure(address(1), &Failure::KeyUnknown, absent);
                refused.note(address(1), describe);
            }
        };
        let waiting = || refused.0.lock().addresses.values().map(|it| it.count).sum::<u64>();
        note(4);
        assert_eq!(waiting(), 3);
        sleep(Duration::from_secs(71)).await;
        assert_eq!(waiting(), 0, "logged");
        sleep(Duration::from_secs(71)).await;
        assert!(!refused.0.lock().is_watched, "the task has ended");
        note(2);
        sleep(Duration::from_secs(71)).await;
        assert_eq!(waiting(), 0, "logged by another task");
    }
}
