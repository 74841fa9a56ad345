//! Results that are too large for their clients, and can be read as resources.

use serde_json::{Value, json};

use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Said, Step, Upstream, client_table};

const SETTINGS: &str =
    "result = { max_size = \"2KiB\", when_larger = \"resource\", strip = [\"control\"] }\n";

fn rows(count: usize) -> Value {
    let rows: Vec<_> = (0..count).map(|row| json!({ "row": row, "name": "x\u{7}" })).collect();
    json!({ "rows": rows })
}

async fn upstreams(count: usize) -> [Upstream; 2] {
    let both = Upstream::both().await;
    for upstream in &both {
        upstream.tool(&crate::support::upstream::tool("export"), move |_| {
            let result = json!({ "content": [], "structuredContent": rows(count) });
            vec![Step::Result(result)]
        });
    }
    both
}

fn builder([modern, legacy]: &[Upstream; 2]) -> Builder {
    Gateway::with("m", modern.http() + SETTINGS).server("l", legacy.stdio() + SETTINGS)
}

/// Returns the address in the sentence about the omitted part.
fn address(said: &Said) -> String {
    let content = said.result()["content"].as_array().unwrap().clone();
    let told = content.iter().filter_map(|item| item["text"].as_str()).collect::<String>();
    let from = told.find("trunkline://results/").unwrap_or_else(|| panic!("{told}"));
    told[from..].split([' ', ',']).next().unwrap().to_owned()
}

async fn read(client: &Client, uri: &str) -> Said {
    client.request("resources/read", json!({ "uri": uri })).await
}

fn text(said: &Said) -> String {
    said.result()["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{said:?}")).to_owned()
}

#[tokio::test]
async fn the_whole_of_a_larger_result_is_read_as_a_resource_also_in_ranges() {
    let upstreams = upstreams(500).await;
    let gateway = builder(&upstreams).start().await;
    let whole = rows(500).to_string().replace("\\u0007", "");
    for (era, client) in gateway.both().await {
        for name in ["m__export", "l__export"] {
            let said = client.call(name, json!({})).await;
            assert!(!said.is_error() && said.body.len() < 4096, "{era} {name} {said:?}");
            let uri = address(&said);
            let read_whole = read(&client, &uri).await;
            assert_eq!(text(&read_whole), whole, "{era} {name}");
            let content = &read_whole.result()["contents"][0];
            assert_eq!(content["mimeType"], "application/json", "{era} {name}");
            let mut parts = String::new();
            for first in (0..whole.len()).step_by(4000) {
                let part = read(&client, &format!("{uri}?range={first}-{}", first + 3999)).await;
                parts.push_str(&text(&part));
            }
            assert_eq!(parts, whole, "{era} {name}");
            for wrong in
                [format!("{uri}?range={}-", whole.len()), format!("{uri}x"), format!("{uri}?x")]
            {
                assert!(read(&client, &wrong).await.code() < 0, "{era} {wrong}");
            }
        }
        let said = match era {
            "Modern" => client.request("server/discover", json!({})).await,
            _ => gateway.plain().initialize("2025-11-25").await.said().await,
        };
        assert!(said.result()["capabilities"]["resources"].is_object(), "{era} {said:?}");
    }
}

#[tokio::test]
async fn only_the_principal_of_the_call_reads_the_kept_result() {
    let upstreams = upstreams(500).await;
    let gateway = builder(&upstreams)
        .toml(&client_table("ann", "key of ann", ""))
        .toml(&client_table("bob", "key of bob", ""))
        .start()
        .await;
    let [ann, bob] = ["key of ann", "key of bob"].map(|key| gateway.modern().key(key));
    let uri = address(&ann.call("m__export", json!({})).await);
    assert!(text(&read(&ann, &uri).await).contains("rows"));
    let unknown = read(&ann, "trunkline://results/0").await;
    let others = read(&bob, &uri).await;
    assert_eq!((others.code(), others.status), (unknown.code(), unknown.status));
    // It is not available where the tool is hidden either.
    let elsewhere = ann.ask("resources/read", json!({ "uri": uri })).at("/mcp?servers=l");
    assert_eq!(elsewhere.send().await.said().await.code(), unknown.code());
}

#[tokio::test]
async fn a_reload_keeps_results_until_their_tool_is_hidden() {
    let upstreams = upstreams(500).await;
    let gateway = builder(&upstreams).start().await;
    let client = gateway.modern();
    let uri = address(&client.call("m__export", json!({})).await);
    gateway.reload(builder(&upstreams).gateway("title = \"other\"")).await;
    assert!(text(&read(&client, &uri).await).contains("rows"));
    let hidden = Gateway::with("m", upstreams[0].http() + SETTINGS + "tools.deny = [\"export\"]\n");
    gateway.reload(hidden.server("l", upstreams[1].stdio() + SETTINGS)).await;
    assert!(read(&client, &uri).await.code() < 0);
}

#[tokio::test]
async fn so_many_bytes_of_results_are_kept_and_no_more() {
    let upstreams = upstreams(500).await;
    let gateway = builder(&upstreams).gateway("limits.kept_results = \"20KiB\"").start().await;
    let client = gateway.modern();
    let first = address(&client.call("m__export", json!({})).await);
    let second = address(&client.call("l__export", json!({})).await);
    assert!(read(&client, &first).await.code() < 0, "the oldest makes room");
    assert!(text(&read(&client, &second).await).contains("rows"));
    let small = builder(&upstreams).gateway("limits.kept_results = \"1KiB\"");
    gateway.reload(small).await;
    let said = client.call("m__export", json!({})).await;
    let told = said.result()["content"].to_string();
    assert!(told.contains("Ask for the rest") && !told.contains("trunkline://"), "{told}");
}

#[tokio::test]
async fn a_result_is_kept_for_so_long_and_no_longer() {
    let upstreams = upstreams(500).await;
    let gateway = builder(&upstreams).gateway("limits.kept_result_time = \"100ms\"").start().await;
    let client = gateway.modern();
    let uri = address(&client.call("m__export", json!({})).await);
    crate::support::within(async {
        while read(&client, &uri).await.body.contains("contents") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_kept_result_is_read_at_once_while_a_server_has_not_listed() {
    let upstreams = upstreams(500).await;
    let late = Upstream::modern().await;
    late.before_tools([Step::Hold]);
    let gateway = builder(&upstreams).server("late", late.http()).gateway("list_wait = \"1h\"");
    let gateway = gateway.start_at_once().await;
    gateway.ready("m").await;
    gateway.ready("l").await;
    for (era, client) in gateway.both().await {
        let uri = address(&client.call("m__export", json!({})).await);
        // Bounded by the client, far below the hour.
        let said = read(&client, &uri).await;
        assert!(text(&said).contains("\"row\""), "{era} {said:?}");
        let missing = read(&client, &format!("{uri}x")).await;
        assert!(missing.code() < 0, "{era} {missing:?}");
    }
    late.release(1);
}
