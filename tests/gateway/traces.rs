//! Spans that a collector receives for real calls through a gateway.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

use crate::support::collector::{Collector, text};
use crate::support::{Gateway, Upstream, within};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_call_through_the_gateway_is_one_trace_from_client_to_server() {
    let [modern, legacy] = Upstream::both().await;
    let collector = Collector::start().await;
    let telemetry = format!(
        "[telemetry]\nendpoint = {:?}\nsample = 1.0\nheaders = {{ x-key = \"secret\" }}",
        collector.url
    );
    let gateway = Gateway::with("new", modern.http())
        .server("old", legacy.stdio())
        .toml(&telemetry)
        .start()
        .await;
    let client = gateway.modern();
    for server in ["new", "old"] {
        let ask = client.ask_call(&format!("{server}__echo"), json!({}));
        ask.meta("traceparent", json!(PARENT)).send().await.said().await;
    }
    gateway.stop().await;

    let (spans, metrics) = collector.rest().await;
    for (upstream, server) in [(&modern, "new"), (&legacy, "old")] {
        let tool = format!("{server}__echo");
        let of = |kind: SpanKind, tool: &str| {
            let all = spans.iter().filter(|span| span.kind() == kind);
            let mut all = all.filter(|span| text(&span.attributes, "gen_ai.tool.name") == tool);
            all.next().unwrap_or_else(|| panic!("{kind:?} {tool}: {spans:#?}")).clone()
        };
        let asked = of(SpanKind::Server, &tool);
        assert_eq!(asked.name, format!("tools/call {tool}"));
        assert_eq!(hex(&asked.trace_id), &PARENT[3..35]);
        assert_eq!(hex(&asked.parent_span_id), &PARENT[36..52]);
        assert_eq!(text(&asked.attributes, "mcp.method.name"), "tools/call");
        assert_eq!(text(&asked.attributes, "mcp.protocol.version"), "2026-07-28");
        let sent = upstream.calls().remove(0);
        let traceparent = sent.meta("traceparent").as_str().unwrap().to_owned();
        let to_server = spans
            .iter()
            .find(|span| hex(&span.span_id) == traceparent[36..52])
            .unwrap_or_else(|| panic!("{traceparent} is no span that was sent"));
        assert_eq!(to_server.kind(), SpanKind::Client);
        assert_eq!(to_server.parent_span_id, asked.span_id);
        assert_eq!(to_server.trace_id, asked.trace_id);
    }
    let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    for name in ["mcp.server.operation.duration", "mcp.client.operation.duration"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[tokio::test]
async fn metrics_are_sent_as_often_as_the_configuration_says() {
    let mut collector = Collector::start().await;
    let telemetry = format!("[telemetry]\nendpoint = {:?}\ninterval = \"100ms\"", collector.url);
    let gateway = Gateway::alone().toml(&telemetry).start().await;
    for _ in 0..2 {
        let (head, _) = within(collector.received.recv()).await.unwrap();
        assert_eq!(head.uri.path(), "/base/v1/metrics");
    }
    tokio::spawn(async move { while collector.received.recv().await.is_some() {} });
    gateway.stop().await;
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}
