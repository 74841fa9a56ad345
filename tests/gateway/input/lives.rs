//! Lifetime of a question, and the ways in which it ends.

use serde_json::{Value, json};

use crate::support::gateway::of;
use crate::support::upstream::MOMENT;
use crate::support::{Gateway, Kind, Said, Step, Upstream, every_kind, until, until_async};

use super::{Asked, ann, ask, asking, asks, both, everything, form, json_of, question, retry};

async fn legacy() -> Vec<Kind> {
    let mut kinds = every_kind().await;
    kinds.retain(|kind| kind.name.starts_with("legacy"));
    asks(&kinds, "ask", || vec![("q", "elicitation/create", form())]);
    kinds
}

async fn parked(gateway: &Gateway, so_many: usize) {
    let line = format!("trunkline_parked_calls {so_many}");
    until_async(async || gateway.metrics().await.lines().any(|it| it == line)).await;
}

/// Configures a child for each client, so that a cancelled call does not affect the next client.
fn own_children(kinds: &mut [Kind]) {
    for kind in kinds.iter_mut().filter(|kind| kind.name == "legacy-stdio") {
        kind.lines.push_str("isolation = \"client\"\n");
    }
}

#[tokio::test]
async fn an_abandoned_call_is_cancelled_in_time() {
    let mut kinds = legacy().await;
    own_children(&mut kinds);
    let builder = Gateway::alone().kinds(&kinds);
    let gateway = builder.toml("[gateway.limits]\nparked_time = \"1s\"\n").start().await;
    for (era, client) in both(&gateway).await {
        for (number, kind) in kinds.iter().enumerate() {
            let tool = format!("{}__ask", kind.name);
            let before = kind.upstream.all("notifications/cancelled").len();
            if client.is_modern() {
                ask(&client, &tool).await;
            } else {
                let mut reply = client.ask_call(&tool, json!({})).send().await;
                let asked = question(&mut reply).await;
                let said = reply.said().await;
                assert!(said.is_error() && said.text().contains("1.0 s"), "{said:?}");
                let told = &said.notices()[0];
                assert_eq!(told["method"], "notifications/cancelled");
                assert_eq!(told["params"]["requestId"], asked["id"]);
            }
            kind.upstream.heard("notifications/cancelled", before + 1).await;
            parked(&gateway, 0).await;
            let _ = (era, number);
        }
    }
}

#[tokio::test]
async fn so_many_calls_may_wait_and_no_more() {
    let kinds = legacy().await;
    let limits = "[gateway.limits]\nparked = 3\nparked_each = 2\n";
    let gateway = Gateway::alone().kinds(&kinds).toml(limits).start().await;
    let client = gateway.modern().offering(everything()).await;
    let tool = "legacy-http__ask";
    let held = [ask(&client, tool).await, ask(&client, tool).await];
    parked(&gateway, 2).await;
    let over = client.call(tool, json!({ "a": 1 })).await;
    assert_eq!(over.status, 429, "{over:?}");
    assert_eq!(over.error()["data"]["limit"], "parked_each");
    kinds[0].upstream.heard("notifications/cancelled", 1).await;
    for asked in held {
        let said = retry(&client, tool, asked.all(&ann()), asked.state()).await;
        assert_eq!(json_of(&said), json!({ "q": ann() }));
    }
    parked(&gateway, 0).await;
}

#[tokio::test]
async fn all_principals_together_have_so_many_calls_waiting_and_no_more() {
    let kinds = legacy().await;
    let limits = "[gateway.limits]\nparked = 3\nparked_each = 2\n";
    let builder = super::states::with_keys(Gateway::alone().kinds(&kinds)).toml(limits);
    let gateway = builder.start_at_once().await;
    gateway.ready("legacy-http").await;
    let tool = "legacy-http__ask";
    let client = |name: &str| gateway.modern().key(name).offering(everything());
    let (one, other) = (client("ann").await, client("bob").await);
    let held = [ask(&one, tool).await, ask(&one, tool).await];
    ask(&other, tool).await;
    parked(&gateway, 3).await;
    let over = other.call(tool, json!({ "a": 1 })).await;
    assert_eq!(over.status, 429, "{over:?}");
    assert_eq!(over.error()["data"]["limit"], "parked");
    let [first, _] = held;
    let said = retry(&one, tool, first.all(&ann()), first.state()).await;
    assert_eq!(json_of(&said), json!({ "q": ann() }));
    parked(&gateway, 2).await;
    ask(&other, tool).await;
}

#[tokio::test]
async fn legacy_clients_of_modern_servers_count_as_waiting() {
    let upstream = Upstream::modern().await;
    upstream.does("ask", |_| vec![super::required(&[("q", "roots/list", Value::Null)], None)]);
    let limits = "[gateway.limits]\nparked_each = 1\n";
    let gateway = Gateway::with("s", upstream.http()).toml(limits).start().await;
    let client = gateway.legacy().await.offering(everything()).await;
    let mut reply = client.ask_call("s__ask", json!({})).send().await;
    question(&mut reply).await;
    parked(&gateway, 1).await;
    let over = client.call("s__ask", json!({})).await;
    assert_eq!(over.error()["data"]["limit"], "parked_each", "{over:?}");
}

#[tokio::test]
async fn the_clients_time_is_not_the_servers() {
    let kinds = legacy().await;
    for kind in &kinds {
        kind.upstream.does("never", |_| vec![Step::Never]);
    }
    let gateway = kinds.iter().fold(Gateway::alone(), |builder, kind| {
        builder.server(
            kind.name,
            format!("{}timeout = \"400ms\"\nmax_timeout = \"400ms\"\n", kind.lines),
        )
    });
    let gateway = gateway.start().await;
    for (era, client) in both(&gateway).await {
        for kind in &kinds {
            let tool = format!("{}__ask", kind.name);
            // A call that begins later and reaches its deadline.
            let late = async {
                let said = client.call(&format!("{}__never", kind.name), json!({})).await;
                assert!(said.text().contains("did not respond within"), "{era}: {said:?}");
            };
            let said: Said = if client.is_modern() {
                let asked = ask(&client, &tool).await;
                late.await;
                retry(&client, &tool, asked.all(&ann()), asked.state()).await
            } else {
                let mut reply = client.ask_call(&tool, json!({})).send().await;
                let asked = question(&mut reply).await;
                late.await;
                client.respond(&asked["id"], ann()).await;
                reply.said().await
            };
            assert_eq!(json_of(&said), json!({ "q": ann() }), "{era} {tool}");
        }
    }
}

#[tokio::test]
async fn a_server_that_dies_meanwhile_is_reported_at_the_retry() {
    for (name, _) in [("http", 0), ("stdio", 0)] {
        let upstream = Upstream::legacy().await;
        upstream.does("ask", |_| asking(vec![("q", "elicitation/create", form())]));
        let lines = if name == "http" { upstream.http() } else { upstream.stdio() };
        let gateway = Gateway::with("s", lines).start().await;
        let [(_, modern), (_, legacy)] = both(&gateway).await;
        let asked = ask(&modern, "s__ask").await;
        upstream.crash();
        gateway.wait_for(|status| of(status, "s")["state"] == "ready" || name == "http").await;
        let said = retry(&modern, "s__ask", asked.all(&ann()), asked.state()).await;
        assert!(
            said.is_error() && said.text().contains("failed during the call"),
            "{name}: {said:?}"
        );
        // A Legacy client is notified at once.
        gateway.ready("s").await;
        let mut reply = legacy.ask_call("s__ask", json!({})).send().await;
        let asked = question(&mut reply).await;
        upstream.crash();
        let said = reply.said().await;
        assert!(
            said.is_error() && said.text().contains("failed during the call"),
            "{name}: {said:?}"
        );
        let told = &said.notices()[0];
        assert_eq!(told["params"]["requestId"], asked["id"], "{name}");
    }
}

#[tokio::test]
async fn a_server_that_answers_without_waiting_is_believed() {
    let kinds = legacy().await;
    for kind in &kinds {
        kind.upstream.does("impatient", |_| {
            vec![Step::Ask("q", "elicitation/create", form()), Step::Hold, Step::text("never mind")]
        });
        kind.upstream.does("wavering", |_| {
            vec![
                Step::Ask("q", "elicitation/create", form()),
                Step::Hold,
                Step::TakeBack("q"),
                Step::Pause(MOMENT),
                Step::text("never mind"),
            ]
        });
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in both(&gateway).await {
        for kind in &kinds {
            for tool in ["impatient", "wavering"] {
                let tool = format!("{}__{tool}", kind.name);
                if client.is_modern() {
                    let asked = ask(&client, &tool).await;
                    kind.upstream.release(1);
                    // The server's answer is there before the client's.
                    gateway.wait_for(|status| of(status, kind.name)["in_flight"] == 0).await;
                    let said = retry(&client, &tool, asked.all(&ann()), asked.state()).await;
                    assert_eq!(said.text(), "never mind", "{era} {tool}");
                    continue;
                }
                let mut reply = client.ask_call(&tool, json!({})).send().await;
                let asked = question(&mut reply).await;
                kind.upstream.release(1);
                let said = reply.said().await;
                assert_eq!(said.text(), "never mind", "{era} {tool}");
                let told = &said.notices()[0];
                assert_eq!(told["method"], "notifications/cancelled", "{era} {tool}");
                assert_eq!(told["params"]["requestId"], asked["id"], "{era} {tool}");
                // Too late, and harmless.
                client.respond(&asked["id"], ann()).await;
            }
        }
    }
}

#[tokio::test]
async fn a_legacy_client_takes_its_call_back_while_it_is_asked() {
    let mut kinds = every_kind().await;
    own_children(&mut kinds);
    asks(&kinds, "ask", || vec![("q", "elicitation/create", form())]);
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for kind in &kinds {
        let tool = format!("{}__ask", kind.name);
        let legacy = kind.name.starts_with("legacy");
        for whole_session in [false, true] {
            let client = gateway.legacy().await.offering(everything()).await;
            let mut reply = client.ask_call(&tool, json!({})).id(json!("mine")).send().await;
            question(&mut reply).await;
            let before = kind.upstream.all("notifications/cancelled").len();
            if whole_session {
                client.http("DELETE", "/mcp").of_session().send().await;
            } else {
                let params = json!({ "requestId": "mine" });
                client.ask("notifications/cancelled", params).notification().send().await;
            }
            assert!(reply.said().await.messages.is_empty(), "{tool}");
            // A child of the client's own may have ended with the session.
            let ended = whole_session && kind.name == "legacy-stdio";
            if legacy && !ended {
                kind.upstream.heard("notifications/cancelled", before + 1).await;
            }
            parked(&gateway, 0).await;
        }
    }
    let metrics = gateway.metrics().await;
    assert!(!metrics.contains("outcome=\"input_required\""), "one request each: {metrics}");
}

#[tokio::test]
async fn a_legacy_client_that_goes_away_can_still_answer_and_resume() {
    let kinds = every_kind().await;
    asks(&kinds, "ask", || vec![("q", "elicitation/create", form())]);
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.legacy().await.offering(everything()).await;
    for kind in &kinds {
        let tool = format!("{}__ask", kind.name);
        let mut reply = client.ask_call(&tool, json!({})).send().await;
        let asked = question(&mut reply).await;
        let last = reply.last_id().to_owned();
        drop(reply);
        client.respond(&asked["id"], ann()).await;
        let resumed = client.get_stream().header("last-event-id", &last).send().await;
        assert_eq!(json_of(&resumed.said().await), json!({ "q": ann() }), "{tool}");
    }
}

#[tokio::test]
async fn a_modern_client_that_goes_away_before_it_is_asked_cancels_the_call() {
    let kinds = legacy().await;
    for kind in &kinds {
        kind.upstream.does("slow", |_| {
            let mut steps = vec![Step::Open, Step::Hold];
            steps.extend(asking(vec![("q", "elicitation/create", form())]));
            steps
        });
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for kind in &kinds {
        let client = gateway.modern().offering(everything()).await;
        let tool = format!("{}__slow", kind.name);
        tokio::select! {
            _ = client.ask_call(&tool, json!({})).send() => panic!("no answer was to come"),
            _ = kind.upstream.heard("tools/call", 1) => {}
        }
        drop(client);
        kind.upstream.heard("notifications/cancelled", 1).await;
        parked(&gateway, 0).await;
    }
}

#[tokio::test]
async fn each_request_has_its_record() {
    let kinds = legacy().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let client = gateway.modern().offering(everything()).await;
    let asked: Asked = ask(&client, "legacy-http__ask").await;
    retry(&client, "legacy-http__ask", asked.all(&ann()), asked.state()).await;
    let metrics = gateway.metrics().await;
    let count = |outcome: &str| {
        let start = "trunkline_tool_calls_total{";
        let of = |line: &&str| {
            line.starts_with(start) && line.contains(&format!("outcome=\"{outcome}\""))
        };
        let line = metrics.lines().find(of);
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap())
    };
    assert_eq!((count("input_required"), count("ok"), count("cancelled")), (1, 1, 0), "{metrics}");
    let legacy = gateway.legacy().await.offering(everything()).await;
    super::dialogue(&legacy, "legacy-http__ask", |_| ann()).await;
    let metrics = gateway.metrics().await;
    let oks = metrics.lines().find(|line| {
        line.starts_with("trunkline_tool_calls_total{") && line.contains("outcome=\"ok\"")
    });
    assert!(oks.unwrap().ends_with(" 2"), "a Legacy client's is one: {metrics}");
}

#[tokio::test]
async fn a_waiting_call_survives_a_reload_that_leaves_its_server_alone() {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| asking(vec![("q", "elicitation/create", form())]));
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.modern().offering(everything()).await;
    let asked = ask(&client, "s__ask").await;
    gateway.reload(Gateway::with("s", upstream.stdio()).gateway("title = \"x\"")).await;
    let said = retry(&client, "s__ask", asked.all(&ann()), asked.state()).await;
    assert_eq!(json_of(&said), json!({ "q": ann() }));
    until(|| upstream.calls().len() == 1).await;
}

#[tokio::test]
async fn a_server_asks_by_the_streams_of_its_session_while_its_answer_has_not_begun() {
    let upstream = Upstream::legacy().await;
    upstream.does("aside", |_| {
        vec![Step::AskAside("q", "elicitation/create", form()), Step::Await("q"), Step::Answers]
    });
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in both(&gateway).await {
        let said = super::dialogue(&client, "s__aside", |_| ann()).await;
        assert_eq!(json_of(&said), json!({ "q": ann() }), "{era}");
    }
}
