//! Token buckets.

use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use governor::Quota;
use governor::clock::{Clock, DefaultClock};
use governor::state::InMemoryState;

use trunkline_config::Rate;
use trunkline_protocol::call::Failure;

use crate::bucket_store::{BucketStore, MAX_OWN_BUCKETS};
use crate::shared_permits::{PermitSource, PermitWait, SharedPermits, SharedRate};
use crate::shared_store::{
    LimiterRefusal, LookingLimiter, TakingLimiter, count_permits, share_store,
};

/// One token bucket.
#[derive(Debug)]
pub struct Bucket {
    limiter: TakingLimiter<InMemoryState>,
    looking: LookingLimiter<InMemoryState>,
    rate: Rate,
    /// The permits that replicas share; `None` if the gateway is alone.
    shared: Option<Arc<dyn SharedPermits>>,
}

/// State of a token bucket, without a change of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketLevel {
    /// The permits in it.
    pub remaining: u32,
    /// The rate at which it is refilled, up to `rate.count` permits.
    pub rate: Rate,
}

impl Bucket {
    /// Creates a full bucket.
    pub fn new(rate: Rate) -> Self {
        let (limiter, looking) = share_store(quota(rate));
        Self { limiter, looking, rate, shared: None }
    }

    /// Returns the bucket with permits that replicas share, if there is a source of them.
    #[must_use]
    pub fn shared_as(self, limit: &str, source: Option<&Arc<dyn PermitSource>>) -> Self {
        let rate = SharedRate { limit, holder: None, rate: self.rate };
        Self { shared: source.map(|source| source.find(&rate)), ..self }
    }

    /// Provides shared permits of a call that is about to take them; `None` if no wait is needed.
    pub fn prepare(&self, cost: NonZeroU32) -> Option<PermitWait> {
        self.shared.as_ref()?.prepare(cost)
    }

    /// Returns the permits in the bucket.
    pub fn level(&self) -> BucketLevel {
        let shared = self.shared.as_ref().and_then(|shared| shared.remaining());
        if let Some(remaining) = shared {
            return BucketLevel { remaining, rate: self.rate };
        }
        let holds = |count| matches!(self.looking.check_n(count), Ok(Ok(())));
        BucketLevel { remaining: count_permits(self.rate.count, holds), rate: self.rate }
    }

    /// Checks that the bucket has the permits of a call that counts as `cost`, and takes none.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn look(&self, cost: NonZeroU32, name: impl FnOnce() -> String) -> Result<(), Failure> {
        let Some(shared) = &self.shared else {
            return judge_batch(self.looking.check_n(cost).ok(), name);
        };
        shared.look(cost).judge(name, |name| judge_batch(self.looking.check_n(cost).ok(), name))
    }

    /// Takes one permit. `name` names the limit in the failure.
    ///
    /// # Errors
    /// The limit is reached.
    #[inline]
    pub fn check(&self, name: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.shared.is_some() {
            return self.check_cost(NonZeroU32::MIN, name);
        }
        self.limiter.check().map_err(|until| over_limit(name(), wait_until(&until)))
    }

    /// Takes permits for a call that counts as `cost`. `name` names the limit in the failure.
    ///
    /// # Errors
    /// The limit is reached.
    #[inline]
    pub fn check_cost(
        &self,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match &self.shared {
            None => judge_batch(self.limiter.check_n(cost).ok(), name),
            Some(shared) => {
                let taken = shared.take(cost);
                taken.judge(name, |name| judge_batch(self.limiter.check_n(cost).ok(), name))
            }
        }
    }
}

/// One token bucket for each client address.
#[derive(Debug)]
pub struct AddressBuckets(KeyedBuckets<IpAddr>);

impl AddressBuckets {
    /// Creates full buckets.
    pub fn new(rate: Rate) -> Self {
        Self(KeyedBuckets::new(rate))
    }

    /// Takes permits from the bucket of an address.
    ///
    /// # Errors
    /// The limit is reached.
    #[inline]
    pub fn check(&self, address: IpAddr, cost: NonZeroU32) -> Result<(), Failure> {
        self.0.check(&network(address), cost, || ADDRESS_LIMIT.into())
    }

    /// Checks that the bucket of an address has the permits of a call, and takes none.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn look(&self, address: IpAddr, cost: NonZeroU32) -> Result<(), Failure> {
        self.0.look(&network(address), cost, || ADDRESS_LIMIT.into())
    }

    /// Returns the permits in the bucket of an address.
    pub fn level(&self, address: IpAddr) -> BucketLevel {
        self.0.level(&network(address))
    }
}

/// One token bucket for each of possibly many keys.
#[derive(Debug)]
pub struct KeyedBuckets<K: Clone + Eq + Hash> {
    limiter: TakingLimiter<BucketStore<K>>,
    looking: LookingLimiter<BucketStore<K>>,
    rate: Rate,
    /// Number of checked requests. Counted here, because counting the keys takes a lock on every
    /// shard of their map.
    checks: AtomicUsize,
    /// Number of keys above which the next sweep runs.
    sweep_at: AtomicUsize,
    /// The permits that replicas share; `None` if the gateway is alone.
    shared: Option<SharedKeys<K>>,
}

/// The permits of each key that replicas share.
#[derive(Debug)]
struct SharedKeys<K> {
    source: Arc<dyn PermitSource>,
    limit: String,
    describe: fn(&K) -> String,
    rate: Rate,
}

impl<K> SharedKeys<K> {
    fn find(&self, key: &K) -> Arc<dyn SharedPermits> {
        let holder = (self.describe)(key);
        self.source.find(&self.rate_of(&holder))
    }

    fn peek(&self, key: &K) -> Option<Arc<dyn SharedPermits>> {
        let holder = (self.describe)(key);
        self.source.peek(&self.rate_of(&holder))
    }

    fn rate_of<'a>(&'a self, holder: &'a str) -> SharedRate<'a> {
        SharedRate { limit: &self.limit, holder: Some(holder), rate: self.rate }
    }
}

impl<K: Clone + Eq + Hash> KeyedBuckets<K> {
    /// Creates full buckets.
    pub fn new(rate: Rate) -> Self {
        let (limiter, looking) = share_store(quota(rate));
        Self {
            limiter,
            looking,
            rate,
            checks: AtomicUsize::new(0),
            sweep_at: AtomicUsize::new(MANY_ADDRESSES),
            shared: None,
        }
    }

    /// Returns the buckets with permits that replicas share, if there is a source of them.
    /// `describe` returns a unique text for a key.
    #[must_use]
    pub fn shared_as(
        self,
        limit: &str,
        source: Option<&Arc<dyn PermitSource>>,
        describe: fn(&K) -> String,
    ) -> Self {
        let rate = self.rate;
        let shared = source.map(|source| SharedKeys {
            source: Arc::clone(source),
            limit: limit.to_owned(),
            describe,
            rate,
        });
        Self { shared, ..self }
    }

    /// Provides shared permits of a call that is about to take them; `None` if no wait is needed.
    pub fn prepare(&self, key: &K, cost: NonZeroU32) -> Option<PermitWait> {
        self.shared.as_ref()?.find(key).prepare(cost)
    }

    /// Takes permits from the bucket of a key. `name` names the limit in the failure.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn check(
        &self,
        key: &K,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let Some(shared) = &self.shared else { return self.check_alone(key, cost, name) };
        shared.find(key).take(cost).judge(name, |name| self.check_alone(key, cost, name))
    }

    fn check_alone(
        &self,
        key: &K,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let before = self.checks.fetch_add(1, Ordering::Relaxed);
        if before % CHECKS_PER_SWEEP == CHECKS_PER_SWEEP - 1 {
            self.sweep();
        }
        judge_batch(self.limiter.check_key_n(key, cost).ok(), name)
    }

    /// Checks that the bucket of a key has the permits of a call, and takes none.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn look(
        &self,
        key: &K,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let Some(shared) = self.shared.as_ref().and_then(|shared| shared.peek(key)) else {
            return judge_batch(self.looking.check_key_n(key, cost).ok(), name);
        };
        let looked = shared.look(cost);
        looked.judge(name, |name| judge_batch(self.looking.check_key_n(key, cost).ok(), name))
    }

    /// Returns the permits in the bucket of a key.
    pub fn level(&self, key: &K) -> BucketLevel {
        let shared = self.shared.as_ref().and_then(|shared| shared.peek(key));
        if let Some(remaining) = shared.and_then(|shared| shared.remaining()) {
            return BucketLevel { remaining, rate: self.rate };
        }
        let holds = |count| matches!(self.looking.check_key_n(key, count), Ok(Ok(())));
        BucketLevel { remaining: count_permits(self.rate.count, holds), rate: self.rate }
    }

    /// Drops the keys with full buckets, if there are many keys. If few could be dropped, the next
    /// sweep is postponed, up to a bound: it visits every key.
    fn sweep(&self) {
        let kept = self.limiter.len();
        if kept >= MAX_OWN_BUCKETS || kept > self.sweep_at.load(Ordering::Relaxed) {
            self.limiter.retain_recent();
            let next = (self.limiter.len() * 2).clamp(MANY_ADDRESSES, MAX_OWN_BUCKETS);
            self.sweep_at.store(next, Ordering::Relaxed);
        }
    }
}

/// Returns the address that limits apply to: the /64 network of an IPv6 address, since one client
/// has all of it, and one address for this whole machine, 127.0.0.0/8 and `::1`, for the same
/// reason.
#[inline]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        IpAddr::V4(v4) if !v4.is_loopback() => IpAddr::V4(v4),
        IpAddr::V4(_) | IpAddr::V6(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
}

/// Returns the failure of a call that a limiter refuses; `None` stands for a cost beyond the
/// bucket's capacity, which the configuration refuses.
#[inline]
fn judge_batch(
    checked: Option<Result<(), LimiterRefusal>>,
    name: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match checked {
        Some(Ok(())) => Ok(()),
        Some(Err(until)) => Err(over_limit(name(), wait_until(&until))),
        None => Err(over_limit(name(), UNREACHABLE_RATE_WAIT)),
    }
}

fn wait_until(until: &LimiterRefusal) -> Duration {
    until.wait_time_from(DefaultClock::default().now())
}

fn over_limit(limit: String, retry_after: Duration) -> Failure {
    Failure::OverLimit { limit, retry_after }
}

fn quota(rate: Rate) -> Quota {
    let each = rate.per / rate.count.get();
    // A period is never zero: the configuration refuses rates beyond 1 per ns.
    Quota::with_period(each.max(Duration::from_nanos(1)))
        .unwrap_or(Quota::per_second(rate.count))
        .allow_burst(rate.count)
}

/// The name of the limit of addresses in errors and metrics.
const ADDRESS_LIMIT: &str = "client";
/// Wait of a call that exceeds a bucket's capacity.
const UNREACHABLE_RATE_WAIT: Duration = Duration::from_hours(24);

/// Number of addresses at which full buckets are dropped.
const MANY_ADDRESSES: usize = 100_000;

/// Number of requests between two counts of the addresses, and so the limit of new addresses
/// between them.
const CHECKS_PER_SWEEP: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_for_one_ipv4_address_or_one_ipv6_network() {
        let hourly = Rate { count: 1.try_into().unwrap(), per: Duration::from_hours(1) };
        let buckets = AddressBuckets::new(hourly);
        for (address, admitted) in [
            ("2001:db8::1", true),
            ("2001:db8::1", false),
            ("2001:db8::2:3:4:ffff", false),
            ("2001:db8:0:1::1", true),
            ("1.2.3.4", true),
            ("1.2.3.5", true),
            ("::ffff:1.2.3.4", false),
        ] {
            let checked = buckets.check(address.parse().unwrap(), NonZeroU32::MIN);
            assert_eq!(checked.is_ok(), admitted, "{address}");
        }
    }

    #[test]
    fn a_rate_is_a_burst_and_its_even_refill() {
        let rate = Rate { count: 60.try_into().unwrap(), per: Duration::from_mins(1) };
        let quota = quota(rate);
        assert_eq!(quota.replenish_interval(), Duration::from_secs(1));
        assert_eq!(quota.burst_size().get(), 60);
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_bucket() {
        let one = network("2001:db8::1".parse().unwrap());
        assert_eq!(one, network("2001:db8::ffff".parse().unwrap()));
        assert_ne!(one, network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(
            network("::ffff:1.2.3.4".parse().unwrap()),
            "1.2.3.4".parse::<IpAddr>().unwrap()
        );
        for own in ["127.0.0.1", "127.255.3.4", "::1", "::ffff:127.0.0.9"] {
            assert_eq!(network(own.parse().unwrap()), IpAddr::V4(Ipv4Addr::LOCALHOST), "{own}");
        }
    }
    #[test]
    fn addresses_at_rest_are_forgotten() {
        let count = NonZeroU32::new(1).unwrap();
        let buckets = AddressBuckets::new(Rate { count, per: Duration::from_micros(1) });
        let bound = MANY_ADDRESSES + CHECKS_PER_SWEEP;
        let mut most = 0;
        for number in 0..u32::try_from(2 * bound).unwrap() {
            buckets.check(IpAddr::V4(number.into()), NonZeroU32::MIN).unwrap();
            if number % 4096 == 0 {
                most = most.max(buckets.0.limiter.len());
            }
        }
        assert!(most > MANY_ADDRESSES, "few are not worth a sweep: {most}");
        assert!(most <= bound, "{most}");
        assert!(buckets.0.limiter.len() <= MANY_ADDRESSES);
    }

    #[test]
    fn callers_beyond_the_bound_share_one_bucket_and_those_before_keep_theirs() {
        let count = NonZeroU32::new(2).unwrap();
        let buckets = AddressBuckets::new(Rate { count, per: Duration::from_hours(24) });
        let check = |number: usize| {
            let number = u32::try_from(number).unwrap();
            buckets.check(IpAddr::V4(number.into()), NonZeroU32::MIN).is_ok()
        };
        // From 1.0.0.0, because all of 127.0.0.0/8 is one address.
        let first = 1 << 24;
        for number in first..first + MAX_OWN_BUCKETS {
            assert!(check(number), "{number}");
        }
        // This many more until the next count.
        let counted = first + MAX_OWN_BUCKETS + CHECKS_PER_SWEEP;
        (first + MAX_OWN_BUCKETS..counted).for_each(|number| _ = check(number));
        let strangers = counted..counted + 3 * CHECKS_PER_SWEEP;
        let admitted = strangers.filter(|number| check(*number)).count();
        assert!(admitted <= 2, "not more than one of them alone: {admitted}");
        let kept = buckets.0.limiter.len();
        assert!(kept <= MAX_OWN_BUCKETS + CHECKS_PER_SWEEP, "{kept}");
        assert!(check(first), "its second of two");
        assert!(!check(first));
    }

    #[test]
    fn a_cost_is_taken_whole_or_not_at_all() {
        let bucket =
            Bucket::new(Rate { count: 5.try_into().unwrap(), per: Duration::from_hours(1) });
        let check = |cost| bucket.check_cost(NonZeroU32::new(cost).unwrap(), || "x".into()).is_ok();
        assert_eq!([3, 3, 2, 1, 6].map(check), [true, false, true, false, false]);
    }

    #[test]
    fn a_look_takes_nothing_and_decides_like_a_check() {
        let one = NonZeroU32::MIN;
        let name = || "x".to_owned();
        let rate = Rate { count: 3.try_into().unwrap(), per: Duration::from_hours(1) };
        let (bucket, keyed) = (Bucket::new(rate), KeyedBuckets::new(rate));
        for remaining in (0..=3).rev() {
            for _ in 0..5 {
                assert_eq!(bucket.level().remaining, remaining);
                assert_eq!(keyed.level(&"ann").remaining, remaining);
                assert_eq!(keyed.level(&"bob").remaining, 3, "another key");
            }
            for cost in 1..6 {
                let (fits, cost) = (cost <= remaining, NonZeroU32::new(cost).unwrap());
                assert_eq!(bucket.look(cost, name).is_ok(), fits, "{cost} of {remaining}");
                assert_eq!(keyed.look(&"ann", cost, name).is_ok(), fits, "{cost} of {remaining}");
            }
            assert_eq!(bucket.check(name).is_ok(), remaining > 0);
            assert_eq!(keyed.check(&"ann", one, name).is_ok(), remaining > 0);
        }
    }

    #[test]
    fn addresses_in_use_are_kept_by_a_sweep() {
        let count = NonZeroU32::new(1).unwrap();
        let buckets = AddressBuckets::new(Rate { count, per: Duration::from_hours(1) });
        let busy = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        buckets.check(busy, NonZeroU32::MIN).unwrap();
        buckets.0.sweep_at.store(0, Ordering::Relaxed);
        buckets.0.sweep();
        assert!(buckets.check(busy, NonZeroU32::MIN).is_err(), "its bucket is as empty as before");
    }
}
