//! Large results that a client already has: a reference replaces them if the profile allows it.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::upstream::tool;
use crate::support::{Gateway, Said, Step, Upstream, every_kind};

const REFERENCE: &str = "[profiles.default]\nrepeated_results = \"reference\"\n";
const HELD: &str = "dev.trunkline/heldResults";
const DIGEST: &str = "dev.trunkline/resultDigest";

/// Defines a tool that answers with the letter `with`, repeated `size` times.
fn answers(upstream: &Upstream, name: &str, more: Value) {
    let mut tool = tool(name);
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    upstream.tool(&tool, |received| {
        let arguments = &received.params["arguments"];
        let size = arguments["size"].as_u64().unwrap_or(5000);
        let with = arguments["with"].as_str().unwrap_or("x");
        let text = with.repeat(usize::try_from(size).unwrap());
        let mut result = json!({
            "content": [{ "type": "text", "text": text }], "isError": arguments["fails"] == true,
        });
        if arguments["structured"] == true {
            result["structuredContent"] = json!({ "text": text });
        }
        vec![Step::Result(result)]
    });
}

fn reads() -> Value {
    json!({ "annotations": { "readOnlyHint": true } })
}

async fn reader() -> Upstream {
    let upstream = Upstream::modern().await;
    upstream.set_tools([""; 0]);
    answers(&upstream, "read", reads());
    upstream
}

/// Returns true if the client got the result, and false for a reference to it.
fn is_whole(said: &Said) -> bool {
    let is_reference = said.text().contains("is not sent again");
    assert!(is_reference != (said.text().len() >= 3000), "{said:?}");
    !is_reference
}

async fn gets_it(client: &Client, tool: &str, arguments: &Value) -> bool {
    is_whole(&client.call(tool, arguments.clone()).await)
}

async fn holding(client: &Client, tool: &str, held: Value) -> Said {
    client.ask_call(tool, json!({})).meta(HELD, held).send().await.said().await
}

#[tokio::test]
async fn a_session_gets_a_repeated_result_every_other_time() {
    let kinds = every_kind().await;
    for kind in &kinds {
        answers(&kind.upstream, "read", reads());
    }
    let gateway = Gateway::alone().kinds(&kinds).toml(REFERENCE).start().await;
    let (one, other) = (gateway.legacy().await, gateway.legacy().await);
    for kind in &kinds {
        let tool = format!("{}__read", kind.name);
        let (same, others) = (json!({ "path": 1 }), json!({ "path": 2 }));
        assert!(gets_it(&one, &tool, &same).await, "{}", kind.name);
        assert!(!gets_it(&one, &tool, &same).await, "{}", kind.name);
        // A repeated request means that the model has lost the result.
        assert!(gets_it(&one, &tool, &same).await, "{}", kind.name);
        assert!(!gets_it(&one, &tool, &same).await, "{}", kind.name);
        // Another call, and another session, are counted separately.
        assert!(gets_it(&one, &tool, &others).await, "{}", kind.name);
        assert!(gets_it(&other, &tool, &same).await, "{}", kind.name);
        // The server is asked each time.
        let all = kind.upstream.calls().into_iter().filter(|call| call.params["name"] == "read");
        assert_eq!(all.count(), 6, "{}", kind.name);
    }
    let counted = "trunkline_server_repeated_results_total{server=\"legacy-stdio\"} 2";
    assert!(gateway.metrics().await.contains(counted));
}

#[tokio::test]
async fn only_large_results_of_tools_that_read_are_referred_to() {
    let upstream = reader().await;
    answers(&upstream, "write", json!({ "annotations": { "readOnlyHint": false } }));
    answers(&upstream, "unknown", json!({}));
    let gateway = Gateway::with("s", upstream.http()).toml(REFERENCE).start().await;
    let client = gateway.legacy().await;
    for (tool, arguments) in [
        ("s__write", json!({})),
        ("s__unknown", json!({})),
        ("s__read", json!({ "size": 4000 })),
        ("s__read", json!({ "fails": true })),
    ] {
        assert!(gets_it(&client, tool, &arguments).await, "{tool} {arguments}");
        assert!(gets_it(&client, tool, &arguments).await, "{tool} {arguments}");
    }
}

#[tokio::test]
async fn a_result_that_has_changed_is_sent() {
    let upstream = reader().await;
    let versions = AtomicUsize::new(0);
    let mut log = reads();
    log.as_object_mut().unwrap().extend(tool("log").as_object().unwrap().clone());
    upstream.tool(&log, move |_| {
        let version = versions.fetch_add(1, Ordering::Relaxed) / 2;
        vec![Step::text(version.to_string().repeat(5000))]
    });
    let gateway = Gateway::with("s", upstream.http()).toml(REFERENCE).start().await;
    let client = gateway.legacy().await;
    for expected in [true, false, true, false, true] {
        assert_eq!(gets_it(&client, "s__log", &json!({})).await, expected);
    }
}

#[tokio::test]
async fn other_clients_get_no_references() {
    let upstream = reader().await;
    let settings = "[profiles.other]\nrepeated_results = \"reference\"\n";
    let gateway = Gateway::with("s", upstream.http()).toml(settings).start().await;
    for (era, client) in gateway.both().await {
        for _ in 0..2 {
            assert!(gets_it(&client, "s__read", &json!({})).await, "{era}");
        }
        assert!(is_whole(&holding(&client, "s__read", json!([])).await), "{era}");
    }
    // A Modern client has no session.
    let modern = gateway.modern().at("/mcp/other");
    for _ in 0..2 {
        assert!(gets_it(&modern, "s__read", &json!({})).await);
    }
}

#[tokio::test]
async fn structured_content_stays_where_clients_check_it() {
    let upstream = reader().await;
    let schema = json!({ "type": "object", "required": ["text"] });
    let mut checked = reads();
    checked["outputSchema"] = schema;
    answers(&upstream, "checked", checked);
    let gateway = Gateway::with("s", upstream.http()).toml(REFERENCE).start().await;
    let client = gateway.legacy().await;
    for (tool, stays) in [("s__checked", true), ("s__read", false)] {
        let arguments = json!({ "structured": true });
        assert!(gets_it(&client, tool, &arguments).await, "{tool}");
        let said = client.call(tool, arguments).await;
        assert!(!is_whole(&said), "{tool}");
        assert_eq!(said.result().get("structuredContent").is_some(), stays, "{tool}");
    }
}

#[tokio::test]
async fn a_client_of_either_era_names_the_results_that_it_holds() {
    let upstream = reader().await;
    let gateway = Gateway::with("s", upstream.http()).toml(REFERENCE).start().await;
    for (era, client) in gateway.both().await {
        let said = holding(&client, "s__read", json!([])).await;
        let digest = said.result()["_meta"][DIGEST].clone();
        assert!(is_whole(&said) && digest.as_str().is_some_and(|it| it.len() == 32), "{said:?}");
        // A reference replaces the result each time that the client reports the digest.
        for _ in 0..2 {
            let said = holding(&client, "s__read", json!(["x", digest])).await;
            assert!(!is_whole(&said), "{era}");
            assert_eq!(said.result()["_meta"][DIGEST], digest, "{era}");
        }
        assert!(is_whole(&holding(&client, "s__read", json!(["x"])).await), "{era}");
        for malformed in [json!("x"), json!([1]), json!(vec!["x"; 257])] {
            let said = holding(&client, "s__read", malformed).await;
            assert_eq!(said.code(), -32602, "{era}");
            assert!(said.error()["message"].as_str().unwrap().contains(HELD), "{said:?}");
        }
    }
}

#[cfg(feature = "code-mode")]
#[tokio::test]
async fn results_for_calls_of_the_gateway_itself_are_always_whole() {
    let upstream = reader().await;
    let settings = "[profiles.default]\nrepeated_results = \"reference\"\ndiscovery = \"code\"\n";
    let gateway = Gateway::with("s", upstream.http()).toml(settings).start().await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 1).await;
    let client = gateway.legacy().await;
    let code = "const read = async () => (await tools.s__read({})).length;
        return [await read(), await read(), await read()];";
    let said = holding(&client, "s__read", json!([])).await;
    let digest = said.result()["_meta"][DIGEST].clone();
    assert!(digest.is_string(), "{said:?}");
    for held in [Value::Null, json!([digest])] {
        let run = client.ask_call("run_code", json!({ "code": code })).meta(HELD, held);
        let said = run.send().await.said().await;
        let returned = &said.result()["structuredContent"]["returned"];
        assert_eq!(*returned, json!([5000, 5000, 5000]), "{said:?}");
    }
}

#[tokio::test]
async fn tools_that_are_found_are_referred_to_as_well() {
    let upstream = reader().await;
    let settings = "[profiles.default]\nrepeated_results = \"reference\"\ndiscovery = \"search\"\n";
    let gateway = Gateway::with("s", upstream.http()).toml(settings).start().await;
    let client = gateway.legacy().await;
    let arguments = json!({ "name": "s__read", "arguments": {} });
    assert!(gets_it(&client, "call_tool", &arguments).await);
    assert!(!gets_it(&client, "call_tool", &arguments).await);
}
