//! Results of megabytes with many links: each takes long to be rewritten.

use serde_json::json;

use crate::long_calls::{LongCalls, connected_bystander};
use crate::support::{Gateway, Step, Upstream};
use crate::{BYSTANDER, two_clients};

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

fn attack(gateway: &Gateway, calls: usize) -> LongCalls {
    LongCalls::begin(
        gateway,
        calls,
        "s__links",
        || json!({}),
        |said| {
            let content = said.result()["content"].as_array().unwrap();
            assert_eq!(content.len(), 20_000);
            assert!(content.iter().all(|link| link["uri"] == "mcp://s/a:1"));
        },
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_with_many_links_hold_up_no_other_client() {
    let (gateway, _upstream) = gateway().await;
    let bystander = connected_bystander(&gateway).await;
    attack(&gateway, 4).hold_up_no_other_client(&bystander).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_of_one_client_wait_in_front_of_nobody() {
    let (gateway, _upstream) = gateway().await;
    let own = async {
        let said = gateway.modern().key(BYSTANDER).call("s__links", json!({})).await;
        assert!(!said.is_error(), "{}", said.text());
    };
    attack(&gateway, 8).wait_in_front_of_nobody(own).await;
}
