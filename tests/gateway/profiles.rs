//! Profiles and narrowing: the elements that a URL shows, and that no other can be used there.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::Builder;
use crate::support::{Gateway, Said, Upstream, client_table};

/// Two servers that offer all features, `a` and `b`, of different eras.
struct Two {
    a: Upstream,
    b: Upstream,
}

impl Two {
    async fn new() -> Self {
        let [a, b] = Upstream::both().await;
        a.offers_everything();
        b.offers_everything();
        Self { a, b }
    }

    fn with(&self, toml: &str) -> Builder {
        Gateway::with("a", self.a.http()).server("b", self.b.http()).toml(toml)
    }
}

const SUPPORT: &str = r#"
[profiles.support]
servers = ["a"]
tools = ["a__echo", "a__li*"]
resources = ["mcp://a/file:///*", "mcp://a/db://{table}/{id}"]
title = "Support desk"
instructions = "Be kind."
"#;

/// Returns a client of each era at an endpoint.
async fn both_at(gateway: &Gateway, endpoint: &str) -> [(&'static str, Client); 2] {
    let legacy = Client::sessionless(gateway.running.address, "2025-11-25");
    let legacy = legacy.at(endpoint).initialized().await;
    [("Modern", gateway.modern().at(endpoint)), ("Legacy", legacy)]
}

async fn listed(client: &Client, method: &str, member: &str, key: &str) -> Vec<String> {
    let said = client.request(method, json!({})).await;
    let all = said.result()[member].as_array().unwrap_or_else(|| panic!("{said:?}"));
    all.iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

async fn prompts(client: &Client) -> Vec<String> {
    listed(client, "prompts/list", "prompts", "name").await
}

async fn resources(client: &Client) -> Vec<String> {
    listed(client, "resources/list", "resources", "uri").await
}

async fn templates(client: &Client) -> Vec<String> {
    listed(client, "resources/templates/list", "resourceTemplates", "uriTemplate").await
}

/// Returns the status and error of an answer, without the requested name.
fn told(said: &Said, name: &str) -> (u16, String) {
    (said.status, said.error().to_string().replace(name, "NAME"))
}

#[tokio::test]
async fn elements_outside_a_profile_are_like_unknown_ones() {
    let two = Two::new().await;
    let gateway = two.with(SUPPORT).start().await;
    for (era, client) in both_at(&gateway, "/mcp/support").await {
        assert_eq!(client.tool_names().await, ["a__echo", "a__link"], "{era}");
        assert_eq!(prompts(&client).await, [""; 0], "{era}");
        assert_eq!(resources(&client).await, ["mcp://a/file:///a.txt"], "{era}");
        assert_eq!(templates(&client).await, ["mcp://a/db://{table}/{id}"], "{era}");

        assert_eq!(client.call("a__echo", json!({})).await.text(), "{}", "{era}");
        let read = async |uri: &str| client.request("resources/read", json!({ "uri": uri })).await;
        for uri in ["mcp://a/file:///a.txt", "mcp://a/db://users/7", "mcp://a/file:///b.txt"] {
            assert_eq!(read(uri).await.result()["contents"][0]["uri"], uri, "{era}");
        }
        let heard = (two.a.received().len(), two.b.received().len());
        let never = told(&client.call("a__never", json!({})).await, "a__never");
        for tool in ["a__fail", "b__echo"] {
            assert_eq!(told(&client.call(tool, json!({})).await, tool), never, "{era} {tool}");
        }
        let get = async |name: &str| client.request("prompts/get", json!({ "name": name })).await;
        let never = told(&get("a__never").await, "a__never");
        for prompt in ["a__greet", "b__greet"] {
            assert_eq!(told(&get(prompt).await, prompt), never, "{era} {prompt}");
        }
        let never = told(&read("mcp://c/x").await, "mcp://c/x");
        for uri in
            ["mcp://a/b://2", "mcp://b/file:///a.txt", "mcp://a/file:///../x", "file:///a.txt"]
        {
            assert_eq!(told(&read(uri).await, uri), never, "{era} {uri}");
        }
        let complete = async |reference: Value| {
            let argument = json!({ "name": "x", "value": "" });
            let params = json!({ "ref": reference, "argument": argument });
            client.request("completion/complete", params).await
        };
        for (kind, key, hidden) in [
            ("ref/prompt", "name", "a__greet"),
            ("ref/resource", "uri", "mcp://b/db://{table}/{id}"),
        ] {
            let said = complete(json!({ "type": kind, key: hidden })).await;
            assert_eq!(said.code(), -32602, "{era} {said:?}");
        }
        assert_eq!(client.request("tools/other", json!({})).await.code(), -32601, "{era}");
        assert_eq!((two.a.received().len(), two.b.received().len()), heard, "{era}: none heard");
        let shown = json!({ "type": "ref/resource", "uri": "mcp://a/db://{table}/{id}" });
        complete(shown).await.result();
    }
    let everything = gateway.modern();
    assert!(everything.tool_names().await.contains(&"b__fail".to_owned()));
    assert_eq!(prompts(&everything).await, ["a__greet", "b__greet"]);
}

#[tokio::test]
async fn hidden_resources_cannot_be_subscribed_to() {
    let two = Two::new().await;
    let gateway = two.with(SUPPORT).start().await;
    let [_, (_, legacy)] = both_at(&gateway, "/mcp/support").await;
    let subscribe =
        async |uri: &str| legacy.request("resources/subscribe", json!({ "uri": uri })).await;
    let never = told(&subscribe("mcp://c/x").await, "mcp://c/x");
    for uri in ["mcp://a/b://2", "mcp://b/file:///a.txt"] {
        assert_eq!(told(&subscribe(uri).await, uri), never, "{uri}");
    }
    assert!(two.b.subscriptions().is_empty());
}

#[tokio::test]
async fn a_profile_introduces_itself() {
    let two = Two::new().await;
    let gateway = two.with(SUPPORT).gateway("title = \"All\"").start().await;
    let discover = async |endpoint: &str| {
        let client = gateway.modern().at(endpoint);
        client.request("server/discover", json!({})).await.result().clone()
    };
    let info = "io.modelcontextprotocol/serverInfo";
    let support = discover("/mcp/support").await;
    assert_eq!(support["_meta"][info]["title"], "Support desk");
    assert!(support["instructions"].as_str().unwrap().contains("Be kind."), "{support}");
    assert!(support["capabilities"].get("prompts").is_none(), "{support}");
    assert!(support["capabilities"]["resources"].is_object(), "{support}");
    let all = discover("/mcp").await;
    assert_eq!(all["_meta"][info]["title"], "All");
    assert!(all["capabilities"]["prompts"].is_object() && !all.to_string().contains("Be kind."));
    let legacy = gateway.plain().at("/mcp/support").initialize("2025-11-25").await.said().await;
    assert_eq!(legacy.result()["serverInfo"]["title"], "Support desk");
}

#[tokio::test]
async fn a_query_narrows_and_never_widens() {
    let two = Two::new().await;
    let gateway = two.with(SUPPORT).start().await;
    for (endpoint, tools, seen_prompts, seen_resources) in [
        ("/mcp?servers=b&tools=*__echo", &["b__echo"][..], &[][..], &[][..]),
        ("/mcp?tools=a__e*,b__f*", &["a__echo", "b__fail"], &[], &[]),
        (
            "/mcp?prompts=*&resources=mcp://b/b:*",
            &[],
            &["a__greet", "b__greet"],
            &["mcp://b/b://2"],
        ),
        ("/mcp?tools=", &[], &[], &[]),
        ("/mcp/support?tools=*", &["a__echo", "a__link"], &[], &[]),
        ("/mcp/support?tools=*__echo&prompts=*", &["a__echo"], &[], &[]),
        ("/mcp/support?resources=*&servers=*", &[], &[], &["mcp://a/file:///a.txt"]),
        ("/mcp/support?servers=a", &["a__echo", "a__link"], &[], &["mcp://a/file:///a.txt"]),
        ("/mcp/default?tools=a__echo", &["a__echo"], &[], &[]),
    ] {
        for (era, client) in both_at(&gateway, endpoint).await {
            assert_eq!(client.tool_names().await, tools, "{era} {endpoint}");
            assert_eq!(prompts(&client).await, seen_prompts, "{era} {endpoint}");
            assert_eq!(resources(&client).await, seen_resources, "{era} {endpoint}");
            let hidden = client.call("b__hold", json!({})).await;
            assert_eq!(hidden.code(), -32602, "{era} {endpoint}");
        }
    }
}

#[tokio::test]
async fn a_url_that_narrows_nothing_gets_the_reason() {
    let two = Two::new().await;
    let gateway = two.with(SUPPORT).start().await;
    let long = format!("/mcp?tools={}", "x".repeat(2100));
    for (endpoint, words) in [
        ("/mcp?tool=x", "unknown parameter \\\"tool\\\""),
        ("/mcp?servers=a,c", "unknown server \\\"c\\\""),
        ("/mcp/support?servers=b", "unknown server \\\"b\\\""),
        ("/mcp?tools=a&tools=b", "duplicate parameter"),
        ("/mcp?tools=a,,b", "a pattern has 1 to 128 characters"),
        (&long, "at most 2048"),
    ] {
        for client in [gateway.modern(), gateway.plain()] {
            let said = client.at(endpoint).request("tools/list", json!({})).await;
            assert_eq!((said.status, said.code()), (400, -32600), "{endpoint} {said:?}");
            assert!(said.error()["message"].to_string().contains(words), "{endpoint} {said:?}");
        }
    }
    for endpoint in ["/mcp//", "/mcp/nobodys", "/mcp/support/x", "/mcp/Support", "/mcpx", "/"] {
        let said = gateway.modern().at(endpoint).request("tools/list", json!({})).await;
        assert_eq!(said.status, 404, "{endpoint} {said:?}");
    }
}

#[tokio::test]
async fn a_session_belongs_to_the_endpoint_that_opened_it() {
    let two = Two::new().await;
    let gateway = two.with(SUPPORT).start().await;
    let [_, (_, legacy)] = both_at(&gateway, "/mcp/support?tools=*echo,*link&servers=a").await;
    for (endpoint, there) in [
        ("/mcp/support?servers=a&tools=*link,*echo", true),
        ("/mcp/support?servers=a&tools=%2Alink,*echo,*echo", true),
        ("/mcp/support?servers=a&tools=*", false),
        ("/mcp/support", false),
        ("/mcp", false),
    ] {
        let client = gateway.plain().at(endpoint).becomes(legacy.kind());
        let status = client.call("a__echo", json!({})).await.status;
        assert_eq!(status == 200, there, "{endpoint} {status}");
        assert!(there || status == 404, "{endpoint} {status}");
    }
}

#[tokio::test]
async fn clients_use_the_profiles_that_they_are_given() {
    let two = Two::new().await;
    let client = |name: &str, profiles: &str| client_table(name, name, profiles);
    let toml = SUPPORT.to_owned()
        + "[profiles.other]\n"
        + &client("desk", "profiles = [\"support\"]")
        + &client("plain", "profiles = [\"default\"]")
        + &client("any", "");
    let gateway = two.with(&toml).start().await;
    let never = gateway.modern().key("any").at("/mcp/never").request("tools/list", json!({})).await;
    let all = ["/mcp", "/mcp/default", "/mcp/support", "/mcp/support?tools=*", "/mcp/other"];
    for (name, endpoints) in [("desk", &all[2..4]), ("plain", &all[..2]), ("any", &all)] {
        for endpoint in all {
            let asking = gateway.modern().key(name).at(endpoint);
            let said = asking.request("tools/list", json!({})).await;
            if endpoints.contains(&endpoint) {
                said.result();
            } else {
                assert_eq!((said.status, said.error()), (404, never.error()), "{name} {endpoint}");
            }
        }
    }
    // An unauthenticated client does not learn the names of profiles.
    for endpoint in ["/mcp/support", "/mcp/never", "/mcp?servers=never"] {
        let said = gateway.modern().at(endpoint).request("tools/list", json!({})).await;
        assert_eq!(said.status, 401, "{endpoint}");
    }
    gateway.modern().key("desk").at("/mcp/support").call("a__echo", json!({})).await.text();
    let metrics = gateway.metrics().await;
    for series in [
        "trunkline_client_calls_total{client=\"desk\",outcome=\"ok\"} 1",
        "trunkline_profile_calls_total{profile=\"support\",outcome=\"ok\"} 1",
        "trunkline_errors_total{outcome=\"refused\",reason=\"unknown_endpoint\"}",
    ] {
        assert!(metrics.contains(series), "{series}\n{metrics}");
    }
}

#[tokio::test]
async fn the_plain_url_serves_the_default_profile() {
    let two = Two::new().await;
    let toml = "[profiles.default]\ntools = [\"a__echo\"]\n[profiles.all]\n";
    let gateway = two.with(toml).start().await;
    for (era, client) in gateway.both().await {
        assert_eq!(client.tool_names().await, ["a__echo"], "{era}");
        assert_eq!(client.call("b__echo", json!({})).await.code(), -32602, "{era}");
    }
    assert!(gateway.modern().at("/mcp/all").tool_names().await.contains(&"b__echo".to_owned()));
}

#[tokio::test]
async fn a_profile_has_names_and_uris_of_its_own_and_a_narrowing_has_not() {
    let two = Two::new().await;
    let toml = "[profiles.b]\nservers = [\"b\"]\nuris = \"original\"\n[profiles.both]\n";
    let gateway = two.with(toml).gateway("naming = \"none\"").start().await;
    let b = gateway.modern().at("/mcp/b");
    assert_eq!(resources(&b).await, ["file:///a.txt", "b://2"]);
    let read = b.request("resources/read", json!({ "uri": "b://2" })).await;
    assert_eq!(read.result()["contents"][0]["uri"], "b://2");
    assert_eq!(b.call("echo", json!({})).await.text(), "{}");
    assert_eq!(two.b.calls().len(), 1, "its own, though everywhere else it is the other's");
    let narrowed = gateway.modern().at("/mcp?servers=b");
    assert_eq!(narrowed.tool_names().await, [""; 0], "what was left out is not let in again");
    assert_eq!(narrowed.call("echo", json!({})).await.code(), -32602);
}

#[tokio::test]
async fn a_profile_changes_and_goes_with_a_reload() {
    let two = Two::new().await;
    let gateway = two.with(SUPPORT).start().await;
    let [(_, modern), (_, legacy)] = both_at(&gateway, "/mcp/support").await;
    let mut streams = [modern.listen().await, legacy.listen().await];
    gateway.reload(two.with(&SUPPORT.replace("a__li*", "a__h*"))).await;
    for stream in &mut streams {
        let message = stream.message().await.expect("it hears of the change");
        assert_eq!(message["method"], "notifications/tools/list_changed");
    }
    for client in [&modern, &legacy] {
        assert_eq!(client.tool_names().await, ["a__echo", "a__hold"]);
    }
    gateway.reload(two.with("")).await;
    for stream in &mut streams {
        // The stream ends with its profile, perhaps after a notification that one of the lists has
        // changed.
        while let Some(message) = stream.message().await {
            let method = message["method"].as_str().unwrap();
            assert!(method.ends_with("/list_changed"), "{message}");
        }
    }
    for client in [&modern, &legacy] {
        assert_eq!(client.call("a__echo", json!({})).await.status, 404);
    }
}

#[tokio::test]
async fn a_cursor_leads_on_in_its_own_list_alone() {
    let two = Two::new().await;
    let gateway = two.with(SUPPORT).gateway("page_size = 1").start().await;
    let page = async |endpoint: &str, cursor: Option<&Value>| {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        gateway.modern().at(endpoint).request("tools/list", params).await
    };
    let first = page("/mcp", None).await;
    let cursor = &first.result()["nextCursor"];
    assert!(cursor.is_string(), "{first:?}");
    page("/mcp", Some(cursor)).await.result();
    for endpoint in ["/mcp/support", "/mcp?servers=b"] {
        assert_eq!(page(endpoint, Some(cursor)).await.code(), -32602, "{endpoint}");
    }
    let first = page("/mcp/support", None).await;
    assert_eq!(first.result()["tools"][0]["name"], "a__echo");
    let second = page("/mcp/support", Some(&first.result()["nextCursor"])).await;
    assert_eq!(second.result()["tools"][0]["name"], "a__link");
    assert!(second.result().get("nextCursor").is_none(), "{second:?}");
}
