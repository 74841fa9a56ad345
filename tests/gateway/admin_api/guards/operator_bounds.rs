//! Calls of operators through the gateway's own tools, and the bounds of their results.

use serde_json::{Value, json};

use super::super::resources::post;
use super::super::with_roles;
use crate::oauth::{agree, call as call_echo, link_in};
use crate::support::upstream::tool;
use crate::support::{Gateway, Said, Step, Upstream, client_table, json_lines, until, until_async};

async fn call(gateway: &Gateway, body: Value) -> Value {
    let said = post(gateway, "/calls", &body).await;
    assert_eq!(said.status, 200, "{body}: {said:?}");
    said.json()
}

/// Returns the texts of a report, from its error or its result.
fn text(report: &Value) -> String {
    let result = &report["result"];
    format!("{} {} {}", report["error"], result["content"][0]["text"], result["structuredContent"])
}

#[tokio::test]
async fn a_result_of_more_than_sixteen_mebibytes_is_refused() {
    let upstream = Upstream::modern().await;
    for (name, bytes) in [("large", (16 << 20) - 1000), ("huge", 16 << 20)] {
        upstream.does(name, move |_| vec![Step::text("x".repeat(bytes))]);
    }
    let gateway =
        Gateway::with("http", upstream.http()).server("pipe", upstream.stdio()).start().await;
    for server in ["http", "pipe"] {
        let large = call(&gateway, json!({ "tool": format!("{server}__large") })).await;
        assert_eq!(large["error"], Value::Null, "{server}");
        let huge = call(&gateway, json!({ "tool": format!("{server}__huge") })).await;
        let message = huge["error"]["message"].as_str().unwrap();
        assert_eq!(message, "the results have more than 16777216 bytes", "{server}");
        assert_eq!(huge["result"], Value::Null, "{server}");
    }
}

/// A server that wants the authorization header of its clients.
fn wants_credentials(upstream: &Upstream) -> String {
    format!("{}\nforward_headers = [\"authorization\"]\n", upstream.http())
}

#[tokio::test]
async fn the_gateways_own_tools_do_not_give_credentials_of_a_client_to_an_operator() {
    let upstream = Upstream::modern().await;
    let code = "try { return await tools.s__echo({}) } catch (error) { return error.message }";
    for (discovery, body) in [
        (
            "search",
            json!({ "tool": "call_tool", "arguments": { "name": "s__echo", "arguments": {} } }),
        ),
        ("code", json!({ "tool": "run_code", "arguments": { "code": code } })),
    ] {
        let before = upstream.calls().len();
        let gateway = Gateway::with("s", wants_credentials(&upstream))
            .toml(&format!("[profiles.default]\ndiscovery = \"{discovery}\"\n"))
            .toml(&client_table("ci", "ci-key", ""))
            .start()
            .await;
        let mut assumed = body.clone();
        assumed["as"] = json!("ci");
        let report = call(&gateway, assumed).await;
        let expected = "the server s needs credentials of the client";
        assert!(text(&report).contains(expected), "{discovery}: {report}");
        assert_eq!(upstream.calls().len(), before, "{discovery}");
        let own = call(&gateway, body).await;
        assert_eq!(own["error"], Value::Null, "{discovery}: {own}");
        assert_eq!(upstream.calls().len(), before + 1, "{discovery}: {own}");
    }
}

#[tokio::test]
async fn a_search_as_a_client_finds_nothing_that_only_its_login_reveals() {
    let upstream = Upstream::modern().await;
    upstream.when_asked("tools/list", |asked| {
        let sent = asked.header("authorization").unwrap_or_default();
        let whose = sent.strip_prefix("Bearer of-").unwrap_or_default();
        let tools = ["echo", whose].map(tool);
        vec![Step::Result(json!({ "tools": tools, "ttlMs": 60_000, "cacheScope": "private" }))]
    });
    let server = crate::support::OauthServer::before(upstream).await;
    let gateway = Gateway::with("s", server.lines("s", "per = \"user\""))
        .toml("[profiles.default]\ndiscovery = \"search\"\npin = [\"*__echo\"]\n")
        .toml(&client_table("ann", "key-of-ann", ""))
        .start()
        .await;
    let link = gateway.server("s").await["login"].as_str().unwrap().to_owned();
    server.gives("of-operator", json!({}));
    server.takes("of-operator", &["list", "call"]);
    assert_eq!(agree(&gateway, &server, &link).await.status, 200);
    gateway.ready("s").await;
    let ann = gateway.modern().key("key-of-ann");
    let link = link_in(&call_echo(&ann).await);
    server.gives("of-secret", json!({}));
    server.takes("of-secret", &["list", "call"]);
    assert_eq!(agree(&gateway, &server, &link).await.status, 200);
    let query = json!({ "query": "secret operator echo" });
    let found = async || {
        ann.tool_names().await;
        ann.call("find_tools", query.clone()).await.body
    };
    until_async(|| async { found().await.contains("s__secret") }).await;
    let report =
        call(&gateway, json!({ "tool": "find_tools", "arguments": query, "as": "ann" })).await;
    assert!(!report.to_string().contains("s__secret"), "{report}");
    let described = json!({ "names": ["s__secret"] });
    let report =
        call(&gateway, json!({ "tool": "describe_tools", "arguments": described, "as": "ann" }));
    let report = report.await;
    assert!(!report.to_string().contains("inputSchema"), "{report}");
}

#[tokio::test]
async fn the_session_of_a_call_as_a_client_ends_with_it() {
    let upstream = Upstream::legacy().await;
    let gateway =
        Gateway::with("s", upstream.http()).toml(&client_table("ci", "ci-key", "")).start().await;
    let sessions = async || {
        let server = gateway.server("s").await;
        server["instances"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["owner"] == "session")
            .count()
    };
    call(&gateway, json!({ "tool": "s__echo", "as": "ci" })).await;
    assert_eq!(upstream.calls().len(), 1);
    until_async(|| async { sessions().await == 0 }).await;
}

#[tokio::test]
async fn a_remote_operators_refused_call_has_its_address_and_both_names() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http()))
        .toml("[profiles.small]\nservers = []\n")
        .toml(&client_table("ci", "ci-key", "profiles = [\"small\"]"))
        .toml("[audit]\nfile = \"audit.jsonl\"\n")
        .start()
        .await;
    let profile = format!("default{}", "x".repeat(5_000));
    let body = json!({ "tool": "s__echo", "as": "ci", "profile": profile });
    let rules = gateway.remote_operator().key("rules-key");
    let ask = rules.http("POST", "/api/v1/calls").body(body.to_string());
    let said: Said = ask.header("content-type", "application/json").send().await.said().await;
    assert_eq!(super::super::code(&said, 400), "invalid_request");
    let log = gateway.folder().join("audit.jsonl");
    let is_request = |record: &Value| record["event"] == "request";
    until(|| json_lines(&log).iter().any(is_request)).await;
    let record = json_lines(&log).into_iter().find(is_request).unwrap();
    for (member, value) in [
        ("principal", json!("ci")),
        ("address", json!("127.0.0.1")),
        ("actors", json!(["client rules"])),
    ] {
        assert_eq!(record[member], value, "{member}: {record}");
    }
    assert_eq!(record["credential"]["kind"], "key", "{record}");
    assert!(record["profile"].as_str().unwrap().len() <= 256, "{record}");
}
