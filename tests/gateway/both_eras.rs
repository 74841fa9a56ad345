//! Servers that speak both eras: each client is served in its own.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::input::{ann, asking, dialogue, form, required};
use crate::support::gateway::of;
use crate::support::upstream::{MOMENT, Received, offers, tool};
use crate::support::{Client, Gateway, Step, Upstream, until, until_async};

/// Starts a Modern server that appears as another one to Legacy clients. The tool `who` names the
/// called side; `ask` works in Legacy only.
async fn server_of_both_eras() -> [Upstream; 2] {
    let both = Upstream::both().await;
    let [modern, legacy] = &both;
    for (side, name) in [(modern, "modern"), (legacy, "legacy")] {
        side.does("who", move |_| vec![answer(name)]);
    }
    modern.does("ask", |_| vec![Step::Error(json!({ "code": -32603, "message": "no session" }))]);
    legacy.does("ask", |_| asking(vec![("a", "elicitation/create", form())]));
    modern.speaks_legacy_as(legacy);
    both
}

fn answer(text: &str) -> Step {
    Step::Result(json!({ "content": [{ "type": "text", "text": text }] }))
}

async fn who(client: &Client) -> String {
    let said = client.call("s__who", json!({})).await;
    said.result()["content"][0]["text"].as_str().unwrap().to_owned()
}

/// Returns the side that was called, or the error.
async fn who_is_there(client: &Client) -> String {
    let said = client.call("s__who", json!({})).await;
    said.answer()["result"]["content"][0]["text"].to_string()
}

/// Waits until the client is served in Legacy again, and checks that it is never served in Modern.
async fn served_in_legacy(client: &Client) {
    until_async(async || {
        let side = who_is_there(client).await;
        assert_ne!(side, "\"modern\"");
        side == "\"legacy\""
    })
    .await;
}

/// Waits until the client has this list.
async fn listed(client: &Client, names: &[&str]) {
    until_async(async || client.tool_names().await == names).await;
}

#[tokio::test]
async fn a_server_that_speaks_both_eras_is_spoken_to_in_its_clients_era() {
    for way in [0, 1] {
        let [modern, legacy] = server_of_both_eras().await;
        let (transport, lines) = modern.ways()[way].clone();
        let gateway = Gateway::with("s", lines).start().await;
        for (era, client) in gateway.both().await {
            assert_eq!(who(&client).await, era.to_lowercase(), "{transport}");
        }
        let able = gateway.legacy().await.offering(json!({ "elicitation": {} })).await;
        let asked = dialogue(&able, "s__ask", |_| ann()).await;
        let text = asked.result()["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("Ann"), "{transport} {text}");
        assert_eq!(modern.calls().len(), 1, "{transport}: the Modern client's");
        assert!(legacy.all("server/discover").is_empty(), "{transport}");
        let status = gateway.server("s").await;
        let said = (&status["era"], &status["eras"], &status["protocol_version"]);
        assert_eq!(said, (&json!("modern"), &json!(["modern", "legacy"]), &json!("2026-07-28")));
    }
}

#[tokio::test]
async fn lists_are_those_of_the_clients_era() {
    let [modern, legacy] = server_of_both_eras().await;
    modern.does("new", |_| vec![answer("new")]);
    legacy.does("old", |_| vec![answer("old")]);
    let gateway = Gateway::with("s", modern.http()).start().await;
    let [(_, newer), (_, older)] = gateway.both().await;
    // Called before the client has listed.
    let said = older.call("s__old", json!({})).await;
    assert_eq!(said.result()["content"][0]["text"], "old");
    for _ in 0..2 {
        let (of_newer, of_older) = (newer.tool_names().await, older.tool_names().await);
        let has = |tools: &[String], name: &str| tools.iter().any(|tool| tool == name);
        assert!(has(&of_newer, "s__new") && !has(&of_newer, "s__old"), "{of_newer:?}");
        assert!(has(&of_older, "s__old") && !has(&of_older, "s__new"), "{of_older:?}");
    }
    let refused = older.call("s__new", json!({})).await;
    assert_eq!(refused.answer()["error"]["code"], -32602);
    // A client without capabilities has the same list as one with some.
    let able = gateway.legacy().await.offering(json!({ "roots": {} })).await;
    assert_eq!(able.tool_names().await, older.tool_names().await);
    legacy.set_tools([tool("older").to_string()]);
    legacy.tell("notifications/tools/list_changed", json!({})).await;
    listed(&older, &["s__older"]).await;
    // A change in one era may imply a change in the other.
    legacy.set_tools([tool("oldest").to_string()]);
    modern.set_tools([tool("newest").to_string()]);
    modern.tell("notifications/tools/list_changed", json!({})).await;
    listed(&newer, &["s__newest"]).await;
    listed(&older, &["s__oldest"]).await;
}

#[tokio::test]
async fn equal_lists_of_both_eras_are_compared_once_and_a_legacy_child_starts_with_the_first_call()
{
    let [modern, _legacy] = server_of_both_eras().await;
    let builder = || Gateway::with("s", modern.stdio()).gateway("state_dir = \"state\"");
    let gateway = builder().start().await;
    let sets = ["{}", r#"{"roots":{}}"#, r#"{"sampling":{},"elicitation":{}}"#];
    let names = gateway.legacy().await.tool_names().await;
    let alone = |status: &Value| of(status, "s")["instance_count"] == 0;
    gateway.wait_for(alone).await;
    assert_eq!(modern.starts(), 2, "the main instance and the one that was compared");
    for set in sets {
        let able = serde_json::from_str(set).unwrap();
        let client = gateway.legacy().await.offering(able).await;
        assert_eq!(client.tool_names().await, names, "{set}");
    }
    assert_eq!(modern.starts(), 2);
    let gateway = builder().in_folder(gateway.stop().await).start().await;
    gateway.wait_for(|status| of(status, "s")["state"] == "ready").await;
    for set in sets {
        let able = serde_json::from_str(set).unwrap();
        let client = gateway.legacy().await.offering(able).await;
        assert_eq!(client.tool_names().await, names, "{set}");
        assert_eq!(modern.starts(), 3, "{set}: the main instance alone");
    }
    let client = gateway.legacy().await;
    assert_eq!((who(&client).await, modern.starts()), ("legacy".to_owned(), 4));
    assert_eq!(client.tool_names().await, names);
}

#[tokio::test]
async fn a_modern_server_is_tried_in_legacy_once() {
    for way in [0, 1] {
        let modern = Upstream::modern().await;
        modern.does("who", |_| vec![answer("modern")]);
        let (transport, lines) = modern.ways()[way].clone();
        let gateway = Gateway::with("s", lines).start().await;
        let mut tried = 0;
        for number in 0..3 {
            let client = gateway.legacy().await;
            assert_eq!(who(&client).await, "modern", "{transport}");
            assert!(client.tool_names().await.contains(&"s__who".to_owned()), "{transport}");
            let so_far = modern.all("initialize").len();
            assert!(number == 0 || so_far == tried, "{transport}: {so_far}");
            tried = so_far;
        }
        assert!((1..3).contains(&tried), "{transport}: {tried}, for the list and the call");
        let status = gateway.wait_for(|status| of(status, "s")["instance_count"] == 0).await;
        let status = of(&status, "s");
        assert_eq!(status["eras"], json!(["modern"]), "{transport}");
        assert_eq!((&status["state"], &status["last_error"]), (&json!("ready"), &Value::Null));
    }
}

#[tokio::test]
async fn a_refusal_that_may_be_about_capabilities_is_settled_by_an_attempt_without() {
    let modern = Upstream::modern().await;
    modern.does("who", |_| vec![answer("modern")]);
    let refusal = Step::Error(json!({ "code": -32602, "message": "Invalid params" }));
    modern.when_asked("initialize", move |_| vec![refusal.clone()]);
    let gateway = Gateway::with("s", modern.http()).start().await;
    let able = || async {
        let client = Client::sessionless(gateway.running.address, "2025-11-25");
        client.offering(json!({ "roots": {} })).await
    };
    let first = able().await;
    assert_eq!(who(&first).await, "modern");
    let has_none = |asked: &Received| asked.params["capabilities"] == json!({});
    until(|| modern.all("initialize").iter().any(has_none)).await;
    gateway.wait_for(|status| of(status, "s")["instance_count"] == 0).await;
    let tried = modern.all("initialize").len();
    for client in [&first, &able().await] {
        assert_eq!(who(client).await, "modern");
    }
    assert_eq!(modern.all("initialize").len(), tried);
}

#[tokio::test]
async fn a_pinned_era_is_the_only_one() {
    for (pinned, other) in [("modern", "initialize"), ("legacy", "server/discover")] {
        let [modern, legacy] = server_of_both_eras().await;
        let lines = format!("{}era = \"{pinned}\"\n", modern.http());
        let gateway = Gateway::with("s", lines).start().await;
        for (era, client) in gateway.both().await {
            assert_eq!(who(&client).await, pinned, "{era}");
        }
        let side = if pinned == "modern" { &legacy } else { &modern };
        assert!(side.all(other).is_empty(), "{pinned}");
        let status = gateway.server("s").await;
        assert_eq!(status["eras"], json!([pinned]));
        // Each client has a session of its own with a Legacy server.
        let sessions = if pinned == "modern" { 0 } else { 2 };
        assert_eq!(status["instance_count"], sessions, "{pinned}");
    }
}

#[tokio::test]
async fn subscriptions_stand_in_the_clients_era() {
    let [modern, legacy] = server_of_both_eras().await;
    for side in [&modern, &legacy] {
        side.can(offers::everything());
        side.lists("resources", vec![json!({ "uri": "test://a", "name": "a" })]);
    }
    let gateway = Gateway::with("s", modern.http()).start().await;
    let client = gateway.legacy().await;
    client.tool_names().await;
    assert!(client.subscribes("mcp://s/test://a").await);
    assert_eq!(legacy.all("resources/subscribe").len(), 1);
}

#[tokio::test]
async fn a_legacy_session_that_is_lost_is_opened_again_in_legacy() {
    let [modern, legacy] = server_of_both_eras().await;
    let gateway = Gateway::with("s", modern.http()).start().await;
    let client = gateway.legacy().await;
    assert_eq!(who(&client).await, "legacy");
    legacy.answers(Some((503, "")));
    legacy.crash();
    legacy.forget_sessions();
    assert!(!who_is_there(&client).await.contains("legacy"));
    legacy.answers(None);
    served_in_legacy(&client).await;
    assert_eq!(gateway.server("s").await["eras"], json!(["modern", "legacy"]));
}

#[tokio::test]
async fn a_legacy_child_that_starts_at_the_second_attempt_is_legacy() {
    let [modern, legacy] = server_of_both_eras().await;
    let gateway = Gateway::with("s", modern.stdio()).start().await;
    let client = gateway.legacy().await;
    assert_eq!(who(&client).await, "legacy");
    let has_failed = AtomicBool::new(false);
    legacy.when_asked("initialize", move |_| {
        if !has_failed.swap(true, Ordering::SeqCst) {
            return vec![Step::Error(json!({ "code": -32603, "message": "not yet" }))];
        }
        vec![Step::Result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "s", "version": "1" },
        }))]
    });
    modern.crash();
    served_in_legacy(&client).await;
}

#[tokio::test]
async fn a_legacy_side_that_hangs_holds_up_each_client_once_at_most() {
    let [modern, legacy] = server_of_both_eras().await;
    legacy.when_asked("initialize", |_| vec![Step::Never]);
    let lines = modern.http() + "start_timeout = \"1500ms\"\nmax_instances = 1\n";
    let gateway = Gateway::with("s", lines).start().await;
    // The second finds no room for an instance during the attempt with the first one's.
    let (first, second) = (gateway.legacy().await, gateway.legacy().await);
    for client in [&first, &second] {
        assert_eq!(who(client).await, "modern");
    }
    gateway.wait_for(|status| of(status, "s")["instance_count"] == 0).await;
    let tried = legacy.all("initialize").len();
    for client in [&first, &second, &gateway.legacy().await] {
        assert_eq!(who(client).await, "modern");
    }
    assert_eq!(legacy.all("initialize").len(), tried, "adapted for without another attempt");
}

#[tokio::test]
async fn a_modern_server_has_a_legacy_clients_abilities_in_its_first_list() {
    let modern = Upstream::modern().await;
    modern.when_asked("tools/list", |asked| {
        let told = &asked.params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        let name = if told["roots"].is_object() { "rooted" } else { "plain" };
        let list = json!({ "tools": [tool(name)], "ttlMs": 60_000, "cacheScope": "public" });
        vec![Step::Result(list)]
    });
    // Known only after the client has requested its list.
    let refusal = Step::Error(json!({ "code": -32601, "message": "no" }));
    modern.when_asked("initialize", move |_| vec![Step::Pause(MOMENT), refusal.clone()]);
    let gateway = Gateway::with("s", modern.http()).start().await;
    let able = Client::sessionless(gateway.running.address, "2025-11-25");
    let able = able.offering(json!({ "roots": {} })).await;
    assert_eq!(able.tool_names().await, ["s__rooted"]);
    assert_eq!(gateway.legacy().await.tool_names().await, ["s__plain"]);
}

#[tokio::test]
async fn a_call_that_has_asked_for_input_stays_in_the_era_that_asked() {
    let [modern, legacy] = server_of_both_eras().await;
    modern.does("ask", |call| match call.params.get("inputResponses") {
        Some(_) => vec![answer("modern")],
        None => vec![required(&[("a", "elicitation/create", form())], Some("mine"))],
    });
    // A refusal of a client with capabilities does not affect the others.
    legacy.when_asked("initialize", |asked| match &asked.params["capabilities"] {
        told if told["elicitation"].is_object() => vec![Step::Status(503, vec![], String::new())],
        told if told["roots"].is_object() => vec![Step::Usual],
        _ => vec![Step::Hold, Step::Usual],
    });
    let gateway = Gateway::with("s", modern.http()).start().await;
    let client = || Client::sessionless(gateway.running.address, "2025-11-25");
    let able = client().offering(json!({ "elicitation": {} })).await;
    let params = json!({ "name": "s__ask", "arguments": {} });
    let mut reply = able.ask("tools/call", params).send().await;
    let asked = reply.message().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    // Meanwhile the server accepts Legacy requests.
    legacy.release(1);
    let other = client().offering(json!({ "roots": {} })).await;
    until_async(async || who(&other).await == "legacy").await;
    able.respond(&asked["id"], ann()).await;
    let said = reply.said().await;
    assert_eq!(said.result()["content"][0]["text"], "modern");
}
