//! Arguments that try to hide from the confirmation that a user gives before a call.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::{Gateway, Said, Upstream, within};

const EVIL: &str = "rm -rf /home";

fn form() -> Value {
    json!({ "elicitation": { "form": {} } })
}

async fn start(upstream: &Upstream) -> Gateway {
    let lines = upstream.http() + "confirm = true\n";
    Gateway::with("s", lines)
        .toml("[audit]\nfile = \"audit.jsonl\"\narguments = true\n")
        .start()
        .await
}

/// Makes a call with these raw arguments.
async fn call(client: &Client, arguments: &str) -> Said {
    let ask = client.ask_call("s__echo", json!("HERE"));
    let body = ask.message().to_string().replace("\"HERE\"", arguments);
    ask.body(body).send().await.said().await
}

/// Returns the question before a call, which the user declines: a Modern client gets it as a
/// result, and a Legacy client as a request.
async fn question(era: &str, client: &Client, arguments: &Value) -> String {
    if era == "Modern" {
        let said = client.call("s__echo", arguments.clone()).await;
        let asked = &said.result()["inputRequests"]["confirm"]["params"]["message"];
        return asked.as_str().unwrap_or_else(|| panic!("{said:?}")).to_owned();
    }
    let mut stream = client.ask_call("s__echo", arguments.clone()).send().await;
    let asked = within(stream.message()).await.unwrap();
    client.respond(&asked["id"], json!({ "action": "decline" })).await;
    within(stream.message()).await.unwrap();
    asked["params"]["message"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned()
}

#[tokio::test]
async fn a_question_cannot_hide_its_call() {
    let upstream = Upstream::modern().await;
    let gateway = start(&upstream).await;
    let words: String = (0..20_000).map(|n| format!("word{n} ")).collect();
    let junk = (0..40).map(|n| (format!("junk{n}"), json!(format!("{n} {words}")[..3000])));
    let mut crowded: serde_json::Map<_, _> = junk.collect();
    crowded.insert("x".into(), EVIL.into());
    let hiding = [
        json!({ "x": format!("{}{EVIL}", " ".repeat(1000)) }),
        json!({ "x": format!("{}{EVIL}", "ab".repeat(5000)) }),
        json!({ "x": format!("{}{EVIL}", "\u{200b}".repeat(1000)) }),
        json!({ "x": format!("{words}{EVIL}") }),
        json!({ "a": words, "x": EVIL, "z": words }),
        json!({ "a": { "b": [words, words] }, "x": EVIL }),
        json!({ "x": format!("https://a:b@example.com/ && {EVIL}") }),
        json!({ "x": format!("Bearer abcdefgh12345678 {EVIL}") }),
        json!({ "x": format!("-----BEGIN PRIVATE KEY-----\n{EVIL}") }),
        json!({ "token_path": EVIL, "cookie_policy": "y", "secret_name": "z" }),
        json!({ "credentials": { "x": true, EVIL: "y" } }),
        json!({ "ghp_0123456789abcdef": 1, "x": EVIL }),
        Value::Object(crowded),
    ];
    for (era, client) in gateway.both().await {
        let client = client.offering(form()).await;
        for arguments in &hiding {
            let asked = question(era, &client, arguments).await;
            assert!(asked.contains(EVIL), "{era}: {asked}");
            assert!(asked.len() < 16_000, "{era}: {}", asked.len());
            for name in arguments.as_object().unwrap().keys().filter(|it| !it.starts_with("ghp")) {
                assert!(asked.contains(&format!("\"{name}\":")), "{era} {name}: {asked}");
            }
        }
    }
    assert!(upstream.calls().is_empty());
}

#[tokio::test]
async fn arguments_that_cannot_be_shown_are_refused_without_a_question() {
    let upstream = Upstream::modern().await;
    let gateway = start(&upstream).await;
    let many: Vec<String> = (0..3000).map(|n| format!("\"n{n}\":{n}")).collect();
    for (era, client) in gateway.both().await {
        let client = client.offering(form()).await;
        for arguments in [
            r#"{"x":1e400}"#.to_owned(),
            r#"{"x":{"y":[-1e999]}}"#.to_owned(),
            r#"{"x":1,"x":2}"#.to_owned(),
            r#"{"x":{"y":1,"\u0079":2}}"#.to_owned(),
            format!("{{{}}}", many.join(",")),
        ] {
            let said = call(&client, &arguments).await;
            let text = said.answer().to_string();
            assert!(!text.contains("input_required"), "{era}: {text}");
            assert!(!text.contains("elicitation/create"), "{era}: {text}");
            assert!(said.is_error() || text.contains("error"), "{era}: {text}");
        }
    }
    assert!(upstream.calls().is_empty());
}
