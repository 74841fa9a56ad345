//! Names of tools hidden by rules, in texts of their servers about other tools, prompts and
//! resources.

use serde_json::{Value, json};

use crate::support::upstream::offers::everything;
use crate::support::{Client, Gateway, Step, Upstream, client_table, within};

const ANN: &str = "key-of-ann";
const ROOT: &str = "key-of-root";

const RULES: &str = r#"
[policy.rules.admins]
groups = ["admins"]

[policy.rules.others]
tools = ["*__read_file"]
prompts = ["*"]
resources = ["*"]

[profiles.search]
discovery = "search"

[profiles.code]
discovery = "code"

[profiles.short]
slim = { descriptions = 500 }
"#;

/// Sets up a server with texts that each name `read_secret` among other words.
fn write_texts(upstream: &Upstream) {
    upstream.can(everything());
    let tool = json!({
        "name": "read_file", "title": "Read file, unlike read_secret",
        "description": "Reads a file, which read_secret does not.",
        "annotations": { "title": "Not read_secret", "readOnlyHint": true },
        "inputSchema": {
            "type": "object", "required": ["description"],
            "properties": {
                "description": {
                    "type": "string", "description": "Which file. For secrets, use `read_secret`.",
                },
                "how": { "anyOf": [{ "enum": ["fast"], "title": "As read_secret" }] },
            },
        },
        "outputSchema": {
            "type": "object",
            "properties": { "text": { "description": "The text. See read_secret." } },
        },
    });
    let secret = json!({ "name": "read_secret", "inputSchema": { "type": "object" } });
    upstream.set_tools(Vec::<String>::new());
    upstream.tool(&tool, |_| vec![Step::text("Read by read_secret.")]);
    upstream.tool(&secret, |_| vec![Step::text("secret")]);
    upstream.lists(
        "prompts",
        [json!({
            "name": "sum_up", "title": "Sum up (read_secret)",
            "description": "Sums up a file. Not what read_secret reads.",
            "arguments": [{ "name": "file", "description": "The file. Else see read_secret." }],
        })],
    );
    let resource = |key: &str, uri: &str| {
        json!({
            key: uri, "name": "n", "title": "Texts of read_secret",
            "description": "A file of texts. Written by read_secret.",
        })
    };
    upstream.lists("resources", [resource("uri", "file:///a.txt")]);
    upstream.lists("resourceTemplates", [resource("uriTemplate", "db://{table}")]);
}

/// Starts a gateway with two such servers, of different eras.
async fn start_gateway() -> (Gateway, [Upstream; 2]) {
    let [a, b] = Upstream::both().await;
    write_texts(&a);
    write_texts(&b);
    let gateway = Gateway::with("a", a.http())
        .server("b", b.http())
        .toml(&client_table("ann", ANN, ""))
        .toml(&client_table("root", ROOT, "groups = [\"admins\"]"))
        .toml(RULES)
        .start()
        .await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 4).await;
    (gateway, [a, b])
}

/// Returns the elements of a list, without URIs, by which the servers differ.
async fn list(client: &Client, method: &str, member: &str) -> Vec<Value> {
    let said = client.request(method, json!({})).await;
    said.result()[member].as_array().unwrap_or_else(|| panic!("{said:?}")).clone()
}

#[tokio::test]
async fn no_list_names_a_hidden_tool_in_any_text() {
    let (gateway, _servers) = start_gateway().await;
    for (era, ann) in gateway.both_as(ANN, "/mcp").await {
        let tools = ann.tools().await;
        for tool in &tools {
            assert_eq!(tool.get("title"), None, "{era}");
            assert_eq!(tool["description"], "", "{era}");
            assert_eq!(tool["annotations"], json!({ "readOnlyHint": true }), "{era}");
            let schema = json!({
                "type": "object", "required": ["description"],
                "properties": {
                    "description": { "type": "string", "description": "Which file." },
                    "how": { "anyOf": [{ "enum": ["fast"] }] },
                },
            });
            assert_eq!(tool["inputSchema"], schema, "{era}");
            let text = &tool["outputSchema"]["properties"]["text"];
            assert_eq!(text["description"], "The text.", "{era}");
        }
        let prompts = list(&ann, "prompts/list", "prompts").await;
        for prompt in &prompts {
            assert_eq!(prompt.get("title"), None, "{era}");
            assert_eq!(prompt["description"], "Sums up a file.", "{era}");
            assert_eq!(prompt["arguments"][0]["description"], "The file.", "{era}");
        }
        let mut others = list(&ann, "resources/list", "resources").await;
        others.extend(list(&ann, "resources/templates/list", "resourceTemplates").await);
        for other in &others {
            assert_eq!(other.get("title"), None, "{era}");
            assert_eq!(other["description"], "A file of texts.", "{era}");
        }
        assert_eq!([tools.len(), prompts.len(), others.len()], [2, 2, 4], "{era}");
    }
    for (era, root) in gateway.both_as(ROOT, "/mcp").await {
        let tool = &root.tools().await[0];
        assert_eq!(tool["title"], "Read file, unlike read_secret", "{era}");
        let prompt = &list(&root, "prompts/list", "prompts").await[0];
        assert_eq!(
            prompt["arguments"][0]["description"], "The file. Else see read_secret.",
            "{era}"
        );
    }
}

#[tokio::test]
async fn search_descriptions_declarations_and_cut_texts_name_no_hidden_tool() {
    let (gateway, _servers) = start_gateway().await;
    for (key, is_named) in [(ANN, false), (ROOT, true)] {
        let mut clients = Vec::from(gateway.both_as(key, "/mcp/search").await);
        clients.extend(gateway.both_as(key, "/mcp/short").await);
        for (era, client) in clients {
            let described =
                client.call("describe_tools", json!({ "names": ["a__read_file"] })).await;
            let told = described.result().to_string();
            assert!(told.contains("Which file."), "{era} {told}");
            assert_eq!(told.contains("read_secret"), is_named, "{era} {told}");
        }
        for (era, client) in gateway.both_as(key, "/mcp/short").await {
            // The first one is describe_tools.
            let tool = client.tools().await[1].to_string();
            assert_eq!(tool.contains("read_secret"), is_named, "{era} {tool}");
        }
        for (era, client) in gateway.both_as(key, "/mcp/search").await {
            for (kind, query) in
                [("tools", "file"), ("prompts", "sum up"), ("resources", "file of texts")]
            {
                let asked = json!({ "query": format!("{query} secret"), "kind": kind });
                let found = client.call("find_tools", asked).await;
                let told = found.result().to_string();
                assert!(told.contains("file"), "{era} {told}");
                assert_eq!(told.contains("read_secret"), is_named, "{era} {kind} {told}");
            }
            // The schema of a tool, in the answer to an invalid call.
            let asked = json!({ "name": "b__read_file", "arguments": {} });
            let refused = client.call("call_tool", asked).await;
            assert!(refused.text().contains("Which file."), "{era} {refused:?}");
            assert_eq!(refused.text().contains("read_secret"), is_named, "{era} {refused:?}");
        }
        for (era, client) in gateway.both_as(key, "/mcp/code").await {
            let declared = client.tools().await[0]["description"].to_string();
            assert!(declared.contains("a__read_file"), "{era} {declared}");
            assert_eq!(declared.contains("read_secret"), is_named, "{era} {declared}");
        }
    }
}

#[tokio::test]
async fn calls_of_a_tool_that_lost_texts_are_checked_and_answered_as_before() {
    let (gateway, [a, b]) = start_gateway().await;
    for (era, ann) in gateway.both_as(ANN, "/mcp").await {
        for tool in ["a__read_file", "b__read_file"] {
            assert!(ann.call(tool, json!({})).await.is_error(), "{era}");
            assert!(ann.call(tool, json!({ "description": 7 })).await.is_error(), "{era}");
            let said = ann.call(tool, json!({ "description": "a", "how": "fast" })).await;
            assert_eq!(said.text(), "Read by read_secret.", "{era}");
        }
    }
    assert_eq!(a.calls().len() + b.calls().len(), 4);
}

#[tokio::test]
async fn a_tool_that_departs_is_no_longer_a_hidden_name() {
    let upstream = Upstream::modern().await;
    write_texts(&upstream);
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", ANN, ""))
        .toml(RULES)
        .start()
        .await;
    let ann = gateway.modern().key(ANN);
    assert_eq!(ann.tools().await[0].get("title"), None);
    let read = json!({ "name": "read_file", "title": "As read_secret", "inputSchema": { "type": "object" } });
    upstream.set_tools([read.to_string()]);
    upstream.announce().await;
    within(async { while ann.tools().await[0]["title"] != "As read_secret" {} }).await;
}
