//! Servers in a sandbox, behind the gateway.

use serde_json::json;

use crate::support::{Gateway, Upstream, poll_for};

#[tokio::test]
async fn a_server_in_a_sandbox_serves_its_calls_and_restarts() {
    for upstream in Upstream::both().await {
        let gateway = Gateway::with("s", upstream.stdio() + "sandbox = true").start().await;
        for (era, client) in gateway.both().await {
            assert_eq!(
                client.call("s__echo", json!({ "a": 1 })).await.text(),
                r#"{"a":1}"#,
                "{era}"
            );
        }
        upstream.crash();
        let said = poll_for(async || {
            let said = gateway.modern().call("s__echo", json!({ "a": 2 })).await;
            Some(said).filter(|said| !said.is_error())
        });
        assert_eq!(said.await.text(), r#"{"a":2}"#);
    }
}

#[tokio::test]
async fn a_server_with_an_impossible_sandbox_fails_with_the_reason() {
    let upstream = Upstream::legacy().await;
    for (sandbox, reason) in [
        ("{ read = [\"/no/such/folder\"] }", "/no/such/folder"),
        ("{ user = \"no-such-user\" }", "no-such-user"),
    ] {
        let lines = format!("{}max_restarts = 0\nsandbox = {sandbox}", upstream.stdio());
        let gateway = Gateway::with("s", lines).start_at_once().await;
        let failed = |status: &serde_json::Value| {
            crate::support::gateway::of(status, "s")["state"] == "failed"
        };
        let status = gateway.wait_for(failed).await;
        let error = crate::support::gateway::of(&status, "s")["last_error"]["message"].clone();
        assert!(error.as_str().unwrap().contains(reason), "{error}");
        let said = gateway.modern().call("s__echo", json!({})).await;
        assert!(!said.answer()["error"].is_null() || said.is_error(), "{said:?}");
        assert!(upstream.calls().is_empty());
    }
}
