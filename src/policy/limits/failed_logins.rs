//! Failed attempts with keys and tokens, counted by address.
//!
//! It has a rate of its own: only failures are charged to it, while
//! [`AddressBuckets`](crate::shares::AddressBuckets) charge every request that they let through.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::Failure;
use crate::clock;
use crate::config::Rate;
use crate::shares::{PermitSource, SharedRate, network};

/// Limits the failed attempts of each address.
#[derive(Debug)]
pub(crate) struct FailedLogins {
    /// Time in which one failure is forgotten.
    each: Duration,
    /// Time in which a full burst of failures of one address is forgotten.
    all: Duration,
    addresses: Arc<Mutex<FailingAddresses>>,
    /// The failures that replicas count together; `None` if the gateway is alone.
    shared: Option<(Arc<dyn PermitSource>, Rate)>,
}

#[derive(Debug)]
struct FailingAddresses {
    /// Time at which the last failure of an address is forgotten.
    until: HashMap<IpAddr, Instant>,
    /// Number of addresses at which those without failures are dropped.
    sweep_at: usize,
    /// Time of the next sweep at the earliest: it visits every address.
    sweep_after: Instant,
}

impl FailedLogins {
    pub(crate) fn new(rate: Rate) -> Self {
        let each = (rate.per / rate.count.get()).max(Duration::from_nanos(1));
        let (until, sweep_at, sweep_after) = (HashMap::new(), MANY_ADDRESSES, clock::now());
        let addresses = FailingAddresses { until, sweep_at, sweep_after };
        let addresses = Arc::new(Mutex::new(addresses));
        Self { each, all: each * rate.count.get(), addresses, shared: None }
    }

    /// Counts failures at all replicas, if there is a source.
    #[must_use]
    pub(crate) fn shared_by(self, source: Option<&Arc<dyn PermitSource>>, rate: Rate) -> Self {
        Self { shared: source.map(|source| (Arc::clone(source), rate)), ..self }
    }

    /// Checks that an address may try once more. Charges nothing.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub(crate) fn check(&self, address: IpAddr, now: Instant) -> Result<(), Failure> {
        let until = self.addresses.lock().until.get(&network(address)).copied();
        let owed = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let retry_after = (owed + self.each).saturating_sub(self.all);
        if retry_after.is_zero() {
            return Ok(());
        }
        Err(Failure::OverLimit { limit: FAILED_LOGINS_LIMIT.to_owned(), retry_after })
    }

    /// Records a failed attempt. Concurrent attempts may exceed the rate: an address never waits
    /// for longer than a full burst takes.
    ///
    /// With replicas, each learns at its own failures of those at the others: an address that is over
    /// the rate has one attempt left at each.
    pub(crate) fn record(&self, address: IpAddr, now: Instant) {
        self.record_here(address, now);
        let Some((source, rate)) = &self.shared else { return };
        let (addresses, all) = (Arc::clone(&self.addresses), self.all);
        let network = network(address);
        let learn = move |owed: Duration| {
            if let Some(until) = addresses.lock().until.get_mut(&network) {
                *until = (*until).max(clock::now() + owed.min(all));
            }
        };
        let holder = network.to_string();
        let rate = SharedRate { limit: FAILED_LOGINS_LIMIT, holder: Some(&holder), rate: *rate };
        source.charge(&rate, Box::new(learn));
    }

    fn record_here(&self, address: IpAddr, now: Instant) {
        let mut addresses = self.addresses.lock();
        if addresses.until.len() >= addresses.sweep_at && now >= addresses.sweep_after {
            addresses.until.retain(|_, until| *until > now);
            addresses.sweep_at = (addresses.until.len() * 2).clamp(MANY_ADDRESSES, MAX_ADDRESSES);
            addresses.sweep_after = now + SWEEP_PAUSE;
        }
        let address = network(address);
        // Beyond the bound, addresses are not counted: an attacker with that many could have used a
        // new one each time.
        if addresses.until.len() < MAX_ADDRESSES || addresses.until.contains_key(&address) {
            let until = addresses.until.entry(address).or_insert(now);
            *until = (now.max(*until) + self.each).min(now + self.all);
        }
    }
}

/// Name of the limit in errors, metrics and the audit log.
const FAILED_LOGINS_LIMIT: &str = "failed_logins";
/// Number of addresses at which those without failures are dropped.
const MANY_ADDRESSES: usize = 10_000;
/// Limit of the addresses.
const MAX_ADDRESSES: usize = 200_000;
/// The time between two sweeps.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigSource, SystemEnvironment};

    #[test]
    fn thirty_a_minute_are_allowed_unless_the_configuration_says_otherwise() {
        let read = |line: &str| {
            let bytes = format!("[gateway]\n{line}").into_bytes();
            let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
            Config::read(&source, &SystemEnvironment).unwrap().gateway.failed_logins
        };
        let rate = |count: u32, per| Some(Rate { count: count.try_into().unwrap(), per });
        assert_eq!(read(""), rate(30, Duration::from_mins(1)));
        assert_eq!(read("failed_logins = \"off\""), None);
        assert_eq!(read("failed_logins = \"3/h\""), rate(3, Duration::from_hours(1)));
    }

    fn three_a_minute() -> (FailedLogins, Instant) {
        let rate = Rate { count: 3.try_into().unwrap(), per: Duration::from_mins(1) };
        (FailedLogins::new(rate), clock::now())
    }

    fn wait(failed: &FailedLogins, address: &str, now: Instant) -> u64 {
        match failed.check(address.parse().unwrap(), now) {
            Ok(()) => 0,
            Err(Failure::OverLimit { retry_after, .. }) => retry_after.as_secs(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn only_failures_count_and_each_is_forgotten_in_its_time() {
        let (failed, now) = three_a_minute();
        for _ in 0..100 {
            assert_eq!(wait(&failed, "192.0.2.1", now), 0, "asking costs nothing");
        }
        for expected in [0, 0, 20] {
            failed.record("192.0.2.1".parse().unwrap(), now);
            assert_eq!(wait(&failed, "192.0.2.1", now), expected);
        }
        assert_eq!(wait(&failed, "192.0.2.2", now), 0, "another address");
        for (after, expected) in [(19, 1), (20, 0)] {
            assert_eq!(wait(&failed, "192.0.2.1", now + Duration::from_secs(after)), expected);
        }
    }

    #[test]
    fn attempts_under_way_together_owe_no_more_than_the_whole_rate() {
        let (failed, now) = three_a_minute();
        for _ in 0..100 {
            failed.record("2001:db8::1".parse().unwrap(), now);
        }
        assert_eq!(wait(&failed, "2001:db8::2", now), 20, "one network");
    }

    #[test]
    fn addresses_that_owe_nothing_are_forgotten() {
        let (failed, mut now) = three_a_minute();
        for number in 0..u32::try_from(3 * MANY_ADDRESSES).unwrap() {
            now += Duration::from_millis(10);
            failed.record(IpAddr::V4(number.into()), now);
        }
        let kept = failed.addresses.lock().until.len();
        assert!(kept <= MANY_ADDRESSES, "{kept}");
        assert_eq!(wait(&failed, "0.0.117.47", now), 0);
    }
    #[test]
    fn addresses_beyond_the_bound_are_not_kept_and_those_before_still_count() {
        let (failed, now) = three_a_minute();
        for number in 0..u32::try_from(MAX_ADDRESSES).unwrap() + 100 {
            failed.record(IpAddr::V4((number + (1 << 24)).into()), now);
        }
        assert_eq!(failed.addresses.lock().until.len(), MAX_ADDRESSES);
        failed.record("1.0.0.0".parse().unwrap(), now);
        failed.record("1.0.0.0".parse().unwrap(), now);
        assert_eq!(wait(&failed, "1.0.0.0", now), 20);
    }
}
