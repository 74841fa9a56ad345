//! Messages of Legacy clients: sessions, and requests within them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Ask, Kind};
use crate::support::{Client, Gateway, Said, Step, Upstream};

#[tokio::test]
async fn initialize_agrees_on_a_version() {
    let gateway =
        Gateway::alone().gateway("title = \"Tools\"\ninstructions = \"Ask first.\"").start().await;
    let client = gateway.plain();
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("draft", "2025-11-25"),
    ] {
        let reply = client.initialize(asked).await;
        assert_eq!(reply.status(), 200, "{asked}");
        let session = reply.header("mcp-session-id").unwrap();
        assert!(session.len() >= 32 && session.bytes().all(|b| b.is_ascii_graphic()), "{session}");
        let result = reply.said().await.result().clone();
        assert_eq!(result["protocolVersion"], agreed, "{asked}");
        assert_eq!(result["capabilities"], json!({ "tools": { "listChanged": true } }));
        let info = &result["serverInfo"];
        assert_eq!((&info["name"], &info["title"]), (&json!("trunkline"), &json!("Tools")));
        assert_eq!(result["instructions"], "Ask first.");
    }
}

#[tokio::test]
async fn an_initialize_without_a_version_is_refused() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.plain();
    for params in [json!({}), json!({ "protocolVersion": 7 }), Value::Null] {
        let said = client.request("initialize", params.clone()).await;
        assert_eq!(said.code(), -32602, "{params}");
        assert!(said.header("mcp-session-id").is_none());
    }
    assert_eq!(gateway.status().await["sessions"], 0);
}

#[tokio::test]
async fn a_request_needs_a_session_that_is_there() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.legacy().await;
    for method in ["tools/list", "ping", "tools/call", "x"] {
        let said =
            client.ask(method, json!({})).without("mcp-session-id").send().await.said().await;
        assert_eq!((said.status, said.code()), (400, -32600), "{method}");
        for lost in ["0123456789abcdef0123456789abcdef", "", "é"] {
            let ask = client.ask(method, json!({})).header("mcp-session-id", lost);
            assert_eq!(ask.send().await.status(), 404, "{method} {lost:?}");
        }
    }
    let lost = client.ask("notifications/initialized", Value::Null).notification();
    assert_eq!(lost.header("mcp-session-id", "nope").send().await.status(), 404);
    let lost = client.get_stream().header("mcp-session-id", "nope");
    assert_eq!(lost.send().await.status(), 404);
}

#[tokio::test]
async fn a_deleted_session_is_lost() {
    let gateway = Gateway::alone().start().await;
    let (client, other) = (gateway.legacy().await, gateway.legacy().await);
    assert_eq!(gateway.status().await["sessions"], 2);
    let mut stream = client.listen().await;
    let deleted = client.http("DELETE", "/mcp").of_session().send().await;
    assert_eq!(deleted.status(), 204);
    assert_eq!(stream.message().await, None, "its stream ends");
    assert_eq!(client.request("ping", json!({})).await.status, 404);
    assert_eq!(client.http("DELETE", "/mcp").of_session().send().await.status(), 404);
    assert_eq!(other.request("ping", json!({})).await.result(), &json!({}));
    assert_eq!(gateway.status().await["sessions"], 1);
}

#[tokio::test]
async fn a_deleted_session_takes_its_calls_with_it() {
    for upstream in Upstream::both().await {
        let gateway = Gateway::with("s", upstream.stdio()).start().await;
        let client = gateway.legacy().await;
        let delete = async {
            upstream.heard("tools/call", 1).await;
            client.http("DELETE", "/mcp").of_session().send().await;
            upstream.heard("notifications/cancelled", 1).await;
        };
        let (reply, ()) = tokio::join!(client.ask_call("s__hold", json!({})).send(), delete);
        assert!(reply.said().await.messages.is_empty(), "nobody is left to be answered");
    }
}

#[tokio::test]
async fn an_idle_session_ends_and_a_busy_one_does_not() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio())
        .gateway("limits.session_idle = \"100ms\"")
        .start()
        .await;
    let (idle, streaming, calling) =
        (gateway.legacy().await, gateway.legacy().await, gateway.legacy().await);
    let stream = streaming.listen().await;
    let call = calling.call("s__hold", json!({}));
    let ended = gateway.wait_for(|status| status["sessions"] == 2);
    tokio::select! {
        _ = call => panic!("held"),
        _ = ended => {}
    }
    assert_eq!(idle.request("ping", json!({})).await.status, 404);
    drop(stream);
    assert_eq!(streaming.request("ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_session_serves_ping_and_refuses_unknown_methods() {
    let gateway = Gateway::alone().start().await;
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let client = gateway.legacy_of(version).await;
        assert_eq!(client.request("ping", json!({})).await.result(), &json!({}));
        for method in ["tools/frobnicate", "server/discover2", "x"] {
            let said = client.request(method, json!({})).await;
            assert_eq!((said.status, said.code()), (200, -32601), "{version} {method}");
        }
    }
}

#[tokio::test]
async fn a_version_header_may_be_left_out_but_not_be_wrong() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.legacy().await;
    let ask = || client.ask("ping", json!({}));
    assert_eq!(ask().without("mcp-protocol-version").send().await.status(), 200);
    assert_eq!(ask().header("mcp-protocol-version", "2025-03-26").send().await.status(), 200);
    for wrong in ["1.0", "2099-01-01", ""] {
        let said = ask().header("mcp-protocol-version", wrong).send().await.said().await;
        assert_eq!(said.status, 400, "{wrong:?} {said:?}");
    }
}

async fn taking(ask: Ask<'_>, accept: Option<&str>) -> Said {
    let ask = match accept {
        Some(accept) => ask.accept(accept),
        None => ask.without("accept"),
    };
    ask.send().await.said().await
}

#[tokio::test]
async fn who_takes_json_alone_always_gets_json() {
    let upstream = Upstream::legacy().await;
    upstream.does("slow", |_| {
        vec![Step::Progress(1), Step::Pause(Duration::from_millis(1500)), Step::text("done")]
    });
    let gateway = Gateway::with("s", upstream.http()).gateway("keep_alive = \"1s\"").start().await;
    for (era, client) in gateway.both().await {
        for accept in [Some("application/json"), Some("*/*"), Some("application/*"), None] {
            let said = taking(client.ask_call("s__count", json!({})).token(json!(1)), accept).await;
            assert_eq!(
                (said.status, said.streamed, said.text()),
                (200, false, "counted"),
                "{era} {accept:?}"
            );
            let said = taking(client.ask("tools/list", json!({})), accept).await;
            assert_eq!((said.status, said.streamed), (200, false), "{era} {accept:?}");
        }
        let json_alone =
            client.ask_call("s__slow", json!({})).token(json!(1)).accept("application/json");
        assert!(!json_alone.send().await.said().await.streamed, "{era}: also when it takes long");
        let events = client.ask_call("s__echo", json!({})).accept("text/event-stream");
        assert!(events.send().await.said().await.streamed, "{era}");
    }
}

#[tokio::test]
async fn an_id_that_is_under_way_is_refused() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.legacy().await;
    let held = client.ask_call("s__hold", json!({})).id(json!("a")).send();
    let again = async {
        upstream.heard("tools/call", 1).await;
        let again = client.ask_call("s__echo", json!({})).id(json!("a")).send().await.said().await;
        assert_eq!(again.code(), -32600);
        let other = client.ask_call("s__echo", json!({})).id(json!("b")).send().await.said().await;
        assert_eq!(other.text(), "{}");
        // Another client may use the same ids.
        let other = gateway.legacy().await;
        let same = other.ask_call("s__echo", json!({})).id(json!("a")).send().await.said().await;
        assert_eq!(same.text(), "{}");
        upstream.release(1);
    };
    let (held, ()) = tokio::join!(held, again);
    assert_eq!(held.said().await.text(), "held");
    let after = client.ask_call("s__echo", json!({})).id(json!("a")).send().await.said().await;
    assert_eq!(after.text(), "{}", "an id that is answered is free again");
}

#[tokio::test]
async fn batches_are_served_to_2025_03_26_alone() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).gateway("limits.batch = 4").start().await;
    let call = json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": { "name": "s__count", "arguments": {}, "_meta": { "progressToken": 1 } } });
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let wrong = json!({ "jsonrpc": "2.0", "id": 3, "method": "nope" });
    let send = async |client: &Client, batch: Value| {
        client.ask("x", json!({})).body(batch.to_string()).send().await.said().await
    };
    let client = gateway.legacy_of("2025-03-26").await;
    let said = send(&client, json!([call, note, ping, wrong])).await;
    let answers = said.json();
    assert_eq!((said.status, answers.as_array().unwrap().len()), (200, 3), "{said:?}");
    assert_eq!(answers[0]["result"]["content"][0]["text"], "counted");
    assert_eq!((&answers[1]["result"], &answers[2]["error"]["code"]), (&json!({}), &json!(-32601)));
    assert_eq!(send(&client, json!([note, note])).await.status, 202);
    for batch in [json!([]), json!([ping, ping, ping, ping, ping])] {
        assert_eq!(send(&client, batch).await.code(), -32600);
    }
    for version in ["2025-06-18", "2025-11-25"] {
        let said = send(&gateway.legacy_of(version).await, json!([ping])).await;
        assert_eq!((said.status, said.code()), (400, -32600), "{version}");
    }
    let modern = gateway.modern();
    let said = send(&modern, json!([ping])).await;
    assert_eq!(said.status, 400, "{said:?}");
}

#[tokio::test]
async fn progress_of_a_batch_goes_nowhere_and_its_answers_come_together() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy_of("2025-03-26").await;
    let call = |id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "s__hold", "arguments": {} } });
    let batch = json!([call(1), call(2), call(3)]).to_string();
    let both = client.ask("x", json!({})).body(batch).send();
    let side_by_side = async {
        upstream.heard("tools/call", 3).await;
        upstream.release(3);
    };
    let (reply, ()) = tokio::join!(both, side_by_side);
    let ids: Vec<Value> =
        reply.said().await.json().as_array().unwrap().iter().map(|a| a["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[tokio::test]
async fn a_cancelled_call_of_a_client_that_takes_json_alone_still_has_an_answer() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await;
    let call = client.ask_call("s__hold", json!({})).id(json!(9)).accept("application/json").send();
    let cancel = async {
        upstream.heard("tools/call", 1).await;
        let params = json!({ "requestId": 9 });
        client.ask("notifications/cancelled", params).notification().send().await;
        upstream.heard("notifications/cancelled", 1).await;
    };
    let (reply, ()) = tokio::join!(call, cancel);
    assert!(reply.said().await.error()["message"].to_string().contains("cancelled"));
}

#[tokio::test]
async fn no_client_cancels_the_call_of_another() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let (client, other) = (gateway.legacy().await, gateway.legacy().await);
    let call = client.ask_call("s__hold", json!({})).id(json!(9)).send();
    let cancel = async {
        upstream.heard("tools/call", 1).await;
        for id in [json!(9), json!("9"), upstream.calls()[0].id.clone().unwrap()] {
            let params = json!({ "requestId": id });
            other.ask("notifications/cancelled", params).notification().send().await;
        }
        upstream.release(1);
    };
    let (reply, ()) = tokio::join!(call, cancel);
    assert_eq!(reply.said().await.text(), "held");
    assert!(upstream.all("notifications/cancelled").is_empty());
}

#[tokio::test]
async fn a_client_that_only_knows_2024_11_05_is_served_without_a_version_header() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.legacy_of("2024-11-05").await;
    let Kind::Legacy { version, .. } = client.kind() else { panic!() };
    assert_eq!(version, "2024-11-05");
    let ask = client.ask_call("s__echo", json!({ "a": 1 })).without("mcp-protocol-version");
    assert_eq!(ask.send().await.said().await.text(), r#"{"a":1}"#);
}
