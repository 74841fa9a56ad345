//! URIs that look allowed and lead to another resource.

use serde_json::json;

use crate::support::upstream::offers::{resource, template};
use crate::support::{Client, Gateway, Upstream};

/// Prefixes of `secret/b` that climb out of `file:///pub/`.
const CLIMBS: [&str; 14] = [
    "../",
    "..\t/",
    ".\t./",
    ".\n./",
    ".\r./",
    "\u{7f}../",
    "..\\",
    "%2e%2e/",
    "%2E%2e/",
    ".%2e/",
    "..%2f",
    "..%5c",
    "x/%2E./../",
    "..;/",
];

/// A server with files in `pub` and `secret`.
async fn files(upstream: &Upstream) {
    upstream.offers_everything();
    upstream.lists("resources", [resource("file:///pub/a")]);
    upstream.lists("resourceTemplates", []);
}

/// Returns true if a client can read a resource.
async fn reads(client: &Client, uri: &str) -> bool {
    client.read_resource(uri).await.answer().get("result").is_some()
}

#[tokio::test]
async fn no_uri_climbs_out_of_the_pattern_that_shows_it() {
    for upstream in Upstream::both().await {
        files(&upstream).await;
        let profile = "[profiles.pub]\nresources = [\"mcp://ts/file:///pub/*\"]";
        let gateway = Gateway::with("ts", upstream.http()).toml(profile).start().await;
        for endpoint in ["/mcp/pub", "/mcp?resources=mcp://ts/file:///pub/*"] {
            for (era, client) in gateway.both_at(endpoint).await {
                for uri in ["mcp://ts/file:///pub/a", "mcp://ts/file:///pub/x..y/%2ez"] {
                    assert!(reads(&client, uri).await, "{era} {endpoint} {uri}");
                    assert!(client.subscribes(uri).await, "{era} {endpoint} {uri}");
                }
                let heard = upstream.received().len();
                for climb in CLIMBS {
                    let uri = format!("mcp://ts/file:///pub/{climb}secret/b");
                    assert!(!reads(&client, &uri).await, "{era} {endpoint} {uri:?}");
                    assert!(!client.subscribes(&uri).await, "{era} {endpoint} {uri:?}");
                }
                let asked = upstream.received().split_off(heard);
                let leaked = asked.iter().find(|it| it.text.contains("secret"));
                assert!(leaked.is_none(), "{era} {endpoint}: {leaked:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_uri_with_characters_that_parsers_drop_is_refused_without_a_profile_too() {
    for upstream in Upstream::both().await {
        files(&upstream).await;
        let listed = ["file:///pub/\ta", "file:///pub\\a", "file:///pub/b"].map(resource);
        upstream.lists("resources", listed);
        let gateway = Gateway::with("ts", upstream.http()).start().await;
        for (era, client) in gateway.both().await {
            let said = client.request("resources/list", json!({})).await;
            let all = said.result()["resources"].as_array().unwrap();
            assert_eq!(all.len(), 1, "{era} {all:?}");
            for uri in ["file:///pub/\ta", "file:///pub\\a", "file:///\u{7f}", "file:///a\u{0}"] {
                let uri = format!("mcp://ts/{uri}");
                assert!(!reads(&client, &uri).await, "{era} {uri:?}");
                assert!(!client.subscribes(&uri).await, "{era} {uri:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_uri_that_is_longer_than_any_listed_one_is_unknown() {
    for upstream in Upstream::both().await {
        files(&upstream).await;
        let gateway = Gateway::with("ts", upstream.http()).start().await;
        let of_length = |length: usize| format!("{:x<length$}", "mcp://ts/file:///");
        for client in [gateway.legacy().await, gateway.modern()] {
            for (length, is_known) in [(8192, true), (8193, false)] {
                let uri = of_length(length);
                assert_eq!(reads(&client, &uri).await, is_known, "{length}");
                assert_eq!(client.subscribes(&uri).await, is_known, "{length}");
            }
        }
    }
}

#[tokio::test]
async fn no_uri_leads_around_a_bound_variable() {
    for upstream in Upstream::both().await {
        files(&upstream).await;
        upstream.lists(
            "resourceTemplates",
            [template("file:///data/{tenant}/{+path}"), template("file:///{top}/{x}/{y}")],
        );
        let lines = upstream.http() + "resource_vars = { tenant = \"acme\" }\n";
        let gateway = Gateway::with("s", lines).start().await;
        for (era, client) in gateway.both().await {
            for path in ["x", "x/y..z"] {
                let uri = format!("mcp://s/file:///data/acme/{path}");
                assert!(reads(&client, &uri).await, "{era} {uri}");
                assert!(client.subscribes(&uri).await, "{era} {uri}");
            }
            let heard = upstream.received().len();
            let climbs = CLIMBS.map(|climb| format!("file:///data/acme/{climb}other/x"));
            let around = [
                "file:///data/other/x",
                "file:///data/acme//data/other/x",
                "file:///data/acme/%2fdata/other/x",
                "file:///x/../data/other/x",
                "FILE:///data/other/x",
                "file://localhost/data/other/x",
            ];
            for native in climbs.iter().map(String::as_str).chain(around) {
                let uri = format!("mcp://s/{native}");
                assert!(!reads(&client, &uri).await, "{era} {uri:?}");
                assert!(!client.subscribes(&uri).await, "{era} {uri:?}");
            }
            let asked = upstream.received().split_off(heard);
            let leaked = asked.iter().find(|it| it.text.contains("other"));
            assert!(leaked.is_none(), "{era}: {leaked:?}");
        }
    }
}

#[tokio::test]
async fn no_uri_climbs_out_of_a_template_that_a_profile_shows() {
    for upstream in Upstream::both().await {
        files(&upstream).await;
        upstream.lists("resourceTemplates", [template("file:///pub/{+name}")]);
        let profile = "[profiles.pub]\nresources = [\"mcp://ts/file:///pub/{+name}\"]";
        let gateway = Gateway::with("ts", upstream.http()).toml(profile).start().await;
        for (era, client) in gateway.both_at("/mcp/pub").await {
            assert!(reads(&client, "mcp://ts/file:///pub/x/y").await, "{era}");
            assert!(client.subscribes("mcp://ts/file:///pub/x/y").await, "{era}");
            let heard = upstream.received().len();
            for climb in CLIMBS.iter().copied().chain(["/", "%2f"]) {
                let uri = format!("mcp://ts/file:///pub/{climb}secret/b");
                assert!(!reads(&client, &uri).await, "{era} {uri:?}");
                assert!(!client.subscribes(&uri).await, "{era} {uri:?}");
            }
            let asked = upstream.received().split_off(heard);
            let leaked = asked.iter().find(|it| it.text.contains("secret"));
            assert!(leaked.is_none(), "{era}: {leaked:?}");
        }
    }
}
