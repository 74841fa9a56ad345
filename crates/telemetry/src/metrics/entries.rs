//! Table of the counted servers and tools. Each entry becomes a series of several families in the
//! registry.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Label names and values, in the form of a family.
pub(crate) type Labels<'a> = [(&'static str, &'a str)];

/// A visitor of all series.
pub(crate) type MetricVisit<'a, M> = &'a mut dyn FnMut(&Labels<'_>, &M);

/// An entry with labels that all its series carry.
pub(super) trait LabelledEntry {
    /// Returns the labels in output order.
    fn labels(&self) -> Vec<(&'static str, &str)>;
}

/// The entries of all servers, or of all tools: held weakly, sorted by key.
#[derive(Debug)]
pub(super) struct Entries<V>(Arc<RwLock<EntryTable<V>>>);

#[derive(Debug)]
struct EntryTable<V> {
    entries: BTreeMap<Box<[Box<str>]>, Weak<V>>,
    /// The number of entries at which dead ones are pruned.
    prune_at: usize,
}

impl<V> Entries<V> {
    /// Returns the entry of a key. Creates it if none is alive.
    pub(super) fn get_or_insert(&self, key: &[&str], make: impl FnOnce() -> V) -> Arc<V> {
        let key: Box<[Box<str>]> = key.iter().map(|part| Box::from(*part)).collect();
        let mut table = self.0.write();
        if let Some(entry) = table.entries.get(&key).and_then(Weak::upgrade) {
            return entry;
        }
        // Without a scraper nothing else prunes: many reloads must not pile up names.
        if table.entries.len() >= table.prune_at {
            table.prune();
        }
        let entry = Arc::new(make());
        table.entries.insert(key, Arc::downgrade(&entry));
        entry
    }

    /// Returns the entry of a key, if one is alive.
    pub(super) fn find(&self, key: &[&str]) -> Option<Arc<V>> {
        let key: Box<[Box<str>]> = key.iter().map(|part| Box::from(*part)).collect();
        self.0.read().entries.get(&key).and_then(Weak::upgrade)
    }

    /// Returns all live entries, sorted by key.
    pub(super) fn live_entries(&self) -> Vec<Arc<V>> {
        let table = self.0.read();
        table.entries.values().filter_map(Weak::upgrade).collect()
    }

    /// Removes dead entries.
    pub(super) fn prune(&self) {
        self.0.write().prune();
    }
}

impl<V> EntryTable<V> {
    fn prune(&mut self) {
        self.entries.retain(|_, entry| entry.strong_count() > 0);
        self.prune_at = (2 * self.entries.len()).max(PRUNE_AT_LEAST);
    }
}

impl<V> Clone for Entries<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        let table = EntryTable { entries: BTreeMap::new(), prune_at: PRUNE_AT_LEAST };
        Self(Arc::new(RwLock::new(table)))
    }
}

const PRUNE_AT_LEAST: usize = 64;

/// One family in the registry: one metric of every entry.
#[derive(Debug)]
pub(super) struct MetricProjection<V, M> {
    entries: Entries<V>,
    aspect: fn(&V, MetricVisit<'_, M>),
}

impl<V, M> MetricProjection<V, M> {
    pub(super) fn new(entries: &Entries<V>, aspect: fn(&V, MetricVisit<'_, M>)) -> Self {
        Self { entries: entries.clone(), aspect }
    }
}

impl<V: LabelledEntry, M: EncodeMetric + TypedMetric> EncodeMetric for MetricProjection<V, M> {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let mut result = Ok(());
        for entry in self.entries.live_entries() {
            (self.aspect)(&entry, &mut |labels, metric| {
                if result.is_ok() {
                    let labels = [&*entry.labels(), labels].concat();
                    result = encode_with(&mut encoder, &labels, metric);
                }
            });
        }
        result
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

/// Encodes one series of a family.
pub(super) fn encode_with(
    encoder: &mut MetricEncoder<'_>,
    labels: &Labels<'_>,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_family(&labels)?)
}

/// A counter within its handle, without a pointer in between.
#[derive(Debug, Default)]
pub(super) struct EventCount(AtomicU64);

impl EventCount {
    /// Counts an event; returns the count before it.
    #[inline]
    pub(super) fn increment(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }

    pub(super) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl TypedMetric for EventCount {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for EventCount {
    fn encode(&self, encoder: MetricEncoder) -> fmt::Result {
        ConstCounter::new(self.value()).encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
