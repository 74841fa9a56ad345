//! What the parts of a call cost by themselves.
//!
//! `cargo bench --bench parts` for curves; `-- NAME` for some of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a bench that meets a surprise ends there; criterion's macros write no comments"
)]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use trunkline::call::{
    Answer, Call, Client, Context, Endpoint, Params, Principal, ResultBody, ServerName, Trace,
};
use trunkline::catalog::{
    ArgumentSchema, ByKind, Catalog, HeaderRules, Kind, Naming, Rules, Scope, ServerList,
    ServerRules, Source as Listed, UriMode,
};
use trunkline::config::{Config, Source, System};
use trunkline::era::{lift, lower};
use trunkline::jsonrpc::{self, Frame};
use trunkline::mcp::{Era, Method, ProtocolVersion};
use trunkline::policy::{Policy, Registry, Target};
use trunkline::snapshot::Listing;
use trunkline::telemetry::log::{self, AccessLine, Colours, LogFormat, LogLevels};
use trunkline::telemetry::{CallRecord, Outcome, Subject};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A request whose arguments have `size` bytes and a little more.
fn request(size: usize) -> Bytes {
    let request = json!({
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {
            "name": "files__search",
            "arguments": {
                "path": "src/listen",
                "query": "who closes a connection? ".repeat(size / 25),
                "limit": 20,
                "mode": "deep",
                "tags": ["rust", "http", "proxy"],
                "options": { "case": false, "context": 3 },
            },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    request.to_string().into()
}

fn result(size: usize) -> Bytes {
    let text = "found it in src/listen, line 214\n".repeat(size / 33);
    json!({ "content": [{ "type": "text", "text": text }], "isError": false }).to_string().into()
}

fn raw_params(size: usize) -> Bytes {
    match jsonrpc::parse(&request(size), 64) {
        Ok(Frame::Request { params: Some(params), .. }) => params,
        other => unreachable!("{other:?}"),
    }
}

fn call(size: usize) -> Call {
    let params = Params::parse(Some(raw_params(size))).unwrap();
    let client = Client::new(
        ProtocolVersion::LATEST_MODERN,
        Some(Bytes::from_static(br#"{"name":"bench","version":"1"}"#)),
        Bytes::from_static(b"{}"),
    );
    let context = Context {
        principal: Principal::Anonymous,
        endpoint: Endpoint::default(),
        session: None,
        address: [127, 0, 0, 1].into(),
        peer: None,
        transport: "http1",
        client: Arc::new(client),
        log: None,
        progress_token: None,
        trace: Trace::default(),
        headers: Arc::default(),
    };
    Call { method: Method::ToolsCall, params, context, input: None }
}

fn envelope(c: &mut Criterion) {
    let mut group = c.benchmark_group("envelope");
    for size in [0, 350, 4_000, 57_000] {
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

fn eras(c: &mut Criterion) {
    let mut group = c.benchmark_group("eras");
    for size in [350, 57_000] {
        let call = call(size);
        let name = call.params.name_span().unwrap_or_default();
        let edits = [(name, Bytes::from_static(b"\"search\""))];
        group.bench_with_input(BenchmarkId::new("lift request", size), &call, |b, call| {
            let version = ProtocolVersion::LATEST_MODERN;
            b.iter(|| lift::request(black_box(call), &edits, version, None));
        });
        group.bench_with_input(BenchmarkId::new("lower request", size), &call, |b, call| {
            b.iter(|| lower::request(black_box(call), &edits, None));
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
            b.iter(|| lift::result(black_box(body), b"{}"));
        });
        group.bench_with_input(BenchmarkId::new("lower result", size), &body, |b, body| {
            b.iter(|| lower::result(black_box(body)));
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

fn tools(count: usize) -> ServerList {
    let raws: Vec<Bytes> = (0..count)
        .map(|number| {
            let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
            let tool = json!({
                "name": format!("search_{number}"),
                "description": "Finds what was asked for. ".repeat(20),
                "inputSchema": schema,
            });
            tool.to_string().into()
        })
        .collect();
    let raws = ByKind { tools: Some(raws), ..ByKind::default() };
    ServerList::build(ServerName::new("files").unwrap(), &raws, HeaderRules::Enforce, None).0
}

fn catalog(tools: &ServerList) -> Catalog {
    let rules = ServerRules::default();
    let source = Listed { server: &tools.server, rules: &rules, list: Some(tools) };
    let naming = Rules { naming: Naming::Prefix, uris: UriMode::Prefix };
    Catalog::merge(naming, &[source], &Scope::default()).0
}

fn listing(c: &mut Criterion) {
    let mut group = c.benchmark_group("listing");
    for count in [10, 1_000, 5_000] {
        let tools = tools(count);
        let catalog = catalog(&tools);
        let ttl = Duration::from_mins(1);
        let prepared = Listing::prepare(Kind::Tools, catalog.list(Kind::Tools), ttl, b"{}");
        group.bench_with_input(BenchmarkId::new("answer", count), &prepared, |b, prepared| {
            b.iter(|| black_box(prepared).whole(Era::Modern).clone());
        });
        group.bench_with_input(BenchmarkId::new("prepare", count), &catalog, |b, catalog| {
            b.iter(|| {
                Listing::prepare(Kind::Tools, black_box(catalog).list(Kind::Tools), ttl, b"{}")
            });
        });
        let name = format!("files__search_{}", count / 2);
        group.bench_with_input(BenchmarkId::new("route", count), &catalog, |b, catalog| {
            b.iter(|| black_box(catalog).route(black_box(&name)).unwrap());
        });
    }
    group.finish();
}

fn policy(c: &mut Criterion) {
    let mut group = c.benchmark_group("policy");
    let tools = tools(1);
    let catalog = catalog(&tools);
    let entry = catalog.entries().next().unwrap();
    let target = Target::tool(&entry.server, &entry.tool, Box::default());
    let limits = "rate = \"1000000/s\"\nclient_rate = \"1000000/s\"\n";
    for (name, gateway, server) in
        [("no limits", "", ""), ("limits", limits, "rate = \"1000000/s\"\n")]
    {
        let text = format!(
            "[gateway]\n{gateway}[servers.files]\nurl = \"http://127.0.0.1:1/mcp\"\n{server}"
        );
        let source =
            Source { name: "bench".into(), folder: PathBuf::from("/"), bytes: text.into_bytes() };
        let config = Config::read(&source, &System).map_err(|_| "faults").unwrap();
        let registry = Registry::default();
        let policy = Policy::new(registry.limits(&config));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        group.bench_function(BenchmarkId::new("admit request", name), |b| {
            // Refusals are as good as admissions here: both are one look at the bucket.
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

const SCHEMA: &str = r#"{"type":"object","properties":{
  "path":{"type":"string","minLength":1,"maxLength":256},
  "query":{"type":"string"},
  "limit":{"type":"integer","minimum":1,"maximum":100},
  "mode":{"enum":["fast","deep"]},
  "tags":{"type":"array","items":{"type":"string"},"maxItems":16},
  "options":{"type":"object","properties":{"case":{"type":"boolean"},"context":{"type":"integer"}},"additionalProperties":false}
 },"required":["path","query"],"additionalProperties":false}"#;

/// The line of a call, as far as the buffer that a thread of its own empties.
/// Comes last: from here on the process has a log.
fn access_line(c: &mut Criterion) {
    let levels = |access| LogLevels { directives: "info", access };
    let log =
        log::init_into(std::io::sink(), levels(AccessLine::On), LogFormat::Json, Colours::Off)
            .unwrap();
    let record = CallRecord {
        principal: Some("ci"),
        address: Some([127, 0, 0, 1].into()),
        profile: "default",
        method: "tools/call",
        public: Subject::Tool("files__search"),
        native: Subject::Tool("search"),
        server: Some("files"),
        outcome: Outcome::Ok,
        duration: Duration::from_micros(411),
        upstream: Some(Duration::from_micros(300)),
        trace_id: None,
        client_version: "2026-07-28",
        server_version: Some("2025-06-18"),
        transport: "http1",
    };
    let mut group = c.benchmark_group("access line");
    for (name, access) in [("on", AccessLine::On), ("off", AccessLine::Off)] {
        log.set(levels(access)).unwrap();
        group.bench_function(name, |b| b.iter(|| black_box(&record).log()));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = envelope, eras, schema, listing, policy, access_line
}
criterion_main!(benches);
