//! A profile's resource patterns in front of a server on the official TypeScript SDK, which deletes
//! tabs and line ends from URIs: what the gateway lets pass, the server reads elsewhere.

use serde_json::{Value, json};

use super::peers::file;
use super::support::{Client, Gateway};

/// A client of each era at an endpoint.
async fn both_at(gateway: &Gateway, endpoint: &str) -> [(&'static str, Client); 2] {
    let legacy = Client::sessionless(gateway.running.address, "2025-11-25");
    let legacy = legacy.at(endpoint).initialized().await;
    [("Modern", gateway.modern().at(endpoint)), ("Legacy", legacy)]
}

/// What a client reads.
async fn read(client: &Client, uri: &str) -> Value {
    use base64::Engine as _;
    let mut ask = client.ask("resources/read", json!({ "uri": uri }));
    if client.is_modern() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(uri);
        ask = ask.header("mcp-name", &format!("=?base64?{encoded}?="));
    }
    ask.send().await.said().await.answer().clone()
}

/// Whether a client can subscribe to a resource.
async fn subscribes(client: &Client, uri: &str) -> bool {
    if !client.is_modern() {
        let said = client.request("resources/subscribe", json!({ "uri": uri })).await;
        return said.answer().get("result").is_some();
    }
    let filter = json!({ "notifications": { "resourceSubscriptions": [uri] } });
    let mut stream = client.ask("subscriptions/listen", filter).send().await;
    let first = stream.message().await.unwrap();
    first["params"]["notifications"]["resourceSubscriptions"][0] == uri
}

#[tokio::test]
async fn a_server_that_deletes_characters_reads_and_tells_of_nothing_outside_a_pattern() {
    file("node_modules/.installed-from");
    let server = format!("command = \"node\"\nargs = [{:?}]\n", file("files_server.mjs"));
    for spoken in ["", "era = \"legacy\"\n", "era = \"modern\"\n"] {
        let profile = "[profiles.pub]\nresources = [\"mcp://ts/file:///pub/*\"]";
        let lines = format!("{server}{spoken}");
        let gateway = Gateway::with("ts", lines).toml(profile).start().await;
        gateway.ready("ts").await;
        for endpoint in ["/mcp/pub", "/mcp?resources=mcp://ts/file:///pub/*"] {
            for (era, client) in both_at(&gateway, endpoint).await {
                let shown = "mcp://ts/file:///pub/a";
                let said = read(&client, shown).await;
                let text = &said["result"]["contents"][0]["text"];
                assert_eq!(text, "read file:///pub/a", "{era} {endpoint} {said}");
                assert!(subscribes(&client, shown).await, "{era} {endpoint}");
                for deleted in ["\t", "\n", "\r"] {
                    let uri = format!("mcp://ts/file:///pub/.{deleted}./secret/b");
                    let said = read(&client, &uri).await;
                    assert!(said.get("error").is_some(), "{era} {endpoint} {uri:?} {said}");
                    assert!(!subscribes(&client, &uri).await, "{era} {endpoint} {uri:?}");
                }
            }
        }
        gateway.stop().await;
    }
}
