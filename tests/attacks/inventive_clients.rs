//! Clients that invent capabilities and queries, each of which requires lists and views of its own.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use trunkline::call::{Endpoint, Principal, ProfileName};
use trunkline::snapshot::ViewKey;

use crate::support::{Client, Gateway, Upstream};
use crate::{ATTACKER, BYSTANDER, context, two_clients};

/// Maximum number of one client's capability sets that servers receive.
const SETS: usize = 16;

/// Returns a client with capabilities that differ from others only in a number.
async fn inventive(gateway: &Gateway, number: usize) -> Client {
    let capabilities = json!({ "extensions": { INVENTED: { "n": number } } });
    gateway.modern().key(ATTACKER).offering(capabilities).await
}

/// The invented extension.
const INVENTED: &str = "com.example/x";

/// Returns the children besides the first that received a capability, by their process ids.
async fn children(gateway: &Gateway, capability: &str) -> HashSet<u64> {
    let status = gateway.server("s").await;
    let all = status["instances"].as_array().cloned().unwrap_or_default();
    let told = all.iter().filter(|instance| instance["capabilities"].get(capability).is_some());
    told.filter_map(|instance| instance["pid"].as_u64()).collect()
}

#[tokio::test]
async fn children_for_invented_capabilities_close_none_of_another_client() {
    let upstream = Upstream::legacy().await;
    let lines = upstream.stdio() + "max_instances = 4\n";
    let gateway = two_clients(Gateway::with("s", lines)).start().await;
    for capability in ["roots", "sampling"] {
        let bystander = gateway.modern().key(BYSTANDER).offering(json!({ capability: {} })).await;
        assert_eq!(bystander.call("s__echo", json!({})).await.text(), "{}");
    }
    let before = [children(&gateway, "roots").await, children(&gateway, "sampling").await];
    assert!(before.iter().all(|pids| pids.len() == 1), "{before:?}");
    for number in 0..40 {
        assert_eq!(inventive(&gateway, number).await.tools().await.len(), 4);
        assert!(children(&gateway, "extensions").await.len() <= 2);
    }
    let after = [children(&gateway, "roots").await, children(&gateway, "sampling").await];
    assert_eq!(before, after, "they still run");
    let invented = upstream.all("initialize");
    let invented =
        invented.iter().filter(|it| !it.params["capabilities"]["extensions"][INVENTED].is_null());
    assert!(invented.count() <= SETS);
}

#[tokio::test]
async fn a_server_is_asked_for_few_lists_with_invented_capabilities() {
    let upstream = Upstream::modern().await;
    let gateway = two_clients(Gateway::with("s", upstream.http())).start().await;
    let bystander = gateway.modern().key(BYSTANDER).offering(json!({ "roots": {} })).await;
    assert_eq!(bystander.tools().await.len(), 4);
    for number in 0..80 {
        assert_eq!(inventive(&gateway, number).await.tools().await.len(), 4);
    }
    assert_eq!(bystander.tools().await.len(), 4);
    let told = |capability: &str| {
        let key = "io.modelcontextprotocol/clientCapabilities";
        let all = upstream.all("tools/list");
        all.iter().filter(|list| list.meta(key).get(capability).is_some()).count()
    };
    assert_eq!((told("extensions"), told("roots")), (SETS, 1));
}

#[tokio::test]
async fn views_for_invented_queries_push_out_none_of_another_client() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).toml("[profiles.p]\nservers = [\"s\"]\n");
    let gateway = two_clients(gateway).start().await;
    let bystander = context(Principal::Client("bystander".into()), [127, 0, 0, 1].into());
    let snapshot = gateway.running.gateway.snapshots.load_full();
    let view = |profile: Option<&str>, query: Option<&str>| {
        let profile = profile.map(|name| ProfileName::new(name).unwrap());
        let endpoint = Endpoint { profile, narrowing: query.map(Arc::from) };
        snapshot.view(&ViewKey { endpoint, ..ViewKey::default() }, &bystander)
    };
    let [whole, narrowed] = [view(Some("p"), None), view(None, Some("tools=s__echo"))];
    for number in 0..300 {
        let attacker = gateway.modern().key(ATTACKER).at(&format!("/mcp?tools=a{number}"));
        assert_eq!(attacker.tools().await, Vec::<Value>::new());
    }
    assert!(Arc::ptr_eq(&snapshot, &gateway.running.gateway.snapshots.load_full()));
    assert!(Arc::ptr_eq(&whole, &view(Some("p"), None)));
    assert!(Arc::ptr_eq(&narrowed, &view(None, Some("tools=s__echo"))));
}

#[tokio::test]
async fn streams_of_one_client_have_few_queries() {
    let upstream = Upstream::modern().await;
    let gateway = two_clients(Gateway::with("s", upstream.http())).start().await;
    let at =
        |key: &str, number: usize| gateway.modern().key(key).at(&format!("/mcp?tools=a{number}"));
    let mut held = Vec::new();
    for number in 0..16 {
        held.push(at(ATTACKER, number).listen().await);
    }
    held.push(at(ATTACKER, 0).listen().await);
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let refused = at(ATTACKER, 16).request("subscriptions/listen", filter.clone()).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.error()["message"].as_str().unwrap().contains("16"), "{refused:?}");
    held.push(gateway.modern().key(ATTACKER).listen().await);
    held.push(at(BYSTANDER, 16).listen().await);
    // A cancelled query makes room for another.
    held.remove(1);
    let reopened = async {
        while at(ATTACKER, 16).ask("subscriptions/listen", filter.clone()).send().await.status()
            != 200
        {}
    };
    crate::support::within(reopened).await;
}
