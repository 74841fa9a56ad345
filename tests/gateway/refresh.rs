//! `POST /servers/NAME/refresh` on the admin listener.

use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::api::{Page, PlainApi};
use crate::support::upstream::tool;
use crate::support::{Client, Gateway, Said, Step, Upstream, client_table, every_kind, poll_for};

async fn post(gateway: &Gateway, path: &str) -> Said {
    let client = gateway.operator();
    client.http("POST", path).send().await.said().await
}

async fn refresh(gateway: &Gateway, query: &str) -> Value {
    let said = post(gateway, &format!("/servers/s/refresh{query}")).await;
    assert_eq!(said.status, 200, "{said:?}");
    said.json()
}

#[tokio::test]
async fn a_refresh_lists_a_server_anew_and_notifies_clients_of_changes() {
    for kind in every_kind().await {
        let gateway = Gateway::with("s", &kind.lines).start().await;
        let client = gateway.modern();
        let mut stream = client.listen().await;
        let unchanged = refresh(&gateway, "").await;
        let expected = json!({ "server": "s", "client": null, "changed": false, "lists": {} });
        assert_eq!(unchanged, expected, "{}", kind.name);
        // It does not announce the change itself.
        kind.upstream.set_tools([tool("echo").to_string(), tool("new").to_string()]);
        let report = refresh(&gateway, "").await;
        assert_eq!(
            (&report["changed"], &report["lists"]["tools"]["added"]),
            (&json!(true), &json!(["new"]))
        );
        assert!(!report["lists"]["tools"]["removed"].as_array().unwrap().is_empty());
        assert_eq!(client.tool_names().await, ["s__echo", "s__new"], "{}: at once", kind.name);
        let told = stream.message().await.unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed", "{}", kind.name);
    }
}

#[tokio::test]
async fn a_refresh_of_a_document_that_cannot_be_read_is_a_failure() {
    let api = PlainApi::with(&json!({ "openapi": "3.1.0", "paths": {} })).await;
    let gateway = Gateway::with("s", api.openapi()).start().await;
    api.removes("/openapi.json");
    api.sets("/openapi.json", Page::new(500, "text/plain", "down"));
    // A recently read document is not read again.
    let said = poll_for(async || {
        Some(post(&gateway, "/servers/s/refresh").await).filter(|said| said.status != 200)
    });
    let said = said.await;
    assert_eq!(said.status, 503, "{said:?}");
    assert_eq!(said.json()["error"], "the server could not be listed");
}

#[tokio::test]
async fn a_refresh_for_one_client_lists_its_own_view() {
    let upstream = Upstream::legacy().await;
    let version = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&version);
    // A server with lists that depend on its client's capabilities.
    upstream.when_asked("tools/list", move |asked| {
        let is_main = asked.header("mcp-session-id") == Some("child-1");
        let name = if is_main { "base" } else { "own" };
        let name = format!("{name}{}", current.load(Ordering::SeqCst));
        vec![Step::Result(json!({ "tools": [tool(&name)] }))]
    });
    let gateway = Gateway::with("s", upstream.stdio())
        .toml(&client_table("ann", "ann-key", ""))
        .toml(&client_table("bob", "bob-key", ""))
        .start()
        .await;
    let ann = Client::sessionless(gateway.running.address, "2025-11-25").key("ann-key");
    let ann = ann.offering(json!({ "roots": {} })).await;
    let bob = gateway.modern().key("bob-key");
    assert_eq!(ann.tool_names().await, ["s__own0"]);
    assert_eq!(bob.tool_names().await, ["s__base0"]);
    version.store(1, Ordering::SeqCst);
    let report = refresh(&gateway, "?client=ann").await;
    let changes = json!({ "added": ["own1"], "removed": ["own0"], "changed": [] });
    assert_eq!(
        (&report["client"], &report["lists"]),
        (&json!("ann"), &json!({ "tools": changes }))
    );
    assert_eq!(ann.tool_names().await, ["s__own1"]);
    version.store(2, Ordering::SeqCst);
    let report = refresh(&gateway, "").await;
    assert_eq!(report["lists"]["tools"]["added"], json!(["base2", "own2"]));
    assert_eq!(
        (ann.tool_names().await, bob.tool_names().await),
        (vec!["s__own2".into()], vec!["s__base2".into()])
    );
    // A client without sessions sees the list for all.
    assert_eq!(refresh(&gateway, "?client=bob").await["changed"], false);
}

#[tokio::test]
async fn a_refresh_names_a_server_and_a_client_that_exist() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http())
        .server("d", "command = \"no-such-program-anywhere\"\nmax_restarts = 0")
        .toml(&client_table("ann", "ann-key", ""))
        .start()
        .await;
    gateway.wait_for(|status| crate::support::gateway::of(status, "d")["state"] == "failed").await;
    for (path, status, error) in [
        ("/servers/nope/refresh", 404, "unknown server"),
        ("/servers/s/refresh?client=nope", 404, "unknown client"),
        ("/servers/s/refresh?clients=ann", 400, "expected at most one parameter, `client`"),
        (
            "/servers/d/refresh",
            503,
            "the server could not be started: `last_error` in /status has the reason",
        ),
    ] {
        let said = post(&gateway, path).await;
        assert_eq!((said.status, &said.json()["error"]), (status, &json!(error)), "{path}");
    }
    let read = gateway.admin("/servers/s/refresh").await;
    assert_eq!((read.status, read.header("allow")), (405, Some("POST")));
    let admin = gateway.operator();
    let page = admin.http("POST", "/servers/s/refresh").header("origin", "http://localhost:1");
    assert_eq!(page.send().await.status(), 403, "no web page may");
}
