//! A refusal to a Legacy client leaves its session open: clients interpret an HTTP status of 400
//! and above as the end of their connection.

use serde_json::{Value, json};

use crate::support::{Client, Gateway, Said, Step, Upstream};

/// Checks for a refusal that names the limit and the wait, in the body and in the head, with status
/// 200.
#[track_caller]
fn is_over(said: &Said, limit: &str) {
    assert_eq!((said.status, said.code()), (200, 42_900), "{limit}: {said:?}");
    assert_eq!(said.error()["data"]["limit"], limit, "{said:?}");
    let wait = said.error()["data"]["retryAfterMs"].as_u64().unwrap();
    let header: u64 = said.header("retry-after").expect("Retry-After").parse().unwrap();
    assert!(wait > 0 && header * 1000 >= wait && header <= wait / 1000 + 1, "{said:?}");
}

async fn call(client: &Client, accept: &str) -> Said {
    client.ask_call("s__echo", json!({})).id(json!("x")).accept(accept).send().await.said().await
}

#[tokio::test]
async fn a_session_over_a_rate_gets_the_error_with_status_200() {
    for (limit, gateway_line, server_lines) in [
        ("gateway", "rate = \"3/h\"", ""),
        ("client", "client_rate = \"3/h\"", ""),
        ("server:s", "", "rate = \"1/h\""),
        ("tool:s/echo", "", "tools.echo.rate = \"1/h\""),
    ] {
        let upstream = Upstream::modern().await;
        let gateway = Gateway::with("s", upstream.http() + server_lines).gateway(gateway_line);
        let gateway = gateway.start().await;
        // The first two are `initialize` and a call, and the third is a call or a ping.
        let client = gateway.legacy().await;
        assert_eq!(call(&client, "application/json").await.text(), "{}");
        client.request("ping", json!({})).await.result();
        for (accept, streamed) in [
            ("application/json", false),
            ("application/json, text/event-stream", false),
            ("text/event-stream", limit.contains(':')),
        ] {
            let over = call(&client, accept).await;
            assert_eq!((&over.answer()["id"], over.streamed), (&json!("x"), streamed), "{over:?}");
            is_over(&over, limit);
        }
        assert_eq!(gateway.status().await["sessions"], 1, "{limit}");
        // Before a session exists, the status shows the refusal.
        if !limit.contains(':') {
            assert_eq!(gateway.plain().initialize("2025-11-25").await.status(), 429);
            let lost = client.ask("ping", json!({})).header("mcp-session-id", "nope");
            assert_eq!(lost.send().await.status(), 429);
        }
        assert_eq!(upstream.calls().len(), 1, "{limit}");
    }
}

#[tokio::test]
async fn a_large_body_over_the_rate_is_refused_under_its_own_id() {
    let upstream = Upstream::modern().await;
    let gateway =
        Gateway::with("s", upstream.http()).gateway("client_rate = \"2/h\"").start().await;
    let client = gateway.legacy().await;
    let large = || client.ask_call("s__echo", json!({ "x": "x".repeat(1 << 20) })).id(json!("x"));
    large().send().await.said().await.text();
    for _ in 0..2 {
        let over = large().send().await.said().await;
        is_over(&over, "client");
        assert_eq!(over.answer()["id"], "x");
    }
    let lost = large().header("mcp-session-id", "nope").send().await;
    assert_eq!(lost.status(), 429, "refused before its body is read");
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn a_full_queue_and_parked_calls_end_no_session() {
    let upstream = Upstream::modern().await;
    upstream.does("ask", |_| {
        let ask = json!({ "q": { "method": "roots/list" } });
        vec![Step::Result(json!({ "resultType": "input_required", "inputRequests": ask }))]
    });
    let lines = upstream.http() + "in_flight = 1\nqueue = 0\n";
    let builder = Gateway::with("s", lines).gateway("limits.parked_each = 1");
    let gateway = builder.start().await;
    let client = gateway.legacy().await.offering(json!({ "roots": {} })).await;
    let crowd = async {
        upstream.heard("tools/call", 1).await;
        is_over(&client.call("s__echo", json!({})).await, "in_flight:s");
        upstream.release(1);
    };
    let (held, ()) = tokio::join!(client.call("s__hold", json!({})), crowd);
    assert_eq!(held.text(), "held");
    let mut asking = client.ask_call("s__ask", json!({})).send().await;
    asking.message().await.expect("a question");
    is_over(&client.call("s__ask", json!({})).await, "parked_each");
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn other_errors_in_a_session_have_status_200_too() {
    let upstream = Upstream::legacy().await;
    upstream.offers_everything();
    upstream.does("ask", |_| vec![Step::Ask("q", "roots/list", Value::Null), Step::Await("q")]);
    upstream.resources(&["a:1", "a:2"]);
    let limits = "limits.subscriptions = 1";
    let gateway = Gateway::with("s", upstream.http()).gateway(limits).start().await;
    let client = gateway.legacy().await;
    let subscribe =
        async |uri: &str| client.request("resources/subscribe", json!({ "uri": uri })).await;
    subscribe("mcp://s/a:1").await.result();
    let held = client.ask_call("s__hold", json!({})).id(json!(1000)).send();
    let again = async {
        upstream.heard("tools/call", 1).await;
        let duplicate = client.ask("tools/call", json!({ "name": "s__echo", "arguments": {} }));
        let duplicate = duplicate.id(json!(1000)).send().await.said().await;
        upstream.release(1);
        duplicate
    };
    let (held, duplicate) = tokio::join!(held, again);
    assert_eq!(held.said().await.text(), "held");
    for (said, code) in [
        (duplicate, -32_600),
        (subscribe("mcp://s/a:2").await, 42_900),
        (client.request("no/such", json!({})).await, -32_601),
    ] {
        assert_eq!((said.status, said.code()), (200, code), "{said:?}");
    }
    gateway.reload(Gateway::with("s", "command = \"/nowhere/at/all\"\n").gateway(limits)).await;
    let down = client.call("s__echo", json!({})).await;
    assert_eq!((down.status, down.is_error()), (200, true), "{down:?}");
    let down = client.request("prompts/get", json!({ "name": "s__greet" })).await;
    assert_eq!((down.status, down.code()), (200, 50_300), "{down:?}");
    client.request("ping", json!({})).await.result();
}
