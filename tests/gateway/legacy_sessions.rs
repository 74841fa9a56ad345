//! Number of Legacy clients' sessions, and the sessions that end first.

use std::time::Duration;

use serde_json::json;

use crate::support::{Client, Gateway, Upstream, within};

async fn ping(client: &Client) -> u16 {
    client.request("ping", json!({})).await.status
}

#[tokio::test]
async fn the_session_that_was_used_last_stays() {
    let gateway = Gateway::alone().gateway("limits.sessions_each = 2").start().await;
    let (first, second) = (gateway.legacy().await, gateway.legacy().await);
    // The last use is measured in milliseconds.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(ping(&first).await, 200);
    let third = gateway.legacy().await;
    assert_eq!([ping(&first).await, ping(&second).await, ping(&third).await], [200, 404, 200]);
}

#[tokio::test]
async fn idle_sessions_make_room_and_others_do_not() {
    let upstream = Upstream::legacy().await;
    let limit = "limits.sessions_each = 3";
    let gateway = Gateway::with("s", upstream.stdio()).gateway(limit).start().await;
    let [streaming, calling, idle] =
        [gateway.legacy().await, gateway.legacy().await, gateway.legacy().await];
    let stream = streaming.listen().await;
    let crowd = async {
        upstream.heard("tools/call", 1).await;
        let newest = gateway.legacy().await;
        assert_eq!(ping(&idle).await, 404);
        let another = newest.listen().await;
        let refused = gateway.plain().initialize("2025-11-25").await;
        assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1".into())));
        let text = refused.said().await.error()["message"].to_string();
        assert!(text.contains("the limit is 3"), "{text}");
        assert_eq!(gateway.status().await["sessions"], 3);
        drop(another);
        // The gateway checks again after the second for which the client has to wait.
        within(async { while gateway.plain().initialize("2025-11-25").await.status() != 200 {} })
            .await;
        assert_eq!([ping(&streaming).await, ping(&newest).await], [200, 404]);
        upstream.release(1);
    };
    let (held, ()) = tokio::join!(calling.call("s__hold", json!({})), crowd);
    assert_eq!(held.text(), "held");
    drop(stream);
}

#[tokio::test]
async fn a_session_that_was_only_opened_ends_sooner() {
    let limits = "limits = { session_unused = \"100ms\", session_idle = \"1h\" }";
    let gateway = Gateway::alone().gateway(limits).start().await;
    let [opened, used] = [gateway.legacy().await, gateway.legacy().await];
    assert_eq!(ping(&used).await, 200);
    gateway.wait_for(|status| status["sessions"] == 1).await;
    assert_eq!([ping(&opened).await, ping(&used).await], [404, 200]);
}
