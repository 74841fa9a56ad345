//! The gateway's description of itself and of its servers.

use serde_json::{Value, json};

use crate::support::upstream::offers::everything;
use crate::support::{Gateway, Upstream};

/// Returns the first answer to a client of each era.
async fn told(gateway: &Gateway) -> [(&'static str, Value); 2] {
    let discovered = gateway.modern().request("server/discover", json!({})).await;
    let opened = gateway.plain().initialize("2025-11-25").await.said().await;
    [("Modern", discovered.result().clone()), ("Legacy", opened.result().clone())]
}

#[tokio::test]
async fn only_capabilities_of_some_server_are_declared_and_list_changes_always() {
    let [modern, legacy] = Upstream::both().await;
    modern.can(json!({ "prompts": {}, "completions": {}, "experimental": { "x": {} } }));
    legacy
        .can(json!({ "resources": { "subscribe": true }, "logging": {}, "tasks": { "list": {} } }));
    let gateway = Gateway::with("m", modern.http()).server("l", legacy.stdio()).start().await;
    for (era, said) in told(&gateway).await {
        let expected = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "completions": {},
            "experimental": { "x": {} },
            "resources": { "subscribe": true, "listChanged": true },
            "logging": {},
        });
        assert_eq!(said["capabilities"], expected, "{era}");
    }
    let only_tools = Upstream::modern().await;
    let gateway = Gateway::with("t", only_tools.http()).start().await;
    for (era, said) in told(&gateway).await {
        assert_eq!(said["capabilities"], json!({ "tools": { "listChanged": true } }), "{era}");
    }
}

#[tokio::test]
async fn a_server_that_was_not_heard_of_yet_may_be_able_to_do_anything() {
    let upstream = Upstream::legacy().await;
    upstream.can(everything());
    let lines = upstream.stdio() + "start = \"lazy\"\n";
    let gateway = Gateway::with("s", &lines).start().await;
    for (era, said) in told(&gateway).await {
        for capability in ["tools", "prompts", "resources", "completions", "logging"] {
            assert!(said["capabilities"][capability].is_object(), "{era} {capability}");
        }
    }
}

#[tokio::test]
async fn the_gateways_words_come_first_and_then_each_servers_under_its_name() {
    let [modern, legacy] = Upstream::both().await;
    modern.instructs("Search before you write.");
    legacy.instructs(&"é".repeat(20_000));
    let gateway = Gateway::with("one", modern.http())
        .server("two", legacy.stdio())
        .gateway("instructions = \"Be kind.\"")
        .start()
        .await;
    for (era, said) in told(&gateway).await {
        let text = said["instructions"].as_str().unwrap();
        let first = "Be kind.\n\n## one\n\nThe names of its tools and prompts begin with `one__`.\n\nSearch before you write.\n\n## two\n\n";
        assert!(text.starts_with(first), "{era} {text:.300}");
        assert!(text.ends_with("é…") && text.len() < 5_000, "{era} {}", text.len());
    }
    let gateway = Gateway::with("one", modern.http()).start().await;
    for (era, said) in told(&gateway).await {
        assert_eq!(said["instructions"], "Search before you write.", "{era}");
    }
    let mut many = Gateway::alone();
    for number in 0..20 {
        many = many.server(&format!("s{number}"), legacy.http());
    }
    let gateway = many.gateway("naming = \"conflict\"").start().await;
    for (era, said) in told(&gateway).await {
        let text = said["instructions"].as_str().unwrap();
        assert!((16_000..33_000).contains(&text.len()), "{era} {}", text.len());
        assert!(text.starts_with("## s0\n\né") && !text.contains("begin with"), "{era}");
    }
}

#[tokio::test]
async fn title_icons_and_website_are_the_operators() {
    let gateway = Gateway::alone()
        .gateway("title = \"Tools of Acme\"\nwebsite_url = \"https://acme.test/mcp\"")
        .gateway("icons = [\"https://acme.test/i.png\", \"data:image/png;base64,AA==\"]")
        .start()
        .await;
    for (era, said) in told(&gateway).await {
        let info = match era {
            "Modern" => &said["_meta"]["io.modelcontextprotocol/serverInfo"],
            _ => &said["serverInfo"],
        };
        assert_eq!(info["title"], "Tools of Acme", "{era}");
        assert_eq!(info["websiteUrl"], "https://acme.test/mcp", "{era}");
        assert_eq!(info["icons"][1], json!({ "src": "data:image/png;base64,AA==" }), "{era}");
        assert_eq!(info["name"], "trunkline", "{era}");
    }
}
