//! Calls of one client that make a server appear changed, or unavailable.

use serde_json::json;

use crate::support::{Gateway, Step, Upstream};
use crate::{ATTACKER, BYSTANDER, two_clients};

#[tokio::test]
async fn a_call_that_the_server_rejects_takes_it_from_no_other_client() {
    let unsupported = json!({
        "code": -32_022, "message": "no", "data": { "supported": ["2026-07-28"], "requested": "x" },
    });
    for step in [
        Step::Status(400, vec![], String::new()),
        Step::Status(404, vec![], String::new()),
        Step::Status(405, vec![], String::new()),
        Step::Error(unsupported),
    ] {
        let upstream = Upstream::modern().await;
        let answer = step.clone();
        upstream.does("picky", move |_| vec![answer.clone()]);
        let gateway = two_clients(Gateway::with("s", upstream.http())).start().await;
        let (attacker, bystander) =
            (gateway.modern().key(ATTACKER), gateway.modern().key(BYSTANDER));
        let before = upstream.all("server/discover").len();
        for _ in 0..20 {
            let said = attacker.call("s__picky", json!({})).await;
            assert!(said.is_error() || said.answer().get("error").is_some(), "{said:?}");
            assert_eq!(bystander.call("s__echo", json!({})).await.text(), "{}", "{step:?}");
        }
        // The gateway asked the server for its identity.
        upstream.heard("server/discover", before + 1).await;
        assert_eq!(bystander.call("s__echo", json!({})).await.text(), "{}", "{step:?}");
        assert_eq!(gateway.server("s").await["restarts"], 0, "{step:?}");
        let checks = upstream.all("server/discover").len() - before;
        assert!(checks < 10, "{checks} checks");
    }
}

#[tokio::test]
async fn a_long_tracestate_becomes_no_header() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (length, is_sent) in [(512, true), (513, false), (10_000, false)] {
        let state = format!("a={}", "x".repeat(length - 2));
        let modern = gateway.modern();
        let call = modern.ask_call("s__echo", json!({})).meta("traceparent", json!(parent));
        let said = call.meta("tracestate", json!(state)).send().await.said().await;
        assert_eq!(said.text(), "{}");
        let call = upstream.calls().pop().unwrap();
        assert_eq!(call.header("traceparent"), Some(parent));
        assert_eq!(call.header("tracestate"), is_sent.then_some(&state[..]), "{length}");
    }
}
