//! What servers ask of clients in the middle of a call: sampling, elicitation
//! and roots, whatever the two sides speak.

use serde_json::{Value, json};

use crate::support::{Client, Gateway, Kind, Said, Step, every_kind};

/// A form that asks for a name.
fn form() -> Value {
    json!({
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {
            "type": "object",
            "properties": { "name": { "type": "string", "default": "x" } },
        },
    })
}

/// A tool that asks for a name and says what it was answered.
fn asks(kinds: &[Kind]) {
    for kind in kinds {
        if kind.name.starts_with("legacy") {
            kind.upstream.does("ask", |_| {
                vec![
                    Step::Ask("who", "elicitation/create", form()),
                    Step::Await("who"),
                    Step::Answers,
                ]
            });
        } else {
            kind.upstream.does("ask", |call| match call.params.get("inputResponses") {
                Some(said) if call.params["requestState"] == "mine" => {
                    vec![Step::text(said.to_string())]
                }
                Some(said) => vec![Step::text(format!("no state: {said}"))],
                None => vec![Step::Result(json!({
                    "resultType": "input_required",
                    "inputRequests": {
                        "who": { "method": "elicitation/create", "params": form() },
                    },
                    "requestState": "mine",
                }))],
            });
        }
    }
}

fn everything() -> Value {
    json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": {} })
}

/// Answers every question with `answer` until the call has ended.
async fn dialogue(client: &Client, tool: &str, answer: impl Fn(&Value) -> Value) -> Said {
    if client.is_modern() {
        let mut ask = client.ask_call(tool, json!({ "a": 1 }));
        loop {
            let said = ask.send().await.said().await;
            if said.answer().get("result").is_none_or(|r| r["resultType"] != "input_required") {
                return said;
            }
            let mut answers = json!({});
            for (key, request) in said.result()["inputRequests"].as_object().unwrap() {
                answers[key] = answer(request);
            }
            ask = client.ask_call(tool, json!({ "a": 1 })).param("inputResponses", answers);
            if let Some(state) = said.result().get("requestState") {
                ask = ask.param("requestState", state.clone());
            }
        }
    }
    let mut reply = client.ask_call(tool, json!({ "a": 1 })).send().await;
    if !reply.is_stream() {
        return reply.said().await;
    }
    let mut messages = Vec::new();
    while let Some(message) = reply.message().await {
        if let (Some(id), Some(_)) = (message.get("id"), message.get("method")) {
            client.respond(id, answer(&message)).await;
        } else {
            messages.push(message);
        }
    }
    let headers = reply.headers().clone();
    Said { status: reply.status(), headers, messages, body: String::new(), streamed: true }
}

#[tokio::test]
async fn a_form_is_filled_in_whatever_the_two_sides_speak() {
    let kinds = every_kind().await;
    asks(&kinds);
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        let client = client.offering(everything()).await;
        for kind in &kinds {
            let tool = format!("{}__ask", kind.name);
            let said = dialogue(&client, &tool, |asked| {
                assert_eq!(asked["method"], "elicitation/create", "{era} {}", kind.name);
                assert_eq!(asked["params"], form(), "{era} {}", kind.name);
                json!({ "action": "accept", "content": { "name": "Ann" } })
            });
            let wanted = json!({ "who": { "action": "accept", "content": { "name": "Ann" } } });
            let said = said.await;
            let text: Value = serde_json::from_str(said.text()).unwrap();
            assert_eq!(text, wanted, "{era} {}", kind.name);
        }
    }
}
