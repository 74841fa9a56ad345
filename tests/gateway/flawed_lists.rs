//! Lists with flaws: each costs no more than the flawed part, for every client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Gateway, Step, Upstream, upstream::tool};

/// Returns a tool with these members besides its name and description.
fn with(name: &str, members: Value) -> String {
    let mut tool = json!({ "name": name, "description": "d", "inputSchema": { "type": "object" } });
    tool.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    tool.to_string()
}

#[tokio::test]
async fn a_flaw_costs_no_more_than_its_member() {
    for upstream in Upstream::both().await {
        upstream.set_tools([
            tool("before").to_string(),
            with("hint", json!({ "annotations": { "readOnlyHint": null, "title": "A" } })),
            with("title", json!({ "title": 5, "icons": null, "execution": "x" })),
            with("output", json!({ "outputSchema": { "type": "object", "required": null } })),
            with(
                "any",
                json!({ "inputSchema": { "type": "object", "properties": { "a": {
                "type": "any", "minimum": 1, "exclusiveMinimum": true,
            } } } }),
            ),
            tool("after").to_string(),
        ]);
        for (way, lines) in upstream.ways() {
            let gateway = Gateway::with("s", lines).start().await;
            for (era, client) in gateway.both().await {
                let tools = client.tools().await;
                let names: Vec<_> =
                    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
                let expected =
                    ["s__before", "s__hint", "s__title", "s__output", "s__any", "s__after"];
                assert_eq!(names, expected, "{way} {era}");
                assert_eq!(tools[1]["annotations"], json!({ "title": "A" }), "{way} {era}");
                assert_eq!(tools[2].get("title"), None, "{way} {era}");
                assert_eq!(tools[3]["outputSchema"], json!({ "type": "object" }), "{way} {era}");
                let argument = &tools[4]["inputSchema"]["properties"]["a"];
                assert_eq!(argument, &json!({ "exclusiveMinimum": 1 }), "{way} {era}");
                let refused = client.call("s__any", json!({ "a": 1 })).await;
                assert!(refused.is_error() && refused.text().contains("/a"), "{refused:?}");
            }
            let warnings = gateway.server("s").await["warnings"].to_string();
            for expected in [
                "title: it was repaired: /title dropped, /execution dropped",
                "output: it was repaired: /outputSchema/required dropped",
                "any: it was repaired: /inputSchema/properties/a/exclusiveMinimum translated",
            ] {
                assert!(warnings.contains(expected), "{expected}: {warnings}");
            }
            assert!(!warnings.contains("hint:"), "null is no flaw: {warnings}");
        }
    }
}

#[cfg(feature = "code-mode")]
#[tokio::test]
async fn legacy_clients_get_results_of_any_kind_within_an_object() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "array", "items": { "type": "integer" } });
    let list = json!({
        "name": "list", "inputSchema": { "type": "object" }, "outputSchema": schema,
    });
    upstream.set_tools([""; 0]);
    upstream
        .tool(&list, |_| vec![Step::Result(json!({ "content": [], "structuredContent": [1, 2] }))]);
    let large = json!({ "name": "large", "inputSchema": { "type": "object" }, "outputSchema": {} });
    upstream.tool(&large, |_| {
        let text = "x".repeat(300_000);
        vec![Step::Result(json!({ "content": [], "structuredContent": text }))]
    });
    let plain = json!({
        "name": "plain", "inputSchema": { "type": "object" }, "outputSchema": { "type": "object" },
    });
    upstream.tool(&plain, |_| {
        vec![Step::Result(json!({ "content": [], "structuredContent": { "result": 1 } }))]
    });
    for (way, lines) in upstream.ways() {
        let code = "[profiles.code]\ndiscovery = \"code\"\n";
        let gateway = Gateway::with("s", lines).toml(code).start().await;
        for (era, client) in gateway.both().await {
            let is_legacy = era == "Legacy";
            let tools = client.tools().await;
            let wrapped = json!({
                "type": "object", "properties": { "result": schema }, "required": ["result"],
            });
            let expected = if is_legacy { &wrapped } else { &schema };
            assert_eq!(&tools[0]["outputSchema"], expected, "{way} {era}");
            let said = client.call("s__list", json!({})).await;
            let expected = if is_legacy { json!({ "result": [1, 2] }) } else { json!([1, 2]) };
            assert_eq!(said.result()["structuredContent"], expected, "{way} {era}");
            let said = client.call("s__large", json!({})).await;
            let structured = &said.result()["structuredContent"];
            let text = if is_legacy { &structured["result"] } else { structured };
            assert_eq!(text.as_str().map(str::len), Some(300_000), "{way} {era}");
            let said = client.call("s__plain", json!({})).await;
            assert_eq!(said.result()["structuredContent"], json!({ "result": 1 }), "{way} {era}");
        }
        // Code gets the values described by the server's own schema.
        for (era, client) in gateway.both_at("/mcp/code").await {
            let code = json!({ "code": "return await tools.s__list();" });
            let said = client.call("run_code", code).await;
            let returned = &said.result()["structuredContent"]["returned"];
            assert_eq!(returned, &json!([1, 2]), "{way} {era}: {said:?}");
        }
    }
}

#[tokio::test]
async fn legacy_clients_get_structured_content_of_any_kind_within_an_object() {
    for upstream in Upstream::both().await {
        upstream.does("bare", |received| {
            let text = "\"structuredContent\": 7";
            vec![Step::Result(json!({
                "_meta": { "structuredContent": 7 }, "content": [{ "type": "text", "text": text }],
                "structuredContent": received.arguments()["value"],
            }))]
        });
        for (way, lines) in upstream.ways() {
            let gateway = Gateway::with("s", lines).start().await;
            for (era, client) in gateway.both().await {
                for value in [
                    json!([1, 2]),
                    json!("text"),
                    json!(7),
                    json!(true),
                    json!(null),
                    json!({ "a": [1] }),
                    json!({}),
                ] {
                    let said = client.call("s__bare", json!({ "value": value })).await;
                    let is_same = era != "Legacy" || value.is_object();
                    let expected = if is_same { value } else { json!({ "result": value }) };
                    let result = said.result();
                    assert_eq!(result["structuredContent"], expected, "{way} {era}: {said:?}");
                    assert_eq!(result["_meta"]["structuredContent"], 7, "{way} {era}");
                    assert_eq!(said.text(), "\"structuredContent\": 7", "{way} {era}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_cursor_that_leads_back_ends_the_list_and_keeps_its_entries() {
    for upstream in Upstream::both().await {
        for (cursor, pages, flaw) in [
            (json!("again"), 2, "returned before"),
            (json!(""), 1, "empty nextCursor"),
            (json!(7), 1, "is not a string"),
        ] {
            let asked = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&asked);
            let next = cursor.clone();
            upstream.when_asked("tools/list", move |_| {
                let page = counted.fetch_add(1, Ordering::Relaxed).min(1);
                let tools = json!([tool("same"), tool(&format!("t{page}"))]);
                vec![Step::Result(json!({
                    "tools": tools, "nextCursor": next, "ttlMs": 0, "cacheScope": "public",
                    "resultType": "complete",
                }))]
            });
            let gateway = Gateway::with("s", upstream.http()).start().await;
            gateway.ready("s").await;
            assert_eq!(asked.load(Ordering::Relaxed), pages, "{cursor}");
            let names = gateway.modern().tool_names().await;
            let expected: &[&str] =
                if pages == 2 { &["s__same", "s__t0", "s__t1"] } else { &["s__same", "s__t0"] };
            assert_eq!(names, expected, "{cursor}");
            let warnings = gateway.server("s").await["warnings"].to_string();
            assert!(warnings.contains("tools/list") && warnings.contains(flaw), "{warnings}");
            assert!(!warnings.contains("twice"), "{warnings}");
            gateway.stop().await;
        }
    }
}

#[tokio::test]
async fn a_list_of_null_is_empty() {
    for upstream in Upstream::both().await {
        upstream.can(json!({ "tools": {}, "prompts": {}, "resources": {} }));
        for (method, member) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
            upstream.when_asked(method, move |_| {
                vec![Step::Result(json!({
                    member: null, "nextCursor": null, "ttlMs": null, "cacheScope": null,
                    "resultType": "complete",
                }))]
            });
        }
        let gateway = Gateway::with("s", upstream.http()).start().await;
        gateway.ready("s").await;
        for (era, client) in gateway.both().await {
            assert!(client.tool_names().await.contains(&"s__echo".to_owned()), "{era}");
            let said = client.request("prompts/list", json!({})).await;
            assert_eq!(said.result()["prompts"], json!([]), "{era}");
        }
        assert_eq!(gateway.server("s").await["warnings"], json!([]));
    }
}

#[tokio::test]
async fn a_server_that_declares_no_lists_is_asked_for_each_once() {
    for upstream in Upstream::both().await {
        upstream.lists("prompts", [json!({ "name": "p" })]);
        for capabilities in [json!({}), json!(null), json!({ "logging": {} })] {
            upstream.can(capabilities.clone());
            upstream.when_asked("resources/list", |_| {
                vec![Step::Error(json!({ "code": -32601, "message": "no" }))]
            });
            for (way, lines) in upstream.ways() {
                let asked = |method: &str| upstream.all(method).len();
                let before = (asked("tools/list"), asked("resources/list"));
                let gateway = Gateway::with("s", lines).start().await;
                gateway.ready("s").await;
                assert_eq!(asked("resources/list") - before.1, 1, "{way} {capabilities}");
                for (era, client) in gateway.both().await {
                    let names = client.tool_names().await;
                    assert!(names.contains(&"s__echo".to_owned()), "{way} {era} {capabilities}");
                    let prompts = client.request("prompts/list", json!({})).await;
                    assert_eq!(prompts.result()["prompts"][0]["name"], "s__p", "{way} {era}");
                    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{way} {era}");
                }
                let warnings = gateway.server("s").await["warnings"].to_string();
                assert!(warnings.contains("declares none of the capabilities"), "{warnings}");
                assert!(warnings.contains("and it has tools, prompts"), "{warnings}");
                assert!(asked("tools/list") > before.0, "{way}");
                gateway.stop().await;
            }
        }
    }
}

#[tokio::test]
async fn only_a_server_with_subscriptions_has_them_announced() {
    let upstream = Upstream::modern().await;
    upstream.can(json!({ "tools": {}, "resources": {} })).lists("resources", []);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    gateway.ready("s").await;
    let said = gateway.modern().request("server/discover", json!({})).await;
    let resources = &said.result()["capabilities"]["resources"];
    assert_eq!(resources, &json!({ "listChanged": true }));
    upstream.resources(&["a:1"]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    gateway.ready("s").await;
    let said = gateway.modern().request("server/discover", json!({})).await;
    assert_eq!(said.result()["capabilities"]["resources"]["subscribe"], true);
}

#[tokio::test]
async fn a_schema_that_the_configuration_makes_unnecessary_hides_no_tool() {
    let endless = json!({ "type": "object", "allOf": [{ "$ref": "#" }] });
    for upstream in Upstream::both().await {
        upstream.set_tools([with("deep", json!({ "inputSchema": endless }))]);
        let own = "input_schema = { type = \"object\", required = [\"a\"] }";
        for (lines, names, refused) in [
            (String::new(), &[][..], true),
            ("arguments = \"off\"\n".to_owned(), &["s__deep"], false),
            ("[servers.s.tools.deep]\narguments = \"off\"\n".to_owned(), &["s__deep"], false),
            (format!("[servers.s.tools.deep]\n{own}\n"), &["s__deep"], true),
        ] {
            let gateway = Gateway::with("s", upstream.http() + &lines).start().await;
            for (era, client) in gateway.both().await {
                assert_eq!(client.tool_names().await, names, "{era} {lines}");
                if names.is_empty() {
                    continue;
                }
                let before = upstream.calls().len();
                client.call("s__deep", json!({})).await;
                assert_eq!(upstream.calls().len() == before, refused, "{era} {lines}");
            }
        }
    }
}
