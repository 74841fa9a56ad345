//! Token buckets of many callers, within a bound.

use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

use governor::nanos::Nanos;
use governor::state::keyed::{DefaultKeyedStateStore, ShrinkableKeyedStateStore};
use governor::state::{InMemoryState, NotKeyed, StateStore};

/// One bucket for each key, up to a bound; all other keys share one. An attacker with very many
/// addresses can thus neither fill the memory nor evict the buckets of known callers.
#[derive(Debug)]
pub(crate) struct BucketStore<K: Clone + Eq + Hash> {
    own: DefaultKeyedStateStore<K>,
    others: InMemoryState,
    is_full: AtomicBool,
}

impl<K: Clone + Eq + Hash> BucketStore<K> {
    /// Returns true if there were too many keys at the last count.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

impl<K: Clone + Eq + Hash> Default for BucketStore<K> {
    fn default() -> Self {
        let (own, others) = (DefaultKeyedStateStore::default(), InMemoryState::default());
        Self { own, others, is_full: AtomicBool::new(false) }
    }
}

impl<K: Clone + Eq + Hash> StateStore for BucketStore<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        if self.is_full() && !self.own.contains_key(key) {
            return self.others.measure_and_replace(&NotKeyed::NonKey, measure);
        }
        self.own.measure_and_replace(key, measure)
    }
}

impl<K: Clone + Eq + Hash> ShrinkableKeyedStateStore<K> for BucketStore<K> {
    fn retain_recent(&self, drop_below: Nanos) {
        self.own.retain_recent(drop_below);
        self.is_full.store(self.own.len() >= MAX_OWN_BUCKETS, Ordering::Relaxed);
    }

    fn len(&self) -> usize {
        self.own.len()
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty()
    }
}

/// Limit of the keys with buckets of their own. They are counted periodically, so there may be some
/// thousands more.
pub(crate) const MAX_OWN_BUCKETS: usize = 400_000;
