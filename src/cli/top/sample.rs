//! Samples of the gateway's activity, and the rates between two of them.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::cli::printable;

/// The document of `GET /activity`, as far as it is shown.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ActivitySample {
    pub(super) version: String,
    pub(super) now: Timestamp,
    pub(super) started_at: Timestamp,
    pub(super) state: String,
    pub(super) memory_bytes: Option<u64>,
    pub(super) sessions: usize,
    pub(super) streams: usize,
    pub(super) connections: usize,
    pub(super) parked: usize,
    bucket_bounds: Vec<f64>,
    requests: RequestSample,
    failures: Vec<FailureSample>,
    pub(super) servers: Vec<ServerSample>,
}

/// Totals of requests.
#[derive(Debug, Clone, Deserialize)]
struct RequestSample {
    calls: u64,
    failed: u64,
    refused: u64,
    buckets: Vec<u64>,
}

/// Number of refused or failed requests.
#[derive(Debug, Clone, Deserialize)]
struct FailureSample {
    outcome: String,
    reason: String,
    count: u64,
}

/// Totals and levels of a server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ServerSample {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) since: Timestamp,
    pub(super) era: Option<String>,
    pub(super) restarts: u32,
    pub(super) instance_count: usize,
    pub(super) in_flight: usize,
    pub(super) queued: usize,
    requests: RequestSample,
    pub(super) tool_tokens: Option<usize>,
    pub(super) breaker: Option<BreakerSample>,
    pub(super) last_error: Option<ErrorSample>,
    pub(super) next_retry_at: Option<Timestamp>,
    pub(super) cure: Option<String>,
}

/// A circuit breaker.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct BreakerSample {
    pub(super) state: String,
}

/// An error of a server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ErrorSample {
    pub(super) at: Timestamp,
    pub(super) message: String,
}

/// A sample, and the rates since the one before.
#[derive(Debug)]
pub(super) struct MeasuredActivity {
    pub(super) sample: ActivitySample,
    /// Requests of clients.
    pub(super) requests: RequestRates,
    /// Refused requests by reason, the most frequent first.
    pub(super) refusals: Vec<RefusalRate>,
    /// Requests to servers, in file order.
    pub(super) servers: Vec<RequestRates>,
}

/// Rates of requests. Without an earlier sample there are none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RequestRates {
    /// Number of requests since the start.
    pub(super) total: u64,
    /// Number of failed ones since the start.
    pub(super) failed_total: u64,
    /// Requests in a second.
    pub(super) calls: Option<f64>,
    /// Failed requests in a second.
    pub(super) failed: Option<f64>,
    /// Refused requests in a second.
    pub(super) refused: Option<f64>,
    /// The bucket of the median; `None` without requests.
    pub(super) median: Option<LatencyBound>,
    /// The bucket of the 95th percentile.
    pub(super) slow: Option<LatencyBound>,
}

/// A bucket of durations. The exact duration is not known.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum LatencyBound {
    /// At most this many seconds.
    AtMost(f64),
    /// More than this many seconds.
    MoreThan(f64),
}

impl LatencyBound {
    /// Returns the seconds of the bound.
    pub(super) fn seconds(self) -> f64 {
        match self {
            Self::AtMost(seconds) => seconds,
            Self::MoreThan(seconds) => seconds * 2.0,
        }
    }
}

/// Refused requests for one reason.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RefusalRate {
    pub(super) reason: String,
    /// Number since the start.
    pub(super) total: u64,
    /// Number in a second.
    pub(super) rate: Option<f64>,
}

impl MeasuredActivity {
    /// Computes the rates since an earlier sample. Samples of two processes are not comparable.
    pub(super) fn of(sample: ActivitySample, before: Option<&ActivitySample>) -> Self {
        let seconds = |before: &ActivitySample| sample.now.duration_since(before.now).as_secs_f64();
        let before = before.filter(|it| it.started_at == sample.started_at && seconds(it) > 0.0);
        let span = before.map(|before| (before, seconds(before)));
        let bounds = &sample.bucket_bounds;
        let earlier: HashMap<_, _> = before
            .into_iter()
            .flat_map(|before| &before.servers)
            .map(|server| (server.name.as_str(), &server.requests))
            .collect();
        let of_server = |server: &ServerSample| {
            let known = earlier.get(server.name.as_str()).copied();
            server.requests.rates(known.zip(span.map(|(_, seconds)| seconds)), bounds)
        };
        let servers = sample.servers.iter().map(of_server).collect();
        let requests = span.map(|(before, seconds)| (&before.requests, seconds));
        let requests = sample.requests.rates(requests, bounds);
        Self { requests, refusals: sample.refusal_rates(span), servers, sample }
    }

    /// Returns the servers with their rates.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&ServerSample, &RequestRates)> {
        self.sample.servers.iter().zip(&self.servers)
    }
}

impl ActivitySample {
    /// Returns true if a server has tools that were not counted.
    pub(super) fn lacks_tokens(&self) -> bool {
        self.servers.iter().any(|it| it.state == "ready" && it.tool_tokens.is_none())
    }

    fn refusal_rates(&self, span: Option<(&Self, f64)>) -> Vec<RefusalRate> {
        let is_refused = |failure: &&FailureSample| failure.outcome == "refused";
        let rate = |failure: &FailureSample| RefusalRate {
            reason: printable(&failure.reason),
            total: failure.count,
            rate: span.map(|(before, seconds)| {
                let is_same = |it: &&FailureSample| it.is_of_kind(failure);
                let known = before.failures.iter().find(is_same).map_or(0, |it| it.count);
                per_second(failure.count, known, seconds)
            }),
        };
        let mut all: Vec<_> = self.failures.iter().filter(is_refused).map(rate).collect();
        all.sort_by(|one, other| {
            let by_rate = other.rate.partial_cmp(&one.rate);
            by_rate.unwrap_or(std::cmp::Ordering::Equal).then(other.total.cmp(&one.total))
        });
        all
    }
}

impl FailureSample {
    fn is_of_kind(&self, other: &Self) -> bool {
        self.outcome == other.outcome && self.reason == other.reason
    }
}

impl RequestSample {
    /// Returns the rates since an earlier sample, some seconds ago. A server that was removed and
    /// added again counts from zero: its rates are zero for one sample.
    fn rates(&self, before: Option<(&Self, f64)>, bounds: &[f64]) -> RequestRates {
        let totals = RequestRates {
            total: self.calls,
            failed_total: self.failed,
            ..RequestRates::default()
        };
        let Some((before, seconds)) = before else { return totals };
        let earlier = before.buckets.iter().copied().chain(std::iter::repeat(0));
        let counts = self.buckets.iter().zip(earlier);
        let counts: Vec<_> = counts.map(|(now, before)| now.saturating_sub(before)).collect();
        RequestRates {
            calls: Some(per_second(self.calls, before.calls, seconds)),
            failed: Some(per_second(self.failed, before.failed, seconds)),
            refused: Some(per_second(self.refused, before.refused, seconds)),
            median: find_quantile(&counts, bounds, 0.5),
            slow: find_quantile(&counts, bounds, 0.95),
            ..totals
        }
    }
}

/// Returns the bucket of a quantile; `None` without requests.
fn find_quantile(counts: &[u64], bounds: &[f64], quantile: f64) -> Option<LatencyBound> {
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return None;
    }
    let mut below = 0;
    for (place, count) in counts.iter().enumerate() {
        below += count;
        if to_float(below) >= quantile * to_float(all) {
            let bound = bounds.get(place).copied().map(LatencyBound::AtMost);
            return bound.or_else(|| bounds.last().copied().map(LatencyBound::MoreThan));
        }
    }
    None
}

fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    to_float(now.saturating_sub(before)) / seconds
}

#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 may be rounded")]
fn to_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sample(second: u32, started: u32, buckets: [u64; 3]) -> ActivitySample {
        let calls: u64 = buckets.iter().sum();
        let requests = json!({ "calls": calls, "failed": 1, "refused": 0, "buckets": buckets });
        let time = |second: u32| format!("2026-11-28T10:00:{second:02}Z");
        let document: Value = json!({
            "version": "1", "now": time(second), "started_at": time(started), "state": "ready",
            "memory_bytes": null, "sessions": 0, "streams": 0, "connections": 0, "parked": 0,
            "bucket_bounds": [0.01, 0.1], "requests": requests,
            "failures": [{ "outcome": "refused", "reason": "rate", "count": calls }],
            "servers": [{
                "name": "a", "state": "ready", "since": time(started), "restarts": 0,
                "instance_count": 0, "in_flight": 0, "queued": 0, "requests": requests
            }]
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn rates_are_the_differences_of_two_samples_of_one_process() {
        let first = sample(10, 0, [3, 0, 1]);
        let second = sample(12, 0, [21, 0, 2]);
        let measured = MeasuredActivity::of(second.clone(), Some(&first));
        let rates = &measured.servers[0];
        assert_eq!((rates.total, rates.calls, rates.failed), (23, Some(9.5), Some(0.0)));
        assert_eq!(measured.requests.calls, Some(9.5));
        assert_eq!(rates.median, Some(LatencyBound::AtMost(0.01)));
        assert_eq!(rates.slow, Some(LatencyBound::MoreThan(0.1)), "one of 19");
        assert_eq!(measured.refusals[0].rate, Some(9.5));
        for (before, why) in [
            (None, "the first sample"),
            (Some(sample(11, 5, [3, 0, 1])), "another process"),
            (Some(second.clone()), "the same time"),
        ] {
            let measured = MeasuredActivity::of(second.clone(), before.as_ref());
            assert_eq!(measured.servers[0].calls, None, "{why}");
            assert_eq!((measured.servers[0].median, measured.servers[0].total), (None, 23));
        }
    }

    #[test]
    fn a_quantile_without_requests_or_beyond_all_bounds_is_no_number() {
        let bounds = [0.01, 0.1];
        assert_eq!(find_quantile(&[0, 0, 0], &bounds, 0.5), None);
        assert_eq!(find_quantile(&[1, 1, 0], &bounds, 0.5), Some(LatencyBound::AtMost(0.01)));
        assert_eq!(find_quantile(&[1, 1, 0], &bounds, 0.95), Some(LatencyBound::AtMost(0.1)));
        assert_eq!(find_quantile(&[0, 0, 1], &bounds, 0.5), Some(LatencyBound::MoreThan(0.1)));
    }
}
