//! Arguments that the gateway fixes, fills in, hides, renames and copies.

use serde_json::{Value, json};

use crate::support::{Gateway, Step, Upstream};

/// Returns a tool with more required arguments than clients should provide.
fn find_issue() -> Value {
    json!({
        "name": "find",
        "inputSchema": {
            "type": "object",
            "properties": {
                "repo": { "type": "string" },
                "mirror": { "type": "string" },
                "token": { "type": "string", "x-mcp-header": "Token" },
                "user": { "type": "string" },
                "limit": { "type": "integer", "maximum": 50, "default": 5 },
                "q": { "type": "string", "x-mcp-header": "Query" },
                "old": { "type": "boolean" },
            },
            "required": ["repo", "token", "q", "limit"],
            "additionalProperties": false,
        },
    })
}

const EDITS: &str = r#"
    tools.find.arguments.repo = { value = "acme/app" }
    tools.find.arguments.mirror = { from = "repo" }
    tools.find.arguments.token = { value = "${env:TOKEN}" }
    tools.find.arguments.user = { value = "${header:X-User}" }
    tools.find.arguments.limit = { default = 10 }
    tools.find.arguments.q = { rename = "query", description = "What to look for" }
    tools.find.arguments.old = { hide = true }
"#;

#[tokio::test]
async fn clients_see_and_send_their_own_arguments_and_the_server_gets_all() {
    let [modern, legacy] = Upstream::both().await;
    for upstream in [&modern, &legacy] {
        upstream.tool(&find_issue(), |_| vec![Step::text("found")]);
    }
    let gateway = Gateway::with("m", modern.http() + EDITS)
        .server("l", legacy.stdio() + EDITS)
        .variable("TOKEN", "hunter2-token")
        .start()
        .await;
    for (era, client) in gateway.both().await {
        for (server, upstream) in [("m", &modern), ("l", &legacy)] {
            let name = format!("{server}__find");
            let tools = client.tools().await;
            let tool = tools.iter().find(|tool| tool["name"] == *name).unwrap();
            let expected = json!({
                "type": "object",
                "properties": {
                    "limit": { "type": "integer", "maximum": 50, "default": 10 },
                    "query": {
                        "type": "string", "x-mcp-header": "Query", "description": "What to look for"
                    },
                },
                "required": ["query"],
                "additionalProperties": false,
            });
            assert_eq!(tool["inputSchema"], expected, "{era} {server}");

            let ask = client.ask_call(&name, json!({ "query": "bug" }));
            let ask = ask.header("Mcp-Param-Query", "bug").header("X-User", "ann");
            let said = ask.send().await.said().await;
            assert_eq!(said.text(), "found", "{era} {server}: {said:?}");
            let call = upstream.calls().pop().unwrap();
            let complete = json!({
                "q": "bug", "repo": "acme/app", "token": "hunter2-token", "user": "ann",
                "limit": 10, "mirror": "acme/app",
            });
            assert_eq!(call.params["arguments"], complete, "{era} {server}");
            if server == "m" {
                assert_eq!(call.headers["mcp-param-token"], "hunter2-token", "{era}");
                assert_eq!(call.headers["mcp-param-query"], "bug", "{era}");
            }
            // Arguments that the configuration fixes, hides or renames are unknown to clients.
            for (argument, value) in [
                ("repo", json!("evil/app")),
                ("mirror", json!("x")),
                ("token", json!("x")),
                ("old", json!(true)),
                ("q", json!("x")),
            ] {
                let mut arguments = json!({ "query": "bug" });
                arguments[argument] = value;
                let ask = client.ask_call(&name, arguments).header("Mcp-Param-Query", "bug");
                let said = ask.send().await.said().await;
                assert!(said.is_error(), "{era} {server} {argument}: {said:?}");
                assert!(said.text().contains("expected no such property"), "{}", said.text());
            }
            // An optional argument is omitted if the request lacks the header.
            let ask = client.ask_call(&name, json!({ "query": "bug", "limit": 7 }));
            ask.header("Mcp-Param-Query", "bug").send().await.said().await;
            let call = upstream.calls().pop().unwrap();
            assert_eq!(call.params["arguments"].get("user"), None, "{era} {server}");
            assert_eq!(call.params["arguments"]["limit"], 7, "{era} {server}");
        }
    }
    let status = gateway.status().await.to_string() + &gateway.metrics().await;
    assert!(!status.contains("hunter2"), "secrets stay out");
}

#[tokio::test]
async fn a_fixed_value_wins_where_the_schema_is_open_or_is_not_checked() {
    let upstream = Upstream::legacy().await;
    for name in ["open", "off"] {
        let schema = json!({ "type": "object", "properties": { "repo": { "type": "string" } } });
        upstream.tool(&json!({ "name": name, "inputSchema": schema }), |_| vec![Step::text("ok")]);
    }
    let edits = "tools.open.arguments.repo = { value = \"acme/app\" }";
    let gateway = Gateway::with("a", upstream.http() + edits)
        .server("b", upstream.http() + "arguments = \"off\"\n" + edits)
        .start()
        .await;
    for (era, client) in gateway.both().await {
        for server in ["a", "b"] {
            let sent = json!({ "repo": "evil/app", "more": [1] });
            let said = client.call(&format!("{server}__open"), sent).await;
            assert_eq!(said.text(), "ok", "{era} {server}");
            let call = upstream.calls().pop().unwrap();
            let expected = json!({ "more": [1], "repo": "acme/app" });
            assert_eq!(call.params["arguments"], expected, "{era} {server}");
            // Without any arguments.
            let said =
                client.request("tools/call", json!({ "name": format!("{server}__open") })).await;
            assert_eq!(said.text(), "ok", "{era} {server}");
            let call = upstream.calls().pop().unwrap();
            assert_eq!(call.params["arguments"], json!({ "repo": "acme/app" }), "{era} {server}");
        }
    }
}

#[tokio::test]
async fn completed_arguments_fit_the_servers_schema_or_the_call_is_refused() {
    let upstream = Upstream::modern().await;
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "minimum": 1 }, "unit": { "enum": ["C", "F"] } },
        "if": { "properties": { "unit": { "const": "F" } }, "required": ["unit"] },
        "then": { "properties": { "n": { "minimum": 100 } } },
    });
    upstream.tool(&json!({ "name": "t", "inputSchema": schema }), |_| vec![Step::text("ok")]);
    let edits = "
        tools.t.arguments.unit = { value = \"F\" }
        tools.t.arguments.n = { rename = \"count\", default = \"${env:COUNT}\" }
    ";
    let gateway =
        Gateway::with("s", upstream.http() + edits).variable("COUNT", "120").start().await;
    for (era, client) in gateway.both().await {
        // The text of a variable becomes the integer that the schema requires.
        let said = client.call("s__t", json!({})).await;
        assert_eq!(said.text(), "ok", "{era}");
        let call = upstream.calls().pop().unwrap();
        assert_eq!(call.params["arguments"], json!({ "unit": "F", "n": 120 }), "{era}");
        // A rule about a fixed value applies, in the client's own terms.
        let calls = upstream.calls().len();
        let said = client.call("s__t", json!({ "count": 7 })).await;
        assert!(said.is_error() && said.text().contains("/count: minimum"), "{era} {said:?}");
        assert_eq!(upstream.calls().len(), calls, "{era}: the server never sees it");
        let shown = client.request("tools/list", json!({})).await;
        assert!(
            !shown.body.contains("120") && !shown.body.contains("unit"),
            "{era} {}",
            shown.body
        );
    }
}

#[tokio::test]
async fn a_required_argument_without_its_header_is_an_error_that_names_the_header() {
    let upstream = Upstream::modern().await;
    let schema = json!({
        "type": "object", "properties": { "user": { "type": "string" } }, "required": ["user"],
    });
    upstream.tool(&json!({ "name": "t", "inputSchema": schema }), |_| vec![Step::text("ok")]);
    let edits = "tools.t.arguments.user = { value = \"${header:X-User}\" }";
    let gateway = Gateway::with("s", upstream.http() + edits).start().await;
    for (era, client) in gateway.both().await {
        let said = client.call("s__t", json!({})).await;
        assert!(said.is_error() && said.text().contains("no header x-user"), "{era} {said:?}");
    }
    assert_eq!(upstream.calls().len(), 0);
}

#[tokio::test]
async fn a_tool_that_cannot_be_changed_as_configured_is_left_out() {
    let upstream = Upstream::modern().await;
    let schema = json!({
        "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
    });
    upstream.tool(&json!({ "name": "t", "inputSchema": schema }), |_| vec![Step::text("ok")]);
    let edits = "tools.t.arguments = { a = { rename = \"b\" } }";
    let gateway = Gateway::with("s", upstream.http() + edits).start().await;
    for (era, client) in gateway.both().await {
        assert!(!client.tool_names().await.contains(&"s__t".to_owned()), "{era}");
        assert_eq!(client.call("s__t", json!({ "b": "x" })).await.code(), -32602, "{era}");
    }
    // Another configuration of the same list takes effect without a new list.
    let edits = "tools.t.arguments = { a = { rename = \"b\" }, b = { rename = \"a\" } }";
    gateway.reload(Gateway::with("s", upstream.http() + edits)).await;
    let said = gateway.modern().call("s__t", json!({ "b": "x" })).await;
    assert_eq!(said.text(), "ok", "{said:?}");
    assert_eq!(upstream.calls().pop().unwrap().params["arguments"], json!({ "a": "x" }));
}
