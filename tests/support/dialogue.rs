//! Calls during which a server asks its client.

use serde_json::{Value, json};

use super::{Client, Said};

/// Answers every question with `answer` until the call has ended.
pub async fn dialogue(client: &Client, tool: &str, answer: impl Fn(&Value) -> Value) -> Said {
    dialogue_about(client, "tools/call", json!({ "name": tool, "arguments": {} }), answer).await
}

pub async fn dialogue_about(
    client: &Client,
    method: &str,
    params: Value,
    answer: impl Fn(&Value) -> Value,
) -> Said {
    if client.is_modern() {
        let mut ask = client.ask(method, params.clone());
        loop {
            let said = ask.send().await.said().await;
            if said.answer().get("result").is_none_or(|r| r["resultType"] != "input_required") {
                return said;
            }
            let mut answers = json!({});
            for (key, request) in said.result()["inputRequests"].as_object().unwrap() {
                answers[key] = answer(request);
            }
            ask = client.ask(method, params.clone()).param("inputResponses", answers);
            if let Some(state) = said.result().get("requestState") {
                ask = ask.param("requestState", state.clone());
            }
        }
    }
    let mut reply = client.ask(method, params).send().await;
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
