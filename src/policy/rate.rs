//! Token buckets.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::call::Failure;
use crate::config::Rate;

/// One bucket.
#[derive(Debug)]
pub(super) struct Bucket(DefaultDirectRateLimiter);

impl Bucket {
    pub(super) fn new(rate: Rate) -> Self {
        Self(RateLimiter::direct(quota(rate)))
    }

    pub(super) fn check(&self, name: impl FnOnce() -> String) -> Result<(), Failure> {
        self.0
            .check()
            .map_err(|until| over(name(), until.wait_time_from(DefaultClock::default().now())))
    }
}

/// A bucket for each client address.
#[derive(Debug)]
pub(super) struct Buckets {
    buckets: DefaultKeyedRateLimiter<IpAddr>,
    checks: AtomicU32,
}

impl Buckets {
    pub(super) fn new(rate: Rate) -> Self {
        Self { buckets: RateLimiter::keyed(quota(rate)), checks: AtomicU32::new(0) }
    }

    pub(super) fn check(&self, address: IpAddr) -> Result<(), Failure> {
        // To count the addresses takes every lock of the map: not for each request.
        let checks = self.checks.fetch_add(1, Ordering::Relaxed);
        if checks.is_multiple_of(COUNT_EVERY) && self.buckets.len() > MOST_ADDRESSES {
            // Forgets the addresses whose buckets are full again.
            self.buckets.retain_recent();
        }
        self.buckets.check_key(&network(address)).map_err(|until| {
            over("client".into(), until.wait_time_from(DefaultClock::default().now()))
        })
    }
}

/// The address that counts. One IPv6 client has a whole /64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn over(limit: String, retry_after: Duration) -> Failure {
    Failure::OverLimit { limit, retry_after }
}

fn quota(rate: Rate) -> Quota {
    let each = rate.per / rate.count.get();
    // A period is never zero: the configuration refuses rates beyond 1 per ns.
    Quota::with_period(each.max(Duration::from_nanos(1)))
        .unwrap_or(Quota::per_second(rate.count))
        .allow_burst(rate.count)
}

/// How many addresses are remembered before those at rest are forgotten.
const MOST_ADDRESSES: usize = 100_000;
/// After how many requests the addresses are counted.
const COUNT_EVERY: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_share_a_bucket() {
        let one = network("2001:db8::1".parse().unwrap());
        assert_eq!(one, network("2001:db8::ffff".parse().unwrap()));
        assert_ne!(one, network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(
            network("::ffff:1.2.3.4".parse().unwrap()),
            "1.2.3.4".parse::<IpAddr>().unwrap()
        );
    }
}
