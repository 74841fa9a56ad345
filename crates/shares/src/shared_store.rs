//! Stores of token buckets that two limiters share: one takes permits, the other only looks.
//!
//! A limiter of `governor` has no operation that leaves the bucket as it is. The looking limiter
//! makes the same decision over the same state, and its store drops the new state.

use std::convert::Infallible;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

use governor::clock::DefaultClock;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;
use governor::{NotUntil, Quota, RateLimiter};

/// A limiter that takes permits.
pub(crate) type TakingLimiter<S> =
    RateLimiter<<S as StateStore>::Key, TakingStore<S>, DefaultClock>;
/// A limiter that looks at the same buckets.
pub(crate) type LookingLimiter<S> =
    RateLimiter<<S as StateStore>::Key, LookingStore<S>, DefaultClock>;
/// The refusal of a limiter.
pub(crate) type LimiterRefusal = NotUntil<<DefaultClock as governor::clock::Clock>::Instant>;

/// The store of the limiter that takes permits.
#[derive(Debug)]
pub(crate) struct TakingStore<S>(Arc<S>);

/// The store of the limiter that changes nothing.
#[derive(Debug)]
pub(crate) struct LookingStore<S>(Arc<S>);

/// Creates both limiters over one store.
pub(crate) fn share_store<S: StateStore + Default>(
    quota: Quota,
) -> (TakingLimiter<S>, LookingLimiter<S>) {
    let store = Arc::new(S::default());
    let clock = DefaultClock::default;
    // Each limiter counts time from its creation. The looking one is created first: behind the other
    // it would not see permits that are there.
    let looking = RateLimiter::new(quota, LookingStore(Arc::clone(&store)), clock());
    (RateLimiter::new(quota, TakingStore(store), clock()), looking)
}

impl<S: StateStore> StateStore for TakingStore<S> {
    type Key = S::Key;

    #[inline]
    fn measure_and_replace<T, F, E>(&self, key: &Self::Key, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        self.0.measure_and_replace(key, measure)
    }
}

impl<K, S> ShrinkableKeyedStateStore<K> for TakingStore<S>
where
    K: Clone + Eq + Hash,
    S: ShrinkableKeyedStateStore<K, Key = K>,
{
    fn retain_recent(&self, drop_below: Nanos) {
        self.0.retain_recent(drop_below);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<S: StateStore> StateStore for LookingStore<S> {
    type Key = S::Key;

    // A store keeps its state if the measurement fails.
    fn measure_and_replace<T, F, E>(&self, key: &Self::Key, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let measured: Result<Infallible, _> =
            self.0.measure_and_replace(key, |state| Err(measure(state)));
        match measured {
            Ok(never) => match never {},
            Err(outcome) => outcome.map(|(decision, _)| decision),
        }
    }
}

/// Returns the number of permits in a bucket of this size. `holds` returns true if it has so many.
pub(crate) fn count_permits(size: NonZeroU32, holds: impl Fn(NonZeroU32) -> bool) -> u32 {
    let (mut least, mut most) = (0, size.get());
    while least < most {
        let middle = most - (most - least) / 2;
        if NonZeroU32::new(middle).is_some_and(&holds) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_counted_exactly() {
        for size in 1..40 {
            let size = NonZeroU32::new(size).unwrap();
            for held in 0..=size.get() {
                assert_eq!(count_permits(size, |count| count.get() <= held), held, "of {size}");
            }
        }
    }
}
