//! The figures, as Markdown.

use crate::load::Measured;
use crate::plan::Case;

/// Prints what all tables have in common.
pub fn head() {
    println!(
        "CPU: of the proxy's or the gateway's process alone. Added: over the direct way, closed \
         loop.\nRatios: to the proxy, with their spread over the rounds. Medians of all rounds.\n"
    );
}

/// Prints one case. `rounds` hold a measurement for each way.
pub fn case(case: &Case<'_>, rounds: &[Vec<Measured>]) {
    println!("### {}\n", case.title);
    println!(
        "| way | CPU µs/call | ratio | calls/s | ratio | added p50 µs | ratio | added p99 µs | ratio |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (place, way) in case.ways.iter().enumerate() {
        if place == DIRECT {
            let of = |read: fn(&Measured) -> f64| median(column(rounds, place, read));
            let (rate, p50, p99) = (of(|one| one.rate), of(|one| one.p50), of(|one| one.p99));
            println!("| direct | | | {rate:.0} | | p50 {p50:.0} | | p99 {p99:.0} | |");
            continue;
        }
        let cpu = cell(rounds, place, |of, _| of.cpu);
        let rate = cell(rounds, place, |of, _| of.rate);
        let p50 = cell(rounds, place, |of, direct| of.p50 - direct.p50);
        let p99 = cell(rounds, place, |of, direct| of.p99 - direct.p99);
        println!("| {} | {cpu} | {rate} | {p50} | {p99} |", way.name);
    }
    println!();
}

/// The median of a figure, and that of its ratio to the proxy's.
fn cell(rounds: &[Vec<Measured>], place: usize, read: fn(&Measured, &Measured) -> f64) -> String {
    let of = |place: usize| -> Vec<f64> {
        rounds.iter().map(|round| read(&round[place], &round[DIRECT])).collect()
    };
    let own = median(of(place));
    match place {
        PROXY => format!("{own:.1} | 1"),
        _ => format!("{own:.1} | {}", ratio(&of(place), &of(PROXY))),
    }
}

fn column(rounds: &[Vec<Measured>], place: usize, read: fn(&Measured) -> f64) -> Vec<f64> {
    rounds.iter().map(|round| read(&round[place])).collect()
}

/// The median of the rounds' own ratios, and their spread.
fn ratio(own: &[f64], proxys: &[f64]) -> String {
    // On a busy machine the proxy may seem to add nothing: a ratio to that says nothing.
    let rounds = own.iter().zip(proxys).filter(|(_, proxy)| **proxy > 0.0);
    let ratios: Vec<f64> = rounds.map(|(own, proxy)| own / proxy).collect();
    if ratios.is_empty() {
        return "–".to_owned();
    }
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("**{:.2}** ({least:.2}–{most:.2})", median(ratios))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const DIRECT: usize = 0;
const PROXY: usize = 1;
