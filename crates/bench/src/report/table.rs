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
    for banner in report.banners() {
        out.push_str(&wrap_line(&format!("! {banner}")));
    }
    for contender in &contest.contenders {
        out.push_str(&wrap_line(&who(contender)));
    }
    for line in [report.conditions(), report.setting.describe(), report.setting.command.clone()] {
        out.push_str(&wrap_line(&line));
    }
    out.push('\n');
    match contest.contenders.as_slice() {
        [_] => alone(&mut out, contest),
        _ => compared(&mut out, contest),
    }
    for remark in report.remarks() {
        let _ = write!(out, "\n{}", wrap_line(&format!("! {remark}")));
    }
    out
}

/// Breaks a line at spaces, so that no line is wider than [`MAX_LINE_WIDTH`]. Further lines are
/// indented. A word that is wider, such as a URL, stays whole.
fn wrap_line(line: &str) -> String {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let (mut out, mut width) = (String::new(), 0);
    for word in line.trim_start().split(' ') {
        let own = word.chars().count();
        if width == 0 {
            out.extend(std::iter::repeat_n(' ', indent));
            width = indent;
        } else if width + 1 + own > MAX_LINE_WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent + CONTINUATION_INDENT));
            width = indent + CONTINUATION_INDENT;
        } else {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += own;
    }
    out.push('\n');
    out
}

/// Width of the narrowest usual terminal.
const MAX_LINE_WIDTH: usize = 80;
const CONTINUATION_INDENT: usize = 2;

/// The server under test, with its tool.
fn who(contender: &Contender) -> String {
    let script = &contender.script;
    let url = &script.writer.target.shown;
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
    let _ = writeln!(out, "  ok           {done:>12}   {speed}/s");
    let errors = grouped(whole.tool_errors);
    let first = outcome.tally.first_tool_error.as_deref();
    let first = first.map(|first| format!("   answers with isError, first: {first:?}"));
    out.push_str(&wrap_line(&format!("  errors       {errors:>12}{}", first.unwrap_or_default())));
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
        let line = format!("    {kind:<20} {:>5}   first: {first}", grouped(*count));
        out.push_str(&wrap_line(&line));
    }
}

fn latencies(out: &mut String, outcome: &RunOutcome, whole: &OpTally) {
    let unit = LatencyUnit::of(whole);
    let _ = write!(out, "  {:<20}", format!("latency, {}", unit.name()));
    let names =
        ["min"].into_iter().chain(REPORTED_QUANTILES.map(|(_, name)| name)).chain(["max", "mean"]);
    for name in names {
        let _ = write!(out, "{name:>8}");
    }
    out.push('\n');
    let several = outcome.tally.ops.len() > 1;
    let ops = outcome.tally.ops.iter().map(|(op, own)| (op.as_str(), own));
    let all = several.then_some(("all", whole));
    for (name, own) in ops.chain(all).filter(|(_, own)| own.done > 0) {
        line(out, name, &own.latency, unit);
    }
    // In an open loop the two differ if answers were late.
    let p99 = |own: &OpTally| (quantile(&own.latency, 0.99), quantile(&own.service, 0.99));
    let (latency, service) = p99(whole);
    if whole.done > 0 && latency > service * 1.05 {
        line(out, "from sending on", &whole.service, unit);
    }
}

/// Unit of all latencies in a table.
#[derive(Debug, Clone, Copy)]
enum LatencyUnit {
    Microseconds,
    Milliseconds,
}

impl LatencyUnit {
    /// Returns the unit in which the figures of an operation are short.
    fn of(whole: &OpTally) -> Self {
        let is_short = whole.latency.value_at_quantile(0.5) < 1_000_000;
        let fits = whole.latency.max() < 1_000_000_000;
        if is_short && fits { Self::Microseconds } else { Self::Milliseconds }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
        }
    }

    fn show(self, micros: f64) -> String {
        let value = match self {
            Self::Microseconds => micros,
            Self::Milliseconds => micros / 1e3,
        };
        match value {
            it if it < 10.0 => format!("{it:.2}"),
            it if it < 1000.0 => format!("{it:.1}"),
            it => format!("{it:.0}"),
        }
    }
}

fn line(out: &mut String, name: &str, histogram: &hdrhistogram::Histogram<u64>, unit: LatencyUnit) {
    let _ = write!(out, "  {name:<20}");
    let quantiles = REPORTED_QUANTILES.map(|(at, _)| quantile(histogram, at));
    let ends = (super::micros(histogram.min()), super::micros(histogram.max()));
    let mean = histogram.mean() / 1e3;
    for micros in [ends.0].into_iter().chain(quantiles).chain([ends.1, mean]) {
        let _ = write!(out, "{:>8}", unit.show(micros));
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
        contest.contenders.iter().map(|it| it.name.chars().count()).max().unwrap_or(0).max(10);
    // Usage of processes may be unavailable.
    let figures: Vec<&Figure> = COMPARED_FIGURES
        .iter()
        .filter(|(_, read, _)| {
            (0..contest.contenders.len()).any(|place| !contest.figures(place, read).is_empty())
        })
        .collect();
    let _ = write!(out, "  {:<wide$}", "median");
    for (name, ..) in &figures {
        let _ = write!(out, "{name:>12}");
    }
    let _ = writeln!(out, "{:>12}", "memory");
    for (place, contender) in contest.contenders.iter().enumerate() {
        let _ = write!(out, "  {:<wide$}", contender.name);
        for (_, read, show) in &figures {
            let median = Spread::of(contest.figures(place, read)).map(|spread| show(spread.median));
            let _ = write!(out, "{:>12}", median.unwrap_or_default());
        }
        let memory = contest.figures(place, memory).into_iter().next_back();
        let memory = memory.map(|it| bytes(super::whole(it))).unwrap_or_default();
        let _ = writeln!(out, "{memory:>12}");
    }
    counts(out, contest, wide);
    let Some(base) = contest.contenders.get(contest.base) else { return };
    let _ = writeln!(out, "\n  times {}, median of the rounds (lowest–highest)", base.name);
    for (place, contender) in contest.contenders.iter().enumerate() {
        if place == contest.base {
            continue;
        }
        // Two figures fit in a line.
        for (row, pair) in figures.chunks(2).enumerate() {
            let _ = write!(out, "  {:<wide$}", if row == 0 { &contender.name } else { "" });
            for (name, read, _) in pair {
                let ratio = contest.ratio(place, read).map(|ratio| spread(&ratio));
                let _ = write!(out, "  {name:<10} {:<19}", ratio.unwrap_or_default());
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
    }
    if contest.direct.is_some() {
        additions(out, contest, wide);
    }
    troubles(out, contest);
}

/// Writes the number of answers and failures of all rounds.
fn counts(out: &mut String, contest: &Contest, wide: usize) {
    let _ = write!(out, "\n  {:<wide$}", "all rounds");
    for name in ["ok", "errors", "failed"] {
        let _ = write!(out, "{name:>14}");
    }
    out.push('\n');
    for (place, contender) in contest.contenders.iter().enumerate() {
        let whole = contest.together(place).map(|tally| tally.whole()).unwrap_or_default();
        let _ = write!(out, "  {:<wide$}", contender.name);
        for count in [whole.done, whole.tool_errors, whole.failed] {
            let _ = write!(out, "{:>14}", grouped(count));
        }
        out.push('\n');
    }
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
        for (at, name, shown) in [(0.5, "p50", contender.name.as_str()), (0.99, "p99", "")] {
            let (own, ratio) = added(contest, place, at);
            let own = own.map(|own| time(own.median)).unwrap_or_default();
            let ratio = ratio.filter(|_| place != contest.base).map(|it| spread(&it));
            let line = format!("  {shown:<wide$}  {name} {own:>10}  {}", ratio.unwrap_or_default());
            let _ = writeln!(out, "{}", line.trim_end());
        }
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
            let line = format!("  {name}: {kind} {count}, first: {first}");
            let _ = write!(out, "\n{}", wrap_line(&line));
        }
        if let Some(first) = &tally.first_tool_error {
            let (name, count) = (&contender.name, grouped(tally.whole().tool_errors));
            let line = format!("  {name}: answers with isError {count}, first: {first:?}");
            let _ = write!(out, "\n{}", wrap_line(&line));
        }
    }
}

fn memory(leg: &RunOutcome) -> Option<f64> {
    leg.usage.map(|usage| crate::runs::run::as_float(usage.memory))
}
