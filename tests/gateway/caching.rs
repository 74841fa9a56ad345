//! Lifetimes of cached responses, for clients and in the gateway.

use serde_json::json;

use crate::support::client::Client;
use crate::support::upstream::tool;
use crate::support::{Gateway, Said, Step, Upstream, client_table, until, until_async};

const RESOURCES: &str = "notifications/resources/list_changed";

/// Defines a read with this lifetime, and counts its requests.
fn counts_reads(upstream: &Upstream, ttl: u64, scope: &'static str) {
    upstream.offers_everything().when_asked("resources/read", move |asked| {
        let contents = json!([{ "uri": asked.params["uri"], "text": "x" }]);
        vec![Step::Result(json!({ "contents": contents, "ttlMs": ttl, "cacheScope": scope }))]
    });
}

async fn read(client: &Client, uri: &str) -> Said {
    client.request("resources/read", json!({ "uri": uri })).await
}

fn reads(upstream: &Upstream) -> usize {
    upstream.all("resources/read").len()
}

#[tokio::test]
async fn every_list_has_the_strictest_freshness_of_its_parts() {
    let [short, long] = [Upstream::modern().await, Upstream::modern().await];
    let silent = Upstream::legacy().await;
    for upstream in [&short, &long, &silent] {
        upstream.offers_everything();
    }
    silent.can(json!({ "tools": {}, "prompts": {}, "resources": {} }));
    *short.inner.list_ttl.lock().unwrap() = Some(7_000);
    *long.inner.list_ttl.lock().unwrap() = Some(3_600_000);
    for (servers, ttl) in [
        (vec![("a", &short), ("b", &long)], 7_000),
        (vec![("a", &long), ("b", &silent)], 60_000),
        (vec![("a", &long)], 600_000),
    ] {
        let mut builder = Gateway::alone().gateway("list_ttl = \"10m\"");
        for (name, upstream) in servers {
            builder = builder.server(name, upstream.http());
        }
        let gateway = builder.start().await;
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            let said = gateway.modern().request(method, json!({})).await;
            assert_eq!(said.result()["ttlMs"], ttl, "{method}");
            assert_eq!(said.result()["cacheScope"], "public", "{method}");
            let legacy = gateway.legacy().await.request(method, json!({})).await;
            assert!(legacy.result().get("ttlMs").is_none(), "{method}");
        }
    }
}

#[tokio::test]
async fn cacheable_results_are_requested_once() {
    let upstream = Upstream::modern().await;
    counts_reads(&upstream, 60_000, "public");
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let before = reads(&upstream);
        for (era, client) in gateway.both().await {
            for _ in 0..3 {
                let said = read(&client, "mcp://s/b://2").await;
                assert_eq!(said.result()["contents"][0]["uri"], "mcp://s/b://2", "{way} {era}");
                let ttl = said.result()["ttlMs"].as_u64().unwrap();
                assert!((1..=60_000).contains(&ttl), "{way} {era} {ttl}");
                assert_eq!(said.result()["cacheScope"], "public");
            }
        }
        assert_eq!(reads(&upstream), before + 1, "{way}");
        read(&gateway.modern(), "mcp://s/b://3").await;
        let client = gateway.modern();
        let uri = json!({ "uri": "mcp://s/b://2" });
        client.ask("resources/read", uri).meta("com.example/x", json!(1)).send().await;
        until(|| reads(&upstream) == before + 3).await;
    }
}

#[tokio::test]
async fn uncacheable_results_are_requested_each_time() {
    let [modern, legacy] = Upstream::both().await;
    for (upstream, ttl, more) in [
        (&modern, 0, ""),
        (&legacy, 60_000, ""),
        (&modern, 60_000, "read_cache = \"off\""),
        (&modern, 60_000, "forward_headers = [\"x-tenant\"]"),
        (&modern, 60_000, "call_headers = { x-tenant = \"${header:x-tenant}\" }"),
    ] {
        counts_reads(upstream, ttl, "public");
        let gateway = Gateway::with("s", upstream.http() + more).start().await;
        let before = reads(upstream);
        for _ in 0..2 {
            read(&gateway.modern(), "mcp://s/b://2").await;
        }
        assert_eq!(reads(upstream), before + 2, "{ttl} {more}");
    }
}

#[tokio::test]
async fn a_result_too_large_for_the_cache_is_asked_for_each_time() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything().when_asked("resources/read", |asked| {
        let contents = json!([{ "uri": asked.params["uri"], "text": "x".repeat(10_000) }]);
        vec![Step::Result(json!({ "contents": contents, "ttlMs": 60_000, "cacheScope": "public" }))]
    });
    for (size, asked) in [("8KiB", 2), ("1MiB", 1)] {
        let lines = upstream.http() + &format!("read_cache = {size:?}");
        let gateway = Gateway::with("s", lines).start().await;
        let before = reads(&upstream);
        for _ in 0..2 {
            read(&gateway.modern(), "mcp://s/b://2").await.result();
        }
        assert_eq!(reads(&upstream), before + asked, "{size}");
    }
}

#[tokio::test]
async fn private_results_are_kept_for_their_principal_alone() {
    for (scope, asked) in [("private", 2), ("public", 1)] {
        let upstream = Upstream::modern().await;
        counts_reads(&upstream, 60_000, scope);
        let mut builder = Gateway::with("s", upstream.http());
        for name in ["one", "two"] {
            builder = builder.toml(&client_table(name, name, ""));
        }
        let gateway = builder.start().await;
        for name in ["one", "two", "one", "two"] {
            read(&gateway.modern().key(name), "mcp://s/b://2").await.result();
        }
        assert_eq!(reads(&upstream), asked, "{scope}");
    }
}

#[tokio::test]
async fn a_reported_change_ends_kept_results() {
    let upstream = Upstream::modern().await;
    counts_reads(&upstream, 3_600_000, "public");
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern();
        read(&client, "mcp://s/b://2").await;
        let before = reads(&upstream);
        upstream.tell(RESOURCES, json!({})).await;
        let asks_again = async {
            while reads(&upstream) == before {
                read(&client, "mcp://s/b://2").await;
            }
        };
        crate::support::within(asks_again).await;
        let again = reads(&upstream);
        read(&client, "mcp://s/b://2").await;
        assert_eq!(reads(&upstream), again, "{way}");
    }
}

#[tokio::test]
async fn lists_are_private_as_soon_as_they_depend_on_who_asks() {
    let upstream = Upstream::modern().await;
    upstream.when_asked("tools/list", |asked| {
        let told = asked.meta("io.modelcontextprotocol/clientCapabilities");
        let name = if told["elicitation"].is_object() { "asks" } else { "asks_nothing" };
        let result = json!({ "tools": [tool(name)], "ttlMs": 7000, "cacheScope": "public" });
        vec![Step::Result(result)]
    });
    let scope = async |client: &Client, method: &str| {
        client.request(method, json!({})).await.result()["cacheScope"].clone()
    };
    let gateway = Gateway::with("m", upstream.http()).start().await;
    // A list for clients with certain capabilities.
    let asks = gateway.modern().offering(json!({ "elicitation": {} })).await;
    assert_eq!(asks.tool_names().await, ["m__asks"]);
    for method in ["tools/list", "server/discover"] {
        assert_eq!(scope(&asks, method).await, "private", "{method}");
        assert_eq!(scope(&gateway.modern(), method).await, "public", "{method}");
    }
    // With authenticated clients.
    let key = "k";
    let gateway = Gateway::with("m", upstream.http());
    let gateway = gateway.toml(&client_table("a", key, "")).start().await;
    for method in ["tools/list", "server/discover"] {
        assert_eq!(scope(&gateway.modern().key(key), method).await, "private", "{method}");
    }
}

#[tokio::test]
async fn a_list_of_each_kind_is_fetched_again_when_it_is_no_longer_fresh() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    *upstream.inner.list_ttl.lock().unwrap() = Some(0);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    upstream.lists("prompts", [json!({ "name": "new" })]);
    let client = gateway.modern();
    until_async(async || {
        let said = client.request("prompts/list", json!({})).await;
        said.result()["prompts"][0]["name"] == "s__new"
    })
    .await;
}
