//! What one `tools/call` costs through the gateway, beside the same call
//! straight to its server and through a bare hyper pass-through proxy.
//!
//! Each of the three runs in a process of its own, so that the CPU it takes is
//! its own: the server ([`mock`]) and the proxy ([`proxy`]) are this program
//! again, the gateway is the `trunkline` binary with its default policy and
//! rate limits set. They are measured in turn within every round, so that what
//! else the machine does befalls all of them alike; only ratios mean anything
//! on another machine. Every answer is checked.
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

mod client;
mod instructions;
mod load;
mod mock;
mod plan;
mod process;
mod proxy;
mod table;

use load::Span;
use plan::Stage;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["mock"] => return mock::run(),
        ["proxy", server] => return proxy::run(server.parse().expect("an address")),
        _ => {}
    }
    let asked = |option: &str| args.contains(&option);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // As with criterion: without cargo's own `--bench` it is `cargo test` that asks.
        if asked("--test") || !asked("--bench") {
            smoke().await;
        } else if asked("--instructions") {
            instructions::count().await;
        } else if asked("--quick") {
            measure(&Span::QUICK).await;
        } else {
            measure(&Span::FULL).await;
        }
    });
}

/// A few checked calls on each way.
async fn smoke() {
    let stage = Stage::set().await;
    for case in stage.cases() {
        for way in &case.ways {
            load::calls(&way.target, case.connections.min(4), 20).await;
        }
    }
    println!("all answers were right");
}

async fn measure(span: &Span) {
    let stage = Stage::set().await;
    table::head();
    for case in stage.cases() {
        let mut rounds = Vec::with_capacity(span.rounds);
        for _ in 0..span.rounds {
            let mut round = Vec::with_capacity(case.ways.len());
            for way in &case.ways {
                round.push(load::measure(way, case.connections, span).await);
            }
            rounds.push(round);
        }
        table::case(&case, &rounds);
    }
}
