//! Peers that implement the specification in part, and lose no more than the missing part.

use serde_json::json;

use crate::support::{Gateway, Step, Upstream, upstream::tool};

#[tokio::test]
async fn a_server_that_refuses_a_stream_for_its_notifications_is_called_and_subscribed_to() {
    let upstream = Upstream::legacy().await;
    upstream.resources(&["a:1"]);
    upstream.when_asked("GET", |_| vec![Step::Status(405, vec![], String::new())]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
        assert!(client.subscribes("mcp://s/a:1").await, "{era}");
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
    }
    assert_eq!(gateway.server("s").await["state"], "ready");
    assert!(!upstream.all("GET").is_empty());
}

#[tokio::test]
async fn a_server_that_never_acknowledges_a_subscription_holds_no_other_back() {
    let [silent, good] = [Upstream::modern().await, Upstream::modern().await];
    for upstream in [&silent, &good] {
        upstream.resources(&["a:1"]);
    }
    silent.when_asked("subscriptions/listen", |_| vec![Step::Never]);
    for (way, lines) in silent.ways() {
        let gateway = Gateway::with("silent", lines).server("good", good.http()).start().await;
        let client = gateway.modern();
        let filter = json!({
            "toolsListChanged": true,
            "resourceSubscriptions": ["mcp://silent/a:1", "mcp://good/a:1"],
        });
        let ask = client.ask("subscriptions/listen", json!({ "notifications": filter }));
        let mut stream = ask.send().await;
        let first = stream.message().await.expect("an acknowledgement");
        let agreed = &first["params"]["notifications"]["resourceSubscriptions"];
        assert!(agreed.as_array().unwrap().contains(&json!("mcp://good/a:1")), "{way}: {first}");
        good.update("a:1").await;
        let told = stream.message().await.unwrap();
        assert_eq!(told["params"]["uri"], "mcp://good/a:1", "{way}: {told}");
        good.announce().await;
        for (server, text) in [("silent", "{}"), ("good", "{}")] {
            let said = client.call(&format!("{server}__echo"), json!({})).await;
            assert_eq!(said.text(), text, "{way} {server}");
        }
    }
}

#[tokio::test]
async fn a_tool_with_an_invalid_header_annotation_is_left_out_alone() {
    let mut invalid = tool("invalid");
    invalid["inputSchema"]["x-mcp-header"] = json!("Region");
    let upstream = Upstream::modern().await;
    upstream.set_tools([tool("before"), invalid, tool("after")].map(|tool| tool.to_string()));
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        for (era, client) in gateway.both().await {
            assert_eq!(client.tool_names().await, ["s__before", "s__after"], "{way} {era}");
        }
    }
}

#[tokio::test]
async fn unknown_members_of_a_clients_capabilities_disturb_nothing() {
    let capabilities = json!({
        "roots": {},
        "elicitation": { "form": {}, "invented": { "depth": 3 } },
        "experimental": { "a": { "b": [1] } },
        "extensions": { "com.example/x": { "y": true } },
        "invented": null,
    });
    let [modern, legacy] = Upstream::both().await;
    let gateway = Gateway::with("m", modern.http()).server("l", legacy.http()).start().await;
    for client in [gateway.modern(), gateway.legacy().await] {
        let client = client.offering(capabilities.clone()).await;
        for tool in ["m__echo", "l__echo"] {
            assert_eq!(client.call(tool, json!({})).await.text(), "{}");
        }
        let call = modern.calls().pop().unwrap();
        let told_modern = call.meta("io.modelcontextprotocol/clientCapabilities");
        let opened = legacy.all("initialize").pop().unwrap();
        for told in [told_modern, &opened.params["capabilities"]] {
            assert_eq!(told["elicitation"]["form"], json!({}), "{told}");
            assert_eq!(told["experimental"], json!({ "a": { "b": [1] } }), "{told}");
            assert_eq!(told["extensions"]["com.example/x"], json!({ "y": true }), "{told}");
        }
    }
}
