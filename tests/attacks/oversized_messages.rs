//! Servers that fill the queues of slow and absent clients with few, large messages.

use serde_json::{Value, json};

use crate::support::upstream::Era;
use crate::support::{Gateway, Old, Step, Upstream, until};

/// Returns the params of a notification over the limit.
fn large() -> Value {
    json!({ "x": "x".repeat(500_000) })
}

/// Defines a tool that sends one large notification of progress and a small one.
fn chatty_call(upstream: &Upstream) {
    upstream.does("chatty", |call| {
        let progress = |number: u32, message: &str| {
            let params = json!({
                "progressToken": call.token(), "progress": number, "message": message,
            });
            Step::Send(
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }),
            )
        };
        vec![progress(1, &"x".repeat(500_000)), progress(2, "small"), Step::text("done")]
    });
}

#[tokio::test]
async fn large_notifications_do_not_wait_for_a_client() {
    for way in ["http", "stdio"] {
        let upstream = Upstream::legacy().await;
        let lines = if way == "http" { upstream.http() } else { upstream.stdio() };
        let gateway = Gateway::with("s", lines + "isolation = \"client\"\n").start().await;
        let client = gateway.legacy().await;
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        until(|| *upstream.inner.watchers.borrow() > 0).await;
        for _ in 0..8 {
            upstream.tell_all("notifications/of/tomorrow", large());
        }
        upstream.tell_all("notifications/of/today", json!({}));
        let mut stream = client.get_stream().send().await;
        let first = stream.message().await.unwrap();
        assert_eq!(first["method"], "notifications/of/today", "{way}");
    }
}

#[tokio::test]
async fn large_notifications_of_a_call_are_left_out() {
    for upstream in Upstream::both().await {
        chatty_call(&upstream);
        let mut ways = upstream.ways().to_vec();
        let old = Old::before(&upstream).await;
        if upstream.inner.era == Era::Legacy {
            ways.push(("sse", old.lines()));
        }
        for (way, lines) in ways {
            let gateway = Gateway::with("s", lines).start().await;
            for (era, client) in gateway.both().await {
                let call = client.ask_call("s__chatty", json!({})).token(json!("t"));
                let said = call.send().await.said().await;
                assert_eq!(said.text(), "done", "{way} {era}");
                let [notice] = said.notices() else { panic!("{way} {era}: {said:?}") };
                assert_eq!(notice["params"]["message"], "small", "{way} {era}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let upstream = Upstream::legacy().await;
    upstream.does("asks", |_| {
        let question = json!({ "message": "x".repeat(5 << 20), "requestedSchema": {} });
        vec![Step::Ask("q", "elicitation/create", question), Step::Await("q"), Step::Answers]
    });
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.legacy().await.offering(json!({ "elicitation": {} })).await;
        let said = client.call("s__asks", json!({})).await;
        assert!(said.text().contains("too large for a client"), "{way}: {said:?}");
    }
}

#[tokio::test]
async fn notifications_of_a_parked_call_are_bounded_in_sum() {
    let upstream = Upstream::legacy().await;
    upstream.does("asks", |call| {
        let progress = |number: u32| {
            let message = "x".repeat(200_000);
            let params = json!({
                "progressToken": call.token(), "progress": number, "message": message,
            });
            Step::Send(
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }),
            )
        };
        let form = json!({ "message": "?", "requestedSchema": {} });
        let mut steps = vec![Step::Ask("q", "elicitation/create", form), Step::Hold];
        steps.extend((1..=16).map(progress));
        steps.extend([Step::Ask("unknown", "tasks/list", json!({})), Step::Await("q")]);
        steps.push(Step::text("done"));
        steps
    });
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern().offering(json!({ "elicitation": {} })).await;
        let said = client.ask_call("s__asks", json!({})).token(json!("t")).send().await;
        let said = said.said().await;
        let requests = said.result()["inputRequests"].as_object().unwrap();
        let key = requests.keys().next().unwrap().clone();
        // The unknown request follows the notifications and is refused at once.
        let refused = upstream.all("").len();
        upstream.release(1);
        until(|| upstream.all("").len() > refused).await;
        let retry = client.ask_call("s__asks", json!({})).token(json!("t"));
        let retry = retry.param("inputResponses", json!({ key: { "action": "decline" } }));
        let retry = retry.param("requestState", said.result()["requestState"].clone());
        let said = retry.send().await.said().await;
        assert_eq!(said.text(), "done", "{way}");
        assert_eq!(said.notices().len(), 5, "{way}");
    }
}

#[tokio::test]
async fn requests_of_one_call_are_refused_once_their_sum_is_too_large() {
    let upstream = Upstream::legacy().await;
    upstream.does("asks", |_| {
        let form = || json!({ "message": "x".repeat(3 << 20), "requestedSchema": {} });
        let ask = |key| Step::Ask(key, "elicitation/create", form());
        vec![ask("a"), ask("b"), ask("c"), Step::Never]
    });
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern().offering(json!({ "elicitation": {} })).await;
        let refused = upstream.all("").len();
        let said = client.call("s__asks", json!({})).await;
        assert!(said.result()["inputRequests"].is_object(), "{way}: {said:?}");
        until(|| upstream.all("").len() > refused).await;
        let refusal = upstream.all("").pop().unwrap().text;
        let refusal: Value = serde_json::from_str(&refusal).unwrap();
        assert!(refusal["id"].as_str().unwrap().ends_with("/c"), "{way}: {refusal}");
        assert_eq!(refusal["error"]["code"], -32600, "{way}");
    }
}

#[tokio::test]
async fn cancelled_requests_do_not_pile_up_with_a_parked_call() {
    let upstream = Upstream::legacy().await;
    let form = || json!({ "message": "?", "requestedSchema": {} });
    upstream.does("asks", move |_| {
        let ask = |key| Step::Ask(key, "elicitation/create", form());
        let mut steps = vec![ask("first"), Step::Hold];
        for burst in ["1", "2", "3", "4", "5"] {
            for _ in 0..20 {
                steps.extend([ask("cancelled"), Step::TakeBack("cancelled")]);
            }
            // The call refuses a second request with the same id once it has taken all earlier ones
            // from its queue, which has room for one burst.
            steps.extend([ask(burst), ask(burst), Step::Await(burst), Step::TakeBack(burst)]);
        }
        steps.extend([ask("last"), Step::Ask("unknown", "tasks/list", json!({}))]);
        steps.extend([Step::Await("first"), Step::Await("last"), Step::text("done")]);
        steps
    });
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern().offering(json!({ "elicitation": {} })).await;
        let (mut ask, mut rounds) = (client.ask_call("s__asks", json!({})), 0);
        let said = loop {
            let said = ask.send().await.said().await;
            let Some(requests) = said.result()["inputRequests"].as_object() else { break said };
            assert_eq!(requests.len(), 1, "{way}: {said:?}");
            let answers = requests.keys().map(|key| (key.clone(), json!({ "action": "decline" })));
            ask = client
                .ask_call("s__asks", json!({}))
                .param("inputResponses", answers.collect())
                .param("requestState", said.result()["requestState"].clone());
            if rounds == 0 {
                // Each burst is answered once, and the unknown request at the end.
                let answered = upstream.all("").len() + 6;
                upstream.release(1);
                until(|| upstream.all("").len() == answered).await;
            }
            rounds += 1;
        };
        assert_eq!((said.text(), rounds), ("done", 2), "{way}");
    }
}
