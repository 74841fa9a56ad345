//! The HTML report: figures and curves in one self-contained file, for light
//! and dark.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::svg::{Axis, Chart, ChartLine, escape};
use super::table::{COMPARED_FIGURES, added, spread};
use super::{BenchReport, REPORTED_QUANTILES, grouped, micros, quantile, rate, time};
use crate::load::tally::Tally;
use crate::runs::contest::{Contender, Contest, Spread};
use crate::runs::run::as_float;

/// The whole page.
pub(super) fn write(report: &BenchReport<'_>) -> String {
    let contest = report.contest;
    let tallies: Vec<Tally> =
        (0..contest.contenders.len()).filter_map(|place| contest.together(place)).collect();
    let mut out = String::from(PAGE_HEAD);
    let names: Vec<&str> = contest.contenders.iter().map(Contender::shown).collect();
    let _ = write!(
        out,
        "<h1>{}</h1>\n<p>{}</p>\n",
        escape(&names.join(" · ")),
        escape(&report.conditions())
    );
    let (setting, command) = (report.setting.describe(), &report.setting.command);
    let _ = writeln!(out, "<p>{}<br/><code>{}</code></p>", escape(&setting), escape(command));
    for banner in report.banners() {
        let _ = writeln!(out, "<p class=\"banner\">{}</p>", escape(&banner));
    }
    servers(&mut out, contest);
    for remark in report.remarks() {
        let _ = writeln!(out, "<p class=\"remark\">{}</p>", escape(&remark));
    }
    figures(&mut out, contest, &tallies);
    if contest.contenders.len() > 1 {
        ratios(&mut out, contest);
    }
    legend(&mut out, contest);
    let _ =
        write!(out, "<h2>Latency by percentile</h2>\n{}", by_percentile(contest, &tallies).draw());
    out.push_str(
        "<h2>Latency over time</h2>\n<p>p99, and p50 fainter, by when a call was due</p>\n",
    );
    out.push_str(&latency_over_time(&tallies).draw());
    let _ = write!(
        out,
        "<h2>Answers per second over time</h2>\n{}",
        answers_over_time(contest, &tallies).draw()
    );
    operations(&mut out, contest, &tallies);
    troubles(&mut out, contest, &tallies);
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(out, "<footer>trunkline {version}</footer>\n</main>\n</body>\n</html>\n");
    out
}

fn servers(out: &mut String, contest: &Contest) {
    out.push_str("<ul class=\"servers\">\n");
    for contender in &contest.contenders {
        let script = &contender.script;
        let version = script.writer.version;
        let tool = script.tool.as_ref().map(|tool| {
            format!(", tool {tool}, {} bytes a call", grouped(script.call_bytes() as u64))
        });
        let text = format!(
            "{} {}: {}, {} {version}{}",
            contender.name,
            script.writer.target.shown,
            script.server,
            version.era().as_str(),
            tool.unwrap_or_default()
        );
        let _ = writeln!(out, "<li>{}</li>", escape(text.trim()));
    }
    out.push_str("</ul>\n");
}

fn figures(out: &mut String, contest: &Contest, tallies: &[Tally]) {
    let mut head: Vec<String> = vec![String::new(), "ok".into(), "errors".into(), "failed".into()];
    head.extend(COMPARED_FIGURES.map(|(name, ..)| name.to_owned()));
    head.extend(["p99.9".into(), "max".into(), "memory".into()]);
    let rows =
        contest.contenders.iter().zip(tallies).enumerate().map(|(place, (contender, tally))| {
            let whole = tally.whole();
            let counts = [whole.done, whole.tool_errors, whole.failed].map(grouped);
            let mut row = vec![contender.shown().to_owned()];
            row.extend(counts);
            row.extend(COMPARED_FIGURES.map(|(_, read, show)| {
                Spread::of(contest.figures(place, read))
                    .map(|it| show(it.median))
                    .unwrap_or_default()
            }));
            let some = |micros: f64| if whole.done > 0 { time(micros) } else { String::new() };
            row.push(some(quantile(&whole.latency, 0.999)));
            row.push(some(micros(whole.latency.max())));
            let memory =
                contest.figures(place, |leg| leg.usage.map(|usage| as_float(usage.memory)));
            row.push(memory.last().map(|it| super::bytes(super::whole(*it))).unwrap_or_default());
            row
        });
    table(out, &head, rows);
}

fn ratios(out: &mut String, contest: &Contest) {
    let Some(base) = contest.contenders.get(contest.base) else { return };
    let name = escape(base.shown());
    let _ = writeln!(
        out,
        "<h2>Times {name}</h2>\n<p>Median of the rounds, and the lowest and the highest</p>"
    );
    let mut head = vec![String::new()];
    head.extend(COMPARED_FIGURES.map(|(name, ..)| name.to_owned()));
    if contest.direct.is_some() {
        head.extend(["added p50".into(), "added p99".into()]);
    }
    let others = contest.contenders.iter().enumerate().filter(|(place, _)| *place != contest.base);
    let rows =
        others.map(|(place, contender)| {
            let mut row = vec![contender.shown().to_owned()];
            row.extend(COMPARED_FIGURES.map(|(_, read, _)| {
                contest.ratio(place, read).map(|it| spread(&it)).unwrap_or_default()
            }));
            if contest.direct.is_some() {
                row.extend([0.5, 0.99].map(|at| {
                    added(contest, place, at).1.map(|it| spread(&it)).unwrap_or_default()
                }));
            }
            row
        });
    table(out, &head, rows);
}

fn operations(out: &mut String, contest: &Contest, tallies: &[Tally]) {
    if tallies.iter().all(|tally| tally.ops.len() < 2) {
        return;
    }
    out.push_str("<h2>By operation</h2>\n");
    let mut head: Vec<String> = vec![String::new(), "ok".into(), "errors".into(), "failed".into()];
    head.extend(REPORTED_QUANTILES.map(|(_, name)| name.to_owned()));
    let rows = contest.contenders.iter().zip(tallies).flat_map(|(contender, tally)| {
        tally.ops.iter().map(|(op, own)| {
            let name = format!("{} {}", contender.name, op.as_str());
            let mut row = vec![
                name.trim().to_owned(),
                grouped(own.done),
                grouped(own.tool_errors),
                grouped(own.failed),
            ];
            row.extend(REPORTED_QUANTILES.map(|(at, _)| time(quantile(&own.latency, at))));
            row
        })
    });
    table(out, &head, rows);
}

fn troubles(out: &mut String, contest: &Contest, tallies: &[Tally]) {
    let is_clean = |tally: &Tally| tally.troubles.is_empty() && tally.first_tool_error.is_none();
    if tallies.iter().all(is_clean) {
        return;
    }
    out.push_str("<h2>Failures</h2>\n");
    let head = ["", "how often", "the first"].map(str::to_owned);
    let rows = contest.contenders.iter().zip(tallies).flat_map(|(contender, tally)| {
        let row = |kind: &str, count, first: &str| {
            let name = format!("{} {kind}", contender.name).trim().to_owned();
            vec![name, grouped(count), first.to_owned()]
        };
        let errors = tally
            .first_tool_error
            .as_deref()
            .map(|first| row("answers with isError", tally.whole().tool_errors, first));
        let troubles = tally.troubles.iter();
        let troubles: Vec<_> =
            troubles.map(|(kind, (count, first))| row(kind, *count, first)).collect();
        errors.into_iter().chain(troubles)
    });
    table(out, &head, rows);
}

/// Writes a table; empty columns are left out.
fn table(out: &mut String, head: &[String], rows: impl Iterator<Item = Vec<String>>) {
    let rows: Vec<Vec<String>> = rows.collect();
    let filled =
        |column: usize| rows.iter().any(|row| row.get(column).is_some_and(|it| !it.is_empty()));
    let columns: Vec<usize> = (0..head.len()).filter(|column| filled(*column)).collect();
    let line = |out: &mut String, row: &[String], tag: &str| {
        out.push_str("<tr>");
        for cell in columns.iter().filter_map(|column| row.get(*column)) {
            let _ = write!(out, "<{tag}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>\n");
    };
    out.push_str("<div class=\"wide\"><table>\n<thead>");
    line(out, head, "th");
    out.push_str("</thead>\n<tbody>\n");
    for row in &rows {
        line(out, row, "td");
    }
    out.push_str("</tbody>\n</table></div>\n");
}

fn legend(out: &mut String, contest: &Contest) {
    if contest.contenders.len() < 2 {
        return;
    }
    out.push_str("<p class=\"legend\">");
    for (place, contender) in contest.contenders.iter().enumerate() {
        let _ = write!(out, "<span class=\"key c{place}\"></span>{} ", escape(contender.shown()));
    }
    out.push_str("</p>\n");
}

/// Latency by percentile, on an axis of nines: each step is ten times fewer
/// calls.
fn by_percentile(contest: &Contest, tallies: &[Tally]) -> Chart {
    let histograms: Vec<Histogram<u64>> = tallies.iter().map(|it| it.whole().latency).collect();
    let most = histograms.iter().map(Histogram::len).max().unwrap_or(1).max(10);
    let nines = as_float(most).log10().clamp(1.0, 6.0);
    let names = ["0", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    let ticks = (0_u32..).zip(names).map(|(place, name)| (f64::from(place), name.to_owned()));
    let mut ticks: Vec<_> = ticks.filter(|(place, _)| *place <= nines).collect();
    ticks.insert(1, (nines_of(0.5), "50 %".into()));
    let lines = histograms.iter().enumerate().map(|(color, histogram)| {
        let own = as_float(histogram.len().max(1)).log10().min(nines);
        let points = (0..=CURVE_POINTS).map(|step| own * f64::from(step) / f64::from(CURVE_POINTS));
        let at = |place: f64| quantile(histogram, 1.0 - 10_f64.powf(-place));
        let name = contest.contenders.get(color).map(|it| it.name.as_str()).unwrap_or_default();
        let marks = REPORTED_QUANTILES.iter().filter(|(part, _)| nines_of(*part) <= own).map(
            |(part, mark)| {
                let micros = quantile(histogram, *part);
                (
                    nines_of(*part),
                    micros,
                    format!("{name} {mark}: {}", time(micros)).trim().to_owned(),
                )
            },
        );
        ChartLine {
            color,
            faint: false,
            points: if histogram.is_empty() {
                Vec::new()
            } else {
                points.map(|it| (it, at(it))).collect()
            },
            marks: if histogram.is_empty() { Vec::new() } else { marks.collect() },
        }
    });
    let lines: Vec<ChartLine> = lines.collect();
    Chart {
        title: "Latency by percentile".into(),
        x: Axis { low: 0.0, high: nines, log: false, ticks },
        y: times(&lines),
        lines,
    }
}

fn nines_of(part: f64) -> f64 {
    -(1.0 - part).log10()
}

fn latency_over_time(tallies: &[Tally]) -> Chart {
    let curve = |color: usize, tally: &Tally, at: f64| -> ChartLine {
        let points = begins(tally).filter(|(_, slice)| !slice.latency.is_empty());
        let points =
            points.map(|(begin, slice)| (begin, as_float(slice.latency.value_at_quantile(at))));
        ChartLine { color, faint: at < 0.9, points: points.collect(), marks: Vec::new() }
    };
    let both =
        |(color, tally): (usize, &Tally)| [curve(color, tally, 0.99), curve(color, tally, 0.5)];
    let lines: Vec<ChartLine> = tallies.iter().enumerate().flat_map(both).collect();
    Chart { title: "Latency over time".into(), x: seconds(tallies), y: times(&lines), lines }
}

fn answers_over_time(contest: &Contest, tallies: &[Tally]) -> Chart {
    let lines = tallies.iter().enumerate().map(|(color, tally)| {
        // The rounds overlap in the chart.
        let rounds = contest.figures(color, |_| Some(1.0)).iter().sum::<f64>();
        let width = tally.slices.width.as_secs_f64() * rounds.max(1.0);
        // The last slice is rarely complete.
        let whole = tally.slices.all.len().saturating_sub(1).max(1);
        let points = begins(tally).take(whole);
        let points = points.map(|(begin, slice)| (begin, as_float(slice.latency.len()) / width));
        ChartLine { color, faint: false, points: points.collect(), marks: Vec::new() }
    });
    let lines: Vec<ChartLine> = lines.collect();
    let most = lines.iter().flat_map(|it| &it.points).map(|(_, y)| *y).fold(0.0, f64::max);
    let y = Axis::linear(most, rate);
    Chart { title: "Answers per second over time".into(), x: seconds(tallies), y, lines }
}

fn begins(tally: &Tally) -> impl Iterator<Item = (f64, &crate::load::tally::Slice)> {
    let width = tally.slices.width.as_secs_f64();
    (0_u32..).map(move |place| f64::from(place) * width).zip(&tally.slices.all)
}

fn seconds(tallies: &[Tally]) -> Axis {
    let last = tallies.iter().filter_map(|tally| begins(tally).last()).map(|(begin, _)| begin);
    let mut axis = Axis::linear(last.fold(0.1, f64::max), |second| format!("{second:.4} s"));
    for (value, name) in &mut axis.ticks {
        *name = format!("{} s", (*value * 1e3).round() / 1e3);
    }
    axis
}

/// A logarithmic axis of microseconds for the points of some curves.
fn times(lines: &[ChartLine]) -> Axis {
    let all = || lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let low = if low.is_finite() { low.max(1.0) } else { 1.0 };
    Axis::log(low, high.max(low * 2.0), |micros| match micros {
        it if it < 1e3 => format!("{} µs", super::whole(it)),
        it if it < 1e6 => format!("{} ms", super::whole(it / 1e3)),
        it => format!("{} s", super::whole(it / 1e6)),
    })
}

/// The number of points of a curve by percentile.
const CURVE_POINTS: u32 = 120;
const PAGE_HEAD: &str = include_str!("page.html");
