//! Growth of cost with the size of messages, the number of tools, and the number of rules.
//!
//! These should be constant: looking up a tool, serving a prepared list, and admitting a call with
//! any number of rules.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use trunkline::call::Params;
use trunkline::catalog::{CacheScope, Freshness, Kind};
use trunkline::era::state::{RequestState, Seals, StateBinding, digest};
use trunkline::jsonrpc;
use trunkline::mcp::Era;
use trunkline::policy::CallTarget;
use trunkline::snapshot::PreparedListing;

use crate::material::{call, catalog, policy_of, raw_params, request, tools};

/// Returns the sizes of a curve; only the first two in a run without measurements.
fn sizes(all: &[usize]) -> &[usize] {
    let measured = std::env::args().any(|arg| arg == "--bench");
    if measured { all } else { all.get(..2).unwrap_or(all) }
}

/// Requests of 0.6 KB, 6 KB, 57 KB and 1 MB.
pub fn envelope(c: &mut Criterion) {
    let mut group = c.benchmark_group("envelope");
    for &size in sizes(&[200, 5_500, 57_000, 1_000_000]) {
        let message = request(size);
        let params = raw_params(size);
        group.throughput(Throughput::Bytes(message.len() as u64));
        group.bench_with_input(BenchmarkId::new("frame", message.len()), &message, |b, message| {
            b.iter(|| jsonrpc::parse(black_box(message), 64).unwrap());
        });
        group.bench_with_input(BenchmarkId::new("params", message.len()), &params, |b, params| {
            b.iter(|| Params::parse(Some(black_box(params).clone())).unwrap());
        });
        let parsed = Params::parse(Some(params)).unwrap();
        group.bench_with_input(BenchmarkId::new("meta", message.len()), &parsed, |b, parsed| {
            b.iter(|| black_box(parsed).meta().unwrap());
        });
    }
    group.finish();
}

/// Cost by the number of tools: looking one up and serving the list should be
/// constant; preparing the list grows.
pub fn many_tools(c: &mut Criterion) {
    let mut group = c.benchmark_group("tools");
    for &count in sizes(&[10, 100, 1_000, 10_000]) {
        let tools = tools(count);
        let catalog = catalog(&tools);
        let fresh = Freshness { ttl: Duration::from_mins(1), scope: CacheScope::Public };
        let prepared =
            PreparedListing::prepare(Kind::Tools, catalog.list(Kind::Tools), fresh, b"{}");
        group.bench_with_input(
            BenchmarkId::new("hand the list out", count),
            &prepared,
            |b, prepared| {
                b.iter(|| black_box(prepared).whole(Era::Modern).clone());
            },
        );
        group.bench_with_input(
            BenchmarkId::new("prepare the list", count),
            &catalog,
            |b, catalog| {
                b.iter(|| {
                    PreparedListing::prepare(
                        Kind::Tools,
                        black_box(catalog).list(Kind::Tools),
                        fresh,
                        b"{}",
                    )
                });
            },
        );
        let name = format!("files__search_{}", count / 2);
        group.bench_with_input(BenchmarkId::new("look up", count), &catalog, |b, catalog| {
            b.iter(|| black_box(catalog).find_tool(black_box(&name)).unwrap());
        });
    }
    group.finish();
}

/// A call of a tool with a rate, among as many tools with rates.
pub fn rules(c: &mut Criterion) {
    let mut group = c.benchmark_group("rules");
    for &count in sizes(&[1, 10, 100, 1_000]) {
        let tools = tools(count);
        let catalog = catalog(&tools);
        let mut text = "[gateway]\nrate = \"1000000/s\"\nclient_rate = \"1000000/s\"\n\
            [servers.files]\nurl = \"http://127.0.0.1:1/mcp\"\nrate = \"1000000/s\"\n"
            .to_owned();
        for number in 0..count {
            write!(text, "[servers.files.tools.search_{number}]\nrate = \"1000000/s\"\n").unwrap();
        }
        let policy = policy_of(text);
        let entry = catalog.entries().nth(count / 2).unwrap();
        let target = CallTarget::tool(&entry.server, &entry.tool, Box::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        group.bench_function(BenchmarkId::new("admit", count), |b| {
            b.iter_batched(
                || (call(350), target.clone()),
                |(call, target)| drop(runtime.block_on(policy.admit(Box::new(call), target))),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// A server's own state, sealed for its client and opened again.
pub fn sealed_state(c: &mut Criterion) {
    let mut group = c.benchmark_group("sealed state");
    let seals = Seals::new([b"a secret for the bench".as_slice()]).unwrap();
    let request = digest("tools/call", &raw_params(350));
    let bound = StateBinding { principal: "ci", request: &request };
    let (now, lasting) = (Duration::from_hours(500_000), Duration::from_mins(10));
    for &size in sizes(&[64, 1_000, 16_000, 64_000]) {
        let state = RequestState::Server { server: "files".into(), state: "s".repeat(size) };
        let sealed = seals.seal(state.clone(), bound, now, lasting).unwrap();
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(BenchmarkId::new("seal", size), |b| {
            b.iter_batched(
                || state.clone(),
                |state| seals.seal(state, bound, now, lasting).unwrap(),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(BenchmarkId::new("open", size), |b| {
            b.iter(|| {
                seals.open(black_box(&sealed), bound.principal, || *bound.request, now).unwrap()
            });
        });
    }
    group.finish();
}
