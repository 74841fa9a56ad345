//! The report of a run: a table for people, JSON for programs, an HTML page with curves to pass on.
//!
//! It reads the tallies of finished runs and measures nothing itself.

mod html;
mod json;
mod setting;
mod svg;
mod table;

use hdrhistogram::Histogram;

pub use setting::{BenchMachine, BenchSetting};

use crate::runs::contest::Contest;
use crate::session::plan::{Load, LoadPace};

/// The input of a report.
pub struct BenchReport<'a> {
    /// The contenders, with their results; often one of each.
    pub contest: &'a Contest,
    /// The load as requested.
    pub load: &'a Load,
    /// Date, command and machine.
    pub setting: &'a BenchSetting,
}

impl BenchReport<'_> {
    /// Returns true if so many calls of a contender have failed, or were answered with `isError`,
    /// that the figures say nothing about its speed.
    pub fn is_void(&self) -> bool {
        (0..self.contest.contenders.len()).any(|place| self.failed_share(place) > MAX_FAILED_SHARE)
    }

    /// Returns the share of one contender's failures and answers with `isError`.
    fn failed_share(&self, place: usize) -> f64 {
        let whole = self.contest.together(place).map(|tally| tally.whole()).unwrap_or_default();
        let failed = whole.failed + whole.tool_errors;
        let all = crate::runs::run::as_float(whole.done + failed);
        if all > 0.0 { crate::runs::run::as_float(failed) / all } else { 0.0 }
    }

    /// Returns a warning for each contender with too many failures.
    fn banners(&self) -> Vec<String> {
        let contenders = self.contest.contenders.iter().enumerate();
        let failing = contenders.filter(|(place, _)| self.failed_share(*place) > MAX_FAILED_SHARE);
        failing.map(|(place, contender)| self.banner(place, &contender.name)).collect()
    }

    fn banner(&self, place: usize, name: &str) -> String {
        let share = self.failed_share(place) * 100.0;
        let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
        let tally = self.contest.together(place);
        let first = tally.as_ref().and_then(|tally| {
            let error = tally.first_tool_error.as_deref();
            error.or_else(|| tally.troubles.values().next().map(|(_, first)| first.as_str()))
        });
        let first = first.map(|first| format!(" (first: {first:?})")).unwrap_or_default();
        format!(
            "{share:.0} % of the answers{of} are errors: the figures below are not a \
             measurement{first}"
        )
    }

    /// The table for a terminal.
    pub fn table(&self) -> String {
        table::write(self)
    }

    /// The JSON report.
    pub fn json(&self) -> serde_json::Value {
        json::write(self)
    }

    /// The HTML report, self-contained.
    pub fn html(&self) -> String {
        html::write(self)
    }

    /// The conditions of the load, in words.
    fn conditions(&self) -> String {
        let Load { connections, pace, warmup, duration, requests, .. } = self.load;
        let connections = match connections {
            1 => "1 connection".to_owned(),
            many => format!("{many} connections"),
        };
        let pace = match pace {
            LoadPace::Closed => "closed loop".to_owned(),
            LoadPace::Open { per_second } => format!("open loop at {per_second}/s"),
        };
        let span = match (duration, requests) {
            (Some(duration), None) => format!("{} s", duration.as_secs_f64()),
            (None, Some(requests)) => format!("{} calls", grouped(*requests)),
            (Some(duration), Some(requests)) => {
                format!("{} calls within {} s", grouped(*requests), duration.as_secs_f64())
            }
            (None, None) => "until stopped".into(),
        };
        let rounds = match self.contest.rounds.len() {
            0 | 1 => String::new(),
            rounds => format!(", {rounds} rounds in turn"),
        };
        let warmup = warmup.as_secs_f64();
        format!(
            "{}, {connections}, {pace}, {span} after {warmup} s of warm-up{rounds}, seed {}",
            self.load.mix, self.load.seed
        )
    }

    /// Returns remarks about the reliability of the figures.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let (mut busiest, mut unsent, mut unfinished, mut interrupted) = (0.0_f64, 0, 0, false);
        for leg in self.contest.rounds.iter().flatten() {
            busiest = busiest.max(leg.busy);
            unsent += leg.unsent;
            unfinished += leg.tally.unfinished;
            interrupted |= leg.interrupted;
        }
        if interrupted {
            remarks.push("stopped before its time: these are the figures so far".into());
        }
        if busiest > 0.85 {
            let percent = busiest * 100.0;
            remarks.push(format!(
                "the load generator's own threads were busy {percent:.0} % of the time: the \
                 figures may be its own; --threads gives it more"
            ));
        }
        if unsent > 0 {
            remarks.push(format!(
                "{} operations were due and never sent, because all connections waited for \
                 answers: the rate was not reached",
                grouped(unsent)
            ));
        }
        if unfinished > 0 {
            let unfinished = grouped(unfinished);
            remarks.push(format!("{unfinished} operations had no answer when the run was over"));
        }
        remarks
    }
}

/// Share of failures above which figures are no measurement.
const MAX_FAILED_SHARE: f64 = 0.05;
/// The reported quantiles, with their names.
const REPORTED_QUANTILES: [(f64, &str); 4] =
    [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9")];

/// The value at a quantile, in microseconds.
fn quantile(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    micros(histogram.value_at_quantile(quantile))
}

fn micros(nanoseconds: u64) -> f64 {
    crate::runs::run::as_float(nanoseconds) / 1e3
}

/// Microseconds in a readable unit.
fn time(micros: f64) -> String {
    match micros {
        it if it < 1e3 => format!("{it:.1} µs"),
        it if it < 1e6 => format!("{:.2} ms", it / 1e3),
        it => format!("{:.2} s", it / 1e6),
    }
}

fn bytes(bytes: u64) -> String {
    format!("{:.1} MiB", crate::runs::run::as_float(bytes) / f64::from(1 << 20))
}

/// Returns a number with a comma between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate, without insignificant digits.
fn rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.1}") } else { grouped(whole(per_second)) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(value: f64) -> u64 {
    value.round().max(0.0) as u64
}

#[cfg(test)]
pub(super) mod tests;
