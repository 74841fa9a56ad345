//! Telemetry that an OTLP collector receives from the gateway.
#![allow(
    clippy::disallowed_methods,
    reason = "the crate's clock is its own: this measures from outside"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that fails here fails at the line that says why"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric, metric::Data};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_rustls::TlsAcceptor;
use trunkline::telemetry::metrics::Metrics;
use trunkline::telemetry::otel::{CallStart, ClientStart, Otel, OtelError, OtelSettings, Tracing};
use trunkline::telemetry::{
    CallOutcome, CallSubject, Sampled, TraceIdText, TraceParent, Transport,
};

#[path = "support/collector.rs"]
mod collector;

use collector::{Collector, ENOUGH, text};

const META: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const HTTP: &str = "00-11111111111111111111111111111111-2222222222222222-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn start(settings: &OtelSettings) -> (Otel, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("0.0.0"));
    (Otel::start(settings, Arc::clone(&metrics), &Handle::current()).unwrap(), metrics)
}

fn parent(text: &str) -> TraceParent {
    TraceParent::parse(text).unwrap()
}

fn call() -> CallStart<'static> {
    CallStart {
        method: "tools/call",
        subject: CallSubject::Tool("files__read"),
        principal: "ci",
        profile: "support",
        request_id: Some("7"),
        protocol_version: "2026-07-28",
        transport: Transport::Tcp,
        client: Some("127.0.0.1:4711".parse().unwrap()),
        parent: None,
        http_parent: None,
        tracestate: None,
    }
}

const REQUEST: ClientStart<'_> = ClientStart {
    server: "files",
    method: "tools/call",
    subject: CallSubject::Tool("read"),
    protocol_version: "2025-06-18",
    transport: Transport::Pipe,
    address: None,
};

fn kind(spans: &[Span], kind: SpanKind) -> &Span {
    spans.iter().find(|span| span.kind() == kind).unwrap()
}

#[tokio::test]
async fn a_sampled_call_arrives_as_two_spans_under_the_parent_in_meta() {
    let collector = Collector::start().await;
    let (otel, _) = start(&collector.settings());
    let trace = otel.tracing().start(&CallStart {
        parent: Some(parent(META)),
        http_parent: Some(parent(HTTP)),
        tracestate: Some("vendor=1"),
        ..call()
    });
    assert_eq!(trace.trace_id().unwrap().as_str(), &META[3..35]);
    let request = trace.client(&REQUEST);
    let sent = request.traceparent().unwrap();
    request.finish_request(&CallOutcome::Ok);
    trace.finish_call(&CallOutcome::Ok);

    let (spans, _) = collector.all(otel).await;
    assert_eq!(spans.len(), 2);
    let (server, client) = (kind(&spans, SpanKind::Server), kind(&spans, SpanKind::Client));
    let meta = parent(META);
    assert_eq!(server.name, "tools/call files__read");
    assert_eq!(server.trace_id, meta.trace_id().to_be_bytes());
    assert_eq!(server.parent_span_id, meta.span_id().to_be_bytes());
    assert_eq!(server.trace_state, "vendor=1");
    assert_eq!(server.links.len(), 1);
    assert_eq!(server.links[0].trace_id, parent(HTTP).trace_id().to_be_bytes());
    assert_eq!(client.name, "tools/call read");
    assert_eq!(client.parent_span_id, server.span_id);
    assert_eq!(client.trace_id, sent.trace_id().to_be_bytes());
    assert_eq!(client.span_id, sent.span_id().to_be_bytes());
    for (span, key, value) in [
        (server, "mcp.method.name", "tools/call"),
        (server, "gen_ai.tool.name", "files__read"),
        (server, "gen_ai.operation.name", "execute_tool"),
        (server, "enduser.id", "ci"),
        (server, "trunkline.profile", "support"),
        (server, "jsonrpc.request.id", "7"),
        (server, "mcp.protocol.version", "2026-07-28"),
        (server, "network.transport", "tcp"),
        (server, "network.protocol.name", "http"),
        (server, "client.address", "127.0.0.1"),
        (server, "client.port", "4711"),
        (server, "error.type", ""),
        (client, "gen_ai.tool.name", "read"),
        (client, "mcp.protocol.version", "2025-06-18"),
        (client, "network.transport", "pipe"),
        (client, "network.protocol.name", ""),
        (client, "trunkline.server", "files"),
    ] {
        assert_eq!(text(&span.attributes, key), value, "{key} of {}", span.name);
    }
}

#[tokio::test]
async fn the_outcome_of_a_call_uses_the_words_of_the_conventions() {
    let collector = Collector::start().await;
    let (otel, _) = start(&collector.settings());
    let timeout = CallOutcome::Failed { code: -32603, label: "timeout" };
    let refused = CallOutcome::Refused { reason: "rate" };
    let cases = [
        (CallOutcome::Ok, "", "", StatusCode::Unset),
        (CallOutcome::ToolError, "tool_error", "", StatusCode::Error),
        (refused, "rate", "", StatusCode::Error),
        (timeout, "-32603", "-32603", StatusCode::Error),
        (CallOutcome::Cancelled, "cancelled", "", StatusCode::Unset),
    ];
    for (outcome, ..) in &cases {
        let subject = CallSubject::Tool(outcome.label());
        otel.tracing().start(&CallStart { subject, ..call() }).finish_call(outcome);
    }
    let (spans, _) = collector.all(otel).await;
    for (outcome, error_type, code, status) in cases {
        let name = format!("tools/call {}", outcome.label());
        let span = spans.iter().find(|span| span.name == name).unwrap();
        assert_eq!(text(&span.attributes, "error.type"), error_type, "{name}");
        assert_eq!(text(&span.attributes, "rpc.response.status_code"), code, "{name}");
        assert_eq!(span.status.clone().unwrap_or_default().code(), status, "{name}");
    }
}

#[tokio::test]
async fn a_call_that_is_not_sampled_passes_its_traceparent_on_and_leaves_no_span() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.sample_ratio = 0.0;
    let (otel, _) = start(&settings);
    for tracing in [otel.tracing(), Tracing::disabled()] {
        for (given, trace_id) in [(Some(parent(UNSAMPLED)), Some(&META[3..35])), (None, None)] {
            let trace = tracing.start(&CallStart { parent: given, ..call() });
            assert_eq!(trace.sampled(), Sampled::No);
            assert_eq!(trace.trace_id().as_ref().map(TraceIdText::as_str), trace_id);
            let request = trace.client(&REQUEST);
            assert_eq!(request.traceparent(), given);
            request.finish_request(&CallOutcome::Ok);
            trace.finish_call(&CallOutcome::Ok);
        }
    }
    let (spans, _) = collector.all(otel).await;
    assert_eq!(spans, []);
}

#[tokio::test]
async fn a_call_after_the_end_still_passes_its_traceparent_on() {
    let collector = Collector::start().await;
    let (otel, _) = start(&collector.settings());
    let tracing = otel.tracing();
    otel.shutdown(ENOUGH).await;
    let trace = tracing.start(&CallStart { parent: Some(parent(META)), ..call() });
    assert_eq!(trace.client(&REQUEST).traceparent(), Some(parent(META)));
    assert_eq!(tracing.start(&call()).client(&REQUEST).traceparent(), None);
}

#[tokio::test]
async fn without_a_parent_in_meta_the_one_of_the_http_request_is_the_parent() {
    let collector = Collector::start().await;
    let (otel, _) = start(&collector.settings());
    otel.tracing()
        .start(&CallStart { http_parent: Some(parent(HTTP)), ..call() })
        .finish_call(&CallOutcome::Ok);
    let (spans, _) = collector.all(otel).await;
    assert_eq!(spans[0].parent_span_id, parent(HTTP).span_id().to_be_bytes());
    assert_eq!(spans[0].links, []);
}

fn points(metrics: &[Metric], name: &str) -> Vec<HistogramDataPoint> {
    let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
    assert_eq!(metric.unit, "s");
    let Some(Data::Histogram(histogram)) = &metric.data else { panic!("{name} is no histogram") };
    histogram.data_points.clone()
}

#[tokio::test]
async fn metrics_arrive_under_their_conventional_names_without_a_second_count() {
    let collector = Collector::start().await;
    let (otel, metrics) = start(&collector.settings());
    let server = metrics.server("files");
    let took = Duration::from_millis(30);
    metrics.operation_metrics("tools/call").record_duration(&CallOutcome::Ok, took);
    metrics.operation_metrics("tools/call").record_duration(&CallOutcome::ToolError, took);
    server.operation_metrics("tools/call").record_duration(&CallOutcome::Ok, took);
    metrics.record_session(took);
    server.record_session(took);

    let (_, received) = collector.all(otel).await;
    let calls = points(&received, "mcp.server.operation.duration");
    let [ok, tool_error] = &calls[..] else { panic!("two outcomes: {calls:?}") };
    assert_eq!(text(&ok.attributes, "mcp.method.name"), "tools/call");
    assert_eq!(text(&ok.attributes, "error.type"), "");
    assert_eq!(text(&tool_error.attributes, "error.type"), "tool_error");
    assert_eq!((ok.count, ok.sum), (1, Some(0.03)));
    assert_eq!(ok.explicit_bounds[..3], [0.01, 0.02, 0.05]);
    assert_eq!(ok.bucket_counts[..3], [0, 0, 1]);
    assert_eq!(ok.bucket_counts.len(), ok.explicit_bounds.len() + 1);
    assert!(ok.start_time_unix_nano <= ok.time_unix_nano);
    for name in ["mcp.client.operation.duration", "mcp.client.session.duration"] {
        assert_eq!(text(&points(&received, name)[0].attributes, "trunkline.server"), "files");
    }
    assert_eq!(points(&received, "mcp.server.session.duration")[0].count, 1);
}

#[tokio::test]
async fn metrics_are_pushed_while_the_gateway_runs() {
    let mut collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.metrics_every = Duration::from_millis(5);
    let (otel, metrics) = start(&settings);
    metrics.operation_metrics("tools/list").record_duration(&CallOutcome::Ok, Duration::ZERO);
    let (head, _) = collector.received.recv().await.unwrap();
    assert_eq!(head.uri.path(), "/base/v1/metrics");
    tokio::spawn(async move { while collector.received.recv().await.is_some() {} });
    otel.shutdown(ENOUGH).await;
}

#[tokio::test]
async fn a_collector_behind_tls_is_reached() {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let served = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let collector = Collector::listen("https", Some(TlsAcceptor::from(Arc::new(served)))).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(signed.cert.der().clone()).unwrap();
    let trusting =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let settings = OtelSettings { tls: Some(trusting), ..collector.settings() };
    let (otel, _) = start(&settings);
    otel.tracing().start(&call()).finish_call(&CallOutcome::Ok);
    let (spans, _) = collector.all(otel).await;
    assert_eq!(spans.len(), 1);
}

#[tokio::test]
async fn a_silent_collector_does_not_hold_up_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let settings = OtelSettings::new(url.parse().unwrap());
    // A shutdown that waited for the requests would take this long.
    let settings = OtelSettings { timeout: Duration::from_mins(1), ..settings };
    let (otel, metrics) = start(&settings);
    metrics.operation_metrics("tools/call").record_duration(&CallOutcome::Ok, Duration::ZERO);
    otel.tracing().start(&call()).finish_call(&CallOutcome::Ok);
    let begun = Instant::now();
    otel.shutdown(Duration::from_millis(200)).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn settings_are_checked_and_keep_their_secrets() {
    for url in [
        "ftp://localhost/",
        "http://localhost/?q=1",
        "http://localhost/#f",
        "http://me:secret@localhost/",
    ] {
        let settings = OtelSettings::new(url.parse().unwrap());
        let started = Otel::start(&settings, Arc::new(Metrics::new("0")), &Handle::current());
        assert!(matches!(started, Err(OtelError::Endpoint)), "{url}");
    }
    let collector = Collector::start().await;
    assert!(!format!("{:?}", collector.settings()).contains("secret"));
}
