//! Streams of Legacy sessions: their events have ids, and a client with a broken connection resumes
//! at its last event.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::client::Piece;
use crate::support::{Client, Gateway, Reply, Step, Upstream, every_kind, until_async};

const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Defines a tool that reports progress, waits, reports again, waits, answers.
fn slow(upstream: &Upstream) {
    upstream.does("slow", |_| {
        vec![Step::Progress(1), Step::Hold, Step::Progress(2), Step::Hold, Step::text("done")]
    });
}

async fn call_slow(client: &Client, server: &str) -> Reply {
    let ask = client.ask_call(&format!("{server}__slow"), json!({})).token(json!("t"));
    ask.send().await
}

fn progress(message: &Value) -> u64 {
    assert_eq!(message["params"]["progressToken"], "t", "{message}");
    message["params"]["progress"].as_u64().unwrap()
}

#[tokio::test]
async fn a_broken_stream_of_a_call_goes_on_through_get() {
    for kind in every_kind().await {
        slow(&kind.upstream);
        let gateway = Gateway::with("s", &kind.lines).start().await;
        for version in VERSIONS {
            let client = gateway.legacy_of(version).await;
            let mut stream = call_slow(&client, "s").await;
            let first = stream.message().await.unwrap();
            assert_eq!(progress(&first), 1, "{} {version}", kind.name);
            let behind = stream.last_id().to_owned();
            drop(stream);
            kind.upstream.release(1);
            let mut stream = client.resume(&behind).await;
            let second = stream.message().await.unwrap();
            assert_eq!(progress(&second), 2, "{} {version}", kind.name);
            let behind = stream.last_id().to_owned();
            drop(stream);
            kind.upstream.release(1);
            // The answer arrives while the client is away, or as soon as it is back.
            let stream = client.resume(&behind).await;
            assert_eq!(stream.said().await.text(), "done", "{} {version}", kind.name);
        }
        assert!(kind.upstream.all("notifications/cancelled").is_empty());
        assert!(kind.upstream.all("closed").is_empty());
    }
}

#[tokio::test]
async fn messages_lost_in_transit_are_sent_again() {
    let upstream = Upstream::legacy().await;
    slow(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await;
    upstream.release(2);
    let mut stream = call_slow(&client, "s").await;
    assert_eq!(stream.piece().await, Some(Piece::Comment), "an event without a message");
    let opening = stream.last_id().to_owned();
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await {
        messages.push(message);
    }
    assert_eq!(messages.len(), 3);
    let ids = stream.ids.clone();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4, "{ids:?}");
    for (behind, from) in [(&opening, 0), (&ids[1], 1), (&ids[2], 2)] {
        let again = client.resume(behind).await.said().await;
        assert_eq!(again.messages, messages[from..]);
    }
    assert!(client.resume(&ids[3]).await.said().await.messages.is_empty(), "nothing follows");
}

#[tokio::test]
async fn streams_are_primed_for_clients_that_know_such_events_alone() {
    let upstream = Upstream::legacy().await;
    slow(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    for version in VERSIONS {
        let client = gateway.legacy_of(version).await;
        upstream.release(2);
        for mut stream in [call_slow(&client, "s").await, client.get_stream().send().await] {
            stream.piece().await.unwrap();
            let primes = version == "2025-11-25";
            assert_eq!(stream.ids.len(), usize::from(primes), "{version}");
            assert_eq!(stream.retry.is_some(), primes, "{version}");
        }
    }
}

#[tokio::test]
async fn a_quick_answer_is_plain_json_and_a_modern_stream_has_no_ids() {
    let upstream = Upstream::legacy().await;
    slow(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let said = gateway.legacy().await.call("s__echo", json!({})).await;
    assert!(!said.streamed);
    upstream.release(2);
    let mut stream = call_slow(&gateway.modern(), "s").await;
    while stream.message().await.is_some() {}
    assert!(stream.ids.is_empty() && stream.retry.is_none());
}

#[tokio::test]
async fn a_quiet_call_can_be_resumed_before_it_says_anything() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.legacy().await;
    let mut stream = client.ask_call("s__hold", json!({})).send().await;
    stream.piece().await;
    let behind = stream.last_id().to_owned();
    drop(stream);
    upstream.release(1);
    assert_eq!(client.resume(&behind).await.said().await.text(), "held");
}

#[tokio::test]
async fn a_newer_connection_takes_a_stream_over() {
    let upstream = Upstream::legacy().await;
    slow(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await;
    let mut old = call_slow(&client, "s").await;
    old.message().await.unwrap();
    let mut new = client.resume(old.last_id()).await;
    assert_eq!(old.message().await, None, "the old connection ends");
    drop(old);
    upstream.release(2);
    assert_eq!(progress(&new.message().await.unwrap()), 2);
    assert_eq!(new.said().await.text(), "done");
}

#[tokio::test]
async fn an_unread_call_can_be_cancelled() {
    let upstream = Upstream::legacy().await;
    slow(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await;
    let ask = client.ask_call("s__slow", json!({})).id(json!("c")).token(json!("t"));
    let mut stream = ask.send().await;
    stream.message().await.unwrap();
    let behind = stream.last_id().to_owned();
    drop(stream);
    let params = json!({ "requestId": "c" });
    client.ask("notifications/cancelled", params).notification().send().await;
    upstream.heard("notifications/cancelled", 1).await;
    let rest = client.resume(&behind).await.said().await;
    assert!(rest.messages.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn only_the_session_of_a_stream_resumes_it_and_not_for_ever() {
    let upstream = Upstream::legacy().await;
    slow(&upstream);
    let gateway =
        Gateway::with("s", upstream.stdio()).gateway("limits.replay_time = \"1s\"").start().await;
    let (client, other) = (gateway.legacy().await, gateway.legacy().await);
    upstream.release(2);
    let mut stream = call_slow(&client, "s").await;
    while stream.message().await.is_some() {}
    let (first, last) = (stream.ids[0].clone(), stream.last_id().to_owned());
    for behind in [first.as_str(), &last, "99-1", "x", "1", "é"] {
        let refused = other.resume(behind).await;
        assert_eq!(refused.status(), 400, "{behind}");
    }
    let whole = client.resume(&first).await.said().await;
    assert_eq!(whole.messages.len(), 3);
    until_async(async || client.resume(&first).await.status() == 400).await;
}

#[tokio::test]
async fn notifications_outside_of_calls_are_resumed_too() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await;
    let mut stream = client.listen().await;
    let opening = stream.last_id().to_owned();
    upstream.set_tools([r#"{"name":"new","inputSchema":{"type":"object"}}"#]).announce().await;
    let told = stream.message().await.unwrap();
    let behind = stream.last_id().to_owned();
    assert_ne!(opening, behind);
    drop(stream);
    client.tools().await;
    let mut again = client.resume(&opening).await;
    assert_eq!(again.message().await, Some(told));
    assert_eq!(again.last_id(), behind, "the same event");
    let mut nothing = client.resume(&behind).await;
    assert_eq!(nothing.piece().await, Some(Piece::Comment));
    assert_eq!(again.message().await, None, "taken over");
}

/// Defines a tool that reports progress, waits, and reports progress in 40 messages of 1,000 bytes
/// each.
fn loud(upstream: &Upstream) {
    upstream.does("loud", |call| {
        let token = call.token().unwrap();
        let loud = json!({
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": { "progressToken": token, "progress": 1, "message": "x".repeat(1000) },
        });
        let mut steps = vec![Step::Progress(0), Step::Hold];
        steps.extend(vec![Step::Send(loud); 40]);
        steps.push(Step::text("done"));
        steps
    });
}

#[tokio::test]
async fn a_stream_keeps_no_more_than_it_may() {
    let upstream = Upstream::legacy().await;
    loud(&upstream);
    let gateway =
        Gateway::with("s", upstream.http()).gateway("limits.replay = \"10KiB\"").start().await;
    let client = gateway.legacy().await;
    let mut stream = client.ask_call("s__loud", json!({})).token(json!("t")).send().await;
    stream.message().await.unwrap();
    let behind = stream.last_id().to_owned();
    drop(stream);
    upstream.release(1);
    // All messages arrive while the client is away.
    gateway.wait_for(|status| status["servers"][0]["in_flight"] == 0).await;
    let rest = client.resume(&behind).await.said().await;
    assert_eq!(rest.text(), "done");
    assert!((5..12).contains(&rest.messages.len()), "{}", rest.messages.len());
}

#[tokio::test]
async fn all_streams_together_keep_no_more_than_they_may() {
    for (all, kept) in [("4KiB", 0..5), ("1MiB", 42..43)] {
        let upstream = Upstream::legacy().await;
        loud(&upstream);
        let line = format!("limits.replay_all = {all:?}");
        let gateway = Gateway::with("s", upstream.http()).gateway(&line).start().await;
        let client = gateway.legacy().await;
        upstream.release(1);
        let mut stream = client.ask_call("s__loud", json!({})).token(json!("t")).send().await;
        stream.piece().await.unwrap();
        let opening = stream.last_id().to_owned();
        while stream.message().await.is_some() {}
        let again = client.resume(&opening).await.said().await;
        assert!(kept.contains(&again.messages.len()), "{all}: {}", again.messages.len());
    }
}

#[tokio::test]
async fn a_session_that_ends_takes_its_streams_along() {
    let upstream = Upstream::legacy().await;
    slow(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await;
    let mut stream = call_slow(&client, "s").await;
    stream.message().await.unwrap();
    let behind = stream.last_id().to_owned();
    client.http("DELETE", "/mcp").of_session().send().await;
    assert_eq!(stream.message().await, None);
    upstream.heard("notifications/cancelled", 1).await;
    assert_eq!(client.resume(&behind).await.status(), 404);
}

/// Defines a tool for which the server closes its connection in between, twice.
fn polled(upstream: &Upstream) {
    upstream.does("polled", |_| {
        vec![Step::Close(300), Step::Progress(1), Step::Hold, Step::Close(0), Step::text("polled")]
    });
}

#[tokio::test]
async fn a_server_that_closes_its_stream_is_asked_again_when_it_wants() {
    let upstream = Upstream::legacy().await;
    polled(&upstream);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let clients =
        [("2026-07-28", gateway.modern()), ("2025-06-18", gateway.legacy_of("2025-06-18").await)];
    upstream.release(2);
    for (at, (version, client)) in clients.into_iter().enumerate() {
        let since = Instant::now();
        let said = client.ask_call("s__polled", json!({})).token(json!("t")).send().await;
        let said = said.said().await;
        assert!(since.elapsed() >= Duration::from_millis(300), "{version}");
        assert_eq!(said.text(), "polled", "{version}");
        assert_eq!(progress(&said.notices()[0]), 1, "{version}");
        let resumed: Vec<_> = upstream
            .all("GET")
            .iter()
            .filter_map(|get| get.header("last-event-id").map(str::to_owned))
            .collect();
        let closed = |at: usize| format!("closed-{at}");
        assert_eq!(resumed[2 * at..], [closed(2 * at), closed(2 * at + 1)], "{version}");
        let mut gets = upstream.all("GET").into_iter();
        let resuming = gets.rfind(|get| get.header("last-event-id").is_some());
        let session = upstream.calls().pop().unwrap().header("mcp-session-id").map(str::to_owned);
        assert_eq!(resuming.unwrap().header("mcp-session-id"), session.as_deref(), "{version}");
    }
    assert!(
        upstream.all("closed").is_empty() && upstream.all("notifications/cancelled").is_empty()
    );
}

#[tokio::test]
async fn a_client_that_knows_polling_is_let_go_when_the_server_lets_go() {
    let upstream = Upstream::legacy().await;
    polled(&upstream);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.legacy().await;
    let mut stream = client.ask_call("s__polled", json!({})).token(json!("t")).send().await;
    assert_eq!(stream.message().await, None, "closed");
    assert_eq!(stream.retry, Some(300));
    let behind = stream.last_id().to_owned();
    let mut stream = client.resume(&behind).await;
    assert_eq!(progress(&stream.message().await.unwrap()), 1);
    upstream.release(1);
    assert_eq!(stream.message().await, None, "closed again");
    assert_eq!(stream.retry, Some(0));
    let behind = stream.last_id().to_owned();
    assert_eq!(client.resume(&behind).await.said().await.text(), "polled");
}

#[tokio::test]
async fn a_server_that_is_polled_in_vain_ends_with_the_calls_deadline() {
    let upstream = Upstream::legacy().await;
    upstream.does("late", |_| vec![Step::Close(60_000), Step::text("late")]);
    upstream.does("gone", |_| vec![Step::Open, Step::Break]);
    upstream.does("mute", |_| vec![Step::Progress(1), Step::Break]);
    let lines = format!("{}timeout = \"1s\"\n", upstream.http());
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.modern();
    let call = async |tool: &str| {
        client.ask_call(tool, json!({})).token(json!("t")).send().await.said().await
    };
    let late = call("s__late").await;
    assert!(late.answer().to_string().contains("did not respond within"), "{late:?}");
    upstream.heard("notifications/cancelled", 1).await;
    for tool in ["s__gone", "s__mute"] {
        let said = call(tool).await;
        assert!(said.answer().to_string().contains("without a response"), "{said:?}");
    }
}

#[tokio::test]
async fn sessions_and_their_streams_outlive_a_reload() {
    let upstream = Upstream::legacy().await;
    slow(&upstream);
    let settings =
        |title: &str| Gateway::with("s", upstream.stdio()).gateway(&format!("title = {title:?}"));
    let gateway = settings("before").start().await;
    let client = gateway.legacy().await;
    let mut outside = client.listen().await;
    let mut call = call_slow(&client, "s").await;
    call.message().await.unwrap();
    let mut broken = call_slow(&client, "s").await;
    broken.message().await.unwrap();
    let behind = broken.last_id().to_owned();
    drop(broken);
    let outcome = gateway.reload(settings("after").server("t", upstream.stdio())).await;
    assert_eq!(outcome, ReloadOutcome::Applied);
    let told = outside.message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    upstream.release(4);
    assert_eq!(call.said().await.text(), "done");
    assert_eq!(client.resume(&behind).await.said().await.text(), "done");
    assert!(client.tool_names().await.contains(&"t__slow".to_owned()));
}
