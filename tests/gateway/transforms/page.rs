//! The examples of docs/results.md, each run with a server and a client.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Gateway, Step, Upstream};

/// Returns the blocks of the page: the words after the fence, and the text.
fn blocks() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results.md");
    let page = std::fs::read_to_string(page).unwrap();
    let parts: Vec<&str> = page.split("\n```").collect();
    let opened = parts.iter().skip(1).step_by(2).map(|part| part.split_once('\n').unwrap());
    opened.map(|(words, text)| (words.to_owned(), text.to_owned())).collect()
}

fn only(kind: &str) -> String {
    blocks().into_iter().find(|(words, _)| words == kind).unwrap().1
}

fn object(kind: &str) -> Value {
    serde_json::from_str(&only(kind)).unwrap()
}

#[tokio::test]
async fn the_pages_arguments_reach_the_server() {
    let received = object("json received");
    let upstream = Upstream::modern().await;
    let kind =
        |value: &Value| json!({ "type": if value.is_number() { "integer" } else { "string" } });
    let received_members = received.as_object().unwrap();
    let properties: Value =
        received_members.iter().map(|(name, value)| (name.clone(), kind(value))).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    schema["properties"]["old"] = json!({ "type": "string" });
    upstream.tool(&json!({ "name": "find", "inputSchema": schema }), |_| vec![Step::text("ok")]);
    let gateway = Gateway::with("tracker", upstream.http())
        .toml(&only("toml arguments"))
        .variable("TRACKER_TOKEN", "hunter2")
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let ask = client.ask_call("tracker__find", object("json sent")).header("X-User", "ann");
        let said = ask.send().await.said().await;
        assert_eq!(said.text(), "ok", "{era}: {said:?}");
        assert_eq!(upstream.calls().pop().unwrap().params["arguments"], received, "{era}");
        let tools = client.tools().await;
        let tool = tools.iter().find(|tool| tool["name"] == "tracker__find").unwrap();
        let seen: Vec<_> = tool["inputSchema"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(seen.len(), 2, "{era}: {seen:?}");
        assert!(seen.contains(&&"query".to_owned()) && seen.contains(&&"limit".to_owned()));
    }
}

#[tokio::test]
async fn clients_get_the_messages_of_the_page() {
    let answer = object("json answer");
    let all = blocks();
    let examples: Vec<_> = all.windows(2).filter(|pair| pair[0].0 == "toml result").collect();
    assert_eq!(examples.len(), 3, "each with its message");
    for pair in examples {
        assert_eq!(pair[1].0, "text message");
        for is_structured in [true, false] {
            let upstream = Upstream::legacy().await;
            let result = if is_structured {
                json!({ "content": [], "structuredContent": answer })
            } else {
                json!({ "content": [{ "type": "text", "text": answer.to_string() }] })
            };
            upstream.does("get_atis", move |_| vec![Step::Raw(result.to_string())]);
            let gateway = Gateway::with("weather", upstream.http()).toml(&pair[0].1).start().await;
            for (era, client) in gateway.both().await {
                let said = client.call("weather__get_atis", json!({})).await;
                assert_eq!(said.text(), pair[1].1.trim_end(), "{era}: {}", pair[0].1);
                assert_eq!(said.result()["structuredContent"], answer, "{era}");
            }
        }
    }
}

#[tokio::test]
async fn the_pages_own_tools_answer() {
    let combined = object("json combined");
    let [crm, shop] = Upstream::both().await;
    for (upstream, name, part) in
        [(&crm, "find_person", "person"), (&shop, "count_orders", "orders")]
    {
        let result = json!({ "content": [], "structuredContent": combined[part] });
        upstream.tool(&crate::support::upstream::tool(name), move |_| {
            vec![Step::Raw(result.to_string())]
        });
    }
    let gateway = Gateway::with("crm", crm.http())
        .server("shop", shop.http())
        .toml(&only("toml own"))
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let said = client.call("brief", json!({ "who": "ann" })).await;
        assert_eq!(said.text(), "Ann has 3 orders", "{era}");
        assert_eq!(said.result()["structuredContent"], combined, "{era}");
        assert!(client.call("hours", json!({})).await.text().starts_with("Monday"), "{era}");
    }
}

#[tokio::test]
async fn the_pages_other_settings_are_taken() {
    let settings = blocks().into_iter().filter(|(words, _)| words == "toml setting");
    let settings: Vec<_> = settings.map(|(_, text)| text).collect();
    assert_eq!(settings.len(), 4);
    for lines in settings {
        // Each is about a server that the page does not show.
        let name = lines.split(['.', ']']).nth(1).unwrap();
        let upstream = Upstream::modern().await;
        upstream.tool(&json!({ "name": "t", "inputSchema": { "type": "object" } }), |_| {
            vec![Step::text("ok")]
        });
        let header = format!("[servers.{name}]\n");
        let (own, rest) = match lines.trim_start().strip_prefix(&header) {
            Some(own) => (own, ""),
            None => ("", &*lines),
        };
        let gateway = Gateway::with(name, upstream.http() + own).toml(rest).start().await;
        assert_eq!(gateway.modern().call(&format!("{name}__t"), json!({})).await.text(), "ok");
    }
}
