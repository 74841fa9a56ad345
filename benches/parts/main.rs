//! The cost of the parts of a call, and its growth ([`curves`]).
//!
//! `cargo bench --bench parts`; `-- NAME` selects some of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a bench that meets a surprise ends there; criterion's macros write no comments"
)]

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use serde_json::json;
use trunkline::call::{Answer, Params, Principal, ResultBody};
use trunkline::catalog::ArgumentSchema;
use trunkline::era::{lift, lower};
use trunkline::mcp::ProtocolVersion;
use trunkline::policy::CallTarget;
use trunkline::telemetry::log::{self, AccessLogSwitch, Appearance, LogFormat, LogLevels};
use trunkline::telemetry::{CallOutcome, CallRecord, CallSubject};

mod curves;
mod material;

use material::{SCHEMA, call, catalog, policy_of, raw_params, tools};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn result(size: usize) -> Bytes {
    let text = "found it in src/listen, line 214\n".repeat(size / 33);
    json!({ "content": [{ "type": "text", "text": text }], "isError": false }).to_string().into()
}

fn eras(c: &mut Criterion) {
    let mut group = c.benchmark_group("eras");
    for size in [350, 57_000] {
        let call = call(size);
        let name = call.params.name_span().unwrap_or_default();
        let edits = [(name, Bytes::from_static(b"\"search\""))];
        group.bench_with_input(BenchmarkId::new("lift request", size), &call, |b, call| {
            let version = ProtocolVersion::LATEST_MODERN;
            b.iter(|| lift::request(black_box(call), &edits, version, None).finish());
        });
        group.bench_with_input(BenchmarkId::new("lower request", size), &call, |b, call| {
            b.iter(|| lower::request(black_box(call), &edits, None).finish());
        });
    }
    for size in [1_000, 1_000_000] {
        let raw = result(size);
        group.bench_with_input(BenchmarkId::new("read result", size), &raw, |b, raw| {
            b.iter(|| ResultBody::parse(black_box(raw).clone()).unwrap());
        });
        let body = ResultBody::parse(raw).unwrap();
        let Answer::Result(body) =
            Answer::Result(body).sent_by(&Bytes::from_static(br#"{"name":"s","version":"1"}"#))
        else {
            unreachable!()
        };
        group.bench_with_input(BenchmarkId::new("lift result", size), &body, |b, body| {
            b.iter(|| lift::result(black_box(body), b"{}").finish());
        });
        group.bench_with_input(BenchmarkId::new("lower result", size), &body, |b, body| {
            b.iter(|| lower::result(black_box(body)).finish());
        });
    }
    group.finish();
}

fn schema(c: &mut Criterion) {
    let mut group = c.benchmark_group("schema");
    let any = ArgumentSchema::compile(br#"{"type":"object"}"#).unwrap();
    let strict = ArgumentSchema::compile(SCHEMA.as_bytes()).unwrap();
    for size in [0, 350, 57_000] {
        let params = Params::parse(Some(raw_params(size))).unwrap();
        for (name, schema) in [("any object", &any), ("strict", &strict)] {
            group.bench_with_input(BenchmarkId::new(name, size), &params, |b, params| {
                b.iter(|| schema.check(black_box(params).arguments()).unwrap());
            });
        }
    }
    group.finish();
}

fn policy(c: &mut Criterion) {
    let mut group = c.benchmark_group("policy");
    let tools = tools(1);
    let catalog = catalog(&tools);
    let entry = catalog.entries().next().unwrap();
    let target = CallTarget::tool(&entry.server, &entry.tool, Box::default());
    let limits = "rate = \"1000000/s\"\nclient_rate = \"1000000/s\"\n";
    for (name, gateway, server) in
        [("no limits", "", ""), ("limits", limits, "rate = \"1000000/s\"\n")]
    {
        let text = format!(
            "[gateway]\n{gateway}[servers.files]\nurl = \"http://127.0.0.1:1/mcp\"\n{server}"
        );
        let policy = policy_of(text);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        group.bench_function(BenchmarkId::new("admit request", name), |b| {
            // Rejections cost the same as admissions here: both check the bucket once.
            b.iter(|| {
                drop(policy.admit_request(&Principal::Anonymous, black_box([127, 0, 0, 1].into())));
            });
        });
        group.bench_function(BenchmarkId::new("admit call", name), |b| {
            b.iter_batched(
                || (call(350), target.clone()),
                |(call, target)| drop(runtime.block_on(policy.admit(Box::new(call), target))),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// The access log line of a call, up to the buffer that a separate thread empties. Comes last: from
/// here on the process has a log.
fn access_line(c: &mut Criterion) {
    let levels = |access| LogLevels { directives: "info", access };
    let log = log::init_log_into(
        std::io::sink(),
        levels(AccessLogSwitch::On),
        LogFormat::Json,
        Appearance::Plain,
    )
    .unwrap();
    let record = CallRecord {
        principal: Some("ci"),
        address: Some([127, 0, 0, 1].into()),
        profile: "default",
        method: "tools/call",
        public: CallSubject::Tool("files__search"),
        native: CallSubject::Tool("search"),
        server: Some("files"),
        items: None,
        outcome: CallOutcome::Ok,
        limit: None,
        duration: Duration::from_micros(411),
        upstream: Some(Duration::from_micros(300)),
        trace_id: None,
        client_info: Some(br#"{"name":"agent","version":"1.0"}"#),
        client_era: "modern",
        client_version: "2026-07-28",
        server_version: Some("2025-06-18"),
        transport: "http1",
    };
    let mut group = c.benchmark_group("access log");
    for (name, access) in [("on", AccessLogSwitch::On), ("off", AccessLogSwitch::Off)] {
        log.set_levels(levels(access)).unwrap();
        group.bench_function(name, |b| b.iter(|| black_box(&record).write_to_log()));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = eras, schema, policy, curves::envelope, curves::many_tools, curves::rules,
        curves::sealed_state, access_line
}
criterion_main!(benches);
