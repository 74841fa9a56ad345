//! Bounds of a server's lists and instances.

use std::time::Duration;

use serde_json::json;

use crate::support::{Gateway, Upstream, within};

#[tokio::test]
async fn a_server_lists_so_many_tools_and_no_more() {
    for upstream in Upstream::both().await {
        for (way, lines) in upstream.ways() {
            let with = |most: usize| Gateway::with("s", format!("{lines}max_tools = {most}\n"));
            let gateway = with(3).start_at_once().await;
            let client = gateway.modern();
            gateway.wait_for(|status| status["servers"][0]["state"] != "connecting").await;
            assert_eq!(client.tool_names().await, [""; 0], "{way}: four tools, and three allowed");
            gateway.reload(with(4)).await;
            gateway.ready("s").await;
            assert_eq!(client.tool_names().await.len(), 4, "{way}");
        }
    }
}

/// How many instances there are besides the first.
async fn instances(gateway: &Gateway) -> usize {
    gateway.server("s").await["instances"].as_array().map_or(0, Vec::len)
}

async fn wait_for_instances(gateway: &Gateway, so_many: usize) {
    within(async {
        while instances(gateway).await != so_many {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn so_many_clients_have_an_instance_of_their_own_and_no_more() {
    let upstream = Upstream::legacy().await;
    let lines = upstream.stdio() + "isolation = \"client\"\nmax_instances = 1\n";
    let gateway = Gateway::with("s", lines).start().await;
    let (one, other) = (gateway.legacy().await, gateway.legacy().await);
    assert_eq!(one.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(instances(&gateway).await, 1);
    let refused = other.call("s__echo", json!({})).await;
    assert!(refused.is_error() && refused.text().contains('1'), "{refused:?}");
    assert_eq!(instances(&gateway).await, 1);
    one.http("DELETE", "/mcp").of_session().send().await;
    wait_for_instances(&gateway, 0).await;
    assert_eq!(other.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn an_instance_that_nobody_calls_is_closed() {
    let upstream = Upstream::legacy().await;
    let lines = upstream.stdio() + "isolation = \"client\"\ninstance_idle = \"1s\"\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.legacy().await;
    for _ in 0..2 {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        assert_eq!(instances(&gateway).await, 1);
        wait_for_instances(&gateway, 0).await;
    }
}
