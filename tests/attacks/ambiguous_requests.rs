//! Requests that two readers would interpret differently.

use serde_json::{Value, json};

use crate::support::upstream::offers::template;
use crate::support::{Client, Gateway, Step, Upstream};

#[tokio::test]
async fn a_session_an_event_or_a_version_that_is_named_twice_is_refused() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.legacy().await;
    let other = gateway.legacy().await;
    for (name, value) in [
        ("mcp-session-id", other.session()),
        ("mcp-session-id", client.session()),
        ("mcp-protocol-version", "2025-06-18"),
        ("last-event-id", "1"),
    ] {
        let call = client.ask_call("s__echo", json!({}));
        let delete = client.http("DELETE", "/mcp").of_session();
        for (method, ask) in [("POST", call), ("GET", client.get_stream()), ("DELETE", delete)] {
            let ask = if name == "last-event-id" { ask.header(name, "2") } else { ask };
            let said = ask.again(name, value).send().await;
            assert_eq!(said.status(), 400, "{method} {name}");
            let said = said.said().await;
            let message = said.error()["message"].as_str().unwrap();
            assert!(message.contains(&format!("duplicate {name} header")), "{message}");
        }
    }
    // Before a session exists, too: the first value would decide the era.
    let plain = gateway.plain();
    let versions = plain.ask("initialize", json!({}));
    let versions = versions.header("mcp-protocol-version", "2025-11-25");
    let said = versions.again("mcp-protocol-version", "2026-07-28").send().await.said().await;
    assert!(said.error().to_string().contains("duplicate mcp-protocol-version"), "{said:?}");
    assert_eq!(upstream.calls().len(), 0);
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "the session is still open");
}

#[tokio::test]
async fn a_request_id_that_parsers_round_is_refused() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        let long = format!("\"{}\"", "x".repeat(600));
        for id in ["1.5", "1.0", "1e3", "9007199254740993", "-1e400", &long] {
            let message = client.ask_call("s__echo", json!({})).message().to_string();
            let parsed: Value = serde_json::from_str(&message).unwrap();
            let body =
                message.replace(&format!("\"id\":{}", parsed["id"]), &format!("\"id\":{id}"));
            let ask = client.ask_call("s__echo", json!({})).body(body.clone());
            let said = ask.send().await.said().await;
            assert_eq!((said.status, said.code()), (400, -32600), "{era} {body}");
        }
    }
    assert_eq!(upstream.calls().len(), 0);
}

/// Sends a request with raw params.
async fn send_raw(client: &Client, method: &str, params: &str) -> Value {
    let mut message = client.ask(method, json!({})).message().clone();
    let meta = message["params"].get("_meta").cloned().unwrap_or(json!({}));
    message["params"] = json!("PARAMS");
    let params = format!("{{\"_meta\":{meta},{params}}}");
    let body = message.to_string().replace("\"PARAMS\"", &params);
    client
        .ask(method, json!({}))
        .header("mcp-name", "s__echo")
        .body(body)
        .send()
        .await
        .said()
        .await
        .answer()
        .clone()
}

#[tokio::test]
async fn a_bound_variable_cannot_be_shaken_off_by_a_second_context() {
    let upstream = Upstream::legacy().await;
    upstream.offers_everything().lists("resourceTemplates", [template("db://{table}/{id}")]);
    let lines = upstream.http() + "resource_vars = { table = \"mine\" }\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.legacy().await;
    let others = r#""context":{"arguments":{"table":"others"}}"#;
    let asked = r#""ref":{"type":"ref/resource","uri":"mcp://s/db://mine/{id}"},"argument":{"name":"id","value":""}"#;
    let once = send_raw(&client, "completion/complete", &format!("{asked},{others}")).await;
    assert!(once.to_string().contains("mine") && !once.to_string().contains("others"), "{once}");
    for second in [others, r#""c\u006fntext":{"arguments":{"table":"others"}}"#] {
        let params = format!("{asked},{others},{second}");
        let twice = send_raw(&client, "completion/complete", &params).await;
        assert_eq!(twice["error"]["code"], -32602, "{twice}");
    }
    assert_eq!(upstream.all("completion/complete").len(), 1);
}

#[tokio::test]
async fn a_bound_variable_is_never_completed() {
    let upstream = Upstream::legacy().await;
    upstream.offers_everything();
    let lines = upstream.http() + "resource_vars = { table = \"mine\" }\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.legacy().await;
    let uri = "mcp://s/db://mine/{id}";
    for (argument, is_completed) in [
        (r#"{"name":"id","value":""}"#, true),
        (r#"{"name":"table","value":""}"#, false),
        (r#"{"name":"id","n\u0061me":"table","value":""}"#, false),
    ] {
        let params =
            format!(r#""ref":{{"type":"ref/resource","uri":"{uri}"}},"argument":{argument}"#);
        let said = send_raw(&client, "completion/complete", &params).await;
        assert_eq!(said.get("result").is_some(), is_completed, "{argument}: {said}");
    }
    assert_eq!(upstream.all("completion/complete").len(), 1);
}

#[tokio::test]
async fn two_answers_to_one_question_are_refused() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    let params =
        r#""name":"s__echo","arguments":{},"inputResponses":{"a":{"x":1},"\u0061":{"x":2}}"#;
    let said = send_raw(&client, "tools/call", params).await;
    assert_eq!(said["error"]["code"], -32602, "{said}");
    assert!(said.to_string().contains("duplicate key"), "{said}");
    let many: Vec<_> = (0..33).map(|number| format!("\"{number}\":{{}}")).collect();
    let params = format!(r#""name":"s__echo","inputResponses":{{{}}}"#, many.join(","));
    let said = send_raw(&client, "tools/call", &params).await;
    assert!(said.to_string().contains("more than 32 members"), "{said}");
    assert_eq!(upstream.calls().len(), 0);
}

#[tokio::test]
async fn a_server_that_introduces_itself_at_length_does_not_weigh_on_every_result() {
    let upstream = Upstream::legacy().await;
    upstream.when_asked("initialize", |_| {
        let info =
            json!({ "name": "n".repeat(5_000), "version": "1", "more": "x".repeat(100_000) });
        vec![Step::Result(json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": info,
        }))]
    });
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let said = gateway.modern().call("s__echo", json!({})).await;
    let info = &said.result()["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"].as_str().unwrap().len(), 256, "{info}");
    assert!(said.body.len() < 2_000, "{}", said.body.len());
    assert!(gateway.status().await.to_string().len() < 5_000);
}
