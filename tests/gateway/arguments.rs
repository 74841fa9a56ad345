//! Arguments are checked before a call reaches a server.

use serde_json::{Value, json};

use crate::support::{Gateway, Step, Upstream};

const DRAFT_2019: &str = "https://json-schema.org/draft/2019-09/schema";
const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

#[tokio::test]
async fn arguments_that_break_the_schema_are_reported_to_the_model_and_not_sent_to_the_server() {
    let [modern, legacy] = Upstream::both().await;
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "minLength": 1 },
            "days": { "type": "integer", "maximum": 7 },
            "unit": { "enum": ["C", "F"] },
            "deep": { "type": "object", "properties": { "list": { "items": { "type": "number" } } } },
        },
        "required": ["city"],
        "additionalProperties": false,
    });
    for upstream in [&modern, &legacy] {
        upstream.tool(&json!({ "name": "weather", "inputSchema": schema }), |_| {
            vec![Step::text("fine")]
        });
    }
    let gateway = Gateway::with("m", modern.http()).server("l", legacy.stdio()).start().await;
    for (era, client) in gateway.both().await {
        for server in ["m", "l"] {
            let tool = format!("{server}__weather");
            for (arguments, words) in [
                (json!({}), &["required", "city"][..]),
                (json!({ "city": 7 }), &["/city", "type", "string", "integer"]),
                (json!({ "city": "" }), &["/city", "minLength"]),
                (json!({ "city": "Bern", "days": 8 }), &["/days", "maximum", "7"]),
                (json!({ "city": "Bern", "unit": "K" }), &["/unit", "enum", "\"C\""]),
                (json!({ "city": "Bern", "extra": 1 }), &["additionalProperties", "extra"]),
                (
                    json!({ "city": "Bern", "deep": { "list": [1, "x"] } }),
                    &["/deep/list/1", "number", "string"],
                ),
                (json!({ "city": ["secret"] }), &["/city", "string", "array"]),
            ] {
                let said = client.call(&tool, arguments.clone()).await;
                assert!(said.is_error() && said.status == 200, "{era} {arguments}: {said:?}");
                for word in words {
                    assert!(
                        said.text().contains(word),
                        "{era} {arguments}: {word} in {}",
                        said.text()
                    );
                }
                assert!(!said.text().contains("secret"), "values stay out: {}", said.text());
            }
            assert_eq!(
                client.call(&tool, json!({ "city": "Bern", "days": 7.0 })).await.text(),
                "fine"
            );
        }
    }
    assert_eq!((modern.calls().len(), legacy.calls().len()), (2, 2));
}

#[tokio::test]
async fn every_violation_has_a_line_and_at_most_ten_have() {
    let upstream = Upstream::modern().await;
    let names: Vec<String> = (0..15).map(|n| format!("field{n:02}")).collect();
    let schema = json!({ "type": "object", "required": names });
    upstream.tool(&json!({ "name": "form", "inputSchema": schema }), |_| vec![Step::text("x")]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let said = gateway.modern().call("s__form", json!({})).await;
    let lines = said.text().lines().filter(|line| line.contains("required")).count();
    assert_eq!(lines, 10, "{}", said.text());
    assert!(said.text().ends_with("… and more"), "{}", said.text());
}

#[tokio::test]
async fn a_schema_is_read_as_the_draft_that_it_declares() {
    let upstream = Upstream::modern().await;
    // Result of each draft for a keyword that only one draft has.
    let tuple = |draft: Option<&str>, keyword: &str| {
        let mut schema = json!({ "type": "object", "properties": { "t": { "type": "array" } } });
        schema["properties"]["t"][keyword] = json!([{ "type": "integer" }]);
        if let Some(draft) = draft {
            schema["$schema"] = json!(draft);
        }
        schema
    };
    let cases: [(&str, Value, bool); 5] = [
        ("default", tuple(None, "prefixItems"), true),
        (
            "default_items",
            json!({ "type": "object", "properties": { "t": { "prefixItems": [{ "type": "integer" }] } } }),
            true,
        ),
        ("d2019", tuple(Some(DRAFT_2019), "items"), true),
        ("d7", tuple(Some(DRAFT_7), "items"), true),
        ("d7_prefix", tuple(Some(DRAFT_7), "prefixItems"), false),
    ];
    for (name, schema, _) in &cases {
        upstream.tool(&json!({ "name": name, "inputSchema": schema }), |_| vec![Step::text("ok")]);
    }
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (name, _, checks) in &cases {
        let said = gateway.modern().call(&format!("s__{name}"), json!({ "t": ["x"] })).await;
        assert_eq!(said.is_error(), *checks, "{name}: {said:?}");
        let said = gateway.modern().call(&format!("s__{name}"), json!({ "t": [1] })).await;
        assert!(!said.is_error(), "{name}: {said:?}");
    }
}

#[tokio::test]
async fn formats_are_not_checked_and_nothing_is_fetched() {
    let upstream = Upstream::modern().await;
    let address = upstream.http_address();
    let mail =
        json!({ "type": "object", "properties": { "m": { "type": "string", "format": "email" } } });
    upstream.tool(&json!({ "name": "mail", "inputSchema": mail }), |_| vec![Step::text("sent")]);
    let remote = json!({ "type": "object", "properties": { "x": { "$ref": format!("http://{address}/schema.json") } } });
    upstream.tool(&json!({ "name": "remote", "inputSchema": remote }), |_| vec![Step::text("x")]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let said = gateway.modern().call("s__mail", json!({ "m": "not an address" })).await;
    assert_eq!(said.text(), "sent");
    // The tool is there, without the reference.
    let tools = gateway.modern().tools().await;
    let remote = tools.iter().find(|tool| tool["name"] == "s__remote").unwrap();
    assert_eq!(remote["inputSchema"]["properties"]["x"], json!({}), "{remote}");
    assert!(upstream.all("GET").is_empty());
}

#[tokio::test]
async fn missing_arguments_are_no_arguments() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        let said = client.request("tools/call", json!({ "name": "s__echo" })).await;
        assert!(!said.is_error(), "{era}: {said:?}");
        let call = upstream.calls().pop().unwrap();
        assert!(call.params.get("arguments").is_none_or(|a| *a == json!({})), "{era}: {call:?}");
        for params in [json!({}), json!({ "name": 7 }), json!({ "arguments": {} })] {
            let said = client.request("tools/call", params.clone()).await;
            assert!(matches!(said.code(), -32602 | -32020), "{era} {params}: {said:?}");
        }
    }
}

#[tokio::test]
async fn a_key_that_stands_twice_is_refused() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "properties": { "a": { "maximum": 1 } } });
    upstream.tool(&json!({ "name": "small", "inputSchema": schema }), |_| vec![Step::text("x")]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        let ask = |from: &str, to: &str| {
            let ask = client.ask_call("s__small", json!({ "a": 1 }));
            let body = ask.message().to_string().replace(from, to);
            ask.body(body)
        };
        let said = ask(r#""name":"s__small""#, r#""name":"s__small","name":"s__echo""#)
            .send()
            .await
            .said()
            .await;
        assert!(said.answer().get("error").is_some(), "{era}: {said:?}");
        let said = ask(r#"{"a":1}"#, r#"{"a":1,"a":2}"#).send().await.said().await;
        assert!(said.answer().get("error").is_some() || said.is_error(), "{era}: {said:?}");
    }
    assert!(upstream.calls().is_empty());
}

const LENIENT: &str = r#"{"type":"object","properties":{"days":{"type":"integer","x-mcp-header":"Days"},"all":{"type":"boolean"},"unit":{"type":"string","x-mcp-header":"Unit"}}}"#;

#[tokio::test]
async fn coerced_arguments_are_the_ones_that_the_server_gets() {
    for upstream in Upstream::both().await {
        for name in ["weather", "exact", "any"] {
            let schema: Value = serde_json::from_str(LENIENT).unwrap();
            upstream.tool(&json!({ "name": name, "inputSchema": schema }), |call| {
                vec![Step::text(call.arguments().to_string())]
            });
        }
        let lines = "arguments = \"coerce\"\ntools.exact.arguments = \"strict\"\n\
                     tools.any.arguments = \"off\"\n";
        let gateway = Gateway::with("s", upstream.http() + lines).start().await;
        for (era, client) in gateway.both().await {
            let call = async |tool: &str, arguments: Value| {
                let ask = client.ask_call(&format!("s__{tool}"), arguments.clone());
                let ask = match arguments["days"].as_str() {
                    Some(days) if era == "Modern" => ask.header("mcp-param-days", days),
                    _ => ask,
                };
                ask.send().await.said().await
            };
            let sent = json!({ "days": "3", "all": "false" });
            let fine = call("weather", sent.clone()).await;
            assert_eq!(fine.text(), r#"{"days":3,"all":false}"#, "{era}");
            let received = upstream.calls().pop().unwrap();
            let mirrored = received.header("mcp-param-days");
            assert!(mirrored.is_none_or(|days| days == "3"), "{era}: {mirrored:?}");
            assert_eq!(received.params["name"], "weather");
            // After the arguments: the name is replaced there, too.
            let behind = format!(
                r#"{{"arguments":{{"days":"3"}},"name":"s__weather","_meta":{}}}"#,
                client.ask_call("s__weather", json!({})).message()["params"]["_meta"]
            )
            .replace(r#""_meta":null"#, r#""_meta":{}"#);
            let whole =
                format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{behind}}}"#);
            let ask = client.ask_call("s__weather", json!({ "days": "3" })).body(whole);
            let ask = if era == "Modern" { ask.header("mcp-param-days", "3") } else { ask };
            assert_eq!(ask.send().await.said().await.text(), r#"{"days":3}"#, "{era}");
            // crewai-tools sends null for parameters that the model omitted.
            let sparse = json!({ "unit": null, "days": "3", "all": null });
            assert_eq!(call("weather", sparse.clone()).await.text(), r#"{"days":3}"#, "{era}");
            assert_eq!(upstream.calls().pop().unwrap().header("mcp-param-unit"), None, "{era}");
            let before = upstream.calls().len();
            for (tool, arguments) in [
                ("exact", sent.clone()),
                ("exact", sparse),
                ("weather", json!({ "days": "three" })),
                ("weather", json!({ "days": "3", "all": "maybe" })),
            ] {
                let refused = call(tool, arguments.clone()).await;
                assert!(refused.is_error(), "{era} {tool} {arguments}: {refused:?}");
                for setting in ["coerce", "strict", "servers", "configur"] {
                    assert!(!refused.text().contains(setting), "{refused:?}");
                }
            }
            assert_eq!(upstream.calls().len(), before);
            assert_eq!(call("any", json!({ "days": "three" })).await.text(), r#"{"days":"three"}"#);
        }
    }
}

#[tokio::test]
async fn a_lenient_server_gets_large_arguments_as_well() {
    let upstream = Upstream::modern().await;
    for name in ["coerced", "any", "exact"] {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        upstream.tool(&json!({ "name": name, "inputSchema": schema }), |call| {
            vec![Step::text(call.arguments()["n"].to_string())]
        });
    }
    let lines = "tools.coerced.arguments = \"coerce\"\ntools.any.arguments = \"off\"\n";
    let gateway = Gateway::with("s", upstream.http() + lines).start().await;
    let client = gateway.modern();
    let large = json!({ "n": "7", "more": "x".repeat(100_000) });
    assert_eq!(client.call("s__coerced", large.clone()).await.text(), "7");
    assert_eq!(client.call("s__any", large.clone()).await.text(), "\"7\"");
    assert!(client.call("s__exact", large).await.is_error());
}
