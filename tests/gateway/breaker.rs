//! Circuit breakers: the failures that open one, the answers to its calls, and the events that
//! close it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::gateway::of;
use crate::support::{Gateway, Said, Step, Upstream, until, within};

fn down() -> Step {
    Step::Status(503, Vec::new(), String::new())
}

/// Defines a tool that fails while the returned flag is set.
fn failing(upstream: &Upstream) -> Arc<AtomicBool> {
    let fails = Arc::new(AtomicBool::new(true));
    let now = Arc::clone(&fails);
    upstream.tool(&json!({ "name": "work", "inputSchema": { "type": "object" } }), move |_| {
        vec![if now.load(Ordering::Relaxed) { down() } else { Step::text("done") }]
    });
    fails
}

async fn state(gateway: &Gateway) -> Value {
    gateway.server("s").await["breaker"]["state"].clone()
}

/// Waits until the breaker lets a call through again.
async fn is_half_open(gateway: &Gateway) {
    gateway.wait_for(|status| of(status, "s")["breaker"]["state"] == "half-open").await;
}

/// Returns true if the breaker refused a call.
#[track_caller]
fn is_refused(said: &Said) -> bool {
    said.is_error() && said.text().contains("try again in")
}

#[tokio::test]
async fn failures_in_a_row_open_it_and_a_probe_closes_it() {
    let upstream = Upstream::modern().await;
    let fails = failing(&upstream);
    let lines = upstream.http() + "breaker = { failures = 3, open_time = \"700ms\" }";
    let events = "[events]\nfile = \"events.jsonl\"";
    let gateway = Gateway::with("s", lines).toml(events).start().await;
    assert_eq!(state(&gateway).await, "closed");
    for (era, client) in gateway.both().await {
        for _ in 0..3 {
            let said = client.call("s__work", json!({})).await;
            assert!(said.is_error() && said.text().contains("503"), "{era} {said:?}");
        }
        let sent = upstream.calls().len();
        let said = client.call("s__work", json!({})).await;
        assert!(is_refused(&said), "{era} {said:?}");
        assert!(is_refused(&client.call("s__echo", json!({})).await), "it is the server's");
        let prompt = client.request("prompts/get", json!({ "name": "s__none" })).await;
        assert!(!prompt.error().is_null(), "{prompt:?}");
        assert_eq!(upstream.calls().len(), sent, "{era}: the server is left alone");
        let status = gateway.server("s").await;
        assert_eq!(status["breaker"]["state"], "open", "{status}");
        assert!(status["breaker"]["until"].is_string(), "{status}");
        let metrics = gateway.metrics().await;
        assert!(metrics.contains("trunkline_server_breaker{server=\"s\"} 2"), "{metrics}");
        assert!(metrics.contains("reason=\"breaker_open\""), "{metrics}");

        fails.store(false, Ordering::Relaxed);
        is_half_open(&gateway).await;
        assert_eq!(client.call("s__work", json!({})).await.text(), "done", "{era}");
        assert_eq!(state(&gateway).await, "closed");
        fails.store(true, Ordering::Relaxed);
    }
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("trunkline_server_breaker_opened_total{server=\"s\"} 2"), "{metrics}");
    let path = gateway.folder().join("events.jsonl");
    let told = |kind: &str| std::fs::read_to_string(&path).unwrap_or_default().contains(kind);
    until(|| told("breaker.opened") && told("breaker.closed")).await;
}

#[tokio::test]
async fn tool_errors_and_client_mistakes_do_not_open_it() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "required": ["city"] });
    upstream.tool(&json!({ "name": "weather", "inputSchema": schema }), |_| {
        vec![Step::Status(429, Vec::new(), String::new())]
    });
    upstream.tool(&json!({ "name": "broken", "inputSchema": { "type": "object" } }), |_| {
        vec![Step::Error(json!({ "code": -32603, "message": "a bug" }))]
    });
    let lines = upstream.http() + "breaker = { failures = 1 }\ntimeout = \"30s\"";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.modern();
    for (tool, arguments) in [
        ("s__fail", json!({})),
        ("s__weather", json!({})),
        ("s__weather", json!({ "city": "x" })),
        ("s__broken", json!({})),
        ("s__none", json!({})),
    ] {
        let said = client.call(tool, arguments).await;
        let failed = !said.answer()["error"].is_null() || said.is_error();
        assert!(failed, "{said:?}");
        assert_eq!(state(&gateway).await, "closed", "{tool}");
    }
    let cancelled = client.ask_call("s__hold", json!({}));
    drop(tokio::time::timeout(Duration::from_millis(300), cancelled.send()).await);
    within(upstream.heard("tools/call", 3)).await;
    assert_eq!(state(&gateway).await, "closed");
}

#[tokio::test]
async fn timeouts_and_lost_processes_open_it() {
    let upstream = Upstream::legacy().await;
    upstream.tool(&json!({ "name": "never", "inputSchema": { "type": "object" } }), |_| {
        vec![Step::Never]
    });
    upstream.tool(&json!({ "name": "dies", "inputSchema": { "type": "object" } }), |_| {
        vec![Step::Break]
    });
    for (tool, lines) in [("s__never", upstream.http()), ("s__dies", upstream.stdio())] {
        let lines = lines + "breaker = { failures = 1 }\ntimeout = \"300ms\"";
        let gateway = Gateway::with("s", lines).start().await;
        let said = gateway.modern().call(tool, json!({})).await;
        assert!(said.is_error() && !is_refused(&said), "{said:?}");
        assert_eq!(state(&gateway).await, "open", "{tool}");
        assert!(is_refused(&gateway.modern().call(tool, json!({})).await));
    }
}

#[tokio::test]
async fn a_retry_does_not_go_through_an_open_breaker() {
    let upstream = Upstream::modern().await;
    let annotations = json!({ "readOnlyHint": true });
    let tool = json!({
        "name": "read", "inputSchema": { "type": "object" }, "annotations": annotations,
    });
    upstream.tool(&tool, |_| vec![down()]);
    let lines = upstream.http() + "retries = 5\nbreaker = { failures = 2 }";
    let gateway = Gateway::with("s", lines).start().await;
    let said = gateway.modern().call("s__read", json!({})).await;
    assert!(said.text().contains("503"), "the failure, not the refusal: {said:?}");
    assert_eq!(upstream.calls().len(), 2);
    assert_eq!(state(&gateway).await, "open");
}

#[tokio::test]
async fn an_open_breaker_survives_a_reload_that_does_not_concern_it() {
    let upstream = Upstream::modern().await;
    failing(&upstream);
    let lines = |more: &str| upstream.http() + "breaker = { failures = 1 }\n" + more;
    let gateway = Gateway::with("s", lines("")).start().await;
    gateway.modern().call("s__work", json!({})).await;
    assert_eq!(state(&gateway).await, "open");
    let outcome = gateway.reload(Gateway::with("s", lines("rate = \"100/s\""))).await;
    assert_eq!(outcome, ReloadOutcome::Applied);
    assert_eq!(state(&gateway).await, "open");
    assert_eq!(gateway.server("s").await["restarts"], 0, "the server runs on");
    // A new breaker begins closed, and so does one of another server.
    let other = upstream.http() + "breaker = { failures = 2 }";
    gateway.reload(Gateway::with("s", other)).await;
    assert_eq!(state(&gateway).await, "closed");
}

/// Any number of calls that begin during a probe are refused.
#[tokio::test]
async fn only_one_call_reaches_a_server_that_may_be_well_again() {
    let upstream = Upstream::modern().await;
    let calls = AtomicUsize::new(0);
    upstream.tool(&json!({ "name": "work", "inputSchema": { "type": "object" } }), move |_| {
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => vec![down()],
            _ => vec![Step::Hold, Step::text("done")],
        }
    });
    let lines = upstream.http() + "breaker = { failures = 1, open_time = \"200ms\" }";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.modern();
    client.call("s__work", json!({})).await;
    is_half_open(&gateway).await;
    let prober = gateway.modern();
    let probe = tokio::spawn(async move { prober.call("s__work", json!({})).await });
    within(upstream.heard("tools/call", 2)).await;
    for _ in 0..5 {
        assert!(is_refused(&client.call("s__work", json!({})).await));
    }
    assert_eq!(upstream.calls().len(), 2);
    upstream.release(1);
    assert_eq!(within(probe).await.unwrap().text(), "done");
    assert_eq!(state(&gateway).await, "closed");
}
