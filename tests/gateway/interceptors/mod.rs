//! Interceptors: their input, the effects of their answers, and the behaviour without an answer.

mod methods;
mod results;

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::api::{Page, PlainApi};
use crate::support::gateway::Builder;
use crate::support::{Gateway, Said, Step, Upstream, client_table, poll_for};

/// Returns an answer with this result.
fn result(result: &Value) -> Page {
    Page::json(&json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}

fn valid() -> Page {
    result(&json!({ "type": "validation", "valid": true }))
}

fn invalid() -> Page {
    let messages =
        json!([{ "path": "params.arguments.a", "message": "a secret", "severity": "error" }]);
    result(&json!({
        "type": "validation", "valid": false, "severity": "error", "messages": messages,
    }))
}

fn mutation(payload: &Value) -> Page {
    result(&json!({ "type": "mutation", "modified": true, "payload": payload }))
}

/// Configures a gateway with the interceptor `check` on its server `s`.
fn intercepting(upstream: &Upstream, api: &PlainApi, lines: &str) -> Builder {
    let url = api.url("/check");
    Gateway::with("s", upstream.http() + "interceptors = [\"check\"]")
        .toml(&format!("[interceptors.check]\nurl = \"{url}\"\n{lines}"))
}

/// Returns the requests to the interceptor.
fn asked(api: &PlainApi) -> Vec<Value> {
    let calls = api.calls("/check");
    calls.iter().map(|call| serde_json::from_slice(&call.body).unwrap()).collect()
}

fn phases(api: &PlainApi) -> Vec<String> {
    asked(api).iter().map(|it| it["params"]["phase"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn is_refused(said: &Said) -> bool {
    said.is_error() && said.text().contains("refused by the interceptor check")
}

#[tokio::test]
async fn an_interceptor_sees_calls_and_results_without_any_credentials() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    api.sets("/check", valid());
    let lines = "headers = { X-Gate = \"own\" }";
    let builder = intercepting(&upstream, &api, lines).toml(&client_table("ann", "top-secret", ""));
    let gateway = builder.start().await;
    for (era, client) in gateway.both_as("top-secret", "/mcp").await {
        let before = asked(&api).len();
        assert_eq!(client.call("s__echo", json!({ "a": 1 })).await.text(), r#"{"a":1}"#, "{era}");
        let all = asked(&api).split_off(before);
        let [request, response] = &all[..] else { panic!("{era}: {all:?}") };
        assert_eq!(request["method"], "interceptor/invoke");
        let params = &request["params"];
        assert_eq!((&params["name"], &params["event"]), (&json!("check"), &json!("tools/call")));
        assert_eq!(params["phase"], "request");
        let payload = json!({ "name": "echo", "arguments": { "a": 1 } });
        assert_eq!(params["payload"], json!({ "method": "tools/call", "params": payload }));
        assert_eq!(params["context"]["principal"], json!({ "type": "user", "id": "ann" }));
        assert_eq!(params["context"]["server"], "s");
        assert_eq!(response["params"]["phase"], "response");
        assert_eq!(response["params"]["payload"]["content"][0]["text"], r#"{"a":1}"#);
    }
    for call in api.calls("/check") {
        assert_eq!(call.header("x-gate"), Some("own"));
        let all = format!("{:?} {:?}", call.headers, call.body);
        assert!(!all.contains("top-secret") && !all.contains("_meta"), "{all}");
    }
}

#[tokio::test]
async fn a_refused_call_is_not_sent_and_a_refused_result_is_not_shown() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    api.sets("/check", invalid());
    for (on, sent) in [("[\"request\"]", 0), ("[\"result\"]", 1)] {
        let upstream_calls = upstream.calls().len();
        let audit = "[audit]\nfile = \"audit.jsonl\"";
        let gateway =
            intercepting(&upstream, &api, &format!("on = {on}")).toml(audit).start().await;
        let said = gateway.modern().call("s__echo", json!({ "a": "hidden" })).await;
        assert!(is_refused(&said) && said.text().contains("a secret"), "{said:?}");
        assert!(!said.text().contains("hidden"), "{said:?}");
        assert_eq!(upstream.calls().len() - upstream_calls, sent, "{on}");
        let path = gateway.folder().join("audit.jsonl");
        gateway.running.gateway.audit.overview().unwrap();
        let record = poll_for(async || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            text.lines().find(|line| line.contains("s__echo")).map(str::to_owned)
        })
        .await;
        assert!(record.contains("\"interceptor\"") && record.contains("check"), "{record}");
    }
}

#[tokio::test]
async fn a_mutation_replaces_arguments_that_are_checked_again_and_results() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    upstream.tool(&json!({ "name": "typed", "inputSchema": schema }), |call| {
        vec![Step::text(call.arguments().to_string())]
    });
    let gateway = intercepting(&upstream, &api, "on = [\"request\"]").start().await;
    let client = gateway.modern();
    let request = |name: &str, arguments: Value| json!({ "method": "tools/call", "params": { "name": name, "arguments": arguments } });
    api.sets("/check", mutation(&request("typed", json!({ "a": 2, "b": "new" }))));
    let said = client.call("s__typed", json!({ "a": 1 })).await;
    assert_eq!(said.text(), r#"{"a":2,"b":"new"}"#);
    let sent = upstream.calls().len();
    api.sets("/check", mutation(&request("typed", json!({ "a": "two" }))));
    let said = client.call("s__typed", json!({ "a": 1 })).await;
    assert!(said.is_error() && said.text().contains("do not fit"), "{said:?}");
    // A different tool through a mutation.
    api.sets("/check", mutation(&request("echo", json!({ "a": 2 }))));
    let said = client.call("s__typed", json!({ "a": 1 })).await;
    assert!(said.text().contains("changes more than the arguments"), "{said:?}");
    assert_eq!(upstream.calls().len(), sent);

    let gateway = intercepting(&upstream, &api, "on = [\"result\"]").start().await;
    api.sets("/check", mutation(&json!({ "content": [{ "type": "text", "text": "***" }] })));
    for (era, client) in gateway.both().await {
        assert_eq!(client.call("s__echo", json!({ "a": 1 })).await.text(), "***", "{era}");
    }
    api.sets("/check", mutation(&json!([])));
    let said = gateway.modern().call("s__echo", json!({ "a": 1 })).await;
    assert!(said.text().contains("is not a valid result"), "{said:?}");
}

#[tokio::test]
async fn without_a_valid_answer_a_call_fails_unless_it_may_go_on() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    let nobody = "url_of_nobody";
    for (page, lines, says) in [
        (Some(Page::new(500, "text/plain", "x")), "", "it answered with HTTP 500"),
        (Some(Page::new(200, "text/plain", "x")), "", "not a JSON-RPC response"),
        (Some(result(&json!({ "type": "poem" }))), "", "neither a validation nor a mutation"),
        (
            Some(Page::new(200, "application/json", vec![b' '; 5000])),
            "max_size = \"2KiB\"",
            "2048 bytes",
        ),
        (None, nobody, "it cannot be reached"),
    ] {
        for fail in ["closed", "open"] {
            if let Some(page) = &page {
                api.sets("/check", page.clone());
            }
            let builder = if lines == nobody {
                Gateway::with("s", upstream.http() + "interceptors = [\"check\"]").toml(&format!(
                    "[interceptors.check]\nurl = \"http://127.0.0.1:9/\"\nfail = \"{fail}\""
                ))
            } else {
                intercepting(&upstream, &api, &format!("{lines}\nfail = \"{fail}\""))
            };
            let gateway = builder.start().await;
            let said = gateway.modern().call("s__echo", json!({ "a": 1 })).await;
            match fail {
                "open" => assert_eq!(said.text(), r#"{"a":1}"#, "{says}"),
                _ => assert!(said.is_error() && said.text().contains(says), "{says}: {said:?}"),
            }
        }
    }
}

#[tokio::test]
async fn an_interceptor_that_is_late_or_fails_often_is_left_alone() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    // Accepts connections without answering.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let lines = format!("[interceptors.check]\nurl = \"{url}\"\ntimeout = \"100ms\"");
    let gateway = Gateway::with("s", upstream.http() + "interceptors = [\"check\"]").toml(&lines);
    let gateway = gateway.start().await;
    let said = gateway.modern().call("s__echo", json!({})).await;
    assert!(said.text().contains("no answer within 100ms"), "{said:?}");

    api.sets("/check", Page::new(500, "text/plain", "x"));
    let gateway = intercepting(&upstream, &api, "breaker = { failures = 2 }").start().await;
    for says in ["HTTP 500", "HTTP 500", "it is not called for a while"] {
        let said = gateway.modern().call("s__echo", json!({})).await;
        assert!(said.text().contains(says), "{said:?}");
    }
    assert_eq!(asked(&api).len(), 2);
}

#[tokio::test]
async fn in_audit_mode_nothing_changes_and_only_selected_messages_are_sent() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    api.sets("/check", invalid());
    let gateway = intercepting(&upstream, &api, "mode = \"audit\"").start().await;
    assert_eq!(gateway.modern().call("s__echo", json!({ "a": 1 })).await.text(), r#"{"a":1}"#);
    assert_eq!(phases(&api), ["request", "response"]);
    // Other methods, and other servers.
    let lines = "methods = [\"resources/*\"]";
    let gateway = intercepting(&upstream, &api, lines).server("t", upstream.http()).start().await;
    assert_eq!(gateway.modern().call("s__echo", json!({ "a": 1 })).await.text(), r#"{"a":1}"#);
    assert_eq!(gateway.modern().call("t__echo", json!({ "a": 1 })).await.text(), r#"{"a":1}"#);
    assert_eq!(phases(&api).len(), 2);
}

#[tokio::test]
async fn a_profile_has_interceptors_of_its_own_and_names_have_to_exist() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    api.sets("/check", invalid());
    let of_profile = |name: &str| {
        let url = api.url("/check");
        Gateway::with("s", upstream.http()).toml(&format!(
            "[interceptors.check]\nurl = \"{url}\"\n[profiles.guarded]\ninterceptors = [\"{name}\"]"
        ))
    };
    let gateway = of_profile("check").start().await;
    assert_eq!(gateway.modern().call("s__echo", json!({ "a": 1 })).await.text(), r#"{"a":1}"#);
    let guarded = gateway.modern().at("/mcp/guarded");
    assert!(is_refused(&guarded.call("s__echo", json!({ "a": 1 })).await));
    assert_eq!(gateway.reload(of_profile("chekc")).await, ReloadOutcome::Rejected);
    let faults = gateway.status().await["configuration"]["last_reload"]["faults"].to_string();
    assert!(faults.contains("did you mean `check`?"), "{faults}");
}
