//! The cost of one `tools/call` through the gateway, compared with the same call directly to its
//! server and through a bare hyper pass-through proxy.
//!
//! Each of the three runs as a separate process, so that its CPU time is measured separately: the
//! server and the proxy are `trunkline example load` and `proxy`, the gateway is `trunkline serve`
//! with its default policy and rate limits set. The load and contest are the product's
//! (`trunkline::bench`): contenders take turns within every round, so that other activity of the
//! machine affects all of them alike, and every answer is checked. Only ratios are comparable with
//! other machines. `trunkline bench --self` is the short form of this.
//!
//! ```text
//! cargo bench --bench gateway                      the tables of times, 3 to 4 minutes
//! cargo bench --bench gateway -- --instructions    user instructions per call; needs valgrind
//! cargo bench --bench gateway -- --checks          instructions with each check switched on
//! cargo bench --bench gateway -- --gate            the same, held against instructions.toml
//! cargo bench --bench gateway -- --gate --write "why they move"
//! cargo bench --bench gateway -- --targets         the table of targets; names after it choose rows
//! cargo bench --bench gateway -- --peers           other gateways, those that are installed
//! cargo bench --bench gateway -- --replicas        a call at a single gateway, at its owner, and forwarded
//! cargo bench --bench gateway -- --report          all of it, into docs/benchmarks.md
//! cargo bench --bench gateway -- --test            a few calls of each kind, nothing measured
//! ```
//!
//! `--quick` makes rounds fewer and shorter. `--dist` measures the distribution build, with
//! link-time optimization, as the report does; `--release` the build of the README's first command,
//! as the gate does; without either, the program that cargo built beside this bench is measured.

#![allow(
    clippy::disallowed_methods,
    reason = "the crate's clock is its own: this measures from outside"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a bench that meets a surprise ends there, and counts nothing beyond 2^52"
)]

mod bridge;
mod checks;
mod gate;
mod instructions;
mod nginx;
mod peers;
mod plan;
mod process;
mod replica_cost;
mod replicas;
mod report;
mod table;
mod targets;
mod tokens;
mod watch;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use plan::{Span, Stage};
use process::Profile;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asked = |option: &str| args.iter().any(|arg| arg == option);
    let after = |option: &str| {
        let place = args.iter().position(|arg| arg == option)?;
        Some(args[place + 1..].iter().take_while(|arg| !arg.starts_with("--")).cloned().collect())
    };
    if let Some(place) = args.iter().position(|arg| arg == bridge::OPTION) {
        bridge::serve(Path::new(&args[place + 1]));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let span = if asked("--quick") { QUICK } else { FULL };
    if asked("--gate") || asked("--release") {
        process::measure(Profile::Release);
    } else if asked("--report") || asked("--dist") {
        process::measure(Profile::Dist);
    }
    let passed = runtime.block_on(async {
        let written: Option<Vec<String>> = after("--write");
        if let (true, Some(reason)) = (asked("--gate"), written) {
            gate::write(&reason.join(" ")).await;
        } else if asked("--gate") {
            return gate::check().await;
        } else if asked("--checks") {
            checks::count().await;
        } else if asked("--instructions") {
            instructions::count().await;
        } else if let Some(names) = after("--targets") {
            targets::table(&names, &span).await;
        } else if let Some(names) = after("--peers") {
            peers::table(&names, &span).await;
        } else if asked("--replicas") {
            replica_cost::print(&span).await;
        } else if asked("--report") {
            report::write(&span).await;
        } else if asked("--test") || !asked("--bench") {
            // As with criterion: without cargo's own `--bench` this is a run of `cargo test`.
            smoke().await;
        } else {
            measure(&span).await;
        }
        true
    });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A few checked calls on each path.
async fn smoke() {
    gate::try_out();
    peers::try_out();
    report::try_out();
    let stage = Stage::set().await;
    let span = Span { rounds: 1, requests: Some(80), ..FULL };
    for mut case in stage.cases(&span) {
        case.load.connections = case.load.connections.min(4);
        let contest = case.hold(&span).await;
        for place in 0..contest.contenders.len() {
            assert_eq!(contest.together(place).unwrap().whole().done, 80);
        }
    }
    println!("all answers were right");
}

/// Measures and prints the tables of times one by one.
async fn measure(span: &Span) -> String {
    let stage = Stage::set().await;
    let mut text = table::head();
    print!("{text}");
    for case in stage.cases(span) {
        let title = case.title.clone();
        let table = table::case(&title, &case.hold(span).await);
        print!("{table}");
        text += &table;
    }
    text
}

const FULL: Span = Span {
    rounds: 5,
    warmup: Duration::from_millis(200),
    measured: Duration::from_millis(900),
    requests: None,
};
const QUICK: Span = Span {
    rounds: 3,
    warmup: Duration::from_millis(100),
    measured: Duration::from_millis(300),
    requests: None,
};
