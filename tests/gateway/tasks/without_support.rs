//! Tasks behind the calls of clients without task support.

use serde_json::{Value, json};

use super::{gateway, in_front_of, kinds, modern, name};
use crate::input::{ann, both, dialogue_about};
use crate::support::upstream::tasks::EXTENSION;
use crate::support::{Client, Gateway, Kind, Upstream, every_kind, until, until_async};

#[tokio::test]
async fn clients_without_task_support_receive_the_final_result() {
    let kinds = kinds().await;
    let gateway = gateway(&kinds).await;
    for (kind, _) in &kinds {
        for (era, client) in gateway.both().await {
            let said = client.call(&name(kind, "must"), json!({ "ends": "result" })).await;
            if era == "Modern" && kind.name.starts_with("modern") {
                // The error names the capability to declare.
                assert_eq!((said.status, said.code()), (400, -32021), "{said:?}");
                let needed = json!({ "extensions": { EXTENSION: {} } });
                assert_eq!(said.error()["data"]["requiredCapabilities"], needed);
                continue;
            }
            assert_eq!(said.text(), "done", "{era} {}", kind.name);
            let said = client.call(&name(kind, "must"), json!({ "ends": "fault" })).await;
            assert!(said.is_error(), "{era} {}", kind.name);
            let said = client.call(&name(kind, "must"), json!({ "ends": "error" })).await;
            assert_eq!(said.code(), -7, "{era} {}", kind.name);
            let said = client.call(&name(kind, "may"), json!({})).await;
            assert_eq!(said.text(), "at once", "{era} {}", kind.name);
        }
    }
}

#[tokio::test]
async fn a_client_without_task_support_gets_the_questions_of_tasks() {
    let kinds = kinds().await;
    let gateway = gateway(&kinds).await;
    for (kind, _) in &kinds {
        for (era, client) in both(&gateway).await {
            if era == "Modern" && kind.name.starts_with("modern") {
                continue;
            }
            let params = json!({ "name": name(kind, "must"), "arguments": { "asks": true } });
            let said = dialogue_about(&client, "tools/call", params, |_| ann()).await;
            assert!(said.text().contains("Ann"), "{era} {} {said:?}", kind.name);
        }
    }
}

/// Waits until a server was asked for the result of its task.
async fn is_asked_for_its_task(kind: &Kind) {
    let method = if kind.name.starts_with("legacy") { "tasks/result" } else { "tasks/get" };
    kind.upstream.heard(method, 1).await;
}

#[tokio::test]
async fn who_takes_its_call_back_ends_the_task() {
    let kinds = kinds().await;
    let gateway = gateway(&kinds).await;
    for (kind, tasks) in &kinds {
        let client = gateway.legacy().await;
        let ask = client.ask_call(&name(kind, "must"), json!({})).id(json!(71));
        let takes_back = async {
            until(|| tasks.count() == 1).await;
            is_asked_for_its_task(kind).await;
            let params = json!({ "requestId": 71 });
            client.ask("notifications/cancelled", params).notification().send().await;
        };
        tokio::join!(ask.send(), takes_back);
        until(|| tasks.is_cancelled("task-1")).await;
    }
}

#[tokio::test]
async fn a_session_that_ends_leaves_no_task_and_no_instance_behind() {
    for kind in every_kind().await.into_iter().filter(|kind| kind.name.starts_with("legacy")) {
        let tasks = kind.upstream.has_tasks();
        let lines = format!("{}isolation = \"client\"\n", kind.lines);
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.legacy().await;
        let leaves = async {
            kind.upstream.heard("tasks/result", 1).await;
            client.http("DELETE", "/mcp").of_session().send().await;
        };
        tokio::join!(client.ask_call("s__must", json!({})).send(), leaves);
        until(|| tasks.is_cancelled("task-1")).await;
        // Only the first instance remains, also after a later session with an instance of its own.
        let is_alone = async || gateway.server("s").await["instance_count"] == 0;
        until_async(&is_alone).await;
        let later = gateway.legacy().await;
        assert_eq!(later.call("s__echo", json!({})).await.text(), "{}");
        assert!(!is_alone().await);
        later.http("DELETE", "/mcp").of_session().send().await;
        until_async(&is_alone).await;
    }
}

#[tokio::test]
async fn a_task_that_takes_too_long_is_ended() {
    for upstream in Upstream::both().await {
        let tasks = upstream.has_tasks();
        let lines = upstream.http() + "timeout = \"200ms\"\nmax_timeout = \"400ms\"\n";
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.legacy().await;
        // On a busy machine the time may be over before the server has created the task.
        let is_ended = async || {
            let said = client.call("s__must", json!({})).await;
            assert!(said.is_error(), "{said:?}");
            (1..=tasks.count()).any(|number| tasks.is_cancelled(&format!("task-{number}")))
        };
        until_async(is_ended).await;
    }
}

#[cfg(feature = "code-mode")]
const CODE: &str = "[profiles.default]\ndiscovery = \"code\"\n";

/// Returns clients of both eras, and one with task support.
async fn three_clients(gateway: &Gateway) -> [(&'static str, Client); 3] {
    let [one, other] = both(gateway).await;
    [one, other, ("Modern that knows tasks", modern(gateway).await)]
}

#[cfg(feature = "code-mode")]
fn code_that_calls(kind: &Kind, arguments: &Value) -> Value {
    let code = format!("return await tools['{}']({arguments})", name(kind, "must"));
    json!({ "name": "run_code", "arguments": { "code": code } })
}

#[cfg(feature = "code-mode")]
#[tokio::test]
async fn code_receives_the_final_result_of_tasks() {
    let kinds = kinds().await;
    let gateway = in_front_of(&kinds).toml(CODE).start().await;
    for (era, client) in &three_clients(&gateway).await {
        for (kind, _) in &kinds {
            for (arguments, comes) in
                [(json!({ "ends": "result" }), "done"), (json!({ "asks": true }), "Ann")]
            {
                let params = code_that_calls(kind, &arguments);
                let said = dialogue_about(client, "tools/call", params, |_| ann()).await;
                let told = said.result()["structuredContent"]["returned"].to_string();
                assert!(told.contains(comes), "{era} {} {comes}: {said:?}", kind.name);
            }
            let params = code_that_calls(kind, &json!({ "ends": "error" }));
            let said = dialogue_about(client, "tools/call", params, |_| ann()).await;
            assert!(said.is_error(), "{era} {}: {said:?}", kind.name);
        }
    }
    for (kind, _) in kinds.iter().filter(|(kind, _)| kind.name.starts_with("modern")) {
        let polls = kind.upstream.all("tasks/get");
        assert!(!polls.is_empty());
        for poll in polls {
            assert_eq!(poll.meta("io.modelcontextprotocol/protocolVersion"), "2026-07-28");
            let declared = poll.meta("io.modelcontextprotocol/clientCapabilities");
            assert_eq!(declared["extensions"], json!({ EXTENSION: {} }), "{poll:?}");
        }
    }
}

#[tokio::test]
async fn a_tool_of_the_gateway_receives_the_final_result_of_tasks() {
    let kinds = kinds().await;
    for (kind, _) in &kinds {
        let calls = format!("[tools.own.calls.one]\ntool = \"{}\"\n", name(kind, "must"));
        let arguments = "arguments = { ends = \"result\" }\n";
        let own = Gateway::with(kind.name, &kind.lines).toml(&(calls + arguments));
        let gateway = own.start().await;
        for (era, client) in three_clients(&gateway).await {
            let said = client.call("own", json!({})).await;
            let expected = json!({ "one": "done" });
            assert_eq!(said.result()["structuredContent"], expected, "{era} {}", kind.name);
        }
    }
}

#[cfg(feature = "code-mode")]
#[tokio::test]
async fn code_that_is_given_up_ends_its_tasks() {
    let kinds = kinds().await;
    let gateway = in_front_of(&kinds).toml(CODE).start().await;
    let client = modern(&gateway).await;
    for (kind, tasks) in &kinds {
        tokio::select! {
            _ = client.ask("tools/call", code_that_calls(kind, &json!({}))).send() => {
                panic!("{}: answered", kind.name)
            }
            () = is_asked_for_its_task(kind) => {}
        }
        until(|| tasks.is_cancelled("task-1")).await;
    }
}
