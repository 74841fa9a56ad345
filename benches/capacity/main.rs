//! A capacity plan for replicas: the first limit that a number of sessions reaches, from measured costs.
//!
//! ```text
//! cargo bench --bench capacity              the table of docs/cluster.md
//! cargo bench --bench capacity -- --write   writes it there
//! ```
//!
//! Each plan is simulated for two minutes, second by second: calls arrive at random replicas, sessions
//! begin and end, one replica is lost, and a list changes at all of them. The random numbers have a
//! fixed seed, so two runs give the same table. The loads of the resources are compared with their limits;
//! the largest one is the first limit. Costs are in `costs.toml`, with their sources.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    reason = "a bench that meets a surprise ends there, and counts nothing beyond 2^52"
)]

mod load;
mod simulation;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;
use trunkline::bench::report::grouped;

use load::Resource;
use simulation::Simulation;

/// Measured costs; `costs.toml` documents the fields.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Costs {
    call_us: f64,
    at_owner: f64,
    forwarded: f64,
    session_us: f64,
    notification_us: f64,
    lease_us: f64,
    session_bytes: f64,
    stream_bytes: f64,
    connection_bytes: f64,
    record_bytes: f64,
    store_commands_per_second: f64,
}

/// A number of replicas and sessions.
#[derive(Debug, Clone, Copy)]
struct Plan {
    replicas: u64,
    sessions: u64,
}

fn main() -> ExitCode {
    let costs: Costs = toml::from_str(include_str!("costs.toml")).unwrap();
    check_model(&costs);
    let table = table(&costs);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cluster.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let renewed = format!("{before}{BEGIN}\n\n{table}\n{END}{after}");
    if std::env::args().any(|arg| arg == "--write") {
        std::fs::write(&page, renewed).unwrap();
    } else if text != renewed {
        println!(
            "{table}\ndocs/cluster.md has another table: cargo bench --bench capacity -- --write"
        );
        return ExitCode::FAILURE;
    } else {
        print!("{table}");
    }
    ExitCode::SUCCESS
}

/// Returns a row for each plan, as Markdown.
fn table(costs: &Costs) -> String {
    let mut text = "| replicas | sessions | calls/s | CPU | memory | streams of a connection | \
         store, commands | store, memory | a list change | first limit, at |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
        .to_owned();
    for (replicas, sessions) in
        [(3, 10_000), (10, 100_000), (100, 100_000), (10, 10_000_000), (100, 10_000_000)]
    {
        let plan = Plan { replicas, sessions };
        let peaks = Simulation::new(plan, costs).run();
        write!(text, "| {replicas} | {} | {} ", grouped(sessions), grouped(plan.calls())).unwrap();
        for resource in Resource::ALL {
            write!(text, "| {} ", resource.show(peaks.of(resource))).unwrap();
        }
        let (first, at) = find_limit(plan.replicas, costs);
        writeln!(text, "| {}, {} sessions |", first.name(), grouped(rounded(at))).unwrap();
    }
    text
}

/// Returns the resource that is exhausted first when the sessions of these replicas increase, and their
/// number.
fn find_limit(replicas: u64, costs: &Costs) -> (Resource, u64) {
    let first = |sessions| Simulation::new(Plan { replicas, sessions }, costs).run().first_limit();
    let (mut fits, mut exceeds) = (1, 1_u64 << 40);
    while exceeds - fits > fits / 100 {
        let middle = fits.midpoint(exceeds);
        if first(middle).1 > 1.0 { exceeds = middle } else { fits = middle }
    }
    (first(exceeds).0, fits)
}

impl Plan {
    /// Returns the calls per second.
    fn calls(self) -> u64 {
        (self.sessions as f64 * CALLS_PER_SESSION) as u64
    }
}

/// Checks that the model reacts to its costs.
fn check_model(costs: &Costs) {
    let plan = Plan { replicas: 10, sessions: 1_000_000 };
    let peaks = |costs: &Costs, plan| Simulation::new(plan, costs).run();
    let base = peaks(costs, plan);
    let dear = peaks(&Costs { forwarded: costs.forwarded * 2.0, ..costs.clone() }, plan);
    assert!(dear.of(Resource::Cpu) > base.of(Resource::Cpu) * 1.5, "{dear:?}");
    let alone = peaks(costs, Plan { replicas: 1, sessions: 100_000 });
    assert!(alone.of(Resource::PeerStreams) < f64::EPSILON, "one replica forwards nothing");
    let slow = Costs { store_commands_per_second: 10.0, ..costs.clone() };
    assert_eq!(peaks(&slow, plan).first_limit().0, Resource::StoreCommands);
    let same = peaks(costs, plan);
    assert_eq!(base.first_limit(), same.first_limit(), "the seed is fixed");
}

/// Returns a number with two significant digits.
fn rounded(number: u64) -> u64 {
    let unit = 10_u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    number / unit * unit
}

/// Calls of a session in a second: one in 20 seconds, as of an agent that works.
const CALLS_PER_SESSION: f64 = 0.05;
const BEGIN: &str = "<!-- measured: capacity -->";
const END: &str = "<!-- end: capacity -->";
