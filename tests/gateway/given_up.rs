//! A server continues a call that its client has cancelled: its later messages reach no other
//! client.

use serde_json::json;

use crate::support::upstream::news::{Tell, To};
use crate::support::{Client, Gateway, Step, Upstream, client_table, until};

const LINE: &str = "notifications/message";
const ASKS: &str = "elicitation/create";

/// Defines a tool that begins and never ends, and one that waits.
fn acts(upstream: &Upstream) {
    upstream.logs();
    upstream.does("begin", |_| vec![Step::Progress(1), Step::Never]);
    upstream.does("held", |_| vec![Step::Progress(1), Step::Hold, Step::text("done")]);
}

async fn legacy(gateway: &Gateway, key: &str) -> Client {
    let [_, (_, client)] = gateway.both_as(key, "/mcp").await;
    let client = client.offering(json!({ "elicitation": {} })).await;
    client.request("logging/setLevel", json!({ "level": "debug" })).await.result();
    client
}

/// Makes a call and cancels it once it is in progress.
async fn gives_up(client: &Client, upstream: &Upstream) {
    let ask = client.ask_call("s__begin", json!({})).token(json!(1));
    let id = ask.message()["id"].clone();
    let mut reply = ask.send().await;
    reply.message().await.expect("progress");
    let params = json!({ "requestId": id });
    client.ask("notifications/cancelled", params).notification().send().await;
    upstream.heard("notifications/cancelled", 1).await;
}

/// Returns the messages that a client receives before the answer to a call. During the call the
/// server writes a log line and sends a request, neither of which refers to a call.
async fn heard(client: &Client, upstream: &Upstream) -> Vec<String> {
    let mut reply = client.ask_call("s__held", json!({})).token(json!(1)).send().await;
    reply.message().await.expect("progress");
    upstream.tell_all(LINE, json!({ "level": "error", "data": "of which call?" }));
    let session = upstream.calls().pop().unwrap().header("mcp-session-id").unwrap().to_owned();
    let form = json!({ "message": "Who?", "requestedSchema": { "type": "object" } });
    let asks = Some((json!("late"), session));
    let tell = Tell { method: ASKS.into(), params: form, to: To::Asked, asks };
    upstream.inner.tells.send(tell).unwrap();
    let mut messages = Vec::new();
    loop {
        tokio::select! {
            message = reply.message() => messages.push(message.expect("a message")),
            () = until(|| upstream.inner.answers.lock().unwrap().contains_key("late")) => break,
        }
        if let Some(asked) = messages.iter().find(|message| message["method"] == ASKS) {
            client.respond(&asked["id"], json!({ "action": "decline" })).await;
            until(|| upstream.inner.answers.lock().unwrap().contains_key("late")).await;
            break;
        }
    }
    upstream.inner.answers.lock().unwrap().clear();
    upstream.release(1);
    while let Some(message) = reply.message().await {
        messages.push(message);
    }
    assert_eq!(messages.pop().unwrap()["result"]["content"][0]["text"], "done");
    messages.iter().map(|message| message["method"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn late_messages_of_an_abandoned_call_reach_no_other_call() {
    for way in ["stdio", "http"] {
        let upstream = Upstream::legacy().await;
        acts(&upstream);
        let lines = if way == "http" { upstream.http() } else { upstream.stdio() };
        let gateway = Gateway::with("s", format!("{lines}isolation = \"shared\"\n"))
            .toml(&client_table("one", "one", ""))
            .toml(&client_table("other", "other", ""))
            .start()
            .await;
        let [one, other] = [legacy(&gateway, "one").await, legacy(&gateway, "other").await];
        // On the stream of a session with several clients, log lines belong to no client.
        let all = if way == "http" { vec![ASKS] } else { vec![LINE, ASKS] };
        assert_eq!(heard(&other, &upstream).await, all, "{way}: there is nobody else");
        gives_up(&one, &upstream).await;
        assert_eq!(heard(&other, &upstream).await, [""; 0], "{way}: it may be of the other's");
        assert_eq!(heard(&one, &upstream).await, all, "{way}: it is its own in any case");
    }
}

#[tokio::test]
async fn a_principals_clients_share_a_child_again_once_it_has_read_a_cancellation() {
    let upstream = Upstream::legacy().await;
    acts(&upstream);
    let lines = upstream.stdio() + "isolation = \"shared\"\n";
    let gateway = Gateway::with("s", lines).toml(&client_table("one", "one", "")).start().await;
    let [first, second] = [legacy(&gateway, "one").await, legacy(&gateway, "one").await];
    gives_up(&first, &upstream).await;
    // Its answer precedes all later messages of the server.
    upstream.heard("ping", 1).await;
    assert_eq!(heard(&second, &upstream).await, [LINE, ASKS]);
}
