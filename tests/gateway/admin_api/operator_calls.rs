//! Calls of operators: with every gate, as the operator or with the rights of a client.

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::activity::find;
use super::resources::{get, post};
use super::{code, with_roles};
use crate::support::gateway::{Builder, key_digest};
use crate::support::upstream::Received;
use crate::support::{
    Client, Gateway, OauthServer, Said, Step, Upstream, client_table, json_lines, until, within,
};

const AUDIT: &str = "[audit]\nfile = \"audit.jsonl\"\n";

async fn call(gateway: &Gateway, body: Value) -> Value {
    let said = post(gateway, "/calls", &body).await;
    assert_eq!(said.status, 200, "{body}: {said:?}");
    said.json()
}

async fn call_by(client: &Client, body: &Value) -> Said {
    let ask = client.http("POST", "/api/v1/calls").body(body.to_string());
    ask.header("content-type", "application/json").send().await.said().await
}

/// Returns the record of the last call, once there are this many.
async fn record(gateway: &Gateway, count: usize) -> Value {
    records(gateway, "call", count).await[count - 1].clone()
}

/// Returns the records of a kind, once there are this many.
async fn records(gateway: &Gateway, kind: &str, count: usize) -> Vec<Value> {
    let path = gateway.folder().join("audit.jsonl");
    let found = || -> Vec<_> {
        json_lines(&path).into_iter().filter(|record| record["event"] == kind).collect()
    };
    until(|| found().len() >= count).await;
    let found = found();
    assert_eq!(found.len(), count, "{found:#?}");
    found
}

/// A gateway with the clients of all roles, and two others.
fn guarded(upstream: &Upstream) -> Builder {
    with_roles(Gateway::with("s", upstream.http()))
        .toml(&client_table("ci", "ci-key", "profiles = [\"small\"]\nrate = \"2/hour\""))
        .toml(&format!(
            "[clients.old]\nkeys = [{{ hash = \"{}\", expires = 2020-01-01 }}]\n",
            key_digest("old-key")
        ))
        .toml("[profiles.small]\nservers = [\"s\"]\n")
        .toml("[policy.rules.ci]\nprincipals = [\"ci\"]\nwhen = \"arguments.branch != 'main'\"\n")
        .toml("[policy.rules.others]\nprincipals = [\"anonymous\", \"acts\", \"rules\"]\n")
        .toml(AUDIT)
}

#[tokio::test]
async fn the_operator_is_the_caller_unless_a_client_is_named() {
    let upstream = Upstream::modern().await;
    let gateway = guarded(&upstream).start().await;
    let body = json!({ "tool": "s__echo", "arguments": { "a": 1 } });
    let report = call(&gateway, body.clone()).await;
    assert_eq!((&report["client"], &report["profile"]), (&json!("anonymous"), &json!("default")));
    assert!(report["operator"].as_str().unwrap().starts_with("uid "), "{report}");
    assert_eq!(
        (&report["error"], &report["result"]["content"][0]["type"]),
        (&json!(null), &json!("text"))
    );
    let local = record(&gateway, 1).await;
    assert_eq!(
        (&local["principal"], &local["credential"]["kind"]),
        (&json!("anonymous"), &json!("operator"))
    );
    assert_eq!(local["actors"], json!([report["operator"]]));

    let acts = gateway.remote_operator().key("acts-key");
    let said = call_by(&acts, &body).await;
    assert_eq!((said.status, &said.json()["client"]), (200, &json!("acts")), "{said:?}");
    let remote = record(&gateway, 2).await;
    assert_eq!(
        (&remote["principal"], &remote["credential"]["kind"]),
        (&json!("acts"), &json!("key"))
    );
    assert_eq!(remote["actors"], json!([]));
    assert_eq!(upstream.calls().len(), 2);
}

#[tokio::test]
async fn a_call_as_a_client_passes_its_profile_rules_and_limits_and_is_recorded_with_both_names() {
    let upstream = Upstream::modern().await;
    let gateway = guarded(&upstream).start().await;
    let body =
        |branch: &str| json!({ "tool": "s__echo", "arguments": { "branch": branch }, "as": "ci" });
    let refused = call(&gateway, body("main")).await;
    assert_eq!((&refused["profile"], &refused["result"]), (&json!("small"), &json!(null)));
    assert!(refused["error"]["message"].as_str().unwrap().contains("not allowed"), "{refused}");
    let made = call(&gateway, body("work")).await;
    assert_eq!(made["error"], json!(null), "{made}");
    let record = record(&gateway, 2).await;
    assert_eq!((&record["principal"], &record["profile"]), (&json!("ci"), &json!("small")));
    assert_eq!(record["actors"], json!([made["operator"]]));
    // The rate is that of the client: its own call is refused, too.
    let limited = call(&gateway, body("work")).await;
    assert!(limited["error"]["data"]["limit"] == "client:ci", "{limited}");
    let own = gateway.modern().key("ci-key").at("/mcp/small").call("s__echo", json!({})).await;
    assert_eq!(own.status, 429, "{own:?}");
    assert_eq!(upstream.calls().len(), 1);

    let expired = call(&gateway, json!({ "tool": "s__echo", "as": "old" })).await;
    assert!(expired["error"]["message"].as_str().unwrap().contains("expired"), "{expired}");
    let keyless = call(&gateway, json!({ "tool": "s__echo", "as": "anonymous" })).await;
    assert!(keyless["error"]["message"].as_str().unwrap().contains("key is required"), "{keyless}");
    for (body, status, expected) in [
        (json!({ "tool": "s__echo", "as": "nobody" }), 404, "unknown_client"),
        (json!({ "tool": "s__echo", "as": "corp:ann" }), 404, "unknown_client"),
        (json!({ "tool": "s__echo", "as": "ci", "profile": "default" }), 400, "invalid_request"),
        (json!({ "tool": "s__echo", "user": "ci" }), 400, "invalid_request"),
    ] {
        assert_eq!(code(&post(&gateway, "/calls", &body).await, status), expected, "{body}");
    }
}

#[tokio::test]
async fn a_call_as_a_client_needs_the_role_admin() {
    let upstream = Upstream::modern().await;
    let gateway = guarded(&upstream).start().await;
    let body = json!({ "tool": "s__echo", "arguments": { "branch": "x" }, "as": "ci" });
    let said = call_by(&gateway.remote_operator().key("acts-key"), &body).await;
    assert_eq!(code(&said, 403), "role_needed");
    assert_eq!(upstream.calls().len(), 0);
    let said = call_by(&gateway.remote_operator().key("rules-key"), &body).await;
    assert_eq!((said.status, &said.json()["operator"]), (200, &json!("client rules")), "{said:?}");
    assert_eq!(record(&gateway, 1).await["actors"], json!(["client rules"]));
}

#[tokio::test]
async fn a_call_as_a_client_uses_none_of_its_credentials() {
    for lines in ["forward_headers = [\"authorization\"]\n", "[servers.s.oauth]\n"] {
        let upstream = Upstream::modern().await;
        let server = format!("{}\n{lines}", upstream.http());
        let gateway =
            Gateway::with("s", server).toml(&client_table("ci", "ci-key", "")).start().await;
        let report = call(&gateway, json!({ "tool": "s__echo", "as": "ci" })).await;
        let message = report["error"]["message"].as_str().unwrap();
        assert!(message.contains("the server s needs credentials of the client"), "{report}");
        assert_eq!(upstream.calls().len(), 0, "{lines}");
        // The operator itself is no client with a login.
        let own = call(&gateway, json!({ "tool": "s__echo" })).await;
        assert_eq!(own["error"], json!(null), "{lines} {own}");
    }
}

#[tokio::test]
async fn a_call_as_a_client_gets_no_link_for_its_login() {
    let server = OauthServer::before(Upstream::modern().await).await;
    let gateway = Gateway::with("s", server.lines("s", "per = \"user\""))
        .toml(&client_table("ci", "ci-key", ""))
        .start()
        .await;
    let report = call(&gateway, json!({ "tool": "s__echo", "as": "ci" })).await;
    let message = report["error"]["message"].as_str().unwrap();
    assert!(message.contains("the server s needs credentials of the client"), "{report}");
    assert!(!report.to_string().contains("ticket"), "{report}");
}

#[tokio::test]
async fn a_call_as_a_client_has_a_session_of_its_own_with_the_server() {
    let upstream = Upstream::legacy().await;
    let gateway =
        Gateway::with("s", upstream.http()).toml(&client_table("ci", "ci-key", "")).start().await;
    let session =
        |received: Received| received.header("mcp-session-id").unwrap_or_default().to_owned();
    gateway.modern().key("ci-key").call("s__echo", json!({})).await.text();
    let own = session(upstream.heard("tools/call", 1).await);
    call(&gateway, json!({ "tool": "s__echo", "as": "ci" })).await;
    let other = session(upstream.heard("tools/call", 2).await);
    assert!(!own.is_empty() && own != other, "{own} {other}");
}

#[tokio::test]
async fn an_operator_who_disconnects_cancels_the_call() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).toml(AUDIT).start().await;
    {
        let body = json!({ "tool": "s__hold" });
        let calling = post(&gateway, "/calls", &body);
        tokio::select! {
            said = calling => panic!("{said:?}"),
            _ = upstream.heard("tools/call", 1) => {}
        }
    }
    assert_eq!(record(&gateway, 1).await["outcome"], "cancelled");
}

#[tokio::test]
async fn a_call_that_is_refused_before_it_begins_is_recorded_and_counted() {
    let upstream = Upstream::modern().await;
    let gateway = guarded(&upstream).start().await;
    let body = json!({ "tool": "s__echo", "arguments": { "branch": "x" }, "as": "ci" });
    call(&gateway, body.clone()).await;
    let operator = call(&gateway, body.clone()).await["operator"].clone();
    let limited = call(&gateway, body).await;
    assert!(limited["error"]["data"]["limit"] == "client:ci", "{limited}");
    let expired = call(&gateway, json!({ "tool": "s__echo", "as": "old" })).await;
    assert!(expired["error"].is_object(), "{expired}");
    let elsewhere = json!({ "tool": "s__echo", "as": "ci", "profile": "default" });
    assert_eq!(code(&post(&gateway, "/calls", &elsewhere).await, 400), "invalid_request");
    let refused = records(&gateway, "request", 3).await;
    for (record, client, profile) in [
        (&refused[0], "ci", "small"),
        (&refused[1], "old", "default"),
        (&refused[2], "ci", "default"),
    ] {
        assert_eq!(record["principal"], client, "{record}");
        assert_eq!(record["profile"], profile, "{record}");
        assert_eq!(record["actors"], json!([operator]), "{record}");
        assert_eq!(
            (&record["tool"], &record["credential"]["kind"], &record["decision"]),
            (&json!("s__echo"), &json!("operator"), &json!("deny")),
            "{record}"
        );
    }
    let page = get(&gateway, "/clients").await;
    let counted = &find(&page["clients"], "name", "old")["failures"];
    assert_eq!(counted[0]["count"], 1, "{page:#}");
}

#[tokio::test]
async fn a_call_that_the_api_refuses_is_recorded_as_an_operation() {
    let upstream = Upstream::modern().await;
    let gateway = guarded(&upstream).start().await;
    let acts = gateway.remote_operator().key("acts-key");
    let as_client = json!({ "tool": "s__echo", "as": "ci" });
    assert_eq!(code(&call_by(&acts, &as_client).await, 403), "role_needed");
    let looks = gateway.remote_operator().key("looks-key");
    let own = json!({ "tool": "s__echo" });
    assert_eq!(code(&call_by(&looks, &own).await, 403), "role_needed");
    let unknown = json!({ "tool": "s__echo", "as": "nobody-there" });
    assert_eq!(code(&post(&gateway, "/calls", &unknown).await, 404), "unknown_client");
    let refused = records(&gateway, "operation", 3).await;
    for (record, name, reason, client) in [
        (&refused[0], Some("client acts"), "role_needed", Some("ci")),
        (&refused[1], Some("client looks"), "role_needed", None),
        (&refused[2], None, "unknown_client", Some("nobody-there")),
    ] {
        assert_eq!(record.get("client").and_then(Value::as_str), client, "{record}");
        assert!(record.to_string().contains(reason), "{record}");
        assert!(record.to_string().contains("/calls"), "{record}");
        if let Some(name) = name {
            assert_eq!(record["actor"]["name"], name, "{record}");
        }
    }
}

#[tokio::test]
async fn a_client_without_a_role_cannot_fill_the_audit_log() {
    let upstream = Upstream::modern().await;
    let gateway = guarded(&upstream).start().await;
    let stranger = gateway.remote_operator().key("ci-key");
    let body = json!({ "tool": "s__echo" });
    for expected in [403, 403, 429, 429] {
        assert_eq!(call_by(&stranger, &body).await.status, expected);
    }
    // The record of another client comes after those of the refused one.
    let looks = gateway.remote_operator().key("looks-key");
    assert_eq!(call_by(&looks, &body).await.status, 403);
    let refused = records(&gateway, "operation", 3).await;
    assert_eq!(refused[2]["actor"]["name"], "client looks", "{refused:#?}");
}

#[tokio::test]
async fn a_call_as_a_client_needs_the_scopes_of_the_profile() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http())
        .toml(AUDIT)
        .toml("[profiles.p]\nscopes = [\"mcp:read\"]\n")
        .toml(&client_table("has", "has-key", "profiles = [\"p\"]\nscopes = [\"mcp:read\"]"))
        .toml(&client_table("lacks", "lacks-key", "profiles = [\"p\"]"))
        .start()
        .await;
    let body = |name: &str| json!({ "tool": "s__echo", "as": name, "profile": "p" });
    assert!(call(&gateway, body("has")).await["error"].is_null());
    let refused = call(&gateway, body("lacks")).await;
    assert_eq!(refused["error"]["data"]["requiredScopes"], json!(["mcp:read"]), "{refused}");
    assert_eq!(records(&gateway, "request", 1).await[0]["principal"], "lacks");
}

/// Makes a call by a client with a role, which another configuration replaces during the call.
async fn lose_role(before: &str, after: &str, client: Value) {
    let upstream = Upstream::modern().await;
    let with = |role: &str| {
        let builder = Gateway::with("s", upstream.http()).toml(AUDIT);
        let builder = builder.toml(&client_table("ci", "ci-key", ""));
        builder.toml(&client_table("acts", "acts-key", &format!("role = \"{role}\"")))
    };
    let gateway = with(before).start().await;
    let acts = gateway.remote_operator().key("acts-key");
    let body = json!({ "tool": "s__hold", "as": client });
    let lost = async {
        upstream.heard("tools/call", 1).await;
        assert_eq!(gateway.reload(with(after)).await, ReloadOutcome::Applied);
    };
    let (said, ()) = within(async { tokio::join!(call_by(&acts, &body), lost) }).await;
    assert_eq!(code(&said, 403), "role_needed");
    assert!(said.body.contains("has lost its access during the call"), "{said:?}");
    assert_eq!(record(&gateway, 1).await["outcome"], "cancelled");
}

#[tokio::test]
async fn an_operator_who_loses_the_role_cancels_its_call() {
    lose_role("operator", "viewer", Value::Null).await;
}

#[tokio::test]
async fn an_admin_who_becomes_an_operator_cancels_its_call_as_a_client() {
    lose_role("admin", "operator", json!("ci")).await;
}

/// Makes a call with this text of arguments.
async fn send(gateway: &Gateway, arguments: &str) -> Said {
    let body = format!("{{\"tool\":\"s__echo\",\"arguments\":{arguments}}}");
    let operator = gateway.operator();
    let ask = operator.http("POST", "/api/v1/calls").body(body);
    ask.header("content-type", "application/json").send().await.said().await
}

#[tokio::test]
async fn numbers_of_arguments_and_results_keep_all_their_digits() {
    let upstream = Upstream::modern().await;
    upstream.does("echo", |_| {
        let id = "\"structuredContent\":{\"id\":123456789012345678901}";
        vec![Step::Raw(format!("{{\"resultType\":\"complete\",\"content\":[],{id}}}"))]
    });
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let said = send(&gateway, "{\n\"id\": 123456789012345678901}").await;
    assert_eq!(said.status, 200, "{said:?}");
    assert!(said.body.contains("\"id\":123456789012345678901"), "{said:?}");
    let heard = &upstream.calls()[0].text;
    assert!(heard.contains("123456789012345678901") && !heard.contains('\n'), "{heard}");
}

#[tokio::test]
async fn arguments_are_an_object_that_is_not_nested_too_deeply() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for wrong in ["7".to_owned(), format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200))] {
        assert_eq!(code(&send(&gateway, &wrong).await, 400), "invalid_request", "{wrong}");
    }
    assert_eq!(upstream.calls().len(), 0);
}

#[tokio::test]
async fn a_server_that_logs_in_as_itself_takes_calls_as_a_client() {
    let server = OauthServer::before(Upstream::modern().await).await;
    server.gives("own", json!({ "expires_in": 3600 }));
    server.takes("own", &["list", "call"]);
    let settings = "grant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"mine\"";
    let gateway = Gateway::with("s", server.lines("s", settings))
        .toml(&client_table("ci", "ci-key", ""))
        .start()
        .await;
    let made = call(&gateway, json!({ "tool": "s__echo", "as": "ci" })).await;
    assert_eq!(made["error"], json!(null), "{made}");
}

#[tokio::test]
async fn a_server_that_has_listed_is_not_blamed_for_an_unknown_tool() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", format!("{}\n[servers.s.oauth]", upstream.http()))
        .server("down", "url = \"http://127.0.0.1:9/\"")
        .toml(&client_table("ci", "ci-key", ""))
        .start()
        .await;
    let unknown = call(&gateway, json!({ "tool": "s__none", "as": "ci" })).await;
    let message = unknown["error"]["message"].as_str().unwrap();
    assert!(message.contains("s__none"), "{unknown}");
}
