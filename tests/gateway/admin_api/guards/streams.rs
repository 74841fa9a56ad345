//! Event streams: their comments, their losses, and the end of their observer's access.

use serde_json::json;
use trunkline::telemetry::audit::{
    AuditOperation, OperationActor, OperationOutcome, OperationRecord,
};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::super::calls::watch;
use super::super::limits::pass_time;
use super::super::resources::get;
use crate::support::client::Piece;
use crate::support::gateway::Builder;
use crate::support::issuer::now;
use crate::support::{Gateway, Issuer, Upstream, client_table};

use std::time::{Duration, Instant};

#[tokio::test]
async fn a_quiet_stream_is_not_stored_and_has_a_comment_every_fifteen_seconds() {
    let gateway = Gateway::alone().start().await;
    let mut live = watch(&gateway.operator(), "/calls/live").await;
    assert_eq!(live.header("cache-control").as_deref(), Some("no-store"));
    for _ in 0..3 {
        assert_eq!(live.piece().await, Some(Piece::Comment));
        pass_time(Duration::from_secs(16)).await;
    }
}

#[tokio::test]
async fn an_observer_that_reads_too_slowly_learns_how_many_calls_it_has_missed() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).admin("recent = 10").start().await;
    gateway.modern().call("s__echo", json!({})).await.text();
    let id = get(&gateway, "/calls").await["calls"][0]["id"].as_str().unwrap().to_owned();
    let calls = &gateway.running.gateway.calls;
    let call = calls.find(&id).unwrap().item.clone();
    let mut live = watch(&gateway.operator(), "/calls/live").await;
    assert_eq!(live.piece().await, Some(Piece::Comment));
    // The gateway runs in this thread: it sends nothing meanwhile.
    for _ in 0..1024 + 76 {
        calls.add(call.clone());
    }
    assert_eq!(live.message().await, Some(json!({ "missed": 76 })));
    for _ in 0..1024 {
        assert_eq!(live.message().await.unwrap()["id"], id);
    }
}

#[tokio::test]
async fn an_observer_of_the_audit_log_learns_how_many_records_it_has_missed() {
    let log = "[audit]\nfile = \"audit.jsonl\"\narguments = true\narguments_size = \"128KiB\"\n";
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).toml(log).start().await;
    let trail = gateway.running.gateway.audit.clone();
    let written = || trail.overview().map_or(0, |log| log.written);
    let before = written();
    let mut live = watch(&gateway.operator(), "/audit/live").await;
    assert_eq!(live.piece().await, Some(Piece::Comment));
    // The gateway runs in this thread: it sends nothing meanwhile.
    for _ in 0..1024 + 76 {
        trail.record_operation(&OperationRecord {
            operation: AuditOperation::Reload { before: "aa", after: None, losses: 0 },
            actor: OperationActor::Gateway,
            address: None,
            outcome: OperationOutcome::Ok,
            reason: None,
        });
    }
    let begun = Instant::now();
    while written() < before + 1024 + 76 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", trail.overview());
        std::thread::yield_now();
    }
    assert_eq!(live.message().await, Some(json!({ "missed": 76 })));
    for _ in 0..1024 {
        assert_eq!(live.message().await.unwrap()["operation"], "reload");
    }
    // A record that is too large for observers counts as missed.
    let text: String = (0..10_000).map(|number| number.to_string()).collect();
    let large = json!({ "one": text, "other": text });
    gateway.modern().call("s__echo", large).await.text();
    assert_eq!(live.message().await, Some(json!({ "missed": 1 })));
}

#[tokio::test]
async fn an_operator_who_loses_the_role_stops_reading_the_log_and_the_audit_log() {
    let upstream = Upstream::modern().await;
    let audit = "[audit]\nfile = \"audit.jsonl\"\n";
    let with = |key: &str, role: &str| with_operator(&upstream, key, role).toml(audit);
    for (key, role) in [("acts-key", "viewer"), ("new-key", "operator")] {
        let gateway = with("acts-key", "operator").start().await;
        let operator = gateway.remote_operator().key("acts-key");
        let mut streams =
            [watch(&operator, "/log/live").await, watch(&operator, "/audit/live").await];
        assert_eq!(gateway.reload(with(key, role)).await, ReloadOutcome::Applied);
        for live in &mut streams {
            // The record of the reload itself may come before the end.
            while let Some(record) = live.message().await {
                assert_eq!(record["operation"], "reload", "{record}");
            }
        }
    }
}

fn with_operator(upstream: &Upstream, key: &str, role: &str) -> Builder {
    let role = format!("role = \"{role}\"");
    Gateway::with("s", upstream.http()).toml(&client_table("acts", key, &role))
}

#[tokio::test]
async fn an_observer_whose_key_is_replaced_gets_nothing_more() {
    let upstream = Upstream::modern().await;
    let gateway = with_operator(&upstream, "old-key", "viewer").start().await;
    let mut live = watch(&gateway.remote_operator().key("old-key"), "/calls/live").await;
    let mut own = watch(&gateway.operator(), "/calls/live").await;
    let replaced = with_operator(&upstream, "new-key", "viewer");
    assert_eq!(gateway.reload(replaced).await, ReloadOutcome::Applied);
    assert_eq!(live.message().await, None);
    gateway.modern().key("new-key").call("s__echo", json!({})).await.text();
    assert_eq!(own.message().await.unwrap()["name"], "s__echo", "the socket has no key");
}

#[tokio::test]
async fn an_operator_who_becomes_a_viewer_keeps_the_calls() {
    let upstream = Upstream::modern().await;
    let gateway = with_operator(&upstream, "acts-key", "operator").start().await;
    let mut calls = watch(&gateway.remote_operator().key("acts-key"), "/calls/live").await;
    let lowered = with_operator(&upstream, "acts-key", "viewer");
    assert_eq!(gateway.reload(lowered).await, ReloadOutcome::Applied);
    gateway.modern().key("acts-key").call("s__echo", json!({})).await.text();
    assert_eq!(calls.message().await.unwrap()["name"], "s__echo");
}

#[tokio::test]
async fn an_observer_whose_token_expires_gets_nothing_more() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let roles = "clock_skew = \"0s\"\ngroups_claim = \"groups\"\nroles = { look = \"viewer\" }";
    let gateway = Gateway::with("s", upstream.http())
        .gateway("public_url = \"http://127.0.0.1:8080\"")
        .toml(&issuer.table("staff", roles))
        .start()
        .await;
    let ends = now() + 3;
    let claims = json!({ "groups": ["look"], "exp": ends });
    let token = issuer.token("http://127.0.0.1:8080/mcp", claims);
    let mut live = watch(&gateway.remote_operator().key(&token), "/calls/live").await;
    assert_eq!(live.message().await, None);
    assert!((ends..ends + 10).contains(&now()), "at once, not at the next sign of life");
}
