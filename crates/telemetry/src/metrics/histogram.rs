//! A histogram of durations, written and read without a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use trunkline_core::clock;

/// The upper bounds in seconds, from the semantic conventions for MCP.
pub const BUCKET_BOUNDS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// The same bounds in nanoseconds: comparing integers is exact.
const NANOSECOND_BOUNDS: [u64; BUCKET_BOUNDS.len()] = {
    const MILLISECOND_NANOS: u64 = 1_000_000;
    const SECOND_NANOS: u64 = 1000 * MILLISECOND_NANOS;
    [
        10 * MILLISECOND_NANOS,
        20 * MILLISECOND_NANOS,
        50 * MILLISECOND_NANOS,
        100 * MILLISECOND_NANOS,
        200 * MILLISECOND_NANOS,
        500 * MILLISECOND_NANOS,
        SECOND_NANOS,
        2 * SECOND_NANOS,
        5 * SECOND_NANOS,
        10 * SECOND_NANOS,
        30 * SECOND_NANOS,
        60 * SECOND_NANOS,
        120 * SECOND_NANOS,
        300 * SECOND_NANOS,
    ]
};

/// One bucket for each bound, and one above all bounds.
const BUCKET_COUNT: usize = BUCKET_BOUNDS.len() + 1;

/// A histogram of durations. Recording costs two relaxed additions.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKET_COUNT],
    nanoseconds: AtomicU64,
    since: SystemTime,
}

/// The contents of a [`Histogram`] at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistogramSnapshot {
    /// The count of each bucket; the last one has no upper bound.
    pub buckets: [u64; BUCKET_COUNT],
    /// The total count.
    pub count: u64,
    /// The sum of all durations, in seconds.
    pub sum: f64,
}

impl Histogram {
    /// Adds one duration. The sum wraps after 584 years.
    pub fn observe_duration(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let at = NANOSECOND_BOUNDS.iter().position(|bound| nanoseconds <= *bound);
        if let Some(bucket) = self.buckets.get(at.unwrap_or(BUCKET_BOUNDS.len())) {
            bucket.fetch_add(1, Relaxed);
        }
        self.nanoseconds.fetch_add(nanoseconds, Relaxed);
    }

    /// The current contents. Count and buckets always agree; the sum may
    /// already include a duration that they do not.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
        let sum = Duration::from_nanos(self.nanoseconds.load(Relaxed)).as_secs_f64();
        HistogramSnapshot { buckets, count: buckets.iter().sum(), sum }
    }

    /// When counting began.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.load(Relaxed) == 0)
    }
}

impl HistogramSnapshot {
    /// Adds the contents of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(other.buckets) {
            *bucket += more;
        }
        self.count += other.count;
        self.sum += other.sum;
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: Default::default(),
            nanoseconds: AtomicU64::default(),
            since: clock::wall_now(),
        }
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let HistogramSnapshot { buckets, count, sum } = self.snapshot();
        let bounds = BUCKET_BOUNDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(buckets).collect();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// A histogram shared by the registry and its writers.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedHistogram(pub(super) Arc<Histogram>);

impl EncodeMetric for SharedHistogram {
    fn encode(&self, encoder: MetricEncoder) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Histogram::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_under_the_first_bound_that_holds_it() {
        for (duration, bucket) in [
            (Duration::ZERO, 0),
            (Duration::from_millis(10), 0),
            (Duration::from_nanos(10_000_001), 1),
            (Duration::from_mins(5), 13),
            (Duration::from_secs(301), 14),
            (Duration::MAX, 14),
        ] {
            let histogram = Histogram::default();
            assert!(histogram.is_empty());
            histogram.observe_duration(duration);
            let snapshot = histogram.snapshot();
            assert_eq!(snapshot.buckets.iter().position(|n| *n == 1), Some(bucket), "{duration:?}");
            assert_eq!(snapshot.count, 1);
            assert!(!histogram.is_empty());
        }
    }

    #[test]
    fn bounds_in_seconds_and_in_nanoseconds_agree() {
        for (seconds, nanoseconds) in BUCKET_BOUNDS.into_iter().zip(NANOSECOND_BOUNDS) {
            assert_eq!(Duration::from_secs_f64(seconds), Duration::from_nanos(nanoseconds));
        }
    }
}
