//! Requests of servers to clients during a call: sampling, elicitation and roots, in all
//! combinations of eras.

mod lives;
mod refusals;
mod states;
mod urls;

use serde_json::{Value, json};

pub use crate::support::dialogue::{dialogue, dialogue_about};
use crate::support::{Client, Gateway, Kind, Reply, Said, Step, every_kind};

/// Returns a form that asks for a name.
pub fn form() -> Value {
    json!({
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": { "type": "string", "default": "x" },
                "size": { "type": "string", "oneOf": [{ "const": "s", "title": "Small" }] },
            },
        },
    })
}

/// Returns a prompt for the client's model.
pub fn prompt() -> Value {
    json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": "Hi" } }],
        "maxTokens": 7,
        "unknown": 1.50,
    })
}

/// Returns the answer to [`form`].
pub fn ann() -> Value {
    json!({ "action": "accept", "content": { "name": "Ann" } })
}

/// Returns the steps of a Legacy server that asks, and then returns the answers.
pub fn asking(asks: Vec<(&'static str, &'static str, Value)>) -> Vec<Step> {
    let keys: Vec<_> = asks.iter().map(|(key, ..)| *key).collect();
    let asks = asks.into_iter().map(|(key, method, params)| Step::Ask(key, method, params));
    asks.chain(keys.into_iter().map(Step::Await)).chain([Step::Answers]).collect()
}

/// Returns a Modern server's result with these questions.
pub fn required(asks: &[(&'static str, &'static str, Value)], state: Option<&str>) -> Step {
    let mut result = json!({ "resultType": "input_required", "inputRequests": {} });
    for (key, method, params) in asks {
        result["inputRequests"][key] = json!({ "method": method });
        if !params.is_null() {
            result["inputRequests"][key]["params"] = params.clone();
        }
    }
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    Step::Result(result)
}

/// Defines a tool on each server that asks these questions and returns the answers.
pub fn asks(
    kinds: &[Kind],
    tool: &'static str,
    asks: impl Fn() -> Vec<(&'static str, &'static str, Value)> + Clone + Send + Sync + 'static,
) {
    for kind in kinds {
        let asks = asks.clone();
        let legacy = kind.name.starts_with("legacy");
        kind.upstream.does(tool, move |call| match call.params.get("inputResponses") {
            _ if legacy => asking(asks()),
            Some(said) => {
                assert_eq!(call.params["requestState"], "mine");
                vec![Step::text(said.to_string())]
            }
            None => vec![required(&asks(), Some("mine"))],
        });
    }
}

pub fn everything() -> Value {
    json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": {} })
}

/// Returns clients of both eras with all capabilities.
pub async fn both(gateway: &Gateway) -> [(&'static str, Client); 2] {
    let [modern, legacy] = gateway.both().await;
    [
        (modern.0, modern.1.offering(everything()).await),
        (legacy.0, legacy.1.offering(everything()).await),
    ]
}

/// A question to a Modern client, and the state that the client holds meanwhile.
pub struct Asked {
    pub said: Said,
}

impl Asked {
    pub fn requests(&self) -> &serde_json::Map<String, Value> {
        self.said.result()["inputRequests"].as_object().unwrap_or_else(|| panic!("{:?}", self.said))
    }

    pub fn state(&self) -> &Value {
        &self.said.result()["requestState"]
    }

    /// Returns the same answer to each question.
    pub fn all(&self, answer: &Value) -> Value {
        let keys = self.requests().keys();
        Value::Object(keys.map(|key| (key.clone(), answer.clone())).collect())
    }
}

/// Makes a Modern client's call that ends with a question.
pub async fn ask(client: &Client, tool: &str) -> Asked {
    let said = client.call(tool, json!({ "a": 1 })).await;
    assert_eq!(said.result()["resultType"], "input_required", "{said:?}");
    Asked { said }
}

/// Makes a Modern client's retry.
pub async fn retry(client: &Client, tool: &str, answers: Value, state: &Value) -> Said {
    let mut ask = client.ask_call(tool, json!({ "a": 1 })).param("inputResponses", answers);
    if !state.is_null() {
        ask = ask.param("requestState", state.clone());
    }
    ask.send().await.said().await
}

/// Returns the next request on a Legacy call's stream.
pub async fn question(reply: &mut Reply) -> Value {
    loop {
        let message = reply.message().await.expect("a question");
        if message.get("method").is_some() && message.get("id").is_some() {
            return message;
        }
    }
}

fn json_of(said: &Said) -> Value {
    serde_json::from_str(said.text()).unwrap()
}

#[tokio::test]
async fn a_form_a_model_and_roots_are_asked_for_whatever_the_two_sides_speak() {
    let kinds = every_kind().await;
    asks(&kinds, "form", || vec![("q", "elicitation/create", form())]);
    asks(&kinds, "model", || vec![("q", "sampling/createMessage", prompt())]);
    asks(&kinds, "roots", || vec![("q", "roots/list", Value::Null)]);
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let model =
        json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "é" } });
    let roots = json!({ "roots": [{ "uri": "file:///a", "name": "A", "_meta": { "x": 1 } }] });
    for (era, client) in both(&gateway).await {
        for kind in &kinds {
            for (tool, method, params, answer) in [
                ("form", "elicitation/create", form(), ann()),
                ("form", "elicitation/create", form(), json!({ "action": "decline" })),
                ("form", "elicitation/create", form(), json!({ "action": "cancel" })),
                ("model", "sampling/createMessage", prompt(), model.clone()),
                ("roots", "roots/list", Value::Null, roots.clone()),
            ] {
                let name = format!("{}__{tool}", kind.name);
                let said = dialogue(&client, &name, |asked| {
                    assert_eq!(asked["method"], method, "{era} {name}");
                    let asked = asked.get("params").filter(|params| **params != json!({}));
                    assert_eq!(asked.cloned().unwrap_or_default(), params, "{era} {name}");
                    answer.clone()
                });
                assert_eq!(json_of(&said.await), json!({ "q": answer }), "{era} {name}");
            }
        }
    }
}

#[tokio::test]
async fn several_questions_go_together() {
    let kinds = every_kind().await;
    asks(&kinds, "three", || {
        vec![
            ("a", "elicitation/create", form()),
            ("b", "sampling/createMessage", prompt()),
            ("c", "roots/list", json!({})),
        ]
    });
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in both(&gateway).await {
        for kind in &kinds {
            let name = format!("{}__three", kind.name);
            let answer = |method: &Value| json!({ "answers": method });
            let said = dialogue(&client, &name, |asked| answer(&asked["method"])).await;
            let wanted = json!({
                "a": answer(&json!("elicitation/create")),
                "b": answer(&json!("sampling/createMessage")),
                "c": answer(&json!("roots/list")),
            });
            assert_eq!(json_of(&said), wanted, "{era} {name}");
        }
    }
    let asked = ask(&gateway.modern().offering(everything()).await, "legacy-stdio__three").await;
    assert_eq!(asked.requests().len(), 3, "in one result: {:?}", asked.said);
}

#[tokio::test]
async fn a_call_asks_round_after_round() {
    let kinds = every_kind().await;
    for kind in &kinds {
        let legacy = kind.name.starts_with("legacy");
        kind.upstream.does("rounds", move |call| {
            let form = |key| (key, "elicitation/create", form());
            if legacy {
                let mut steps = asking(vec![form("one")]);
                steps.pop();
                steps.extend(asking(vec![form("two")]));
                return steps;
            }
            match call.params["requestState"].as_str() {
                None => vec![required(&[form("one")], Some("first"))],
                Some("first") => {
                    let so_far = call.params["inputResponses"].to_string();
                    vec![required(&[form("two")], Some(&so_far))]
                }
                Some(so_far) => {
                    let mut all: Value = serde_json::from_str(so_far).unwrap();
                    all["two"] = call.params["inputResponses"]["two"].clone();
                    vec![Step::text(all.to_string())]
                }
            }
        });
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in both(&gateway).await {
        for kind in &kinds {
            let name = format!("{}__rounds", kind.name);
            let said = dialogue(&client, &name, |_| ann()).await;
            assert_eq!(json_of(&said), json!({ "one": ann(), "two": ann() }), "{era} {name}");
        }
    }
}

#[tokio::test]
async fn progress_goes_on_around_a_question() {
    let kinds = every_kind().await;
    for kind in kinds.iter().filter(|kind| kind.name.starts_with("legacy")) {
        kind.upstream.does("both", |_| {
            let mut steps = vec![Step::Progress(1)];
            steps.extend(asking(vec![("q", "elicitation/create", form())]));
            steps.insert(steps.len() - 1, Step::Progress(2));
            steps
        });
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.legacy().await.offering(everything()).await;
    for name in ["legacy-http__both", "legacy-stdio__both"] {
        let mut reply = client.ask_call(name, json!({})).token(json!("t")).send().await;
        assert_eq!(reply.message().await.unwrap()["params"]["progress"], 1);
        let asked = question(&mut reply).await;
        client.respond(&asked["id"], ann()).await;
        let rest = reply.said().await;
        assert_eq!(rest.notices()[0]["params"]["progress"], 2, "{name}");
        assert_eq!(json_of(&rest), json!({ "q": ann() }), "{name}");
    }
}

#[tokio::test]
async fn prompts_and_resources_ask_as_tools_do() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.offers_everything();
        let legacy = kind.name.starts_with("legacy");
        for (method, wrap) in [("prompts/get", "messages"), ("resources/read", "contents")] {
            kind.upstream.when_asked(method, move |call| {
                let questions = vec![("q", "elicitation/create", form())];
                if legacy {
                    let mut steps = asking(questions);
                    steps.pop();
                    steps.push(Step::Result(json!({ wrap: [] })));
                    return steps;
                }
                match call.params.get("inputResponses") {
                    Some(said) => {
                        assert_eq!(said, &json!({ "q": ann() }));
                        vec![Step::Result(json!({ wrap: [], "ttlMs": 0, "cacheScope": "private" }))]
                    }
                    None => vec![required(&questions, None)],
                }
            });
        }
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in both(&gateway).await {
        for kind in &kinds {
            let name = kind.name;
            let get = json!({ "name": format!("{name}__greet"), "arguments": { "who": "x" } });
            let said = dialogue_about(&client, "prompts/get", get, |_| ann()).await;
            assert_eq!(said.result()["messages"], json!([]), "{era} {name}");
            let read = json!({ "uri": format!("mcp://{name}/file:///a.txt") });
            let said = dialogue_about(&client, "resources/read", read, |_| ann()).await;
            assert_eq!(said.result()["contents"], json!([]), "{era} {name}");
        }
    }
}

#[tokio::test]
async fn a_modern_servers_answers_without_a_state_pass_as_they_come() {
    for (name, upstream) in [("http", true), ("stdio", false)].map(|(name, http)| (name, http)) {
        let server = crate::support::Upstream::modern().await;
        server.does("echo", |call| match call.params.get("inputResponses") {
            Some(said) => vec![Step::text(said.to_string())],
            None => vec![required(&[("q", "elicitation/create", form())], None)],
        });
        let lines = if upstream { server.http() } else { server.stdio() };
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern().offering(everything()).await;
        let asked = ask(&client, "s__echo").await;
        assert!(asked.state().is_null(), "{name}: none is made up");
        // Also to a server that has not asked.
        let answers = json!({ "q": ann(), "other": { "x": 1 } });
        let said = retry(&client, "s__echo", answers.clone(), &Value::Null).await;
        assert_eq!(json_of(&said), answers, "{name}");
    }
}
