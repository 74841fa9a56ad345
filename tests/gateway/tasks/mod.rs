//! Tasks: the extension of 2026-07-28 and the experimental ones of 2025-11-25,
//! on either side.

mod ids;
mod without_support;

use serde_json::{Value, json};

use crate::input::{ann, everything, question};
use crate::support::gateway::Builder;
use crate::support::upstream::tasks::{EXTENSION, State, Tasks};
use crate::support::{
    Client, Gateway, Kind, Said, Upstream, client_table, every_kind, poll_for, within,
};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Returns the capabilities of a client with task support.
pub fn knows() -> Value {
    let mut all = everything();
    all["extensions"] = json!({ EXTENSION: {} });
    all
}

pub async fn modern(gateway: &Gateway) -> Client {
    gateway.modern().offering(knows()).await
}

pub async fn legacy(gateway: &Gateway) -> Client {
    gateway.legacy().await.offering(everything()).await
}

pub async fn kinds() -> Vec<(Kind, Tasks)> {
    let kinds = every_kind().await;
    kinds.into_iter().map(|kind| (kind.upstream.has_tasks(), kind)).map(|(t, k)| (k, t)).collect()
}

pub fn in_front_of(kinds: &[(Kind, Tasks)]) -> Builder {
    let all = kinds.iter();
    all.fold(Gateway::alone(), |builder, (kind, _)| builder.server(kind.name, &kind.lines))
}

async fn gateway(kinds: &[(Kind, Tasks)]) -> Gateway {
    in_front_of(kinds).start().await
}

fn name(kind: &Kind, tool: &str) -> String {
    format!("{}__{tool}", kind.name)
}

/// Makes a call that becomes a task, in the way of its client's era; returns the task.
async fn create(client: &Client, tool: &str, arguments: Value) -> Value {
    let mut ask = client.ask_call(tool, arguments);
    if !client.is_modern() {
        ask = ask.param("task", json!({ "ttl": 60_000 }));
    }
    let said = ask.send().await.said().await;
    if client.is_modern() {
        assert_eq!(said.result()["resultType"], "task", "{said:?}");
        return said.result().clone();
    }
    said.result()["task"].clone()
}

pub async fn about(client: &Client, method: &str, id: &Value) -> Said {
    client.request(method, json!({ "taskId": id })).await
}

/// Waits until a task no longer works, and returns it.
pub async fn settled(client: &Client, id: &Value) -> Value {
    poll_for(async || {
        let task = about(client, "tasks/get", id).await.result().clone();
        Some(task).filter(|task| task["status"] != "working")
    })
    .await
}

#[tokio::test]
async fn a_modern_clients_task_goes_its_whole_way_at_every_server() {
    let kinds = kinds().await;
    let gateway = gateway(&kinds).await;
    let client = modern(&gateway).await;
    for (kind, tasks) in &kinds {
        for (ends, expected) in [
            (
                "result",
                json!({ "status": "completed", "result": { "content": [{ "type": "text", "text": "done" }] } }),
            ),
            (
                "fault",
                json!({ "status": "completed", "result": { "content": [], "isError": true, "structuredContent": {} } }),
            ),
            ("error", json!({ "status": "failed", "error": { "code": -7, "message": "no luck" } })),
        ] {
            let task = create(&client, &name(kind, "must"), json!({ "ends": ends })).await;
            let id = task["taskId"].clone();
            assert!(id.as_str().unwrap().starts_with(&format!("{}.task-", kind.name)), "{id}");
            assert_eq!((&task["ttlMs"], &task["pollIntervalMs"]), (&json!(60_000), &json!(20)));
            let mut task = settled(&client, &id).await;
            assert_eq!((&task["taskId"], &task["resultType"]), (&id, &json!("complete")));
            assert_eq!(task["ttlMs"], 60_000, "{task}");
            let mut seen = json!({ "status": task["status"] });
            for key in ["result", "error"] {
                if let Some(part) = task.as_object_mut().unwrap().remove(key) {
                    seen[key] = part;
                    if let Some(meta) = seen[key].as_object_mut().unwrap().remove("_meta") {
                        assert_eq!(meta[RELATED]["taskId"], id, "{}", kind.name);
                    }
                }
            }
            assert_eq!(seen, expected, "{} {ends}", kind.name);
            // Too late, which is not an error for a Modern client.
            assert_eq!(
                about(&client, "tasks/cancel", &id).await.result()["resultType"],
                "complete"
            );
        }
        let task = create(&client, &name(kind, "may"), json!({})).await;
        let id = task["taskId"].clone();
        assert_eq!(about(&client, "tasks/get", &id).await.result()["status"], "working");
        assert_eq!(about(&client, "tasks/cancel", &id).await.result()["resultType"], "complete");
        assert_eq!(about(&client, "tasks/get", &id).await.result()["status"], "cancelled");
        tasks.forget();
        assert_eq!(about(&client, "tasks/get", &id).await.code(), -32602, "{}", kind.name);
        assert_eq!(about(&client, "tasks/cancel", &id).await.code(), -32602, "{}", kind.name);
        let update = json!({ "taskId": id, "inputResponses": {} });
        assert_eq!(client.request("tasks/update", update).await.code(), -32602, "{}", kind.name);
    }
}

#[tokio::test]
async fn a_modern_client_answers_questions_of_any_servers_task() {
    let kinds = kinds().await;
    let gateway = gateway(&kinds).await;
    let client = modern(&gateway).await;
    for (kind, _) in &kinds {
        let task = create(&client, &name(kind, "must"), json!({ "asks": true })).await;
        let id = task["taskId"].clone();
        let asking = settled(&client, &id).await;
        assert_eq!(asking["status"], "input_required", "{asking}");
        let requests = asking["inputRequests"].as_object().unwrap();
        let (key, request) = requests.iter().next().unwrap();
        assert_eq!((requests.len(), &request["method"]), (1, &json!("elicitation/create")));
        assert_eq!(request["params"]["message"], "Who?");
        if let Some(meta) = request["params"].get("_meta") {
            assert_eq!(meta[RELATED]["taskId"], id);
        }
        // The same question is returned until it is answered.
        assert_eq!(settled(&client, &id).await["inputRequests"], asking["inputRequests"]);
        let stray = json!({ "taskId": id, "inputResponses": { "other": {} } });
        if kind.name.starts_with("legacy") {
            assert_eq!(
                client.request("tasks/update", stray).await.result()["resultType"],
                "complete"
            );
        }
        let update = json!({ "taskId": id, "inputResponses": { key: ann() } });
        assert_eq!(client.request("tasks/update", update).await.result()["resultType"], "complete");
        let task = within(async {
            loop {
                let task = settled(&client, &id).await;
                if task["status"] != "input_required" {
                    return task;
                }
            }
        })
        .await;
        assert_eq!(task["status"], "completed", "{task}");
        let said = task["result"]["content"][0]["text"].as_str().unwrap();
        let said: Value = serde_json::from_str(said).unwrap();
        assert_eq!(said["content"]["name"], "Ann", "{}", kind.name);
    }
}

#[tokio::test]
async fn a_legacy_server_is_asked_once_for_the_questions_of_its_task() {
    let upstream = Upstream::legacy().await;
    upstream.has_tasks();
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = modern(&gateway).await;
    let id = create(&client, "s__must", json!({ "asks": true })).await["taskId"].clone();
    let all = (0..8).map(|_| about(&client, "tasks/get", &id));
    let all = futures_util::future::join_all(all).await;
    for said in &all {
        assert_eq!(said.result()["inputRequests"], all[0].result()["inputRequests"]);
        assert_eq!(said.result()["inputRequests"].as_object().map(serde_json::Map::len), Some(1));
    }
    assert_eq!(upstream.all("tasks/result").len(), 1);
}

#[tokio::test]
async fn a_legacy_clients_task_goes_its_whole_way_at_a_legacy_server() {
    let kinds = kinds().await;
    let gateway = gateway(&kinds).await;
    for (kind, tasks) in kinds.iter().filter(|(kind, _)| kind.name.starts_with("legacy")) {
        let client = legacy(&gateway).await;
        let task = create(&client, &name(kind, "must"), json!({ "ends": "result" })).await;
        let id = task["taskId"].clone();
        assert_eq!(id, json!(format!("{}.task-1", kind.name)));
        assert_eq!(about(&client, "tasks/get", &id).await.result()["status"], "completed");
        let said = about(&client, "tasks/result", &id).await;
        assert_eq!(said.text(), "done");
        assert_eq!(said.result()["_meta"][RELATED]["taskId"], id);
        let late = about(&client, "tasks/cancel", &id).await;
        assert_eq!((late.code(), &late.error()["message"]), (-32602, &json!("it is over")));

        let task = create(&client, &name(kind, "may"), json!({ "asks": true })).await;
        let id = task["taskId"].clone();
        let ask = client.ask("tasks/result", json!({ "taskId": id }));
        let mut reply = ask.send().await;
        let asked = question(&mut reply).await;
        assert_eq!(asked["params"]["_meta"][RELATED]["taskId"], id);
        client.respond(&asked["id"], ann()).await;
        let said: Value = serde_json::from_str(reply.said().await.text()).unwrap();
        assert_eq!(said["q"]["content"]["name"], "Ann");

        // `tasks/result` waits; after its cancellation it no longer does, and the task continues.
        let task = create(&client, &name(kind, "may"), json!({})).await;
        let id = task["taskId"].clone();
        let ask = client.ask("tasks/result", json!({ "taskId": id })).id(json!("waits"));
        let takes_back = async {
            let heard = kind.upstream.heard("tasks/result", 3).await;
            let params = json!({ "requestId": "waits" });
            client.ask("notifications/cancelled", params).notification().send().await;
            let told = kind.upstream.heard("notifications/cancelled", 1).await;
            assert_eq!(Some(&told.params["requestId"]), heard.id.as_ref());
        };
        tokio::join!(ask.send(), takes_back);
        assert!(matches!(tasks.state("task-3"), State::Working));
        let ended = about(&client, "tasks/cancel", &id).await;
        assert_eq!(
            (&ended.result()["taskId"], &ended.result()["status"]),
            (&id, &json!("cancelled"))
        );
        assert_eq!(client.request("tasks/list", json!({})).await.code(), -32601);
    }
}

#[tokio::test]
async fn each_era_sees_its_own_form_of_tasks() {
    for upstream in Upstream::both().await {
        let legacy_server = upstream.inner.era == crate::support::upstream::Era::Legacy;
        upstream.has_tasks();
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let said = gateway.modern().request("server/discover", json!({})).await;
        let capabilities = &said.result()["capabilities"];
        assert_eq!(capabilities["extensions"][EXTENSION], json!({}));
        assert_eq!(capabilities.get("tasks"), None);
        for (version, told) in [("2025-11-25", legacy_server), ("2025-06-18", false)] {
            let said = gateway.plain().initialize(version).await.said().await;
            let capabilities = said.result()["capabilities"].clone();
            let expected = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
            assert_eq!(capabilities.get("tasks"), told.then_some(&expected), "{version}");
            assert_eq!(capabilities.get("extensions"), None);
        }
        let tools = gateway.legacy().await.tools().await;
        let must = tools.iter().find(|tool| tool["name"] == "s__must").unwrap();
        let support = &must["execution"]["taskSupport"];
        assert_eq!(*support, if legacy_server { json!("required") } else { Value::Null });
    }
}

#[tokio::test]
async fn methods_of_the_other_form_are_not_there() {
    let kinds = kinds().await;
    let gateway = gateway(&kinds).await;
    let client = modern(&gateway).await;
    for method in ["tasks/result", "tasks/list"] {
        let said = client.request(method, json!({ "taskId": "modern-http.task-1" })).await;
        assert_eq!((said.status, said.code()), (404, -32601), "{method}");
    }
    let session = gateway.legacy().await;
    for method in ["tasks/update", "tasks/list"] {
        let said = session.request(method, json!({ "taskId": "legacy-http.task-1" })).await;
        assert_eq!(said.code(), -32601, "{method}");
    }
    let old = gateway.legacy_of("2025-06-18").await;
    assert_eq!(about(&old, "tasks/get", &json!("legacy-http.task-1")).await.code(), -32601);
    // A Modern task is unknown to Legacy clients.
    let said = about(&session, "tasks/get", &json!("modern-http.task-1")).await;
    assert_eq!(said.code(), -32602);
    let unaware = gateway.modern();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let said = about(&unaware, method, &json!("nobody's")).await;
        assert_eq!((said.status, said.code()), (400, -32021), "{method}");
    }
    for id in [json!("nobodys.task-1"), json!("task-1"), json!(""), json!("modern-http.none")] {
        assert_eq!(about(&client, "tasks/get", &id).await.code(), -32602, "{id}");
    }
    let ask = client.ask("tasks/get", json!({ "taskId": "modern-http.x" }));
    let said = ask.header("mcp-name", "modern-http.y").send().await.said().await;
    assert_eq!((said.status, said.code()), (400, -32020));
}

fn clients(gateway: Builder) -> Builder {
    ["ann", "bob"].iter().fold(gateway, |gateway, name| {
        gateway.toml(&client_table(name, &format!("key of {name}"), ""))
    })
}

#[tokio::test]
async fn a_legacy_server_hears_no_wish_for_a_task_that_means_nothing() {
    let upstream = Upstream::legacy().await;
    let tasks = upstream.has_tasks();
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    let ask = client.ask_call("s__may", json!({ "ends": "result" })).param("task", json!({}));
    assert_eq!(ask.send().await.said().await.text(), "at once");
    assert_eq!(tasks.count(), 0);
}

#[tokio::test]
async fn the_result_of_a_task_has_the_clients_uris() {
    let kinds = kinds().await;
    for (kind, _) in &kinds {
        let mut capabilities = kind.upstream.inner.capabilities.lock().unwrap().clone();
        capabilities["resources"] = json!({});
        kind.upstream.resources(&["a:1"]);
        kind.upstream.can(capabilities);
    }
    let gateway = gateway(&kinds).await;
    let client = modern(&gateway).await;
    for (kind, _) in &kinds {
        let expected = json!(format!("mcp://{}/a:1", kind.name));
        let task = create(&client, &name(kind, "must"), json!({ "ends": "link" })).await;
        let task = settled(&client, &task["taskId"]).await;
        assert_eq!(task["result"]["content"][0]["uri"], expected);
        let driven = gateway.legacy().await;
        let said = driven.call(&name(kind, "must"), json!({ "ends": "link" })).await;
        assert_eq!(said.result()["content"][0]["uri"], expected);
    }
}
