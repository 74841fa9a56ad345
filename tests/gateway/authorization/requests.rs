//! Rules about the client's software and about the path of a request.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::{Gateway, Host, Step, Upstream, WAYS, Way};

/// One tool for each condition, which alone decides about it.
const CONDITIONS: [(&str, &str); 12] = [
    ("test", "client.name == 'a-test' && client.version == '1'"),
    ("host", "client.name == 'host' && client.version == '1'"),
    ("modern", "client.era == 'modern'"),
    ("legacy", "client.era == 'legacy'"),
    ("http1", "request.transport == 'http1'"),
    ("http2", "request.transport == 'http2'"),
    ("stdio", "request.transport == 'stdio'"),
    ("desk", "request.profile == 'desk'"),
    ("plain", "request.profile == 'default'"),
    ("near", "request.address == '127.0.0.1'"),
    ("far", "request.address != '127.0.0.1'"),
    ("called", "request.method == 'tools/call'"),
];

/// A tool that is listed, because its condition depends on the request, and never called.
const LISTED: (&str, &str) = ("listed", "request.method == 'tools/list'");

async fn gateway(upstream: &Upstream) -> Gateway {
    let mut rules = "[profiles.desk]\n".to_owned();
    upstream.set_tools(Vec::<String>::new());
    for (name, when) in CONDITIONS.into_iter().chain([LISTED]) {
        upstream.does(name, move |_| vec![Step::text(name)]);
        rules += &format!("[policy.rules.{name}]\ntools = [\"s__{name}\"]\nwhen = \"{when}\"\n");
    }
    Gateway::with("s", upstream.http()).toml(&rules).start().await
}

/// Returns the tools that a client sees, without their prefix.
fn seen(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().unwrap_or_else(|| panic!("{tools}")).iter();
    tools.map(|tool| tool["name"].as_str().unwrap().replacen("s__", "", 1)).collect()
}

/// Checks the tools that a client of the gateway's URLs sees, and that it can call exactly those.
async fn check_http(client: &Client, expected: &[&str]) {
    let tools = Value::Array(client.tools().await);
    assert_eq!(seen(&tools), [expected, &["near", "called", "listed"]].concat());
    for (name, _) in CONDITIONS {
        let said = client.call(&format!("s__{name}"), json!({})).await;
        if expected.contains(&name) || ["near", "called"].contains(&name) {
            assert_eq!(said.text(), name, "{said:?}");
        } else {
            assert!(said.body.contains("unknown tool"), "{name} {said:?}");
        }
    }
    let said = client.call("s__listed", json!({})).await;
    assert!(said.is_error() && said.text().contains("not allowed"), "{said:?}");
}

#[tokio::test]
async fn rules_tell_clients_transports_and_profiles_apart() {
    let upstream = Upstream::modern().await;
    let gateway = gateway(&upstream).await;
    for path in ["/mcp", "/mcp/desk"] {
        let profile = if path == "/mcp" { "plain" } else { "desk" };
        let modern = || gateway.modern().at(path);
        check_http(&modern(), &["test", "modern", "http1", profile]).await;
        check_http(&modern().h2(), &["test", "modern", "http2", profile]).await;
        let [_, (_, legacy)] = gateway.both_at(path).await;
        check_http(&legacy, &["test", "legacy", "http1", profile]).await;
    }
    let ran = upstream.calls().into_iter().any(|call| call.params["name"] == "listed");
    assert!(!ran, "the denied call was not sent");
}

#[tokio::test]
async fn rules_tell_a_host_on_standard_streams_from_one_behind_a_url() {
    let upstream = Upstream::modern().await;
    let gateway = gateway(&upstream).await;
    for way in WAYS {
        let transport = if way == Way::Here { "stdio" } else { "http1" };
        for era in ["modern", "legacy"] {
            let mut host = Host::of(&gateway, way);
            if era == "legacy" {
                host.initialize().await;
            }
            let ask = async |host: &mut Host, method: &str, params: Value| match era {
                "legacy" => host.request(method, params).await,
                _ => host.modern(method, params).await,
            };
            let listed = ask(&mut host, "tools/list", json!({})).await;
            let expected = ["host", era, transport, "plain", "near", "called", "listed"];
            assert_eq!(seen(&listed["result"]["tools"]), expected, "{way:?} {era}");
            for (name, _) in CONDITIONS {
                let params = json!({ "name": format!("s__{name}"), "arguments": {} });
                let said = ask(&mut host, "tools/call", params).await;
                let text = &said["result"]["content"][0]["text"];
                assert_eq!(text == name, expected.contains(&name), "{way:?} {era} {name} {said}");
            }
        }
    }
}
