//! Ids of tasks: their owners and their lifetime.

use serde_json::json;

use super::{RELATED, about, clients, create, gateway, in_front_of, kinds, knows, modern, name};
use crate::support::upstream::news::TASK;
use crate::support::upstream::tasks::State;
use crate::support::{Gateway, Upstream, until};

#[tokio::test]
async fn no_client_reaches_the_tasks_of_another() {
    let kinds = kinds().await;
    let all = in_front_of(&kinds).gateway(r#"state_keys = ["0123456789abcdef0123456789abcdef"]"#);
    let gateway = clients(all).start().await;
    let [ann, bob] = ["key of ann", "key of bob"].map(|key| gateway.modern().key(key));
    let (ann, bob) = (ann.offering(knows()).await, bob.offering(knows()).await);
    for (kind, tasks) in &kinds {
        let task = create(&ann, &name(kind, "must"), json!({})).await;
        let id = task["taskId"].as_str().unwrap().to_owned();
        assert_eq!(about(&ann, "tasks/get", &json!(id)).await.result()["status"], "working");
        let guess = format!("{}.task-1", kind.name);
        for id in [&id, &guess, &id.replace("task-1", "task-2")] {
            for method in ["tasks/get", "tasks/cancel"] {
                let said = about(&bob, method, &json!(id)).await;
                assert_eq!(said.code(), -32602, "{method} {id} {said:?}");
            }
        }
        assert!(matches!(tasks.state("task-1"), State::Working));
        let other = if kind.name == "legacy-http" { "modern-http" } else { "legacy-http" };
        // The owner cannot reach it either at a URL that does not show the server.
        let elsewhere =
            ann.ask("tasks/get", json!({ "taskId": id })).at(&format!("/mcp?servers={other}"));
        let said = elsewhere.send().await.said().await;
        assert_eq!(said.code(), -32602, "{said:?}");
    }
}

#[tokio::test]
async fn ids_survive_a_restart_of_the_server_and_of_the_gateway() {
    let upstream = Upstream::modern().await;
    let tasks = upstream.has_tasks();
    let builder = || {
        let keys = r#"state_keys = ["0123456789abcdef0123456789abcdef"]"#;
        clients(Gateway::with("s", upstream.stdio()).gateway(keys))
    };
    let gateway = builder().start().await;
    let ann = gateway.modern().key("key of ann").offering(knows()).await;
    let task = create(&ann, "s__must", json!({})).await;
    upstream.crash();
    until(|| upstream.starts() == 2).await;
    tasks.end("task-1", State::Result(json!({ "content": [] })));
    let said = about(&ann, "tasks/get", &task["taskId"]).await;
    assert_eq!(said.result()["status"], "completed", "{said:?}");
    drop(gateway);
    let gateway = builder().start().await;
    let ann = gateway.modern().key("key of ann").offering(knows()).await;
    let said = about(&ann, "tasks/get", &task["taskId"]).await;
    assert_eq!(said.result()["status"], "completed", "{said:?}");
}

#[tokio::test]
async fn a_modern_client_hears_of_its_tasks_and_of_no_others() {
    let kinds = kinds().await;
    let gateway = gateway(&kinds).await;
    let client = modern(&gateway).await;
    for (kind, _) in &kinds {
        let one = create(&client, &name(kind, "must"), json!({})).await["taskId"].clone();
        let filter = json!({ "notifications": { "taskIds": [one, "nobodys.x"] } });
        let mut stream = client.ask("subscriptions/listen", filter).send().await;
        let first = stream.message().await.unwrap();
        let agreed = &first["params"]["notifications"];
        if kind.name.starts_with("legacy") {
            // This server need not send task notifications, because the gateway promises none.
            assert_eq!(*agreed, json!({}), "{}", kind.name);
            continue;
        }
        assert_eq!(*agreed, json!({ "taskIds": [one] }));
        let other = json!({ "taskId": "task-2", "status": "working" });
        kind.upstream.tell_all(TASK, other);
        let meta = json!({ RELATED: { "taskId": "task-1" } });
        let state =
            json!({ "taskId": "task-1", "status": "completed", "result": { "_meta": meta } });
        kind.upstream.tell(TASK, state).await;
        let message = stream.message().await.unwrap();
        assert_eq!((&message["method"], &message["params"]["taskId"]), (&json!(TASK), &one));
        assert_eq!(message["params"]["result"]["_meta"][RELATED]["taskId"], one);
    }
}
