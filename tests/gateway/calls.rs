//! Progress, cancellation and deadlines, in all combinations of eras.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Gateway, Kind, Step, every_kind, upstream::MOMENT};

fn progress(said: &[Value]) -> Vec<(Value, Value)> {
    said.iter()
        .map(|notice| {
            (notice["params"]["progressToken"].clone(), notice["params"]["progress"].clone())
        })
        .collect()
}

#[tokio::test]
async fn progress_comes_on_the_calls_stream_under_the_clients_own_token() {
    let kinds = every_kind().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            for token in [json!("mine"), json!(7), json!("7"), json!("")] {
                let tool = format!("{}__count", kind.name);
                let ask = client.ask_call(&tool, json!({})).token(token.clone());
                let said = ask.send().await.said().await;
                assert!(said.streamed, "{era} {}", kind.name);
                let wanted: Vec<_> = (1..=3).map(|n| (token.clone(), json!(n))).collect();
                assert_eq!(progress(said.notices()), wanted, "{era} {}", kind.name);
                assert_eq!(said.text(), "counted");
            }
        }
    }
}

#[tokio::test]
async fn who_asked_for_no_progress_gets_the_answer_alone() {
    let kinds = every_kind().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let said = client.call(&format!("{}__count", kind.name), json!({})).await;
            assert_eq!((said.text(), said.messages.len()), ("counted", 1), "{era} {}", kind.name);
            assert!(kind.upstream.calls().pop().unwrap().token().is_none(), "{era} {}", kind.name);
        }
    }
}

#[tokio::test]
async fn a_message_on_several_lines_reaches_every_server_whole() {
    let kinds = every_kind().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let arguments = json!({ "text": "one\ntwo", "list": [1, 2] });
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let ask = client.ask_call(&format!("{}__echo", kind.name), arguments.clone());
            let pretty = serde_json::to_string_pretty(ask.message()).unwrap();
            let said = ask.body(pretty.replace('\n', "\r\n")).send().await.said().await;
            let echoed: Value = serde_json::from_str(said.text()).unwrap();
            assert_eq!(echoed, arguments, "{era} {}", kind.name);
        }
    }
}

#[tokio::test]
async fn equal_tokens_of_two_clients_never_meet() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("twice", |call| {
            let own = call.arguments()["n"].as_u64().unwrap();
            let own = u32::try_from(own).unwrap();
            vec![Step::Progress(own), Step::Hold, Step::Progress(own + 1), Step::text("done")]
        });
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for kind in &kinds {
        let tool = format!("{}__twice", kind.name);
        let (one, two, three) = (gateway.legacy().await, gateway.legacy().await, gateway.modern());
        let mut replies = Vec::new();
        for (client, n) in [(&one, 10), (&two, 20), (&three, 30)] {
            let ask = client.ask_call(&tool, json!({ "n": n })).token(json!(1)).id(json!(1));
            let mut reply = ask.send().await;
            let first = reply.message().await.unwrap();
            assert_eq!(first["params"]["progress"], n, "{}", kind.name);
            replies.push((reply, n));
        }
        kind.upstream.release(3);
        for (reply, n) in replies {
            let said = reply.said().await;
            assert_eq!(progress(said.notices()), [(json!(1), json!(n + 1))], "{}", kind.name);
            assert_eq!(said.text(), "done");
        }
    }
}

/// Returns the message by which a server of this kind learns that a call is over.
fn told(kind: &Kind) -> &'static str {
    if kind.name == "modern-http" { "closed" } else { "notifications/cancelled" }
}

#[tokio::test]
async fn a_modern_client_that_closes_its_stream_cancels_the_call() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("begin", |_| vec![Step::Progress(1), Step::Never]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for kind in &kinds {
        let mut times = 0;
        for client in [gateway.modern(), gateway.modern().h2()] {
            let tool = format!("{}__begin", kind.name);
            let mut reply = client.ask_call(&tool, json!({})).token(json!(1)).send().await;
            reply.message().await.unwrap();
            drop(reply);
            times += 1;
            kind.upstream.heard(told(kind), times).await;
        }
        gateway.wait_for(|status| idle(status, kind.name)).await;
    }
}

#[tokio::test]
async fn a_modern_client_that_goes_before_the_head_of_the_answer_cancels_the_call() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("never", |_| vec![Step::Never]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for kind in &kinds {
        for client in [gateway.modern(), gateway.modern().h2()] {
            let before = kind.upstream.calls().len();
            let tool = format!("{}__never", kind.name);
            tokio::select! {
                _ = client.ask_call(&tool, json!({})).send() => panic!("no answer was to come"),
                _ = kind.upstream.heard("tools/call", before + 1) => {}
            }
            drop(client);
            gateway.wait_for(|status| idle(status, kind.name)).await;
        }
        kind.upstream.heard(told(kind), 2).await;
    }
}

fn idle(status: &Value, server: &str) -> bool {
    crate::support::gateway::of(status, server)["in_flight"] == 0
}

#[tokio::test]
async fn a_legacy_client_cancels_with_a_notification() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("begin", |_| vec![Step::Progress(1), Step::Never]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.legacy().await;
    for kind in &kinds {
        for id in [json!("abc"), json!(4711)] {
            let tool = format!("{}__begin", kind.name);
            let ask = client.ask_call(&tool, json!({})).token(json!("t")).id(id.clone());
            let mut reply = ask.send().await;
            reply.message().await.unwrap();
            let before = kind.upstream.all(told(kind)).len();
            let params = json!({ "requestId": id, "reason": "changed my mind" });
            let noted = client.ask("notifications/cancelled", params).notification().send().await;
            assert_eq!(noted.status(), 202);
            assert_eq!(reply.message().await, None, "{}: no answer to a cancelled call", kind.name);
            let heard = kind.upstream.heard(told(kind), before + 1).await;
            if told(kind) == "notifications/cancelled" {
                let call = kind.upstream.calls().pop().unwrap();
                assert_eq!(Some(heard.params["requestId"].clone()), call.id, "{}", kind.name);
            }
        }
    }
}

#[tokio::test]
async fn a_legacy_client_that_goes_away_does_not_cancel() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("begin", |_| vec![Step::Progress(1), Step::Hold, Step::text("done")]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.legacy().await;
    for kind in &kinds {
        let tool = format!("{}__begin", kind.name);
        let mut reply = client.ask_call(&tool, json!({})).token(json!(1)).send().await;
        reply.message().await.unwrap();
        drop(reply);
        // The gateway has handled the loss by the end of another call.
        client.call(&format!("{}__echo", kind.name), json!({})).await.text();
        assert!(!idle(&gateway.status().await, kind.name), "{}", kind.name);
        kind.upstream.release(1);
        gateway.wait_for(|status| idle(status, kind.name)).await;
        assert!(kind.upstream.all(told(kind)).is_empty(), "{}", kind.name);
    }
}

#[tokio::test]
async fn a_silent_call_ends_at_its_timeout_and_the_server_hears_it() {
    let kinds = every_kind().await;
    let mut builder = Gateway::alone();
    for kind in &kinds {
        kind.upstream.does("opened", |_| vec![Step::Open, Step::Never]);
        kind.upstream.does("never", |_| vec![Step::Never]);
        builder = builder.server(kind.name, kind.lines.clone() + "timeout = \"300ms\"");
    }
    let gateway = builder.start().await;
    for (n, (era, client)) in gateway.both().await.into_iter().enumerate() {
        for kind in &kinds {
            for (m, tool) in ["never", "opened"].into_iter().enumerate() {
                let began = Instant::now();
                let said = client.call(&format!("{}__{tool}", kind.name), json!({})).await;
                assert!(said.is_error(), "{era} {}", kind.name);
                assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
                assert!(said.text().contains("did not respond within"), "{}", said.text());
                kind.upstream.heard(told(kind), 2 * n + m + 1).await;
            }
            let said = client.call(&format!("{}__echo", kind.name), json!({})).await;
            assert_eq!(said.text(), "{}", "{era} {}: the next one works", kind.name);
        }
    }
}

#[tokio::test]
async fn progress_extends_the_timeout_up_to_the_cap() {
    let kinds = every_kind().await;
    let mut builder = Gateway::alone();
    let tick = || [Step::Pause(MOMENT * 2), Step::Progress(1)];
    for kind in &kinds {
        kind.upstream.does("lively", move |_| {
            (0..6).flat_map(|_| tick()).chain([Step::text("done")]).collect()
        });
        kind.upstream.does("endless", move |_| (0..99).flat_map(|_| tick()).collect());
        // Five ticks fit into the first, and the whole first tool into the second.
        let times = "timeout = \"1500ms\"\nmax_timeout = \"3s\"";
        builder = builder.server(kind.name, kind.lines.clone() + times);
    }
    let gateway = builder.start().await;
    let client = gateway.modern();
    let calls = kinds.iter().map(|kind| async {
        let ask =
            |tool| client.ask_call(&format!("{}__{tool}", kind.name), json!({})).token(json!(1));
        let said = ask("lively").send().await.said().await;
        assert_eq!(said.text(), "done", "{}", kind.name);
        let said = ask("endless").send().await.said().await;
        assert!(
            said.is_error() && said.text().contains("did not respond"),
            "{}: {said:?}",
            kind.name
        );
        assert!(said.notices().len() >= 2, "{}: {said:?}", kind.name);
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn the_trace_goes_on_in_meta_and_header() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let kinds = every_kind().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let ask = || client.ask_call(&format!("{}__echo", kind.name), json!({}));
            for (case, ask) in [
                (
                    "in meta",
                    ask().meta("traceparent", json!(parent)).meta("tracestate", json!("a=b")),
                ),
                ("in the header", ask().header("traceparent", &parent).header("tracestate", "a=b")),
            ] {
                ask.send().await.said().await.text();
                let call = kind.upstream.calls().pop().unwrap();
                let sent = call.meta("traceparent").as_str().unwrap_or_default();
                assert!(sent.contains(TRACE), "{era} {} {case}: {:?}", kind.name, call.params);
                assert_eq!(call.meta("tracestate"), "a=b", "{era} {} {case}", kind.name);
                if kind.name.ends_with("http") {
                    let header = call.header("traceparent").unwrap_or_default();
                    assert_eq!(header, sent, "{era} {} {case}", kind.name);
                    assert_eq!(call.header("tracestate"), Some("a=b"));
                }
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_ends_its_call_in_words() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("break", |_| vec![Step::Progress(1), Step::Break]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let ask = client.ask_call(&format!("{}__break", kind.name), json!({})).token(json!(1));
            let said = ask.send().await.said().await;
            assert!(said.is_error() && said.text().contains(kind.name), "{era} {said:?}");
            gateway.ready(kind.name).await;
        }
    }
}

#[tokio::test]
async fn errors_of_a_server_pass_with_code_and_data() {
    let kinds = every_kind().await;
    let error = json!({ "code": -32099, "message": "not today", "data": { "a": [1, 2] } });
    for kind in &kinds {
        let error = error.clone();
        kind.upstream.does("error", move |_| vec![Step::Error(error.clone())]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let said = client.call(&format!("{}__error", kind.name), json!({})).await;
            assert_eq!((said.status, said.error()), (200, &error), "{era} {}", kind.name);
            let said = client.call(&format!("{}__fail", kind.name), json!({})).await;
            assert_eq!((said.is_error(), said.text()), (true, "it failed"), "{era} {}", kind.name);
        }
    }
}
