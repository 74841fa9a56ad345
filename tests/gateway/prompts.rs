//! Prompts of many servers in one list, requested from the right server.

use serde_json::{Value, json};

use crate::support::upstream::offers::prompt;
use crate::support::{Gateway, Step, Upstream, every_kind};

#[tokio::test]
async fn prompts_of_every_kind_of_server_are_listed_got_and_answered() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.offers_everything();
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        let said = client.request("prompts/list", json!({})).await;
        let names: Vec<_> = names(said.result());
        let expected: Vec<_> = kinds.iter().map(|kind| format!("{}__greet", kind.name)).collect();
        assert_eq!(names, expected, "{era}");
        for kind in &kinds {
            let params =
                json!({ "name": format!("{}__greet", kind.name), "arguments": { "who": "é" } });
            let said = client.request("prompts/get", params).await;
            let messages = &said.result()["messages"];
            assert_eq!(messages[0]["content"]["text"], "\"greet\" {\"who\":\"é\"}", "{era}");
            let uri = format!("mcp://{}/b://2", kind.name);
            assert_eq!(messages[1]["content"]["resource"]["uri"], uri, "{era}");
            if era == "Modern" {
                assert_eq!(said.result()["resultType"], "complete");
            }
        }
    }
}

#[tokio::test]
async fn prompts_are_named_as_tools_are() {
    let [modern, legacy] = Upstream::both().await;
    for (upstream, own) in [(&modern, "m"), (&legacy, "l")] {
        upstream.can(json!({ "prompts": {} })).lists("prompts", [prompt("same"), prompt(own)]);
    }
    for (naming, expected) in [
        ("prefix", &["a__same", "a__m", "b__same", "b__l"][..]),
        ("conflict", &["a__same", "m", "b__same", "l"]),
        ("none", &["same", "m", "l"]),
        ("first", &["same", "m", "b__same", "l"]),
    ] {
        let gateway = Gateway::with("a", modern.http())
            .gateway(&format!("naming = \"{naming}\""))
            .server("b", legacy.http())
            .start()
            .await;
        let said = gateway.modern().request("prompts/list", json!({})).await;
        assert_eq!(names(said.result()), expected, "{naming}");
    }
}

#[tokio::test]
async fn an_unknown_prompt_is_refused_and_a_server_that_is_down_is_an_error() {
    let upstream = Upstream::legacy().await;
    upstream.offers_everything();
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        for (params, text) in [
            (json!({ "name": "nobodys" }), "unknown prompt"),
            (json!({ "name": "greet" }), "unknown prompt"),
            (json!({}), "`name` is missing"),
        ] {
            let said = client.request("prompts/get", params).await;
            assert_eq!((said.status, said.code()), (200, -32602), "{era}");
            let message = said.error()["message"].to_string();
            assert!(message.contains(text), "{era} {message}");
        }
    }
    upstream.when_asked("prompts/get", |_| {
        vec![Step::Error(json!({ "code": -32602, "message": "no who" }))]
    });
    for (era, client) in gateway.both().await {
        let said = client.request("prompts/get", json!({ "name": "s__greet" })).await;
        assert_eq!(said.error(), &json!({ "code": -32602, "message": "no who" }), "{era}");
    }
    drop(upstream);
    for (era, client) in gateway.both().await {
        let said = client.request("prompts/get", json!({ "name": "s__greet" })).await;
        assert!(said.code() >= 50_000, "{era} an error, no tool result: {said:?}");
    }
}

#[tokio::test]
async fn an_invalid_prompt_is_left_out_alone_and_a_list_that_fails_costs_no_other() {
    for upstream in Upstream::both().await {
        upstream.offers_everything().lists(
            "prompts",
            [prompt("good"), json!({ "name": "bad", "arguments": {} }), json!({ "title": "x" })],
        );
        upstream.when_asked("resources/list", |_| {
            vec![Step::Error(json!({ "code": -32603, "message": "out of order" }))]
        });
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let client = gateway.modern();
        let said = client.request("prompts/list", json!({})).await;
        // One with malformed arguments is listed without them.
        assert_eq!(names(said.result()), ["s__good", "s__bad"]);
        assert!(!client.tools().await.is_empty());
        let said = client.request("resources/templates/list", json!({})).await;
        assert_eq!(said.result()["resourceTemplates"].as_array().unwrap().len(), 1);
        let warnings = gateway.server("s").await["warnings"].to_string();
        for part in ["resources/list", "out of order", "prompt bad: ", "prompt #3: "] {
            assert!(warnings.contains(part), "{part} in {warnings}");
        }
    }
}

#[tokio::test]
async fn every_kind_of_list_comes_in_pages_both_ways_and_cursors_are_of_one_kind() {
    for upstream in Upstream::both().await {
        upstream.offers_everything().pages_of(1);
        upstream.lists("prompts", ["a", "b", "c"].map(prompt));
        let gateway = Gateway::with("s", upstream.http()).gateway("page_size = 2").start().await;
        for (era, client) in gateway.both().await {
            let first = client.request("prompts/list", json!({})).await.result().clone();
            let cursor = first["nextCursor"].clone();
            let last = client.request("prompts/list", json!({ "cursor": cursor })).await;
            assert_eq!(
                (names(&first).len(), names(last.result())),
                (2, vec!["s__c".into()]),
                "{era}"
            );
            assert!(last.result().get("nextCursor").is_none(), "{era}");
            for method in ["tools/list", "resources/list", "resources/templates/list"] {
                let said = client.request(method, json!({ "cursor": cursor })).await;
                assert_eq!(said.code(), -32602, "{era} {method}");
            }
        }
    }
}

#[tokio::test]
async fn completion_finds_the_owner_of_a_prompt_and_of_a_template() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.offers_everything();
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let argument = json!({ "name": "id", "value": "7" });
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let name = format!("{}__greet", kind.name);
            let template = format!("mcp://{}/db://{{table}}/{{id}}", kind.name);
            let uri = format!("mcp://{}/db://users/7", kind.name);
            for (reference, native) in [
                (
                    json!({ "type": "ref/prompt", "name": name }),
                    json!({ "type": "ref/prompt", "name": "greet" }),
                ),
                (
                    json!({ "uri": template, "type": "ref/resource" }),
                    json!({ "uri": "db://{table}/{id}", "type": "ref/resource" }),
                ),
                (
                    json!({ "type": "ref/resource", "uri": uri }),
                    json!({ "type": "ref/resource", "uri": "db://users/7" }),
                ),
            ] {
                let params = json!({ "ref": reference, "argument": argument });
                let said = client.request("completion/complete", params).await;
                let values = &said.result()["completion"]["values"];
                assert_eq!(values[0], format!("{native} null"), "{era} {}", kind.name);
            }
        }
        for reference in [
            json!({ "type": "ref/prompt", "name": "greet" }),
            json!({ "type": "ref/resource", "uri": "db://{table}/{id}" }),
            json!({ "type": "ref/tool", "name": "x" }),
            json!({ "type": "ref/prompt" }),
            json!({}),
        ] {
            let params = json!({ "ref": reference, "argument": argument });
            let said = client.request("completion/complete", params).await;
            assert_eq!(said.code(), -32602, "{era} {reference}");
        }
        let said = client.request("completion/complete", json!({ "argument": argument })).await;
        assert_eq!(said.code(), -32602, "{era}");
    }
    for kind in &kinds {
        let heard = kind.upstream.all("completion/complete");
        assert!(heard.iter().all(|asked| asked.header("mcp-name").is_none()), "{}", kind.name);
    }
}

fn names(result: &Value) -> Vec<String> {
    let all = result["prompts"].as_array().unwrap();
    all.iter().map(|prompt| prompt["name"].as_str().unwrap().to_owned()).collect()
}
