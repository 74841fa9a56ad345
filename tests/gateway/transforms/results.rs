//! Results that are shortened to a message, checked, and limited in size.

use serde_json::{Value, json};

use crate::support::{Gateway, Step, Upstream};

const ATIS: &str = r#"{"icao":"LSZB","atis_text":"Wind calm.","raw":{"qnh":1013}}"#;

fn atis_tool(name: &str) -> Value {
    json!({
        "name": name,
        "inputSchema": { "type": "object" },
        "outputSchema": {
            "type": "object",
            "properties": { "icao": { "type": "string" } },
            "required": ["icao"],
        },
    })
}

fn raw(result: &Value) -> Vec<Step> {
    vec![Step::Raw(result.to_string())]
}

/// Starts servers of both eras with a tool of this answer, and a gateway with these settings.
async fn gateway_with(answer: Value, settings: &str) -> (Gateway, [Upstream; 2]) {
    let [modern, legacy] = Upstream::both().await;
    for upstream in [&modern, &legacy] {
        let answer = answer.clone();
        upstream.tool(&atis_tool("atis"), move |_| raw(&answer));
    }
    let gateway = Gateway::with("m", modern.http() + settings)
        .server("l", legacy.stdio() + settings)
        .start()
        .await;
    (gateway, [modern, legacy])
}

#[tokio::test]
async fn the_text_becomes_a_short_message_and_the_whole_stays_structured() {
    let structured: Value = serde_json::from_str(ATIS).unwrap();
    let answer = json!({
        "content": [{ "type": "text", "text": ATIS }], "structuredContent": structured,
    });
    let template = "tools.atis.result.template = \"The ATIS for {icao} is: {atis_text}\"";
    let (gateway, _upstreams) = gateway_with(answer, template).await;
    for (era, client) in gateway.both().await {
        for name in ["m__atis", "l__atis"] {
            let said = client.call(name, json!({})).await;
            assert_eq!(said.text(), "The ATIS for LSZB is: Wind calm.", "{era} {name}");
            assert_eq!(said.result()["content"].as_array().unwrap().len(), 1, "{era} {name}");
            assert_eq!(said.result()["structuredContent"], structured, "{era} {name}");
            let tools = client.tools().await;
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            assert_eq!(tool["outputSchema"]["required"], json!(["icao"]), "{era} {name}");
        }
    }
}

#[tokio::test]
async fn structured_content_is_dropped_together_with_its_schema() {
    let answer = json!({ "content": [{ "type": "text", "text": ATIS }] });
    let settings = "tools.atis.result = { field = \"atis_text\", structured = \"drop\" }";
    let (gateway, _upstreams) = gateway_with(answer, settings).await;
    for (era, client) in gateway.both().await {
        for name in ["m__atis", "l__atis"] {
            let said = client.call(name, json!({})).await;
            assert_eq!(said.text(), "Wind calm.", "{era} {name}");
            assert_eq!(said.result().get("structuredContent"), None, "{era} {name}");
            let tools = client.tools().await;
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            assert_eq!(tool.get("outputSchema"), None, "{era} {name}");
        }
    }
}

#[tokio::test]
async fn an_error_of_the_server_and_a_result_without_the_field_stay_as_they_are() {
    for answer in [
        json!({ "content": [{ "type": "text", "text": ATIS }], "isError": true }),
        json!({ "content": [{ "type": "text", "text": "no JSON" }] }),
        json!({ "content": [], "structuredContent": { "icao": "X" } }),
    ] {
        let settings = "tools.atis.result.field = \"atis_text\"";
        let (gateway, _upstreams) = gateway_with(answer.clone(), settings).await;
        for (era, client) in gateway.both().await {
            for name in ["m__atis", "l__atis"] {
                let said = client.call(name, json!({})).await;
                for (member, value) in answer.as_object().unwrap() {
                    assert_eq!(said.result()[member], *value, "{era} {name} {member}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_result_that_does_not_fit_its_schema_is_an_error_where_that_is_enforced() {
    let fits = json!({ "content": [], "structuredContent": { "icao": "LSZB" } });
    let unfit = json!({ "content": [], "structuredContent": { "icao": 7 } });
    let absent = json!({ "content": [{ "type": "text", "text": "x" }] });
    for (answer, words) in
        [(fits, None), (unfit, Some("/icao: type")), (absent, Some("structuredContent is missing"))]
    {
        for (settings, is_enforced) in [
            ("check_output = \"enforce\"", true),
            ("check_output = \"enforce\"\ntools.atis.check_output = \"warn\"", false),
            ("tools.atis.check_output = \"enforce\"", true),
        ] {
            let (gateway, _upstreams) = gateway_with(answer.clone(), settings).await;
            for (era, client) in gateway.both().await {
                for name in ["m__atis", "l__atis"] {
                    let said = client.call(name, json!({})).await;
                    let refused = words.filter(|_| is_enforced);
                    assert_eq!(said.is_error(), refused.is_some(), "{era} {name}: {said:?}");
                    assert!(said.body.contains(refused.unwrap_or("")), "{era} {name}: {said:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_large_result_is_cut_and_stays_json_or_is_an_error() {
    let rows: Vec<_> = (0..2000).map(|row| json!({ "row": row, "name": "x" })).collect();
    let structured = json!({ "icao": "LSZB", "rows": rows });
    let text = structured.to_string();
    let answer = json!({
        "content": [{ "type": "text", "text": text }], "structuredContent": structured,
    });
    let settings = "result.max_size = \"4KiB\"";
    let (gateway, _upstreams) = gateway_with(answer.clone(), settings).await;
    for (era, client) in gateway.both().await {
        for name in ["m__atis", "l__atis"] {
            let said = client.call(name, json!({})).await;
            let result = said.result();
            assert!(!said.is_error() && said.body.len() < 5000, "{era} {name} {}", said.body.len());
            assert_eq!(result["structuredContent"]["icao"], "LSZB", "{era} {name}");
            let shown = result["structuredContent"]["rows"].as_array().unwrap();
            assert!(shown.len() > 20 && shown[1]["row"] == 1, "{era} {name} {}", shown.len());
            let text: Value = serde_json::from_str(said.text()).unwrap();
            assert_eq!(text["icao"], "LSZB", "{era} {name}");
            let sentence = result["content"][1]["text"].as_str().unwrap();
            assert!(
                sentence.contains("elements") && sentence.contains("Ask for the rest"),
                "{sentence}"
            );
        }
    }
    let settings = "result = { max_size = \"4KiB\" }\ntools.atis.result.when_larger = \"error\"";
    let (gateway, _upstreams) = gateway_with(answer, settings).await;
    for (era, client) in gateway.both().await {
        for name in ["m__atis", "l__atis"] {
            let said = client.call(name, json!({})).await;
            assert!(said.is_error() && said.text().contains("4096"), "{era} {name}: {said:?}");
        }
    }
}

#[tokio::test]
async fn a_schema_of_the_configuration_wins_over_the_servers() {
    let [modern, legacy] = Upstream::both().await;
    for upstream in [&modern, &legacy] {
        upstream.tool(&atis_tool("atis"), |_| vec![Step::text("ok")]);
    }
    let settings = r#"
        tools.atis.description = "The weather at an airport"
        tools.atis.arguments.lang = { value = "en" }
        tools.atis.input_schema = { type = "object", properties.icao = { type = "string" }, required = ["icao"] }
    "#;
    let gateway = Gateway::with("m", modern.http() + settings)
        .server("l", legacy.http() + settings)
        .start()
        .await;
    for (era, client) in gateway.both().await {
        for (name, upstream) in [("m__atis", &modern), ("l__atis", &legacy)] {
            let tools = client.tools().await;
            let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
            let schema = json!({
                "type": "object", "properties": { "icao": { "type": "string" } }, "required": ["icao"],
            });
            assert_eq!(
                (&tool["inputSchema"], &tool["description"]),
                (&schema, &json!("The weather at an airport"))
            );
            assert!(client.call(name, json!({})).await.is_error(), "{era} {name}");
            let said = client.call(name, json!({ "icao": "LSZB" })).await;
            assert_eq!(said.text(), "ok", "{era} {name}");
            let sent = upstream.calls().pop().unwrap().params["arguments"].clone();
            assert_eq!(sent, json!({ "icao": "LSZB", "lang": "en" }), "{era} {name}");
        }
    }
}

#[tokio::test]
async fn texts_are_stripped_and_shortened_and_types_are_allowed() {
    let table = r#"[ {"id": 1, "name": "\u001b[1mbold\u001b[0m"}, {"id": 2, "name": "b"} ]"#;
    let answer = json!({
        "content": [
            { "type": "text", "text": "\u{1b}[31mred\u{1b}[0m\u{200b}\u{7}" },
            { "type": "text", "text": table },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
            { "type": "image", "data": "AAAA", "mimeType": "image/SVG+xml; x=1" },
        ],
        "structuredContent": { "icao": "\u{1b}[1mLSZB", "rows": [{ "id": 1 }] },
    });
    let settings = r#"
        result = { strip = ["ansi", "control", "invisible"], mime_types = ["image/png"] }
        tools.atis.result.format = "csv"
    "#;
    let (gateway, _upstreams) = gateway_with(answer, settings).await;
    for (era, client) in gateway.both().await {
        for name in ["m__atis", "l__atis"] {
            let said = client.call(name, json!({})).await;
            let content = &said.result()["content"];
            assert_eq!(content[0]["text"], "red", "{era} {name}");
            assert_eq!(content[1]["text"], "id,name\n1,bold\n2,b", "{era} {content}");
            assert_eq!(content[2]["type"], "image", "{era} {name}");
            let refused = content[3]["text"].as_str().unwrap();
            assert!(refused.contains("image/SVG+xml"), "{era} {refused}");
            let structured = json!({ "icao": "LSZB", "rows": [{ "id": 1 }] });
            assert_eq!(said.result()["structuredContent"], structured, "{era} {name}");
        }
    }
}

#[tokio::test]
async fn a_duplicate_key_in_a_result_that_is_changed_is_an_error() {
    let [modern, legacy] = Upstream::both().await;
    for upstream in [&modern, &legacy] {
        upstream.tool(&atis_tool("atis"), |_| {
            let twice = r#"{"content":[],"structuredContent":{"icao":"X"},"structuredContent":{}}"#;
            vec![Step::Raw(twice.to_owned())]
        });
    }
    let settings = "check_output = \"enforce\"";
    let gateway = Gateway::with("m", modern.http() + settings)
        .server("l", legacy.stdio() + settings)
        .start()
        .await;
    for (era, client) in gateway.both().await {
        for name in ["m__atis", "l__atis"] {
            let said = client.call(name, json!({})).await;
            assert!(said.is_error() && said.text().contains("duplicate key"), "{era} {said:?}");
        }
    }
}

#[tokio::test]
async fn a_result_of_megabytes_is_checked_and_becomes_a_message() {
    let rows: Vec<_> = (0..20_000).map(|row| json!({ "row": row, "name": "x" })).collect();
    let structured = json!({ "icao": "LSZB", "rows": rows });
    let answer = json!({ "content": [], "structuredContent": structured });
    let settings = "check_output = \"enforce\"\ntools.atis.result.field = \"icao\"";
    let (gateway, _upstreams) = gateway_with(answer, settings).await;
    for (era, client) in gateway.both().await {
        for name in ["m__atis", "l__atis"] {
            let said = client.call(name, json!({})).await;
            assert_eq!(said.text(), "LSZB", "{era} {name}");
            assert_eq!(said.result()["structuredContent"], structured, "{era} {name}");
        }
    }
}

#[tokio::test]
async fn a_result_that_asks_for_input_stays_as_it_is() {
    let modern = Upstream::modern().await;
    modern.tool(&atis_tool("atis"), |call| match call.params.get("inputResponses") {
        None => raw(&json!({
            "resultType": "input_required", "requestState": "s",
            "inputRequests": { "q": {
                "method": "elicitation/create",
                "params": { "message": "Which?\u{7}", "requestedSchema": { "type": "object", "properties": {} } },
            } },
        })),
        Some(_) => raw(&json!({ "content": [{ "type": "text", "text": ATIS }] })),
    });
    let settings = "result.strip = [\"control\"]\ntools.atis.result.field = \"atis_text\"";
    let gateway = Gateway::with("m", modern.http() + settings).start().await;
    for (era, client) in crate::input::both(&gateway).await {
        let params = json!({ "name": "m__atis", "arguments": {} });
        let said = crate::input::dialogue_about(&client, "tools/call", params, |asked| {
            assert_eq!(asked["params"]["message"], "Which?\u{7}", "{era}");
            crate::input::ann()
        });
        assert_eq!(said.await.text(), "Wind calm.", "{era}");
    }
}
