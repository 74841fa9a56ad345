//! Calls through `call_tool`: all parts of a call apply to the tool that it names.

use serde_json::{Value, json};

use crate::input::{ann, asks, both, form};
use crate::support::dialogue::dialogue_about;
use crate::support::{Gateway, Kind, Step, every_kind};
use crate::tasks;

const SEARCH: &str = "[profiles.default]\ndiscovery = \"search\"\n";

async fn search(kinds: &[Kind]) -> Gateway {
    Gateway::alone().kinds(kinds).toml(SEARCH).start().await
}

fn named(kind: &Kind, tool: &str) -> Value {
    json!({ "name": format!("{}__{tool}", kind.name), "arguments": {} })
}

#[tokio::test]
async fn progress_comes_under_the_clients_own_token() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("count", |_| vec![Step::Progress(1), Step::text("counted")]);
    }
    let gateway = search(&kinds).await;
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let ask = client.ask_call("call_tool", named(kind, "count")).token(json!("mine"));
            let said = ask.send().await.said().await;
            assert_eq!(said.text(), "counted", "{era} {}", kind.name);
            let notice = &said.notices()[0]["params"];
            let expected = (&json!("mine"), &json!(1));
            assert_eq!((&notice["progressToken"], &notice["progress"]), expected, "{era}");
        }
    }
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_the_server() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("begin", |_| vec![Step::Progress(1), Step::Never]);
    }
    let gateway = search(&kinds).await;
    let (modern, legacy) = (gateway.modern(), gateway.legacy().await);
    for kind in &kinds {
        let told = if kind.name == "modern-http" { "closed" } else { "notifications/cancelled" };
        let ask = modern.ask_call("call_tool", named(kind, "begin")).token(json!(1));
        let mut reply = ask.send().await;
        reply.message().await.unwrap();
        drop(reply);
        kind.upstream.heard(told, 1).await;

        let ask = legacy.ask_call("call_tool", named(kind, "begin")).token(json!(2)).id(json!(7));
        let mut reply = ask.send().await;
        reply.message().await.unwrap();
        let params = json!({ "requestId": 7 });
        legacy.ask("notifications/cancelled", params).notification().send().await;
        assert_eq!(reply.message().await, None, "{}", kind.name);
        kind.upstream.heard(told, 2).await;
    }
}

#[tokio::test]
async fn questions_of_the_server_reach_the_client() {
    let kinds = every_kind().await;
    asks(&kinds, "ask", || vec![("who", "elicitation/create", form())]);
    let gateway = search(&kinds).await;
    for (era, client) in both(&gateway).await {
        for kind in &kinds {
            let params = json!({ "name": "call_tool", "arguments": named(kind, "ask") });
            let said = dialogue_about(&client, "tools/call", params, |_| ann()).await;
            assert!(said.text().contains("Ann"), "{era} {}: {said:?}", kind.name);
        }
    }
}

#[tokio::test]
async fn a_call_can_become_a_task() {
    let kinds = tasks::kinds().await;
    let gateway = tasks::in_front_of(&kinds).toml(SEARCH).start().await;
    let (modern, legacy) = (tasks::modern(&gateway).await, tasks::legacy(&gateway).await);
    for (kind, _) in &kinds {
        let mut wanted = named(kind, "must");
        wanted["arguments"] = json!({ "ends": "result" });
        let said = modern.call("call_tool", wanted.clone()).await;
        assert_eq!(said.result()["resultType"], "task", "{}: {said:?}", kind.name);
        let task = tasks::settled(&modern, &said.result()["taskId"]).await;
        assert_eq!(task["status"], "completed", "{}: {task}", kind.name);

        let ask = legacy.ask_call("call_tool", wanted).param("task", json!({ "ttl": 60_000 }));
        let said = ask.send().await.said().await;
        if kind.name.starts_with("modern") {
            // Legacy clients get the results of Modern tasks, and never the tasks.
            assert_eq!(said.text(), "done", "{}", kind.name);
            continue;
        }
        let task = tasks::settled(&legacy, &said.result()["task"]["taskId"]).await;
        assert_eq!(task["status"], "completed", "{}: {task}", kind.name);
    }
}
