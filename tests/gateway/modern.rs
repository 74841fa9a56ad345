//! Messages of Modern clients.

use serde_json::{Value, json};

use crate::support::{Gateway, Step, Upstream};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

#[tokio::test]
async fn headers_and_meta_have_to_be_there_and_to_agree() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    let ask = || client.ask_call("s__echo", json!({}));
    for (case, ask, code) in [
        ("no version header", ask().without("mcp-protocol-version"), -32020),
        ("another version header", ask().header("mcp-protocol-version", "2025-11-25"), -32020),
        ("two version headers", ask().again("mcp-protocol-version", "2026-07-28"), -32020),
        ("no method header", ask().without("mcp-method"), -32020),
        ("another method header", ask().header("mcp-method", "tools/list"), -32020),
        ("a method header in other case", ask().header("mcp-method", "Tools/Call"), -32020),
        ("no name header", ask().without("mcp-name"), -32020),
        ("another name header", ask().header("mcp-name", "s__fail"), -32020),
        ("two name headers", ask().again("mcp-name", "s__echo"), -32020),
        ("a name header in broken Base64", ask().header("mcp-name", "=?base64?%?="), -32020),
        ("no version in _meta", ask().meta(VERSION, Value::Null), -32602),
        ("no capabilities in _meta", ask().meta(CAPABILITIES, Value::Null), -32602),
        ("no _meta", ask().param("_meta", json!({})), -32602),
        ("a _meta of another kind", ask().param("_meta", json!([])), -32602),
        ("capabilities of another kind", ask().meta(CAPABILITIES, json!(1)), -32602),
        (
            "a version that nobody speaks",
            ask().meta(VERSION, json!("2099-01-01")).header("mcp-protocol-version", "2099-01-01"),
            -32022,
        ),
        (
            "a Legacy version in _meta",
            ask().meta(VERSION, json!("2025-06-18")).header("mcp-protocol-version", "2025-06-18"),
            -32022,
        ),
    ] {
        let said = ask.send().await.said().await;
        assert_eq!((said.status, said.code()), (400, code), "{case}: {said:?}");
        assert!(said.answer()["id"].is_u64(), "{case}: {said:?}");
    }
    assert!(upstream.calls().is_empty());
    let encoded = ask().header("mcp-name", "=?base64?c19fZWNobw==?=").send().await.said().await;
    assert_eq!(encoded.text(), "{}");
}

#[tokio::test]
async fn a_discovery_from_a_legacy_transport_is_refused_as_a_legacy_server_does() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.modern();
    let ask = || client.ask("server/discover", json!({}));
    for (case, ask, code) in [
        ("no version header", ask().without("mcp-protocol-version"), -32600),
        ("a Legacy version header", ask().header("mcp-protocol-version", "2025-11-25"), -32600),
        ("no method header", ask().without("mcp-method"), -32600),
        ("another method header", ask().header("mcp-method", "initialize"), -32600),
        ("another version in _meta", ask().meta(VERSION, json!("2099-01-01")), -32020),
        ("two version headers", ask().again("mcp-protocol-version", "2026-07-28"), -32020),
        ("two method headers", ask().again("mcp-method", "server/discover"), -32020),
    ] {
        let said = ask.send().await.said().await;
        assert_eq!((said.status, said.code()), (400, code), "{case}: {said:?}");
    }
}

#[tokio::test]
async fn an_unsupported_version_is_answered_with_the_supported_ones() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.modern();
    let said = client
        .ask("tools/list", json!({}))
        .meta(VERSION, json!("2099-01-01"))
        .header("mcp-protocol-version", "2099-01-01")
        .send()
        .await
        .said()
        .await;
    assert_eq!((said.status, said.code()), (400, -32022));
    assert_eq!(
        said.error()["data"],
        json!({ "supported": ["2026-07-28"], "requested": "2099-01-01" })
    );
}

#[tokio::test]
async fn discover_tells_who_the_gateway_is() {
    let gateway = Gateway::alone()
        .gateway("title = \"Tools\"\ninstructions = \"Ask first.\"\nlist_ttl = \"5s\"")
        .start()
        .await;
    let said = gateway.modern().request("server/discover", json!({})).await;
    let result = said.result();
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(result["capabilities"], json!({ "tools": { "listChanged": true } }));
    assert_eq!(result["instructions"], "Ask first.");
    assert_eq!((&result["resultType"], &result["ttlMs"]), (&json!("complete"), &json!(5000)));
    let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!((&info["name"], &info["title"]), (&json!("trunkline"), &json!("Tools")));
}

#[tokio::test]
async fn results_have_their_type_freshness_scope_and_sender() {
    let [modern, legacy] = Upstream::both().await;
    *modern.inner.list_ttl.lock().unwrap() = Some(7000);
    modern.does("own", |_| {
        vec![Step::Raw(r#"{"resultType":"complete","content":[],"_meta":{"a":1}}"#.into())]
    });
    let gateway = Gateway::with("m", modern.http())
        .server("l", legacy.http())
        .gateway("list_ttl = \"1h\"")
        .start()
        .await;
    let client = gateway.modern();
    let list = client.request("tools/list", json!({})).await.result().clone();
    assert_eq!((&list["resultType"], &list["ttlMs"]), (&json!("complete"), &json!(7000)));
    assert_eq!(list["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "trunkline");
    assert!(list["cacheScope"] == "public" || list["cacheScope"] == "private", "{list}");
    for tool in ["m__own", "m__echo", "l__echo"] {
        let result = client.call(tool, json!({})).await.result().clone();
        assert_eq!(result["resultType"], "complete", "{tool}");
        let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info["name"], "scripted", "{tool}");
    }
    let own = client.call("m__own", json!({})).await;
    assert_eq!(own.result()["_meta"]["a"], 1);
}

#[tokio::test]
async fn an_unknown_method_is_not_found() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.modern();
    for method in ["tools/frobnicate", "ping", "initialize", "logging/setLevel", "x"] {
        let said = client.request(method, json!({})).await;
        assert_eq!((said.status, said.code()), (404, -32601), "{method}");
    }
}

#[tokio::test]
async fn messages_other_than_requests_are_refused_or_accepted_in_silence() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.modern();
    let ask = || client.ask("tools/list", json!({}));
    let accepted = ask().notification().send().await.said().await;
    assert_eq!((accepted.status, accepted.body.as_str()), (202, ""));
    for (body, code) in [
        ("{", -32700),
        ("", -32700),
        ("\u{feff}{}", -32700),
        ("7", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#, -32600),
    ] {
        let said = ask().body(body).send().await.said().await;
        assert_eq!((said.status, said.code()), (400, code), "{body}");
    }
}

#[tokio::test]
async fn only_posts_are_served_to_modern_clients() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.modern();
    for method in ["GET", "DELETE", "PUT", "PATCH"] {
        let said = client
            .http(method, "/mcp")
            .header("accept", "text/event-stream")
            .send()
            .await
            .said()
            .await;
        assert_eq!(said.status, 405, "{method}");
        assert_eq!(said.header("allow"), Some("POST, GET, DELETE"), "{method}");
    }
    let said = client.ask("tools/list", json!({})).at("/other").send().await.said().await;
    assert_eq!(said.status, 404);
}

#[tokio::test]
async fn mirrored_parameters_are_checked_and_go_on_to_a_modern_server() {
    let [modern, legacy] = Upstream::both().await;
    let tool = json!({
        "name": "query",
        "inputSchema": { "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "limit": { "type": "integer", "x-mcp-header": "Limit" },
        }},
    });
    modern.tool(&tool, |_| vec![Step::text("queried")]);
    legacy.tool(&tool, |_| vec![Step::text("queried")]);
    let gateway = Gateway::with("m", modern.http()).server("l", legacy.http()).start().await;
    let client = gateway.modern();
    let arguments = json!({ "region": "Zürich", "limit": 7 });
    let ask = |server: &str| client.ask_call(&format!("{server}__query"), arguments.clone());
    for server in ["m", "l"] {
        for (case, ask) in [
            ("none", ask(server)),
            ("one", ask(server).header("mcp-param-limit", "7")),
            (
                "another",
                ask(server)
                    .header("mcp-param-limit", "8")
                    .header("mcp-param-region", "=?base64?WsO8cmljaA==?="),
            ),
        ] {
            let said = ask.send().await.said().await;
            assert_eq!((said.status, said.code()), (400, -32020), "{server} {case}: {said:?}");
        }
        let said = ask(server)
            .header("mcp-param-limit", "7")
            .header("mcp-param-region", "=?base64?WsO8cmljaA==?=")
            .send()
            .await
            .said()
            .await;
        assert_eq!(said.text(), "queried", "{server}");
    }
    gateway.legacy().await.call("m__query", arguments).await.text();
    for call in modern.calls() {
        assert_eq!(call.header("mcp-param-limit"), Some("7"));
        assert_eq!(call.header("mcp-param-region"), Some("=?base64?WsO8cmljaA==?="));
        assert_eq!(
            (call.header("mcp-name"), call.header("mcp-method")),
            (Some("query"), Some("tools/call"))
        );
    }
    assert_eq!((modern.calls().len(), legacy.calls().len()), (2, 1));
}

#[tokio::test]
async fn a_modern_server_hears_of_the_client_and_a_legacy_one_of_none_of_it() {
    let [modern, legacy] = Upstream::both().await;
    let gateway = Gateway::with("m", modern.http()).server("l", legacy.http()).start().await;
    for (era, client) in gateway.both().await {
        for server in ["m", "l"] {
            let ask = client.ask_call(&format!("{server}__echo"), json!({}));
            ask.meta("com.example/own", json!([1])).send().await.said().await.text();
        }
        let call = modern.calls().pop().unwrap();
        assert_eq!(call.meta(VERSION), "2026-07-28", "{era}");
        assert_eq!(call.meta("io.modelcontextprotocol/clientInfo")["name"], "a-test", "{era}");
        assert_eq!(call.meta(CAPABILITIES), &json!({}), "{era}");
        assert_eq!(call.meta("com.example/own"), &json!([1]), "{era}");
        let call = legacy.calls().pop().unwrap();
        let meta = call.params["_meta"].as_object().unwrap();
        let keys: Vec<&String> = meta.keys().filter(|key| *key != "traceparent").collect();
        assert_eq!(keys, ["com.example/own"], "{era}");
    }
}
