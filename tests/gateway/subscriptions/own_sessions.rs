//! Notifications of servers for one client, or of unknown methods.

use serde_json::json;

use super::{Hearing, SUBSCRIPTION, listen};
use crate::support::upstream::news::{TASK, UPDATED};
use crate::support::{Gateway, Upstream, until};

/// Starts a gateway that reaches its one server in this way, with these further settings.
async fn gateway_to(upstream: &Upstream, way: &str, settings: &str) -> Gateway {
    let lines = if way == "http" { upstream.http() } else { upstream.stdio() };
    Gateway::with("s", lines + settings).start().await
}

#[tokio::test]
async fn changes_in_a_session_of_its_own_reach_its_client_alone() {
    for way in ["http", "stdio"] {
        let upstream = Upstream::legacy().await;
        upstream.resources(&["a:1"]);
        let gateway = gateway_to(&upstream, way, "isolation = \"client\"\n").await;
        let one = gateway.legacy().await;
        let other = gateway.legacy().await;
        let mut hearings = Vec::new();
        for client in [one, other, gateway.modern()] {
            hearings.push(Hearing::of(client, &["mcp://s/a:1"]).await);
        }
        assert_eq!(upstream.subscriptions(), ["a:1", "a:1", "a:1"], "{way}");
        let sessions = upstream.sessions_subscribed_to("a:1");
        upstream.tell_in(&sessions[0], UPDATED, json!({ "uri": "a:1" }));
        let mut told = 0;
        for hearing in &mut hearings {
            told += hearing.rest().await.len();
        }
        assert_eq!(told, 1, "{way}");
    }
}

#[tokio::test]
async fn whatever_else_a_clients_own_session_tells_reaches_that_client() {
    for way in ["http", "stdio"] {
        let upstream = Upstream::legacy().await;
        upstream.resources(&["a:1"]);
        let gateway = gateway_to(&upstream, way, "isolation = \"client\"\n").await;
        let mut hearings = Vec::new();
        for uris in [&["mcp://s/a:1"][..], &[]] {
            let hearing = Hearing::of(gateway.legacy().await, uris).await;
            hearing.client.call("s__echo", json!({})).await;
            hearings.push(hearing);
        }
        let sessions = upstream.sessions_subscribed_to("a:1");
        let told = [
            ("notifications/elicitation/complete", json!({ "elicitationId": "7" })),
            ("notifications/elicitation/complete", json!({ "elicitationId": "8" })),
            ("notifications/tasks/status", json!({ "taskId": "t", "status": "working" })),
            ("notifications/of/tomorrow", json!({ "x": [1.50] })),
        ];
        for (method, params) in &told {
            upstream.tell_in(&sessions[0], method, params.clone());
        }
        upstream.tell_in(&sessions[0], "notifications/progress", json!({ "progressToken": 1 }));
        for (method, params) in &told {
            let message = hearings[0].stream.message().await.unwrap();
            let mut params = params.clone();
            if params.get("taskId").is_some() {
                params["taskId"] = json!("s.t");
            }
            assert_eq!(
                (&message["method"], &message["params"]),
                (&json!(method), &params),
                "{way}"
            );
        }
        for hearing in &mut hearings {
            hearing.is_told_nothing().await;
        }
    }
}

#[tokio::test]
async fn unknown_subscriptions_pass_to_the_only_possible_server() {
    for way in ["http", "stdio"] {
        let upstream = Upstream::modern().await;
        upstream.resources(&["a:1"]);
        let gateway = gateway_to(&upstream, way, "").await;
        let filter = json!({ "com.example/x": { "n": [1] }, "toolsListChanged": true });
        let (curious, agreed) = listen(&gateway.modern(), filter.clone()).await;
        assert_eq!(agreed, filter, "{way}");
        let (other, _) = listen(&gateway.modern(), json!({ "toolsListChanged": true })).await;
        let all = [curious, other];
        let mut all = all.map(|stream| Hearing { client: gateway.modern(), stream });
        upstream.tell("notifications/of/tomorrow", json!({ "x": 1 })).await;
        let message = all[0].stream.message().await.unwrap();
        assert_eq!(message["method"], "notifications/of/tomorrow", "{way}");
        assert_eq!(message["params"]["x"], 1);
        assert_eq!(message["params"]["_meta"][SUBSCRIPTION], 1);
        for hearing in &mut all {
            hearing.is_told_nothing().await;
        }
        drop(all);
        let no_more = || upstream.filters().iter().all(|filter| filter["com.example/x"].is_null());
        until(no_more).await;
    }
}

#[tokio::test]
async fn the_status_of_tasks_reaches_clients_that_declare_tasks_and_subscribe() {
    for way in ["http", "stdio"] {
        let upstream = Upstream::modern().await;
        upstream.can(json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }));
        let gateway = gateway_to(&upstream, way, "").await;
        let client = gateway.modern();
        let params = json!({ "notifications": { "taskIds": ["s.t1", "s.t2"] } });
        let refused = client.request("subscriptions/listen", params.clone()).await;
        assert_eq!((refused.status, refused.code()), (400, -32021), "{way}");
        let needed = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        assert_eq!(refused.error()["data"]["requiredCapabilities"], needed);
        let ask = client.ask("subscriptions/listen", params);
        let mut stream =
            ask.meta("io.modelcontextprotocol/clientCapabilities", needed).send().await;
        let first = stream.message().await.unwrap();
        assert_eq!(
            first["params"]["notifications"],
            json!({ "taskIds": ["s.t1", "s.t2"] }),
            "{way}"
        );
        let state = json!({ "taskId": "t2", "status": "completed", "result": { "n": 1.50 } });
        upstream.tell(TASK, state).await;
        let message = stream.message().await.unwrap();
        assert_eq!(message["method"], TASK);
        assert_eq!(
            (&message["params"]["taskId"], &message["params"]["status"]),
            (&json!("s.t2"), &json!("completed"))
        );
        assert_eq!(upstream.filters().last().unwrap()["taskIds"], json!(["t1", "t2"]));
    }
}
