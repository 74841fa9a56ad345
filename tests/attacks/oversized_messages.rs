//! Servers that fill the queues of slow and absent clients with few, large messages.

use serde_json::{Value, json};

use crate::support::upstream::Era;
use crate::support::{Gateway, Old, Step, Upstream, until};

/// The params of a notification over the limit.
fn large() -> Value {
    json!({ "x": "x".repeat(500_000) })
}

/// A call whose server sends one large notification of progress and a small one.
fn chatty_call(upstream: &Upstream) {
    upstream.does("chatty", |call| {
        let progress = |number: u32, message: &str| {
            let params = json!({
                "progressToken": call.token(), "progress": number, "message": message,
            });
            Step::Send(
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }),
            )
        };
        vec![progress(1, &"x".repeat(500_000)), progress(2, "small"), Step::text("done")]
    });
}

#[tokio::test]
async fn large_notifications_do_not_wait_for_a_client() {
    for way in ["http", "stdio"] {
        let upstream = Upstream::legacy().await;
        let lines = if way == "http" { upstream.http() } else { upstream.stdio() };
        let gateway = Gateway::with("s", lines + "isolation = \"client\"\n").start().await;
        let client = gateway.legacy().await;
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        until(|| *upstream.inner.watchers.borrow() > 0).await;
        for _ in 0..8 {
            upstream.tell_all("notifications/of/tomorrow", large());
        }
        upstream.tell_all("notifications/of/today", json!({}));
        let mut stream = client.get_stream().send().await;
        let first = stream.message().await.unwrap();
        assert_eq!(first["method"], "notifications/of/today", "{way}");
    }
}

#[tokio::test]
async fn large_notifications_of_a_call_are_left_out() {
    for upstream in Upstream::both().await {
        chatty_call(&upstream);
        let mut ways = upstream.ways().to_vec();
        let old = Old::before(&upstream).await;
        if upstream.inner.era == Era::Legacy {
            ways.push(("sse", old.lines()));
        }
        for (way, lines) in ways {
            let gateway = Gateway::with("s", lines).start().await;
            for (era, client) in gateway.both().await {
                let call = client.ask_call("s__chatty", json!({})).token(json!("t"));
                let said = call.send().await.said().await;
                assert_eq!(said.text(), "done", "{way} {era}");
                let [notice] = said.notices() else { panic!("{way} {era}: {said:?}") };
                assert_eq!(notice["params"]["message"], "small", "{way} {era}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let upstream = Upstream::legacy().await;
    upstream.does("asks", |_| {
        let question = json!({ "message": "x".repeat(5 << 20), "requestedSchema": {} });
        vec![Step::Ask("q", "elicitation/create", question), Step::Await("q"), Step::Answers]
    });
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.legacy().await.offering(json!({ "elicitation": {} })).await;
        let said = client.call("s__asks", json!({})).await;
        assert!(said.text().contains("too large for a client"), "{way}: {said:?}");
    }
}
