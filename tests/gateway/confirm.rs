//! Calls that require the user's consent.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::Builder;
use crate::support::{Gateway, Said, Step, Upstream, within};

pub const CONFIRM: &str = "confirm = true\n";

pub fn form() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// The question for a user, and the state that the client holds meanwhile.
pub struct Question {
    said: Said,
}

impl Question {
    pub async fn about(client: &Client, tool: &str, arguments: &Value) -> Self {
        let said = client.call(tool, arguments.clone()).await;
        assert_eq!(said.result()["resultType"], "input_required", "{said:?}");
        Self { said }
    }

    fn message(&self) -> &str {
        let asked = &self.said.result()["inputRequests"]["confirm"];
        assert_eq!(asked["method"], "elicitation/create", "{:?}", self.said);
        asked["params"]["message"].as_str().unwrap()
    }

    pub fn state(&self) -> &str {
        self.said.result()["requestState"].as_str().unwrap()
    }
}

/// A Modern client's retry.
pub async fn retry(
    client: &Client,
    (tool, arguments): (&str, &Value),
    state: &str,
    action: &str,
) -> Said {
    let params = json!({
        "name": tool, "arguments": arguments, "requestState": state,
        "inputResponses": { "confirm": { "action": action } },
    });
    client.request("tools/call", params).await
}

/// Makes a Legacy client's call, and answers its question with this action.
async fn answered(client: &Client, tool: &str, arguments: Value, action: &str) -> (String, Value) {
    let mut stream = client.ask_call(tool, arguments).send().await;
    let asked = within(stream.message()).await.unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let message = asked["params"]["message"].as_str().unwrap().to_owned();
    client.respond(&asked["id"], json!({ "action": action })).await;
    (message, within(stream.message()).await.unwrap())
}

/// Defines two tools that ask for a name, with and without a state of the server's own.
pub fn define_questions(upstream: &Upstream) {
    let form = json!({ "mode": "form", "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} } });
    for (tool, state) in [("stateful", Some("mine")), ("stateless", None)] {
        let form = form.clone();
        upstream.does(tool, move |call| match call.params.get("inputResponses") {
            Some(said) => vec![Step::text(said.to_string())],
            None => {
                let mut result = json!({ "resultType": "input_required",
                    "inputRequests": { "who": { "method": "elicitation/create", "params": form } } });
                if let Some(state) = state {
                    result["requestState"] = json!(state);
                }
                vec![Step::Result(result)]
            }
        });
    }
}

pub async fn asking(upstream: &Upstream, settings: &str) -> Builder {
    Gateway::with("s", upstream.http() + settings).toml("[audit]\nfile = \"audit.jsonl\"\n")
}

#[tokio::test]
async fn the_user_is_asked_first_in_both_eras_and_the_server_hears_of_agreed_calls_only() {
    for upstream in Upstream::both().await {
        let gateway = asking(&upstream, CONFIRM).await.start().await;
        let arguments = json!({ "path": "/tmp/x", "password": "hunter2" });
        let modern = gateway.modern().offering(form()).await;
        let question = Question::about(&modern, "s__echo", &arguments).await;
        let expected = "Allow the call of the tool s__echo with these arguments: \
                        {\"path\":\"/tmp/x\",\"password\":\"[redacted]\"}";
        assert_eq!(question.message(), expected);
        let call = ("s__echo", &arguments);
        for action in ["decline", "cancel", "whatever"] {
            let said = retry(&modern, call, question.state(), action).await;
            assert!(said.is_error() && said.text().contains("the user d"), "{action} {said:?}");
        }
        assert!(upstream.calls().is_empty(), "nobody agreed");
        let said = retry(&modern, call, question.state(), "accept").await;
        assert_eq!(said.text(), arguments.to_string());
        assert_eq!(upstream.calls().len(), 1);
        let sent = upstream.calls().pop().unwrap();
        assert!(sent.params.get("requestState").is_none(), "{:?}", sent.params);
        assert!(sent.params.get("inputResponses").is_none(), "{:?}", sent.params);

        let legacy = gateway.legacy().await.offering(form()).await;
        let (message, declined) = answered(&legacy, "s__echo", arguments.clone(), "decline").await;
        assert_eq!(message, expected);
        assert_eq!(declined["result"]["isError"], true, "{declined}");
        assert_eq!(upstream.calls().len(), 1, "nobody agreed");
        let (_, agreed) = answered(&legacy, "s__echo", arguments.clone(), "accept").await;
        assert_eq!(agreed["result"]["content"][0]["text"], arguments.to_string(), "{agreed}");
        assert_eq!(upstream.calls().len(), 2);
    }
}

#[tokio::test]
async fn a_client_that_cannot_ask_is_refused() {
    let upstream = Upstream::modern().await;
    let own = "[tools.batch]\n[tools.batch.calls.echo]\ntool = \"s__echo\"\n";
    let gateway = asking(&upstream, CONFIRM).await.toml(own).start().await;
    for (era, client) in gateway.both().await {
        let said = client.call("s__echo", json!({})).await;
        assert!(said.is_error() && said.text().contains("cannot ask"), "{era} {said:?}");
        // Calls within a tool of the gateway cannot show a question.
        let client = client.offering(form()).await;
        let said = client.call("batch", json!({})).await;
        assert!(said.is_error() && said.text().contains("cannot ask"), "{era} {said:?}");
    }
    assert!(upstream.calls().is_empty());
}

#[tokio::test]
async fn an_answer_is_good_for_the_very_call_that_was_asked_about() {
    let upstream = Upstream::modern().await;
    let profiles = "[profiles.p]\ntools = [\"s__*\"]\n";
    let gateway = asking(&upstream, CONFIRM).await.toml(profiles).start().await;
    let client = gateway.modern().offering(form()).await;
    let asked = json!({ "path": "/tmp/x" });
    let question = Question::about(&client, "s__echo", &asked).await;
    let state = question.state().to_owned();
    let other = json!({ "path": "/etc/passwd" });
    for (what, call) in [("arguments", ("s__echo", &other)), ("tool", ("s__count", &asked))] {
        let said = retry(&client, call, &state, "accept").await;
        assert_eq!(said.code(), -32_602, "other {what}: {said:?}");
    }
    for forged in ["", "AAAA", &state[1..], &format!("{state}A")] {
        let said = retry(&client, ("s__echo", &asked), forged, "accept").await;
        assert_eq!(said.code(), -32_602, "{forged}: {said:?}");
    }
    let elsewhere = gateway.modern().at("/mcp/p").offering(form()).await;
    let said = retry(&elsewhere, ("s__echo", &asked), &state, "accept").await;
    assert_eq!(said.code(), -32_602, "{said:?}");
    // An answer without the question is invalid: the user is asked.
    let params = json!({
        "name": "s__echo", "arguments": asked,
        "inputResponses": { "confirm": { "action": "accept" } },
    });
    let said = client.request("tools/call", params).await;
    assert_eq!(said.result()["resultType"], "input_required", "{said:?}");
    // A state without an answer is no consent.
    let params = json!({ "name": "s__echo", "arguments": asked, "requestState": state });
    let said = client.request("tools/call", params).await;
    assert!(said.is_error(), "{said:?}");
    assert!(upstream.calls().is_empty());
}

#[tokio::test]
async fn only_a_trusted_server_says_which_of_its_tools_destroy_nothing() {
    let upstream = Upstream::modern().await;
    let tool = |name: &str, hints: Value| json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": hints });
    upstream.tool(&tool("reads", json!({ "readOnlyHint": true })), |_| vec![Step::text("read")]);
    upstream
        .tool(&tool("adds", json!({ "destructiveHint": false })), |_| vec![Step::text("added")]);
    upstream.tool(&tool("drops", json!({})), |_| vec![Step::text("dropped")]);
    let settings = "confirm = \"destructive\"\n";
    let gateway = Gateway::with("bad", upstream.http() + settings)
        .server("good", upstream.http() + settings + "trusted = true\n")
        .start()
        .await;
    let client = gateway.modern().offering(form()).await;
    for (tool, asks) in [
        ("bad__reads", true),
        ("bad__adds", true),
        ("bad__drops", true),
        ("good__reads", false),
        ("good__adds", false),
        ("good__drops", true),
    ] {
        let said = client.call(tool, json!({})).await;
        let is_asked = said.result()["resultType"] == "input_required";
        assert_eq!(is_asked, asks, "{tool}: {said:?}");
    }
}

#[tokio::test]
async fn questions_of_the_server_come_after_that_of_the_gateway_and_only_one_is_asked_twice() {
    let upstream = Upstream::modern().await;
    define_questions(&upstream);
    let gateway = asking(&upstream, CONFIRM).await.start().await;
    let client = gateway.modern().offering(form()).await;
    for tool in ["s__stateful", "s__stateless"] {
        let arguments = json!({});
        let question = Question::about(&client, tool, &arguments).await;
        let said = retry(&client, (tool, &arguments), question.state(), "accept").await;
        assert!(said.result()["inputRequests"]["who"].is_object(), "{tool} {said:?}");
        let state = said.result()["requestState"].as_str().unwrap();
        let answer = json!({ "who": { "action": "accept", "content": { "name": "Ann" } } });
        let params = json!({
            "name": tool, "arguments": arguments, "requestState": state, "inputResponses": answer,
        });
        let said = client.request("tools/call", params).await;
        assert!(said.text().contains("Ann"), "{tool} {said:?}");
    }
}

#[tokio::test]
async fn the_user_is_not_asked_about_arguments_that_break_the_schema() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "required": ["n"] });
    upstream.tool(&json!({ "name": "strict", "inputSchema": schema }), |_| vec![Step::Usual]);
    let gateway = asking(&upstream, CONFIRM).await.start().await;
    let client = gateway.modern().offering(form()).await;
    let invalid = client.call("s__strict", json!({ "x": 1 })).await;
    assert!(invalid.is_error(), "{invalid:?}");
    Question::about(&client, "s__strict", &json!({ "n": 1 })).await;
}

#[tokio::test]
async fn impossible_calls_need_no_consent_and_the_audit_log_records_each_answer() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "required": ["n"] });
    upstream.tool(&json!({ "name": "strict", "inputSchema": schema }), |_| vec![Step::Usual]);
    let rules = "[policy.rules.some]\nwhen = \"tool.native == 'strict' && arguments.n < 5\"\n";
    let gateway = asking(&upstream, CONFIRM).await.toml(rules).start().await;
    let client = gateway.modern().offering(form()).await;
    let invalid = client.call("s__strict", json!({ "x": 1 })).await;
    assert!(invalid.is_error(), "{invalid:?}");
    let denied = client.call("s__strict", json!({ "n": 7 })).await;
    assert!(denied.is_error() && denied.text().contains("not allowed"), "{denied:?}");
    let arguments = json!({ "n": 1 });
    let call = ("s__strict", &arguments);
    let question = Question::about(&client, call.0, &arguments).await;
    retry(&client, call, question.state(), "decline").await;
    retry(&client, call, question.state(), "accept").await;
    let records = super::authorization::audited(gateway.folder(), 5).await;
    let told: Vec<_> = records
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap_or("-").to_owned();
            [text("decision"), text("check"), text("rule"), text("confirmation")].join(" ")
        })
        .collect();
    let expected = [
        "deny rule - -",
        "deny rule - -",
        "confirm rule some asked",
        "deny confirm - declined",
        "allow rule some accepted",
    ];
    assert_eq!(told, expected);
}
