//! The report as a table for terminals.

use std::fmt::Write as _;

use super::{BenchReport, REPORTED_QUANTILES, bytes, grouped, quantile, rate, time};
use crate::load::tally::{OpTally, Tally};
use crate::runs::contest::{Contender, Contest, Spread};
use crate::runs::run::RunOutcome;

/// The complete report as text.
pub(super) fn write(report: &BenchReport<'_>) -> String {
    let contest = report.contest;
    let mut out = String::new();
    for contender in &contest.contenders {
        let _ = writeln!(out, "{}", who(contender));
    }
    let _ = writeln!(out, "{}\n", report.conditions());
    match contest.contenders.as_slice() {
        [_] => alone(&mut out, contest),
        _ => compared(&mut out, contest),
    }
    for remark in report.remarks() {
        let _ = writeln!(out, "\n! {remark}");
    }
    out
}

/// The server under test, with its tool.
fn who(contender: &Contender) -> String {
    let script = &contender.script;
    let url = &script.writer.target.url;
    let name =
        if contender.name.is_empty() { String::new() } else { format!("{}: ", contender.name) };
    let tool = match &script.tool {
        Some(tool) => {
            format!(", tool {tool}, {} bytes a call", grouped(script.call_bytes() as u64))
        }
        None => String::new(),
    };
    let version = script.writer.version;
    format!("{name}{url}  {}, {} {version}{tool}", script.server, version.era().as_str())
}

fn alone(out: &mut String, contest: &Contest) {
    let Some(outcome) = contest.rounds.first().and_then(|round| round.first()) else { return };
    let whole = outcome.tally.whole();
    let (done, speed) = (grouped(whole.done), rate(outcome.per_second()));
    let _ = writeln!(out, "  answered     {done:>12}   {speed}/s");
    if whole.tool_errors > 0 {
        let _ = writeln!(
            out,
            "  tool errors  {:>12}   answers with isError",
            grouped(whole.tool_errors)
        );
    }
    failures(out, &outcome.tally, whole.failed);
    if outcome.tally.reconnects > 0 {
        let reconnects = grouped(outcome.tally.reconnects);
        let _ = writeln!(out, "  reconnects   {reconnects:>12}   the server closed connections");
    }
    out.push('\n');
    latencies(out, outcome, &whole);
    if let (Some(usage), Some(cpu)) = (&outcome.usage, outcome.cpu_per_call()) {
        let cores = usage.cpu.as_secs_f64() / outcome.elapsed.as_secs_f64().max(1e-9);
        let (memory, peak) = (bytes(usage.memory), bytes(usage.peak));
        let _ = writeln!(
            out,
            "\n  CPU {} a call ({cores:.2} cores), memory {memory}, peak {peak}",
            time(cpu)
        );
    }
}

fn failures(out: &mut String, tally: &Tally, failed: u64) {
    let _ = writeln!(out, "  failed       {:>12}", grouped(failed));
    for (kind, (count, first)) in &tally.troubles {
        let _ = writeln!(out, "    {kind:<20} {:>5}   first: {first}", grouped(*count));
    }
}

fn latencies(out: &mut String, outcome: &RunOutcome, whole: &OpTally) {
    let _ = write!(out, "  {:<20}", "latency");
    let names =
        ["min"].into_iter().chain(REPORTED_QUANTILES.map(|(_, name)| name)).chain(["max", "mean"]);
    for name in names {
        let _ = write!(out, "{name:>11}");
    }
    out.push('\n');
    let several = outcome.tally.ops.len() > 1;
    let ops = outcome.tally.ops.iter().map(|(op, own)| (op.as_str(), own));
    let all = several.then_some(("all", whole));
    for (name, own) in ops.chain(all).filter(|(_, own)| own.done > 0) {
        line(out, name, own, |own| &own.latency);
    }
    // In an open loop the two differ if answers were late.
    let p99 = |own: &OpTally| (quantile(&own.latency, 0.99), quantile(&own.service, 0.99));
    let (latency, service) = p99(whole);
    if whole.done > 0 && latency > service * 1.05 {
        line(out, "from sending on", whole, |own| &own.service);
    }
}

fn line(
    out: &mut String,
    name: &str,
    own: &OpTally,
    read: fn(&OpTally) -> &hdrhistogram::Histogram<u64>,
) {
    let histogram = read(own);
    let _ = write!(out, "  {name:<20}");
    let quantiles = REPORTED_QUANTILES.map(|(at, _)| quantile(histogram, at));
    let ends = (super::micros(histogram.min()), super::micros(histogram.max()));
    let mean = histogram.mean() / 1e3;
    for micros in [ends.0].into_iter().chain(quantiles).chain([ends.1, mean]) {
        let _ = write!(out, "{:>11}", time(micros));
    }
    out.push('\n');
}

/// A figure of a leg: its name, its value, and its format.
type Figure = (&'static str, fn(&RunOutcome) -> Option<f64>, fn(f64) -> String);

/// The figures that are compared.
pub(super) const COMPARED_FIGURES: [Figure; 4] = [
    ("per second", |leg| Some(leg.per_second()), rate),
    ("p50", |leg| leg.micros(0.5), time),
    ("p99", |leg| leg.micros(0.99), time),
    ("CPU a call", RunOutcome::cpu_per_call, time),
];

fn compared(out: &mut String, contest: &Contest) {
    let wide =
        contest.contenders.iter().map(|it| it.name.chars().count()).max().unwrap_or(0).max(9);
    // Usage of processes may be unavailable.
    let figures: Vec<&Figure> = COMPARED_FIGURES
        .iter()
        .filter(|(_, read, _)| {
            (0..contest.contenders.len()).any(|place| !contest.figures(place, read).is_empty())
        })
        .collect();
    let _ = write!(out, "  {:<wide$}", "median");
    for (name, ..) in &figures {
        let _ = write!(out, "{name:>22}");
    }
    let _ = writeln!(out, "{:>10}{:>12}", "failed", "memory");
    for (place, contender) in contest.contenders.iter().enumerate() {
        let _ = write!(out, "  {:<wide$}", contender.name);
        for (_, read, show) in &figures {
            let median = Spread::of(contest.figures(place, read)).map(|spread| show(spread.median));
            let _ = write!(out, "{:>22}", median.unwrap_or_default());
        }
        let failed = contest.together(place).map_or(0, |tally| tally.whole().failed);
        let memory = contest.figures(place, memory).into_iter().next_back();
        let memory = memory.map(|it| bytes(super::whole(it))).unwrap_or_default();
        let _ = writeln!(out, "{:>10}{memory:>12}", grouped(failed));
    }
    let Some(base) = contest.contenders.get(contest.base) else { return };
    let _ = writeln!(out, "\n  times {}, median of the rounds (lowest–highest)", base.name);
    for (place, contender) in contest.contenders.iter().enumerate() {
        if place == contest.base {
            continue;
        }
        let _ = write!(out, "  {:<wide$}", contender.name);
        for (_, read, _) in &figures {
            let ratio = contest.ratio(place, read).map(|ratio| spread(&ratio));
            let _ = write!(out, "{:>22}", ratio.unwrap_or_default());
        }
        out.push('\n');
    }
    if contest.direct.is_some() {
        additions(out, contest, wide);
    }
    troubles(out, contest);
}

/// Writes the overhead of the contenders over the direct one.
fn additions(out: &mut String, contest: &Contest, wide: usize) {
    let base = contest.contenders.get(contest.base).map(|base| base.name.as_str());
    let base = base.unwrap_or_default();
    let _ = writeln!(out, "\n  overhead over the direct way, and as a multiple of that of {base}");
    for (place, contender) in contest.contenders.iter().enumerate() {
        if Some(place) == contest.direct {
            continue;
        }
        let _ = write!(out, "  {:<wide$}", contender.name);
        for (at, name) in [(0.5, "p50"), (0.99, "p99")] {
            let (own, ratio) = added(contest, place, at);
            let own = own.map(|own| time(own.median)).unwrap_or_default();
            let ratio = ratio.filter(|_| place != contest.base).map(|it| spread(&it));
            let _ = write!(out, "   {name} {own:>10} {:<20}", ratio.unwrap_or_default());
        }
        out.push('\n');
    }
}

/// Returns a contender's overhead over the direct one at a quantile, and the ratio of that to the
/// base's overhead.
pub(super) fn added(contest: &Contest, place: usize, at: f64) -> (Option<Spread>, Option<Spread>) {
    contest.added(place, |leg| leg.micros(at))
}

/// A ratio and its spread.
pub(super) fn spread(ratio: &Spread) -> String {
    format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.most)
}

fn troubles(out: &mut String, contest: &Contest) {
    for (place, contender) in contest.contenders.iter().enumerate() {
        let Some(tally) = contest.together(place) else { continue };
        for (kind, (count, first)) in &tally.troubles {
            let (name, count) = (&contender.name, grouped(*count));
            let _ = writeln!(out, "\n  {name}: {kind} {count}, first: {first}");
        }
    }
}

fn memory(leg: &RunOutcome) -> Option<f64> {
    leg.usage.map(|usage| crate::runs::run::as_float(usage.memory))
}
