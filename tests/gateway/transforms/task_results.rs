//! Final results of tasks: changed like any other, whenever and however they are fetched.

use serde_json::{Value, json};

use crate::input::everything;
use crate::support::upstream::news::TASK;
use crate::support::upstream::tasks::{EXTENSION, State};
use crate::support::{Client, Gateway, Upstream, every_kind, until};

const SETTINGS: &str = "\nresult.strip = [\"control\"]\ntools.must.result.field = \"a\"\n";

fn answer() -> Value {
    json!({ "content": [{ "type": "text", "text": "{\"a\":\"x\\u0007y\"}" }] })
}

async fn created(client: &Client, tool: &str) -> Value {
    let mut ask = client.ask_call(tool, json!({}));
    if !client.is_modern() {
        ask = ask.param("task", json!({ "ttl": 60_000 }));
    }
    let said = ask.send().await.said().await;
    let result = said.result();
    let task = if client.is_modern() { result } else { &result["task"] };
    task["taskId"].clone()
}

#[tokio::test]
async fn the_final_result_of_a_task_is_changed_like_any_other() {
    let mut builder = Gateway::alone();
    let mut kinds = Vec::new();
    for kind in every_kind().await {
        let tasks = kind.upstream.has_tasks();
        builder = builder.server(kind.name, kind.lines.clone() + SETTINGS);
        kinds.push((kind, tasks));
    }
    let gateway = builder.start().await;
    let mut modern = everything();
    modern["extensions"] = json!({ EXTENSION: {} });
    let modern = gateway.modern().offering(modern).await;
    let legacy = gateway.legacy().await.offering(everything()).await;
    for (kind, tasks) in &kinds {
        let tool = format!("{}__must", kind.name);
        let id = created(&modern, &tool).await;
        tasks.end("task-1", State::Result(answer()));
        let said = modern.request("tasks/get", json!({ "taskId": id })).await;
        let result = &said.result()["result"];
        assert_eq!(result["content"][0]["text"], "xy", "{} {said:?}", kind.name);
        assert_eq!(result["structuredContent"], json!({ "a": "xy" }), "{}", kind.name);
        assert_eq!(said.result()["taskId"], id, "{}", kind.name);
        if kind.name.starts_with("legacy") {
            let id = created(&legacy, &tool).await;
            tasks.end("task-2", State::Result(answer()));
            let said = legacy.request("tasks/result", json!({ "taskId": id })).await;
            assert_eq!(said.text(), "xy", "{} {said:?}", kind.name);
            let got = legacy.request("tasks/get", json!({ "taskId": id })).await;
            assert_eq!(got.result()["taskId"], id, "{} {got:?}", kind.name);
        } else {
            // The gateway waits for the task.
            let ends = async {
                until(|| tasks.count() == 2).await;
                tasks.end("task-2", State::Result(answer()));
            };
            let (said, ()) = tokio::join!(legacy.call(&tool, json!({})), ends);
            assert_eq!(said.text(), "xy", "{} {said:?}", kind.name);
        }
    }
}

#[tokio::test]
async fn a_notification_with_the_result_of_a_task_is_changed_too() {
    for kind in every_kind().await.into_iter().filter(|kind| kind.name.starts_with("modern")) {
        kind.upstream.has_tasks();
        let gateway = Gateway::with("s", kind.lines.clone() + SETTINGS).start().await;
        let mut knows = everything();
        knows["extensions"] = json!({ EXTENSION: {} });
        let client = gateway.modern().offering(knows).await;
        let id = created(&client, "s__must").await;
        let filter = json!({ "notifications": { "taskIds": [id] } });
        let mut stream = client.ask("subscriptions/listen", filter).send().await;
        stream.message().await.unwrap();
        let ended = json!({ "taskId": "task-1", "status": "completed", "result": answer() });
        kind.upstream.tell(TASK, ended).await;
        let message = stream.message().await.unwrap();
        let params = &message["params"];
        assert_eq!(params["taskId"], id, "{message}");
        assert_eq!(params["result"]["content"][0]["text"], "xy", "{message}");
    }
}

#[tokio::test]
async fn the_outcome_of_a_task_is_unknown_once_its_tool_is_hidden() {
    let modern = Upstream::modern().await;
    modern.has_tasks();
    let lines = modern.http() + SETTINGS;
    let gateway = Gateway::with("s", lines.clone()).start().await;
    let mut knows = everything();
    knows["extensions"] = json!({ EXTENSION: {} });
    let client = gateway.modern().offering(knows).await;
    let id = created(&client, "s__must").await;
    let get = || client.request("tasks/get", json!({ "taskId": id }));
    assert_eq!(get().await.result()["status"], "working");
    let hidden = lines + "tools.deny = [\"must\"]\n";
    gateway.reload(Gateway::with("s", hidden)).await;
    assert_eq!(get().await.code(), -32602);
}
