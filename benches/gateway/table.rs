//! The figures as Markdown.

use std::fmt::Write as _;

use trunkline::bench::{Contest, Leg, Spread};

use crate::plan::INLINE_PROXY;
use crate::targets::beside;

/// The columns that all tables share.
pub fn head() -> String {
    "CPU: of the proxy's or the gateway's process alone. Added: over the direct way, closed \
         loop.\nRatios: to the proxy on hyper-util's pooled client, with their spread over the rounds, \
         and for CPU\nto the inline proxy, which drives its connections itself. Medians of all \
         rounds.\n\n"
        .to_owned()
}

/// A figure of a turn.
type Read = fn(&Leg) -> Option<f64>;

/// The rows of one case.
pub fn case(title: &str, contest: &Contest) -> String {
    let mut text = format!(
        "### {title}\n\n\
         | way | CPU µs/call | ratio | to inline | calls/s | ratio | added p50 µs | ratio | added p99 µs | ratio |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    let rate: Read = |leg| Some(leg.per_second());
    for (place, way) in contest.contenders.iter().enumerate() {
        if place == DIRECT {
            let of = |read: Read| median(contest, place, read);
            let (rate, p50, p99) =
                (of(rate), of(|leg| leg.micros(0.5)), of(|leg| leg.micros(0.99)));
            writeln!(text, "| direct | | | | {rate:.0} | | p50 {p50:.0} | | p99 {p99:.0} | |")
                .unwrap();
            continue;
        }
        let figure = |read: Read| {
            let ratio = contest.ratio(place, read);
            cell(contest, place, median(contest, place, read), ratio)
        };
        let added = |at: f64| {
            let (own, ratio) = contest.added(place, |leg| leg.micros(at));
            cell(contest, place, own.map_or(f64::NAN, |own| own.median), ratio)
        };
        let (cpu, rate, p50, p99) =
            (figure(Leg::cpu_per_call), figure(rate), added(0.5), added(0.99));
        let inline = beside(contest, place, INLINE_PROXY, Leg::cpu_per_call);
        let inline = inline.map_or_else(|| "–".to_owned(), |it| format!("{:.2}", it.median));
        writeln!(text, "| {} | {cpu} | {inline} | {rate} | {p50} | {p99} |", way.name).unwrap();
    }
    text + "\n"
}

fn median(contest: &Contest, place: usize, read: Read) -> f64 {
    Spread::of(contest.figures(place, read)).map_or(f64::NAN, |spread| spread.median)
}

/// A figure, and its ratio to the proxy's with the spread of the rounds.
fn cell(contest: &Contest, place: usize, own: f64, ratio: Option<Spread>) -> String {
    match ratio {
        _ if place == contest.base => format!("{own:.1} | 1"),
        Some(it) => {
            format!("{own:.1} | **{:.2}** ({:.2}–{:.2})", it.median, it.least, it.most)
        }
        // On a busy machine the proxy may appear to add nothing.
        None => format!("{own:.1} | –"),
    }
}

const DIRECT: usize = 0;
