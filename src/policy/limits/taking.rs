//! Taking from token buckets, and looking at them instead.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::call::Failure;
use crate::shares::{AddressBuckets, Bucket, BucketLevel, KeyedBuckets, PermitWait};

/// Takes permits from the buckets that a call passes, in their order. [`Enforcement`] takes them; a
/// dry run only looks. The two are types, so that looking costs a call nothing.
pub(crate) trait RateTaker {
    /// Takes one permit.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    fn take_one(&mut self, bucket: &Bucket, name: impl FnOnce() -> String) -> Result<(), Failure> {
        self.take(bucket, NonZeroU32::MIN, name)
    }

    /// Takes the permits of a call.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    fn take(
        &mut self,
        bucket: &Bucket,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure>;

    /// Takes the permits of a call from the bucket of a key.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    fn take_keyed<K: Clone + Eq + Hash>(
        &mut self,
        buckets: &KeyedBuckets<K>,
        key: &K,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure>;

    /// Takes the permits of a call from the bucket of an address.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    fn take_of_address(
        &mut self,
        buckets: &AddressBuckets,
        address: IpAddr,
        cost: NonZeroU32,
    ) -> Result<(), Failure>;
}

/// Admission of a call that is made: every limit is charged, and the first refusal ends it. It has the
/// observer of the call's steps; `()` for a call without observers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enforcement<O = ()>(pub(crate) O);

impl<O> RateTaker for Enforcement<O> {
    #[inline]
    fn take_one(&mut self, bucket: &Bucket, name: impl FnOnce() -> String) -> Result<(), Failure> {
        bucket.check(name)
    }

    #[inline]
    fn take(
        &mut self,
        bucket: &Bucket,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        bucket.check_cost(cost, name)
    }

    #[inline]
    fn take_keyed<K: Clone + Eq + Hash>(
        &mut self,
        buckets: &KeyedBuckets<K>,
        key: &K,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        buckets.check(key, cost, name)
    }

    #[inline]
    fn take_of_address(
        &mut self,
        buckets: &AddressBuckets,
        address: IpAddr,
        cost: NonZeroU32,
    ) -> Result<(), Failure> {
        buckets.check(address, cost)
    }
}

/// Provides the permits that replicas share before a call takes them, so that taking never waits. The
/// first limit that is known to refuse the call ends it.
#[derive(Default)]
pub(crate) struct RatePreparation {
    waits: Vec<PermitWait>,
}

impl RatePreparation {
    /// Returns the wait for all permits, whose requests are under way together; `None` if they are here.
    pub(crate) fn finish(self) -> Option<PermitWait> {
        let Self { waits } = self;
        if waits.is_empty() {
            return None;
        }
        Some(Box::pin(async move {
            for wait in waits {
                wait.await;
            }
        }))
    }
}

impl RateTaker for RatePreparation {
    fn take(
        &mut self,
        bucket: &Bucket,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.waits.extend(bucket.prepare(cost));
        bucket.look(cost, name)
    }

    fn take_keyed<K: Clone + Eq + Hash>(
        &mut self,
        buckets: &KeyedBuckets<K>,
        key: &K,
        cost: NonZeroU32,
        name: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        self.waits.extend(buckets.prepare(key, cost));
        buckets.look(key, cost, name)
    }

    fn take_of_address(
        &mut self,
        buckets: &AddressBuckets,
        address: IpAddr,
        cost: NonZeroU32,
    ) -> Result<(), Failure> {
        buckets.look(address, cost)
    }
}

/// State of a rate or quota that a call is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitLevel {
    /// Its name in errors and metrics, such as `client:ci`.
    pub limit: String,
    /// The calls that it still admits now.
    pub remaining: u64,
    /// The setting, such as `100/min`.
    pub setting: String,
    /// True if it refuses the call.
    pub is_exceeded: bool,
}

impl LimitLevel {
    pub(crate) fn of_bucket(limit: String, level: BucketLevel) -> Self {
        let (remaining, setting) = (u64::from(level.remaining), level.rate.to_string());
        Self { limit, remaining, setting, is_exceeded: false }
    }
}
