//! Number of a server's children, and their clients.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::input::{ann, ask, asking, form, retry};
use crate::support::gateway::of;
use crate::support::upstream::{Received, every_kind, tool};
use crate::support::{Gateway, Host, Kind, Step, Upstream, Way, client_table, until_async};

const SETS: [&str; 3] = [r#"{"roots":{}}"#, r#"{"elicitation":{}}"#, r#"{"sampling":{}}"#];

fn set(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns the client capabilities that the children received, in the order of their starts.
fn told(upstream: &Upstream) -> Vec<Value> {
    let told = |opened: Received| opened.params["capabilities"].clone();
    upstream.all("initialize").into_iter().map(told).collect()
}

#[tokio::test]
async fn clients_with_three_capability_sets_start_one_child_each_with_their_first_call() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let mut clients = Vec::new();
    for (number, text) in SETS.into_iter().enumerate() {
        let legacy = gateway.legacy().await.offering(set(text)).await;
        let modern = gateway.modern().offering(set(text)).await;
        for client in [&legacy, &modern] {
            assert_eq!(client.tool_names().await.len(), 4);
        }
        clients.push(legacy);
        // The main instance, and one child that received all capabilities once and ended.
        gateway.wait_for(|status| status["servers"][0]["instance_count"] == 0).await;
        assert_eq!(upstream.starts(), 2, "{number}");
    }
    assert_eq!(told(&upstream)[0], json!({}));
    for key in ["elicitation", "extensions", "roots", "sampling"] {
        assert!(told(&upstream)[1][key].is_object(), "{key}");
    }
    for (number, client) in clients.iter().enumerate() {
        for _ in 0..2 {
            assert!(!client.call("s__echo", json!({})).await.is_error());
        }
        assert_eq!(upstream.starts(), 3 + number);
        let set = set(SETS[number]);
        let last = told(&upstream).pop().unwrap();
        assert!(last.as_object().unwrap().keys().eq(set.as_object().unwrap().keys()), "{last}");
    }
    assert_eq!(gateway.server("s").await["instance_count"], 3);
}

#[tokio::test]
async fn clients_that_differ_in_nothing_that_matters_share_a_child() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    for (number, capabilities) in [
        json!({ "roots": {} }),
        json!({ "roots": { "listChanged": true }, "experimental": { "x": {} } }),
        json!({ "experimental": { "y": {} } }),
    ]
    .into_iter()
    .enumerate()
    {
        for (era, client) in gateway.both().await {
            let client = client.offering(capabilities.clone()).await;
            assert!(!client.call("s__echo", json!({})).await.is_error(), "{era} {number}");
        }
        // The child that detects lists that depend on capabilities may still run.
        gateway.wait_for(|status| status["servers"][0]["instance_count"] == 1).await;
    }
    let is_theirs = |told: &Value| told.get("extensions").is_none();
    let told: Vec<_> = told(&upstream).into_iter().filter(is_theirs).collect();
    assert_eq!(told, [json!({}), json!({ "roots": {} })]);
}

#[tokio::test]
async fn a_child_for_capabilities_is_closed_when_nothing_is_pending_on_it() {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| asking(vec![("q", "elicitation/create", form())]));
    upstream.offers_everything().resources(&["test://a"]);
    let lines = upstream.stdio() + "capability_idle = \"300ms\"\n";
    let gateway = Gateway::with("s", lines).start().await;
    let forms = gateway.modern().offering(json!({ "elicitation": {} })).await;
    let asked = ask(&forms, "s__ask").await;
    let subscriber = gateway.legacy().await.offering(json!({ "sampling": {} })).await;
    assert!(subscriber.subscribes("mcp://s/test://a").await);
    let caller = gateway.modern().offering(json!({ "roots": {} })).await;
    assert!(!caller.call("s__echo", json!({})).await.is_error());
    // Used later than the other two.
    let is_there = |status: &Value, capability: &str| {
        let all = status["servers"][0]["instances"].as_array().unwrap().clone();
        all.iter().any(|instance| instance["capabilities"].get(capability).is_some())
    };
    let status = gateway.wait_for(|status| !is_there(status, "roots")).await;
    assert!(is_there(&status, "elicitation") && is_there(&status, "sampling"), "{status}");
    let said = retry(&forms, "s__ask", asked.all(&ann()), asked.state()).await;
    assert!(said.text().contains("Ann"), "{said:?}");
    gateway.wait_for(|status| !is_there(status, "elicitation")).await;
}

#[tokio::test]
async fn lists_that_depend_on_capabilities_are_listed_for_each_set() {
    let upstream = Upstream::legacy().await;
    let told: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    let child = |asked: &Received| asked.header("mcp-session-id").unwrap().to_owned();
    let opened = Arc::clone(&told);
    upstream
        .when_asked("initialize", move |asked| {
            let can = asked.params["capabilities"].as_object().unwrap().keys();
            let can = can.cloned().collect::<Vec<_>>().join("_");
            opened.lock().unwrap().insert(child(asked), format!("tool_{can}"));
            vec![Step::Result(json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "choosy", "version": "1" },
            }))]
        })
        .when_asked("tools/list", move |asked| {
            let name = told.lock().unwrap()[&child(asked)].clone();
            vec![Step::Result(json!({ "tools": [tool(&name)] }))]
        });
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    for _ in 0..2 {
        let plain = gateway.legacy().await;
        assert_eq!(plain.tool_names().await, ["s__tool_"]);
        let rooted = gateway.legacy().await.offering(json!({ "roots": {} })).await;
        assert_eq!(rooted.tool_names().await, ["s__tool_roots"]);
        let modern = gateway.modern().offering(json!({ "sampling": {} })).await;
        assert_eq!(modern.tool_names().await, ["s__tool_sampling"]);
    }
}

#[tokio::test]
async fn a_child_that_changes_its_own_list_changes_it_for_its_clients() {
    let upstream = Upstream::legacy().await;
    let changed = Arc::new(AtomicBool::new(false));
    let has_changed = Arc::clone(&changed);
    upstream.when_asked("tools/list", move |asked| {
        // After the main instance and the child that received all capabilities.
        let is_third = asked.header("mcp-session-id") == Some("child-3");
        let is_new = is_third && has_changed.load(Ordering::SeqCst);
        let name = if is_new { "new" } else { "echo" };
        vec![Step::Result(json!({ "tools": [tool(name)] }))]
    });
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let able = gateway.legacy().await.offering(json!({ "roots": {} })).await;
    assert_eq!(able.tool_names().await, ["s__echo"]);
    assert!(!able.call("s__echo", json!({})).await.is_error());
    changed.store(true, Ordering::SeqCst);
    upstream.announce().await;
    until_async(async || able.tool_names().await == ["s__new"]).await;
    assert_eq!(gateway.legacy().await.tool_names().await, ["s__echo"]);
}

#[tokio::test]
async fn whether_lists_depend_on_capabilities_is_remembered() {
    let upstream = Upstream::legacy().await;
    let builder = || Gateway::with("s", upstream.stdio()).gateway("state_dir = \"state\"");
    let gateway = builder().start().await;
    gateway.legacy().await.offering(json!({ "roots": {} })).await.tool_names().await;
    let folder = gateway.stop().await;
    let starts = upstream.starts();
    let gateway = builder().in_folder(folder).start().await;
    gateway.legacy().await.offering(json!({ "sampling": {} })).await.tool_names().await;
    gateway.wait_for(|status| status["servers"][0]["state"] == "ready").await;
    assert_eq!(upstream.starts(), starts + 1, "the main instance alone");
}

#[tokio::test]
async fn a_server_that_capabilities_are_hidden_from_has_one_instance_for_all_clients() {
    for kind in every_kind().await {
        let gateway = Gateway::with("s", kind.lines.clone() + HIDDEN).start().await;
        list_and_call_with_all_sets(&gateway, kind.name).await;
        assert_eq!(gateway.server("s").await["instance_count"], 0, "{}", kind.name);
        assert!(kind.upstream.starts() <= 1, "{}", kind.name);
        assert_told_nothing(&kind);
    }
}

#[tokio::test]
async fn isolated_clients_have_instances_of_their_own_without_declared_capabilities() {
    for kind in every_kind().await {
        let lines = kind.lines.clone() + HIDDEN + "isolation = \"client\"\n";
        let gateway = Gateway::with("s", lines).start().await;
        list_and_call_with_all_sets(&gateway, kind.name).await;
        // A session for each Legacy client, and one principal for all Modern ones.
        let own = if kind.name.starts_with("legacy") { SETS.len() + 1 } else { 0 };
        assert_eq!(gateway.server("s").await["instance_count"], own, "{}", kind.name);
        assert_told_nothing(&kind);
    }
}

const HIDDEN: &str = "client_capabilities = \"hide\"\n";

async fn list_and_call_with_all_sets(gateway: &Gateway, kind: &str) {
    for text in SETS {
        for (era, client) in gateway.both().await {
            let client = client.offering(set(text)).await;
            assert_eq!(client.tool_names().await.len(), 4, "{kind} {era} {text}");
            assert!(!client.call("s__echo", json!({})).await.is_error(), "{kind} {era} {text}");
        }
    }
}

/// Checks that no request to a server contains a client capability.
fn assert_told_nothing(kind: &Kind) {
    for received in kind.upstream.received() {
        let told = match &*received.method {
            "initialize" => &received.params["capabilities"],
            _ => received.meta("io.modelcontextprotocol/clientCapabilities"),
        };
        assert!(told.is_null() || *told == json!({}), "{}: {}", kind.name, received.text);
    }
}

#[tokio::test]
async fn a_reload_that_hides_capabilities_ends_the_instances_for_them() {
    let upstream = Upstream::legacy().await;
    upstream.offers_everything().resources(&["test://a"]);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await.offering(json!({ "roots": {} })).await;
    assert!(client.subscribes("mcp://s/test://a").await);
    gateway.wait_for(|status| status["servers"][0]["instance_count"] == 1).await;
    gateway.reload(Gateway::with("s", upstream.stdio() + HIDDEN)).await;
    gateway.wait_for(|status| status["servers"][0]["instance_count"] == 0).await;
}

#[tokio::test]
async fn a_server_of_both_eras_that_capabilities_are_hidden_from_is_spoken_to_in_one() {
    let [modern, legacy] = Upstream::both().await;
    modern.speaks_legacy_as(&legacy);
    for (transport, lines) in modern.ways() {
        let gateway = Gateway::with("s", lines + HIDDEN).start().await;
        for (era, client) in gateway.both().await {
            let client = client.offering(json!({ "roots": {} })).await;
            assert_eq!(client.tool_names().await.len(), 4, "{transport} {era}");
            assert!(!client.call("s__echo", json!({})).await.is_error(), "{transport} {era}");
        }
        assert!(legacy.all("initialize").is_empty(), "{transport}");
    }
}

#[tokio::test]
async fn the_status_says_how_many_instances_there_are_and_why() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio())
        .server("own", upstream.stdio() + "isolation = \"client\"\n")
        .toml(&client_table("ci", "key", ""))
        .start()
        .await;
    let status = gateway.server("s").await;
    let unknown = json!({ "verdict": "unknown", "since": null });
    assert_eq!(status["lists_by_capabilities"], unknown, "{status}");
    let client = gateway.modern().key("key").offering(set(SETS[0])).await;
    client.tool_names().await;
    for tool in ["s__echo", "own__echo"] {
        assert!(!client.call(tool, json!({})).await.is_error());
    }
    let status = gateway.wait_for(|status| of(status, "s")["instance_count"] == 1).await;
    let found = &of(&status, "s")["lists_by_capabilities"];
    assert!(found["verdict"] == "no" && found["since"].is_string(), "{found}");
    for (server, why) in [("s", "client capabilities: roots"), ("own", "client ci's own")] {
        let all = of(&status, server)["instances"].as_array().unwrap();
        let reasons: Vec<_> = all.iter().map(|one| one["reason"].as_str().unwrap()).collect();
        assert!(reasons[0] == "main" && reasons.contains(&why), "{reasons:?}");
        assert!(all.iter().all(|one| one["era"] == "legacy"), "{all:?}");
    }
}

/// Initializes a Legacy client, or lets a Modern one list, and makes a call.
async fn connect_and_call(host: &mut Host, era: &str, capabilities: Value) {
    let call = json!({ "name": "s__echo", "arguments": {} });
    let answer = if era == "Legacy" {
        let opening = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "clientInfo": { "name": "host", "version": "1" },
        });
        host.request("initialize", opening).await;
        host.notify("notifications/initialized", json!({})).await;
        host.request("tools/list", json!({})).await;
        host.request("tools/call", call).await
    } else {
        let meta = json!({ "io.modelcontextprotocol/clientCapabilities": capabilities });
        host.modern("tools/list", json!({ "_meta": meta })).await;
        let call = json!({ "name": call["name"], "arguments": {}, "_meta": meta });
        host.modern("tools/call", call).await
    };
    assert_eq!(answer["result"]["isError"], Value::Null, "{era} {answer}");
}

#[tokio::test]
async fn the_only_clients_capabilities_are_declared_to_the_first_child_and_its_calls_need_no_other()
{
    for era in ["Legacy", "Modern"] {
        let upstream = Upstream::legacy().await;
        let gateway = Gateway::with("s", upstream.stdio()).gateway("list_wait = \"15s\"");
        let gateway = gateway.for_a_host().start_at_once().await;
        let mut host = Host::of(&gateway, Way::Here);
        connect_and_call(&mut host, era, json!({ "roots": {} })).await;
        assert_eq!(told(&upstream), [json!({ "roots": {} })], "{era}");
        assert_eq!(upstream.starts(), 1, "{era}");
        let status = gateway.server("s").await;
        assert_eq!(status["instances"][0]["capabilities"], json!({ "roots": {} }), "{era}");
    }
}

#[tokio::test]
async fn children_start_without_the_only_client_if_it_takes_too_long() {
    for era in ["Legacy", "Modern"] {
        let upstream = Upstream::legacy().await;
        let gateway = Gateway::with("s", upstream.stdio()).for_a_host().start().await;
        assert_eq!(told(&upstream), [json!({})], "{era}");
        let mut host = Host::of(&gateway, Way::Here);
        connect_and_call(&mut host, era, json!({ "roots": {} })).await;
        assert_eq!(told(&upstream).pop(), Some(json!({ "roots": {} })), "{era}");
    }
}

#[tokio::test]
async fn lists_that_were_kept_start_no_child_for_the_only_client_but_the_first() {
    let upstream = Upstream::legacy().await;
    let builder = || Gateway::with("s", upstream.stdio()).gateway("state_dir = \"state\"");
    let gateway = builder().start().await;
    let gateway = builder().in_folder(gateway.stop().await).for_a_host().start_at_once().await;
    let mut host = Host::of(&gateway, Way::Here);
    connect_and_call(&mut host, "Legacy", json!({ "roots": {} })).await;
    assert_eq!(told(&upstream), [json!({}), json!({ "roots": {} })]);
}

#[tokio::test]
async fn the_only_clients_capabilities_stay_hidden_where_the_configuration_says_so() {
    let isolated = HIDDEN.to_owned() + "isolation = \"client\"\n";
    for more in [HIDDEN, &isolated, "max_instances = 0\n"] {
        let upstream = Upstream::legacy().await;
        let gateway = Gateway::with("s", upstream.stdio() + more).gateway("list_wait = \"15s\"");
        let gateway = gateway.for_a_host().start_at_once().await;
        let mut host = Host::of(&gateway, Way::Here);
        connect_and_call(&mut host, "Legacy", json!({ "roots": {} })).await;
        assert!(told(&upstream).iter().all(|told| *told == json!({})), "{more}");
    }
}
