//! Calls that are repeated after a failure.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Gateway, Step, Upstream};

fn listed(name: &str, annotations: &Value) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": annotations })
}

/// Defines tools that fail twice: one that only reads, one that may be repeated, and one that may
/// not.
fn failing_twice(upstream: &Upstream) {
    for (name, annotations) in [
        ("read", json!({ "readOnlyHint": true })),
        ("repeat", json!({ "idempotentHint": true })),
        ("once", json!({ "readOnlyHint": false })),
    ] {
        let calls = AtomicUsize::new(0);
        upstream.tool(&listed(name, &annotations), move |_| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            let failed = Step::Status(503, Vec::new(), String::new());
            vec![if call % 3 == 2 { Step::text("done") } else { failed }]
        });
    }
}

#[tokio::test]
async fn only_calls_of_tools_that_may_be_repeated_are_made_again() {
    only_some_are_made_again(&Upstream::both().await).await;
}

#[tokio::test]
async fn calls_that_a_server_may_make_tasks_of_are_made_again_as_well() {
    let both = Upstream::both().await;
    let _tasks = both.each_ref().map(Upstream::has_tasks);
    only_some_are_made_again(&both).await;
}

async fn only_some_are_made_again([modern, legacy]: &[Upstream; 2]) {
    for upstream in [modern, legacy] {
        failing_twice(upstream);
    }
    let gateway = Gateway::with("m", modern.http() + "retries = 2")
        .server("l", legacy.http() + "retries = 2\ntools.repeat.retries = 0")
        .start()
        .await;
    for (era, client) in gateway.both().await {
        for (name, upstream, expected) in [
            ("m__read", modern, 3),
            ("m__repeat", modern, 3),
            ("m__once", modern, 1),
            ("l__read", legacy, 3),
            ("l__repeat", legacy, 1),
            ("l__once", legacy, 1),
        ] {
            let before = upstream.calls().len();
            let said = client.call(name, json!({})).await;
            assert_eq!(upstream.calls().len() - before, expected, "{era} {name} {said:?}");
            assert_eq!(said.is_error(), expected == 1, "{era} {name} {said:?}");
        }
    }
}
