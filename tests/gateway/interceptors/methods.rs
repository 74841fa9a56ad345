//! Interceptors of prompts, resources and tasks, and rules about their changes.

use serde_json::{Value, json};

use super::{asked, intercepting, invalid, mutation, valid};
use crate::support::api::PlainApi;
use crate::support::upstream::tasks::EXTENSION;
use crate::support::{Client, Said, Upstream, within};

/// Returns the payload of a request.
fn request(method: &str, params: Value) -> Value {
    json!({ "method": method, "params": params })
}

async fn get(client: &Client) -> Said {
    let params = json!({ "name": "s__greet", "arguments": { "who": "Ann" } });
    client.request("prompts/get", params).await
}

async fn read(client: &Client) -> Said {
    client.read_resource("mcp://s/file:///a.txt").await
}

/// Returns the requests to the interceptor since then: the event, the phase and the payload.
fn news(api: &PlainApi, since: usize) -> Vec<[Value; 3]> {
    let all = asked(api).split_off(since);
    all.iter()
        .map(|it| ["event", "phase", "payload"].map(|key| it["params"][key].clone()))
        .collect()
}

#[track_caller]
fn is_refused(said: &Said) -> bool {
    said.answer()["result"].is_null() && said.body.contains("refused by the interceptor check")
}

#[tokio::test]
async fn prompts_and_resources_pass_in_both_phases_with_the_servers_own_names() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    upstream.offers_everything();
    api.sets("/check", valid());
    let gateway = intercepting(&upstream, &api, "").start().await;
    for (era, client) in gateway.both().await {
        let before = asked(&api).len();
        let said = get(&client).await.result()["messages"][0]["content"]["text"].clone();
        assert_eq!(said, "\"greet\" {\"who\":\"Ann\"}", "{era}");
        let [asks, answers] = &news(&api, before)[..] else { panic!("{era}") };
        let params = json!({ "name": "greet", "arguments": { "who": "Ann" } });
        let expected = [json!("prompts/get"), json!("request"), request("prompts/get", params)];
        assert_eq!(asks, &expected, "{era}");
        assert_eq!(answers[1], "response", "{era}");
        assert_eq!(answers[2]["messages"][1]["content"]["resource"]["uri"], "b://2", "{era}");

        let before = asked(&api).len();
        let said = read(&client).await.result()["contents"][0].clone();
        assert_eq!(said["uri"], "mcp://s/file:///a.txt", "{era}");
        let [asks, answers] = &news(&api, before)[..] else { panic!("{era}") };
        let payload = request("resources/read", json!({ "uri": "file:///a.txt" }));
        assert_eq!(asks, &[json!("resources/read"), json!("request"), payload], "{era}");
        assert_eq!(answers[2]["contents"][0]["uri"], "file:///a.txt", "{era}");
    }
}

#[tokio::test]
async fn refused_prompts_and_resources_are_neither_asked_for_nor_shown() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    upstream.offers_everything();
    api.sets("/check", invalid());
    let heard = || upstream.all("prompts/get").len() + upstream.all("resources/read").len();
    for (on, sent) in [("request", 0), ("result", 1)] {
        let gateway = intercepting(&upstream, &api, &format!("on = [\"{on}\"]")).start().await;
        for (era, client) in gateway.both().await {
            for said in [get(&client).await, read(&client).await] {
                assert!(is_refused(&said) && said.body.contains("a secret"), "{on} {era} {said:?}");
                assert!(!said.body.contains("what file:///a.txt is"), "{on} {era} {said:?}");
            }
        }
        assert_eq!(heard(), 4 * sent, "{on}");
    }
}

#[tokio::test]
async fn a_mutation_changes_a_prompts_arguments_and_any_result() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    upstream.offers_everything();
    let gateway = intercepting(&upstream, &api, "on = [\"request\"]").start().await;
    let params = |name: &str| json!({ "name": name, "arguments": { "who": "***" } });
    api.sets("/check", mutation(&request("prompts/get", params("greet"))));
    for (era, client) in gateway.both().await {
        let said = get(&client).await.result()["messages"][0]["content"]["text"].clone();
        assert_eq!(said, "\"greet\" {\"who\":\"***\"}", "{era}");
    }
    let (gets, reads) = (upstream.all("prompts/get").len(), upstream.all("resources/read").len());
    api.sets("/check", mutation(&request("prompts/get", params("other"))));
    let said = get(&gateway.modern()).await;
    assert!(said.body.contains("changes more than the arguments"), "{said:?}");
    api.sets("/check", mutation(&request("resources/read", json!({ "uri": "b://2" }))));
    let said = read(&gateway.modern()).await;
    assert!(said.body.contains("changes more than the arguments"), "{said:?}");
    assert_eq!(upstream.all("prompts/get").len(), gets, "no other prompt is asked for");
    assert_eq!(upstream.all("resources/read").len(), reads, "no other resource is read");

    let gateway = intercepting(&upstream, &api, "on = [\"result\"]").start().await;
    for (era, client) in gateway.both().await {
        let contents = json!([{ "uri": "file:///a.txt", "text": "***" }]);
        api.sets("/check", mutation(&json!({ "contents": contents })));
        let said = read(&client).await.result()["contents"][0].clone();
        let expected = json!({ "uri": "mcp://s/file:///a.txt", "text": "***" });
        assert_eq!(said, expected, "{era}: its URI is public all the same");
        let text = json!({ "role": "user", "content": { "type": "text", "text": "***" } });
        api.sets("/check", mutation(&json!({ "messages": [text] })));
        assert_eq!(get(&client).await.result()["messages"], json!([text]), "{era}");
    }
}

/// Adds support for tasks to a client.
async fn knowing(client: Client) -> Client {
    client.offering(json!({ "extensions": { EXTENSION: {} } })).await
}

#[tokio::test]
async fn the_results_of_tasks_pass_before_a_client_sees_them() {
    for upstream in Upstream::both().await {
        let api = PlainApi::start().await;
        upstream.has_tasks();
        api.sets("/check", valid());
        let gateway = intercepting(&upstream, &api, "on = [\"result\"]").start().await;
        let client = knowing(gateway.modern()).await;
        let created = client.call("s__must", json!({ "ends": "result" })).await;
        assert_eq!(created.result()["resultType"], "task", "{created:?}");
        let id = created.result()["taskId"].clone();
        let about = async || client.request("tasks/get", json!({ "taskId": id })).await;
        within(async { while about().await.result()["status"] != "completed" {} }).await;
        let last = news(&api, 0).pop().unwrap();
        assert_eq!((&last[0], &last[1]), (&json!("tasks/get"), &json!("response")));
        assert!(last[2].to_string().contains("\"done\""), "{last:?}");
        let shown = last[2].to_string();
        assert!(!shown.contains(id.as_str().unwrap()), "the server's own id: {shown}");

        api.sets("/check", invalid());
        let said = about().await;
        assert!(is_refused(&said) && !said.body.contains("\"done\""), "{said:?}");
        // A call with a task that the gateway waits for.
        let plain = gateway.legacy().await;
        let said = plain.call("s__must", json!({ "ends": "result" })).await;
        let is_refused = said.is_error() && said.text().contains("refused by the interceptor");
        assert!(is_refused, "{said:?}");
    }
}

#[tokio::test]
async fn requests_about_tasks_pass_and_are_refused() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    upstream.has_tasks();
    api.sets("/check", valid());
    let lines = "on = [\"request\"]\nmethods = [\"tasks/*\"]";
    let gateway = intercepting(&upstream, &api, lines).start().await;
    let client = knowing(gateway.modern()).await;
    let created = client.call("s__must", json!({})).await.result().clone();
    assert!(asked(&api).is_empty(), "the call itself is none of its methods");
    let id = json!({ "taskId": created["taskId"] });
    client.request("tasks/get", id.clone()).await.result();
    let [[event, phase, _]] = &news(&api, 0)[..] else { panic!("{:?}", asked(&api)) };
    assert_eq!((event, phase), (&json!("tasks/get"), &json!("request")));
    api.sets("/check", invalid());
    let said = client.request("tasks/cancel", id).await;
    assert!(is_refused(&said), "{said:?}");
    assert!(upstream.all("tasks/cancel").is_empty());
}

#[tokio::test]
async fn rules_judge_arguments_before_and_after_an_interceptor_has_changed_them() {
    let (upstream, api) = (Upstream::modern().await, PlainApi::start().await);
    upstream.offers_everything();
    let rules = r#"
        [audit]
        file = "audit.jsonl"
        [policy.rules.all]
        [policy.rules.never_main]
        effect = "deny"
        tools = ["s__echo"]
        when = "arguments.branch == 'main'"
        [policy.rules.never_eve]
        effect = "deny"
        prompts = ["s__greet"]
        when = "has(arguments.who) && arguments.who == 'Eve'"
    "#;
    let gateway = intercepting(&upstream, &api, "on = [\"request\"]").toml(rules).start().await;
    let changes = |method: &str, name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        api.sets("/check", mutation(&request(method, params)));
    };
    for (era, client) in gateway.both().await {
        let sent = upstream.calls().len() + upstream.all("prompts/get").len();
        // A change to arguments that the rules deny.
        changes("tools/call", "echo", json!({ "branch": "main" }));
        let said = client.call("s__echo", json!({ "branch": "dev" })).await;
        assert!(said.is_error() && said.text().contains("not allowed"), "{era} {said:?}");
        changes("prompts/get", "greet", json!({ "who": "Eve" }));
        assert!(get(&client).await.answer()["result"].is_null(), "{era}");
        // Denied calls are not sent to an interceptor, even if it would change them.
        changes("tools/call", "echo", json!({ "branch": "dev" }));
        let before = asked(&api).len();
        let said = client.call("s__echo", json!({ "branch": "main" })).await;
        assert!(said.is_error() && said.text().contains("not allowed"), "{era} {said:?}");
        assert_eq!(asked(&api).len(), before, "{era}");
        assert_eq!(upstream.calls().len() + upstream.all("prompts/get").len(), sent, "{era}");
        // A change to arguments that the rules allow.
        let said = client.call("s__echo", json!({ "branch": "other" })).await;
        assert_eq!(said.text(), r#"{"branch":"dev"}"#, "{era}");
    }
    let records = crate::authorization::audited(gateway.folder(), 8).await;
    let denied = records.iter().filter(|it| it["rule"] == "never_main" && it["decision"] == "deny");
    assert_eq!(denied.count(), 4, "{records:?}");
    let changed = records.iter().filter(|it| it["rule"] == "check" && it["decision"] == "allow");
    assert_eq!(changed.count(), 2, "{records:?}");
}
