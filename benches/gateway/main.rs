//! What one `tools/call` costs through the gateway, beside the same call
//! straight to its server and through a bare hyper pass-through proxy.
//!
//! Each of the three runs in a process of its own, so that the CPU it takes is
//! its own: the server and the proxy are `trunkline example load` and `proxy`,
//! the gateway is `trunkline serve` with its default policy and rate limits
//! set. The load and the contest are the product's (`trunkline::bench`): they
//! take turns within every round, so that what else the machine does befalls
//! all of them alike, and every answer is checked. Only ratios mean anything on
//! another machine. `trunkline bench --self` is the short form of this.
//!
//! ```text
//! cargo bench --bench gateway                      the whole table, 2 to 3 minutes
//! cargo bench --bench gateway -- --quick           fewer and shorter rounds
//! cargo bench --bench gateway -- --instructions    user instructions per call; needs valgrind
//! cargo bench --bench gateway -- --test            a few calls of each kind, nothing measured
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a bench that meets a surprise ends there, and counts nothing beyond 2^52"
)]

mod instructions;
mod plan;
mod process;
mod table;

use std::time::Duration;

use plan::{Case, Span, Stage};
use trunkline::bench::{BenchFault, Clock, Contest, Interrupt, Rules, Watch};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asked = |option: &str| args.iter().any(|arg| arg == option);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // As with criterion: without cargo's own `--bench` it is `cargo test` that asks.
        if asked("--test") || !asked("--bench") {
            smoke().await;
        } else if asked("--instructions") {
            instructions::count().await;
        } else if asked("--quick") {
            measure(&QUICK).await;
        } else {
            measure(&FULL).await;
        }
    });
}

/// A few checked calls on each way.
async fn smoke() {
    let stage = Stage::set().await;
    for case in stage.cases() {
        let span = Span { rounds: 1, requests: Some(80), ..FULL };
        let contest = hold(Case { connections: case.connections.min(4), ..case }, &span).await;
        for place in 0..contest.contenders.len() {
            let tally = contest.together(place).unwrap();
            let (whole, name) = (tally.whole(), &contest.contenders[place].name);
            assert_eq!((whole.done, whole.failed), (80, 0), "{name}: {:?}", tally.troubles);
        }
    }
    println!("all answers were right");
}

async fn measure(span: &Span) {
    let stage = Stage::set().await;
    table::head();
    for case in stage.cases() {
        let title = case.title.clone();
        let contest = hold(case, span).await;
        for place in 0..contest.contenders.len() {
            let tally = contest.together(place).unwrap();
            assert_eq!(tally.whole().failed, 0, "{:?}", tally.troubles);
        }
        table::case(&title, &contest);
    }
}

async fn hold(case: Case, span: &Span) -> Contest {
    let load = plan::load(case.connections, span);
    let rules = Rules { rounds: span.rounds, base: table::PROXY, direct: Some(table::DIRECT) };
    let contenders = case.contenders(&load).await;
    let contest: Result<_, BenchFault> =
        Contest::hold(contenders, &load, rules, &Interrupt::new(), &mut Nobody).await;
    contest.expect("a contest")
}

/// Watches nothing.
struct Nobody;

impl Watch for Nobody {
    fn see(&mut self, _: &Clock, _: u64, _: u64) {}
    fn over(&mut self) {}
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
