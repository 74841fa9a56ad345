//! Responses that a server, or an intermediary, prepares for future requests.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::support::{Gateway, Step, Upstream, every_kind};

#[tokio::test]
async fn a_response_to_a_guessed_id_answers_no_other_request() {
    for kind in every_kind().await {
        let last = AtomicU64::new(0);
        kind.upstream.does("race", move |call| {
            let id = call.id.as_ref().and_then(serde_json::Value::as_u64).unwrap();
            let before = last.swap(id, Ordering::SeqCst);
            let stray = |guess: u64| {
                let result = json!({ "content": [{ "type": "text", "text": "another's" }] });
                Step::Send(json!({ "jsonrpc": "2.0", "id": guess, "result": result }))
            };
            let strays = (1..=16).map(|step| stray(before.wrapping_add(step)));
            strays.chain([Step::text("its own")]).collect()
        });
        let gateway = Gateway::with("s", &kind.lines).start().await;
        for (era, client) in gateway.both().await {
            for _ in 0..5 {
                let said = client.call("s__race", json!({})).await;
                assert!(!said.answer().to_string().contains("another's"), "{era} {said:?}");
                // On a stream of its own, a wrong response ends the call.
                let is_shared = kind.name.ends_with("stdio");
                assert!(!is_shared || said.text() == "its own", "{era} {said:?}");
            }
        }
    }
}

#[tokio::test]
async fn no_request_of_a_connection_is_numbered_after_the_one_before() {
    for kind in every_kind().await {
        let gateway = Gateway::with("s", &kind.lines).start().await;
        let client = gateway.modern();
        for _ in 0..3 {
            client.call("s__echo", json!({})).await.text();
        }
        let ids: Vec<_> = kind.upstream.received().iter().filter_map(|it| it.id.clone()).collect();
        let ids: Vec<_> = ids.iter().filter_map(serde_json::Value::as_u64).collect();
        assert!(ids.len() >= 4, "{} {ids:?}", kind.name);
        for two in ids.windows(2) {
            assert!(two[0].abs_diff(two[1]) > 1, "{} {ids:?}", kind.name);
        }
        assert!(ids.iter().all(|id| *id > 2), "the first are not predictable either: {ids:?}");
    }
}

#[tokio::test]
async fn a_result_without_an_id_answers_no_request() {
    for kind in every_kind().await {
        kind.upstream.does("nameless", |_| {
            let result = json!({ "content": [{ "type": "text", "text": "another's" }] });
            let stray = json!({ "jsonrpc": "2.0", "id": null, "result": result });
            vec![Step::Send(stray), Step::text("its own")]
        });
        let gateway = Gateway::with("s", &kind.lines).start().await;
        for (era, client) in gateway.both().await {
            let said = client.call("s__nameless", json!({})).await;
            assert!(!said.answer().to_string().contains("another's"), "{era} {said:?}");
        }
    }
}

#[tokio::test]
async fn nothing_of_a_large_result_with_a_late_wrong_id_is_forwarded() {
    for upstream in Upstream::both().await {
        for (tool, is_right) in [("stray", false), ("own", true)] {
            upstream.does(tool, move |call| {
                let id = call.id.as_ref().and_then(serde_json::Value::as_u64).unwrap();
                let id = if is_right { id } else { id.wrapping_add(1) };
                let text = format!("another's {}", "x".repeat(600_000));
                let result = json!({
                    "resultType": "complete", "content": [{ "type": "text", "text": text }],
                });
                let body = format!(r#"{{"jsonrpc":"2.0","result":{result},"id":{id}}}"#);
                let json = vec![("content-type", "application/json".to_owned())];
                vec![Step::Status(200, json, body)]
            });
        }
        let gateway = Gateway::with("s", upstream.http()).start().await;
        for (era, client) in gateway.both().await {
            let stray = client.call("s__stray", json!({})).await;
            assert!(!stray.answer().to_string().contains("another's"), "{era}");
            assert!(client.call("s__own", json!({})).await.text().len() > 600_000, "{era}");
        }
    }
}
