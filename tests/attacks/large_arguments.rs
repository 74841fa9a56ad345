//! Arguments of megabytes that break their tool's schema, and smaller ones of a tool with a costly
//! schema: each takes long to be checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Gateway, Step, Upstream, until};
use crate::{ATTACKER, BYSTANDER, two_clients};

/// Megabytes of integers where the schema wants texts.
fn large() -> Value {
    json!({ "list": vec![1; 500_000] })
}

/// Less than 64 KiB of integers, each of which only the last of many alternatives admits, and a text
/// that none does.
fn costly() -> Value {
    let mut list = vec![json!(1); 30_000];
    list.push(json!("x"));
    json!({ "list": list })
}

/// A gateway that serves all clients on one thread.
async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::modern().await;
    let schema = json!({
        "type": "object",
        "properties": { "list": { "type": "array", "items": { "type": "string" } } },
    });
    upstream
        .tool(&json!({ "name": "strict", "inputSchema": schema }), |_| vec![Step::text("fine")]);
    let minima = (2..200).map(|least| json!({ "type": "integer", "minimum": least }));
    let alternatives: Vec<_> = minima.chain([json!({ "type": "integer" })]).collect();
    let items = json!({ "anyOf": alternatives });
    let schema = json!({
        "type": "object",
        "properties": { "list": { "type": "array", "items": items } },
    });
    upstream
        .tool(&json!({ "name": "costly", "inputSchema": schema }), |_| vec![Step::text("fine")]);
    let builder = Gateway::with("s", upstream.http()).gateway("threads = 1");
    let gateway = two_clients(builder).start().await;
    // Compiles the schemas.
    for tool in ["s__strict", "s__costly"] {
        gateway.modern().key(ATTACKER).call(tool, json!({ "list": [1] })).await;
    }
    (gateway, upstream)
}

/// Calls of a tool, all at once; counts those that have an answer.
fn attack(
    gateway: &Gateway,
    tool: &'static str,
    arguments: fn() -> Value,
    calls: usize,
) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let (mut all, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..calls {
        let client = gateway.modern().key(ATTACKER);
        let answered = Arc::clone(&answered);
        all.spawn(async move {
            let said = client.call(tool, arguments()).await;
            answered.fetch_add(1, SeqCst);
            assert!(said.is_error() && said.text().contains("fit the schema"), "{}", said.text());
        });
    }
    (all, answered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_arguments_that_break_their_schema_hold_up_no_other_client() {
    hold_up_no_other_client("s__strict", large).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_of_a_costly_schema_hold_up_no_other_client() {
    hold_up_no_other_client("s__costly", costly).await;
}

async fn hold_up_no_other_client(tool: &'static str, arguments: fn() -> Value) {
    let (gateway, _upstream) = gateway().await;
    let bystander = gateway.modern().key(BYSTANDER).keep();
    bystander.call("s__echo", json!({})).await.text();
    let (mut all, answered) = attack(&gateway, tool, arguments, 4);
    // The bystander has many answers for each of the attacker's.
    let mut between = Vec::new();
    let mut calls = 0;
    let mut seen = 0;
    while seen < 4 {
        let said = bystander.call("s__echo", json!({})).await;
        assert_eq!(said.text(), "{}");
        calls += 1;
        if answered.load(SeqCst) > seen {
            seen = answered.load(SeqCst);
            between.push(std::mem::take(&mut calls));
        }
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    between.sort_unstable();
    assert!(between[between.len() / 2] >= 20, "calls between two answers: {between:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_checks_of_one_client_wait_in_front_of_nobody() {
    let (gateway, _upstream) = gateway().await;
    let (mut all, answered) = attack(&gateway, "s__strict", large, 8);
    until(|| answered.load(SeqCst) > 0).await;
    let before = answered.load(SeqCst);
    let said = gateway.modern().key(BYSTANDER).call("s__strict", large()).await;
    assert!(said.is_error(), "{}", said.text());
    let meanwhile = answered.load(SeqCst) - before;
    assert!(meanwhile <= 4, "{meanwhile} of the attacker's calls came first");
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
}
