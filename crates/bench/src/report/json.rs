//! The report for programs. Times are microseconds, sizes bytes.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::table::{COMPARED_FIGURES, added};
use super::{BenchReport, REPORTED_QUANTILES, micros, quantile};
use crate::load::tally::{OpTally, Tally};
use crate::runs::contest::{Contest, Spread};
use crate::runs::run::RunOutcome;
use crate::session::plan::LoadPace;

/// The complete report as a value.
pub(super) fn write(report: &BenchReport<'_>) -> Value {
    let (contest, load) = (report.contest, report.load);
    let rate = match load.pace {
        LoadPace::Closed => Value::Null,
        LoadPace::Open { per_second } => json!(per_second),
    };
    let contenders = contest.contenders.iter().enumerate();
    json!({
        "trunkline": env!("CARGO_PKG_VERSION"),
        "setting": report.setting.json(),
        "load": {
            "mix": load.mix.to_string(),
            "connections": load.connections,
            "threads": load.threads,
            "rate": rate,
            "warmup_s": load.warmup.as_secs_f64(),
            "duration_s": load.duration.map(|duration| duration.as_secs_f64()),
            "requests": load.requests,
            "seed": load.seed,
        },
        "targets": contenders.map(|(place, _)| target(report, place)).collect::<Value>(),
        "ratios": ratios(contest),
        "warnings": report.banners(),
        "remarks": report.remarks(),
    })
}

fn target(report: &BenchReport<'_>, place: usize) -> Value {
    let contest = report.contest;
    let Some(contender) = contest.contenders.get(place) else { return Value::Null };
    let script = &contender.script;
    let rounds = contest.rounds.iter().filter_map(|round| round.get(place));
    let first = contest.together(place).and_then(|tally| tally.first_tool_error);
    json!({
        "name": contender.name,
        "url": script.writer.target.shown,
        "server": script.server,
        "era": script.writer.version.era().as_str(),
        "version": script.writer.version.as_str(),
        "tool": script.tool,
        "request_bytes": script.call_bytes(),
        "errors": { "share": report.failed_share(place), "first": first.as_deref() },
        "rounds": rounds.map(round).collect::<Value>(),
    })
}

fn round(leg: &RunOutcome) -> Value {
    let whole = leg.tally.whole();
    let ops: Map<String, Value> =
        leg.tally.ops.iter().map(|(op, own)| (op.as_str().to_owned(), counted(own))).collect();
    let mut all = counted(&whole);
    let more = json!({
        "elapsed_s": leg.elapsed.as_secs_f64(),
        "per_second": leg.per_second(),
        "bytes": leg.tally.bytes,
        "reconnects": leg.tally.reconnects,
        "unsent": leg.unsent,
        "unfinished": leg.tally.unfinished,
        "interrupted": leg.interrupted,
        "generator_busy": leg.busy,
        "failures": failures(&leg.tally),
        "operations": ops,
        "process": leg.usage.map(|usage| json!({
            "cpu_s": usage.cpu.as_secs_f64(),
            "cpu_us_per_call": leg.cpu_per_call(),
            "memory_bytes": usage.memory,
            "peak_memory_bytes": usage.peak,
        })),
        "over_time": over_time(&leg.tally),
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

fn counted(own: &OpTally) -> Value {
    json!({
        "answered": own.done,
        "tool_errors": own.tool_errors,
        "failed": own.failed,
        "latency_us": times(&own.latency),
        "service_us": times(&own.service),
    })
}

fn times(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let mut all: Map<String, Value> = REPORTED_QUANTILES
        .iter()
        .map(|(at, name)| ((*name).to_owned(), json!(quantile(histogram, *at))))
        .collect();
    all.insert("min".into(), json!(micros(histogram.min())));
    all.insert("max".into(), json!(micros(histogram.max())));
    all.insert("mean".into(), json!(histogram.mean() / 1e3));
    Value::Object(all)
}

fn failures(tally: &Tally) -> Value {
    let one = |(kind, (count, first)): (&String, &(u64, String))| json!({ "kind": kind, "count": count, "first": first });
    tally.troubles.iter().map(one).collect()
}

fn over_time(tally: &Tally) -> Value {
    let width = tally.slices.width.as_secs_f64();
    let slices = tally.slices.all.iter().enumerate().map(|(place, slice)| {
        let at = |quantile| slice.latency.value_at_quantile(quantile);
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let begin = place as f64 * width;
        json!({
            "from_s": begin,
            "answered": slice.latency.len(),
            "failed": slice.failed,
            "p50_us": at(0.5),
            "p99_us": at(0.99),
            "max_us": slice.latency.max(),
        })
    });
    json!({ "slice_s": width, "slices": slices.collect::<Value>() })
}

/// The ratio of each contender to the base: median, lowest and highest of the
/// rounds.
fn ratios(contest: &Contest) -> Value {
    let others = contest.contenders.iter().enumerate().filter(|(place, _)| *place != contest.base);
    let base = contest.contenders.get(contest.base).map(|base| base.name.clone());
    let one = |(place, contender): (usize, &crate::Contender)| {
        let mut all = Map::new();
        for (name, read, _) in COMPARED_FIGURES {
            let ratio = contest.ratio(place, read).map(
                |ratio| json!({ "median": ratio.median, "min": ratio.least, "max": ratio.most }),
            );
            all.insert(name.replace(' ', "_").to_lowercase(), ratio.into());
        }
        for (at, name) in [(0.5, "added_p50"), (0.99, "added_p99")] {
            let (own, ratio) = added(contest, place, at);
            if let Some(own) = own {
                let beside = spread(ratio);
                all.insert(name.into(), json!({ "us": own.median, "ratio": beside }));
            }
        }
        json!({ "name": contender.name, "to": base, "of": all })
    };
    others.map(one).collect()
}

fn spread(spread: Option<Spread>) -> Value {
    spread.map(|it| json!({ "median": it.median, "min": it.least, "max": it.most })).into()
}
