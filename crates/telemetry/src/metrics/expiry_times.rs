//! Times at which certificates and keys expire, by kind and setting.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// The labels `kind` and `name`.
type ExpiryLabels = [(&'static str, String); 2];

/// A time at which an element expires.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiryTime {
    /// The value of the label `kind`.
    pub kind: &'static str,
    /// The value of the label `name`: comes from the configuration, never from a client.
    pub name: String,
    /// The time, in seconds since 1970.
    pub at: f64,
}

/// The known times. An element that is gone has no series.
#[derive(Debug, Clone, Default)]
pub struct ExpiryTimes {
    family: Family<ExpiryLabels, Gauge<f64, AtomicU64>>,
    shown: Arc<Mutex<Vec<ExpiryLabels>>>,
}

impl ExpiryTimes {
    /// Replaces all times. Of several with the same labels, the earliest counts.
    pub fn replace(&self, times: Vec<ExpiryTime>) {
        let mut earliest = HashMap::<ExpiryLabels, f64>::new();
        for ExpiryTime { kind, name, at } in times {
            let labels = [("kind", kind.to_owned()), ("name", name)];
            earliest.entry(labels).and_modify(|known| *known = known.min(at)).or_insert(at);
        }
        let mut shown = self.shown.lock();
        for gone in shown.iter().filter(|labels| !earliest.contains_key(*labels)) {
            self.family.remove(gone);
        }
        for (labels, at) in &earliest {
            self.family.get_or_create(labels).set(*at);
        }
        *shown = earliest.into_keys().collect();
    }

    pub(super) fn family(&self) -> Family<ExpiryLabels, Gauge<f64, AtomicU64>> {
        self.family.clone()
    }
}
