//! Scope of a user's consent to a call: one call of one client.

use serde_json::{Value, json};

use super::confirm::{CONFIRM, Question, asking, define_questions, form, retry};
use crate::support::client::Client;
use crate::support::{Said, Step, Upstream, client_table, within};

#[track_caller]
fn is_used(said: &Said) -> bool {
    said.code() == -32_602
        && said.body.contains("the call with the consent of the user was already made")
}

#[tokio::test]
async fn an_accepted_confirmation_is_good_for_one_call() {
    let upstream = Upstream::modern().await;
    let gateway = asking(&upstream, CONFIRM).await.start().await;
    let client = gateway.modern().offering(form()).await;
    let arguments = json!({ "amount": 100 });
    let call = ("s__echo", &arguments);
    let question = Question::about(&client, call.0, &arguments).await;
    assert_eq!(
        retry(&client, call, question.state(), "accept").await.text(),
        arguments.to_string()
    );
    for _ in 0..2 {
        let said = retry(&client, call, question.state(), "accept").await;
        assert!(is_used(&said), "{said:?}");
    }
    // From another connection, and after a reload.
    let again = gateway.modern().h2().offering(form()).await;
    gateway.reload(asking(&upstream, CONFIRM).await.server("t", upstream.http())).await;
    let said = retry(&again, call, question.state(), "accept").await;
    assert!(is_used(&said), "{said:?}");
    assert_eq!(upstream.calls().len(), 1);
    // The user is asked again, and agrees again.
    let question = Question::about(&client, call.0, &arguments).await;
    retry(&client, call, question.state(), "accept").await.text();
    assert_eq!(upstream.calls().len(), 2);
}

#[tokio::test]
async fn of_calls_side_by_side_with_one_consent_one_is_made() {
    let upstream = Upstream::modern().await;
    let gateway = asking(&upstream, CONFIRM).await.start().await;
    let client = gateway.modern().offering(form()).await;
    let arguments = json!({});
    let question = Question::about(&client, "s__hold", &arguments).await;
    let first = retry(&client, ("s__hold", &arguments), question.state(), "accept");
    let others = async {
        within(upstream.heard("tools/call", 1)).await;
        for _ in 0..3 {
            let said = retry(&client, ("s__hold", &arguments), question.state(), "accept").await;
            assert!(is_used(&said), "{said:?}");
        }
        upstream.release(1);
    };
    let (first, ()) = tokio::join!(first, others);
    assert_eq!(first.text(), "held");
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn another_clients_confirmation_is_refused() {
    let upstream = Upstream::modern().await;
    let builder = asking(&upstream, CONFIRM).await;
    let builder =
        builder.toml(&client_table("ann", "ann", "")).toml(&client_table("bob", "bob", ""));
    let gateway = builder.start().await;
    let client = async |key: &str| gateway.modern().key(key).offering(form()).await;
    let (ann, bob) = (client("ann").await, client("bob").await);
    let arguments = json!({ "amount": 100 });
    let call = ("s__echo", &arguments);
    let question = Question::about(&ann, call.0, &arguments).await;
    let said = retry(&bob, call, question.state(), "accept").await;
    assert_eq!(said.code(), -32_602, "{said:?}");
    assert!(said.body.contains("it was not issued to this client"), "{said:?}");
    assert!(upstream.calls().is_empty());
    // It is still valid for the client that received it.
    retry(&ann, call, question.state(), "accept").await.text();
    assert_eq!(upstream.calls().len(), 1);
}

/// Makes a call to a server that asks for input after the user's consent.
async fn agreed(client: &Client, tool: &str, arguments: &Value) -> String {
    let question = Question::about(client, tool, arguments).await;
    let said = retry(client, (tool, arguments), question.state(), "accept").await;
    assert!(said.result()["inputRequests"]["who"].is_object(), "{said:?}");
    let used = retry(client, (tool, arguments), question.state(), "accept").await;
    assert!(is_used(&used), "{used:?}");
    said.result()["requestState"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_state_of_a_servers_own_question_carries_the_consent_once() {
    let upstream = Upstream::modern().await;
    define_questions(&upstream);
    let gateway = asking(&upstream, CONFIRM).await.start().await;
    let client = gateway.modern().offering(form()).await;
    for tool in ["s__stateful", "s__stateless"] {
        let arguments = json!({});
        let state = agreed(&client, tool, &arguments).await;
        let params = json!({
            "name": tool, "arguments": arguments, "requestState": state,
            "inputResponses": { "who": { "action": "accept", "content": { "name": "Ann" } } },
        });
        let said = client.request("tools/call", params.clone()).await;
        assert!(said.text().contains("Ann"), "{tool} {said:?}");
        let calls = upstream.calls().len();
        let said = client.request("tools/call", params).await;
        assert!(is_used(&said), "{tool} {said:?}");
        assert_eq!(upstream.calls().len(), calls, "{tool}");
    }
}

#[tokio::test]
async fn states_of_tools_that_need_no_consent_are_not_counted() {
    let upstream = Upstream::modern().await;
    upstream.does("asks", |call| match call.params.get("inputResponses") {
        Some(_) => vec![Step::text("done")],
        None => vec![Step::Result(json!({ "resultType": "input_required", "requestState": "mine",
            "inputRequests": { "who": { "method": "elicitation/create", "params": {
                "mode": "form", "message": "Who?",
                "requestedSchema": { "type": "object", "properties": {} } } } } }))],
    });
    let settings = "confirm = true\ntools.asks.confirm = false";
    let gateway = asking(&upstream, settings).await.start().await;
    let client = gateway.modern().offering(form()).await;
    let said = client.call("s__asks", json!({})).await;
    let state = said.result()["requestState"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        // A second use of a server's own state is up to the server.
        let params = json!({
            "name": "s__asks", "arguments": {}, "requestState": state,
            "inputResponses": { "who": { "action": "accept", "content": {} } },
        });
        assert_eq!(client.request("tools/call", params).await.text(), "done");
    }
}
