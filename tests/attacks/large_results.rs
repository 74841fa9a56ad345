//! Results of megabytes with many links: each takes long to be rewritten.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Gateway, Step, Upstream, until};
use crate::{ATTACKER, BYSTANDER, two_clients};

/// A gateway that serves all clients on one thread, and a server with a tool whose result has very
/// many links.
async fn gateway() -> (Gateway, Upstream) {
    let upstream = Upstream::modern().await;
    let links = r#"{"type":"resource_link","uri":"a:1","name":""}"#;
    let result = format!(r#"{{"content":[{}]}}"#, vec![links; 20_000].join(","));
    upstream.offers_everything().does("links", move |_| vec![Step::Raw(result.clone())]);
    let builder = Gateway::with("s", upstream.http()).gateway("threads = 1");
    let gateway = two_clients(builder).start().await;
    (gateway, upstream)
}

/// Calls with large results, all at once; counts those that have an answer.
fn attack(gateway: &Gateway, calls: usize) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let (mut all, answered) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..calls {
        let client = gateway.modern().key(ATTACKER);
        let answered = Arc::clone(&answered);
        all.spawn(async move {
            let said = client.call("s__links", json!({})).await;
            answered.fetch_add(1, SeqCst);
            let content = said.result()["content"].as_array().unwrap();
            assert_eq!(content.len(), 20_000);
            assert!(content.iter().all(|link| link["uri"] == "mcp://s/a:1"));
        });
    }
    (all, answered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_with_many_links_hold_up_no_other_client() {
    let (gateway, _upstream) = gateway().await;
    let bystander = gateway.modern().key(BYSTANDER).keep();
    bystander.call("s__echo", json!({})).await.text();
    let (mut all, answered) = attack(&gateway, 4);
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
async fn large_results_of_one_client_wait_in_front_of_nobody() {
    let (gateway, _upstream) = gateway().await;
    let (mut all, answered) = attack(&gateway, 8);
    until(|| answered.load(SeqCst) > 0).await;
    let before = answered.load(SeqCst);
    let said = gateway.modern().key(BYSTANDER).call("s__links", json!({})).await;
    assert!(!said.is_error(), "{}", said.text());
    let meanwhile = answered.load(SeqCst) - before;
    assert!(meanwhile <= 4, "{meanwhile} of the attacker's calls came first");
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
}
