//! Behaviour of scripted servers whose messages carry the mark of their call, so that a client sees
//! that each one was meant for it, and the client's answers to their questions.

use std::time::Duration;

use serde_json::{Value, json};

use super::news::{Tell, To, UPDATED};
use super::{Inner, Received, Step};

/// Writes a line of the log.
pub fn line(mark: &str) -> Step {
    let params = json!({ "level": "warning", "logger": "hammered", "data": { "mark": mark } });
    Step::Send(json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params }))
}

/// Reports progress.
pub fn progress(call: &Received, mark: &str, count: u64) -> Step {
    let token = call.token().cloned().unwrap_or_default();
    let params = json!({ "progressToken": token, "progress": count, "message": mark });
    Step::Send(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
}

/// Reports progress and writes lines, `times` of each.
pub fn say(call: &Received, mark: &str) -> Vec<Step> {
    let times = call.arguments()["times"].as_u64().unwrap();
    let mut steps = Vec::new();
    for count in 1..=times {
        steps.extend([progress(call, mark, count), line(mark)]);
        if count == times / 2 {
            steps.push(Step::Pause(Duration::from_millis(times % 3)));
        }
    }
    steps.push(Step::text(mark));
    steps
}

/// Returns the questions of a call: one or two.
fn questions(call: &Received, mark: &str) -> Vec<(&'static str, &'static str, Value)> {
    let schema = json!({ "type": "object", "properties": { "mark": { "type": "string" } } });
    let form = json!({ "mode": "form", "message": mark, "requestedSchema": schema });
    let text = json!({ "role": "user", "content": { "type": "text", "text": mark } });
    let prompt = json!({ "messages": [text], "maxTokens": 7 });
    let form = ("form", "elicitation/create", form);
    let prompt = ("prompt", "sampling/createMessage", prompt);
    match call.arguments()["asks"].as_str().unwrap() {
        "form" => vec![form],
        "prompt" => vec![prompt],
        _ => vec![form, prompt],
    }
}

/// Asks during the call, and answers with the client's answers.
pub fn ask(call: &Received, mark: &str) -> Vec<Step> {
    asking(call, mark, Step::Ask)
}

/// Asks with steps of this kind.
pub fn asking(
    call: &Received,
    mark: &str,
    how: fn(&'static str, &'static str, Value) -> Step,
) -> Vec<Step> {
    let questions = questions(call, mark);
    let keys: Vec<_> = questions.iter().map(|(key, ..)| *key).collect();
    let mut steps = vec![progress(call, mark, 1), line(mark)];
    steps.extend(questions.into_iter().map(|(key, method, params)| how(key, method, params)));
    steps.extend(keys.into_iter().map(Step::Await));
    steps.extend([progress(call, mark, 2), line(mark), Step::Answers]);
    steps
}

/// Asks in the Modern way: the mark is the state, too.
pub fn require(call: &Received, mark: &str) -> Vec<Step> {
    if let Some(answers) = call.params.get("inputResponses") {
        let state = &call.params["requestState"];
        let said = match state == mark {
            true => answers.to_string(),
            false => format!("{mark} came with the state of {state}"),
        };
        return vec![progress(call, mark, 2), line(mark), Step::text(said)];
    }
    let mut result = json!({ "resultType": "input_required", "requestState": mark });
    for (key, method, params) in questions(call, mark) {
        result["inputRequests"][key] = json!({ "method": method, "params": params });
    }
    vec![progress(call, mark, 1), line(mark), Step::Result(result)]
}

/// Notifies the subscribers of a resource about a change.
pub fn touches(inner: &Inner, call: &Received) {
    send(inner, UPDATED, json!({ "uri": call.arguments()["uri"] }), To::Asked);
}

/// Sends a notification that belongs to no call.
pub fn send(inner: &Inner, method: &str, params: Value, to: To) {
    let tell = Tell { method: method.into(), params, to, asks: None };
    let _ = inner.tells.send(tell);
}

/// Returns the mark in a question of any kind.
pub fn mark_of(question: &Value) -> Option<&str> {
    let params = &question["params"];
    match question["method"].as_str()? {
        "elicitation/create" => params["message"].as_str(),
        "sampling/createMessage" => params["messages"][0]["content"]["text"].as_str(),
        _ => None,
    }
}

/// Answers a question of any kind with a mark.
pub fn answer_to(question: &Value, mark: &str) -> Value {
    if question["method"] == "elicitation/create" {
        return json!({ "action": "accept", "content": { "mark": mark } });
    }
    let text = json!({ "type": "text", "text": mark });
    json!({ "role": "assistant", "model": "m", "content": text })
}
