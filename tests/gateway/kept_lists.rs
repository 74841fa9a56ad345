//! Lists that are kept from one run of the gateway to the next.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::gateway::{Builder, kept_files};
use crate::support::upstream::{Era, tool};
use crate::support::{Client, Gateway, Step, Upstream, until_async};

/// Configures a gateway with one server that keeps lists in its folder.
fn keeping(lines: &str) -> Builder {
    Gateway::with("s", lines).gateway("state_dir = \"state\"")
}

/// Runs a gateway that lists as this client and stops.
async fn run(builder: Builder, capabilities: Value) -> TempDir {
    let gateway = builder.start().await;
    let client = gateway.legacy().await.offering(capabilities).await;
    client.tool_names().await;
    gateway.stop().await
}

/// Makes the server hold its answer to `tools/list`, which then contains this tool.
fn hold_list(upstream: &Upstream, name: &'static str) {
    let list = json!({ "resultType": "complete", "tools": [tool(name)] });
    upstream
        .when_asked("tools/list", move |_| vec![Step::Hold, Step::Result(list.clone())])
        .does(name, |_| vec![Step::Result(json!({ "content": [] }))]);
}

/// Waits until the client has this list.
async fn listed(client: &Client, names: &[&str]) {
    until_async(async || client.tool_names().await == names).await;
}

#[tokio::test]
async fn the_next_run_serves_kept_lists_and_tells_when_the_server_has_others() {
    for (era, way) in [(Era::Modern, 0), (Era::Modern, 1), (Era::Legacy, 0), (Era::Legacy, 1)] {
        let upstream = Upstream::start(era).await;
        let (way, lines) = upstream.ways()[way].clone();
        upstream.set_tools([tool("old").to_string()]);
        let able = json!({ "roots": {} });
        let folder = run(keeping(&lines), able.clone()).await;
        hold_list(&upstream, "new");
        let gateway = keeping(&lines).in_folder(folder).start_at_once().await;
        let plain = gateway.legacy().await;
        let able = gateway.legacy().await.offering(able).await;
        let unseen = gateway.legacy().await.offering(json!({ "sampling": {} })).await;
        let newer = gateway.modern();
        let mut stream = plain.listen().await;
        for client in [&plain, &able, &unseen, &newer] {
            let names = timeout(Duration::from_secs(2), client.tool_names());
            assert_eq!(names.await.unwrap(), ["s__old"], "{era:?} {way}");
        }
        assert_ne!(gateway.server("s").await["state"], "ready", "{era:?} {way}");
        upstream.release(100);
        let told = stream.message().await.unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed", "{era:?} {way}");
        for client in [&plain, &able, &unseen, &newer] {
            listed(client, &["s__new"]).await;
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn an_introduction_has_kept_instructions_before_the_server_is_ready() {
    let upstream = Upstream::legacy().await;
    upstream.instructs("ask nicely").set_tools([tool("same").to_string()]);
    let folder = run(keeping(&upstream.stdio()), json!({})).await;
    hold_list(&upstream, "same");
    let gateway = keeping(&upstream.stdio()).in_folder(folder).start_at_once().await;
    let opened = gateway.plain().initialize("2025-11-25").await.said().await;
    let discovered = gateway.modern().request("server/discover", json!({})).await;
    for said in [opened, discovered] {
        let words = said.result()["instructions"].as_str().unwrap_or_default();
        assert!(words.contains("ask nicely"), "{said:?}");
    }
    assert_ne!(gateway.server("s").await["state"], "ready");
}

#[tokio::test]
async fn a_call_of_a_kept_tool_waits_for_its_server() {
    let upstream = Upstream::legacy().await;
    upstream.set_tools([tool("same").to_string()]);
    let folder = run(keeping(&upstream.stdio()), json!({})).await;
    hold_list(&upstream, "same");
    let gateway = keeping(&upstream.stdio()).in_folder(folder).start_at_once().await;
    let client = gateway.legacy().await.offering(json!({ "sampling": {} })).await;
    let call = client.call("s__same", json!({}));
    tokio::pin!(call);
    assert!(timeout(Duration::from_millis(300), &mut call).await.is_err());
    upstream.release(100);
    assert!(!call.await.is_error());
}

#[tokio::test]
async fn the_era_of_a_server_is_not_probed_by_the_next_run() {
    for way in [0, 1] {
        let upstream = Upstream::legacy().await;
        let (way, lines) = upstream.ways()[way].clone();
        let probes = || upstream.all("server/discover").len();
        let before = probes();
        let folder = run(keeping(&lines), json!({})).await;
        assert_eq!(probes(), before + 1, "{way}");
        let folder = run(keeping(&lines).in_folder(folder), json!({})).await;
        assert_eq!(probes(), before + 1, "{way}");
        // Another version of the server may support other eras.
        upstream.calls_itself("updated");
        let folder = run(keeping(&lines).in_folder(folder), json!({})).await;
        assert_eq!(probes(), before + 1, "{way}");
        run(keeping(&lines).in_folder(folder), json!({})).await;
        assert_eq!(probes(), before + 2, "{way}");
    }
}

#[tokio::test]
async fn a_remembered_era_that_is_wrong_is_corrected() {
    for (before, after) in [(Era::Legacy, Era::Modern), (Era::Modern, Era::Legacy)] {
        let old = Upstream::start(before).await;
        old.set_tools([tool("one").to_string()]);
        let (address, lines) = (old.http_address(), old.http());
        let folder = run(keeping(&lines), json!({})).await;
        drop(old);
        let new = Upstream::at(after, address).await;
        new.set_tools(Vec::<String>::new());
        new.does("one", |_| vec![Step::Result(json!({ "content": [] }))]);
        let gateway = keeping(&lines).in_folder(folder).start_at_once().await;
        let able = gateway.legacy().await.offering(json!({ "sampling": {} })).await;
        assert!(!able.call("s__one", json!({})).await.is_error(), "{before:?} {after:?}");
        gateway.ready("s").await;
        let era = format!("{after:?}").to_lowercase();
        assert_eq!(gateway.server("s").await["era"], json!(era));
        for (_, client) in gateway.both().await {
            listed(&client, &["s__one"]).await;
            assert!(!client.call("s__one", json!({})).await.is_error(), "{before:?} {after:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_to_speak_legacy_is_remembered() {
    let upstream = Upstream::modern().await;
    upstream.set_tools([tool("one").to_string()]);
    upstream.does("one", |_| vec![Step::Result(json!({ "content": [] }))]);
    let folder = run(keeping(&upstream.http()), json!({})).await;
    let tried = upstream.all("initialize").len();
    assert!(tried > 0);
    let gateway = keeping(&upstream.http()).in_folder(folder).start().await;
    let client = gateway.legacy().await;
    assert_eq!(client.tool_names().await, ["s__one"]);
    assert!(!client.call("s__one", json!({})).await.is_error());
    assert_eq!(upstream.all("initialize").len(), tried);
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_does_not_keep_the_gateway_from_starting() {
    let upstream = Upstream::legacy().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("state"), "a file").unwrap();
    let gateway = keeping(&upstream.http()).in_folder(folder).start().await;
    assert!(!gateway.legacy().await.tool_names().await.is_empty());
}

#[tokio::test]
async fn nothing_is_kept_by_default() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    gateway.legacy().await.tool_names().await;
    let folder = gateway.stop().await;
    assert_eq!(kept_files(folder.path()), ["gateway.toml"]);
}
