//! The audit log: one record per decision, and a count of lost records.

mod operations;
mod principals;
mod required;
mod subjects;
mod syslog;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use serde_json::{Value, json};
use trunkline::telemetry::audit::{ChainMode, LogVerifier};
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::gateway::{Builder, key_digest};
use crate::support::{Gateway, Step, Upstream, client_table, json_lines, until};

const KEY: &str = "key-of-ann";
const AUDIT: &str = "[audit]\nfile = \"audit.jsonl\"\nchain = true\n";

fn auditing(upstream: &Upstream, audit: &str) -> Builder {
    Gateway::with("s", upstream.http()).toml(&client_table("ann", KEY, "")).toml(audit)
}

/// Waits for this many further records of a gateway, and returns them without the first `seen`.
async fn next_records(gateway: &Gateway, seen: usize, more: usize) -> Vec<Value> {
    let path = gateway.folder().join("audit.jsonl");
    until(|| json_lines(&path).len() >= seen + more).await;
    let mut all = json_lines(&path);
    assert_eq!(all.len(), seen + more, "one record per decision: {all:#?}");
    all.split_off(seen)
}

fn fields<'a>(record: &'a Value, names: &[&str]) -> Vec<&'a str> {
    names.iter().map(|name| record[name].as_str().unwrap_or("-")).collect()
}

fn counted(metrics: &str, outcome: &str) -> u64 {
    let series = format!("trunkline_audit_records_total{{outcome=\"{outcome}\"}} ");
    let found = metrics.lines().find_map(|line| line.strip_prefix(&series));
    found.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn every_decision_has_one_record_in_both_eras() {
    let upstream = Upstream::modern().await;
    upstream.does("no", |_| vec![Step::Result(json!({ "content": [], "isError": true }))]);
    upstream.does("err", |_| vec![Step::Error(json!({ "code": -32000, "message": "x" }))]);
    let schema = json!({ "type": "object", "required": ["n"] });
    upstream.tool(&json!({ "name": "strict", "inputSchema": schema }), |_| vec![Step::Usual]);
    let gateway = auditing(&upstream, AUDIT).start().await;
    let (mut seen, mut sessions) = (0, Vec::new());
    for (era, client) in gateway.both_as(KEY, "/mcp").await {
        client.call("s__echo", json!({ "secret": "hunter2" })).await;
        client.call("s__no", json!({})).await;
        client.call("s__err", json!({})).await;
        client.call("s__strict", json!({})).await;
        client.call("s__nowhere", json!({})).await;
        client.tool_names().await;
        client.request("tools/list", json!({ "cursor": "forged" })).await;
        let now = next_records(&gateway, seen, 7).await;
        seen += 7;
        let names = ["event", "decision", "check", "outcome", "reason", "tool", "server"];
        let told: Vec<_> = now.iter().map(|record| fields(record, &names)).collect();
        let expected = [
            ["call", "allow", "default", "ok", "-", "s__echo", "s"],
            ["call", "allow", "default", "tool_error", "-", "s__no", "s"],
            ["call", "allow", "default", "failed", "server_error", "s__err", "s"],
            ["call", "deny", "arguments", "refused", "invalid_arguments", "s__strict", "s"],
            ["call", "deny", "catalog", "refused", "unknown_tool", "s__nowhere", "-"],
            ["list", "allow", "profile", "ok", "-", "-", "-"],
            ["request", "deny", "protocol", "refused", "invalid_params", "-", "-"],
        ];
        assert_eq!(told, expected, "{era}");
        for record in &now {
            assert_eq!(
                (&record["principal"], &record["profile"], &record["actors"]),
                (&json!("ann"), &json!("default"), &json!([])),
                "{era}: {record}"
            );
            let id = &key_digest(KEY)[..8];
            assert_eq!(record["credential"], json!({ "kind": "key", "id": id }), "{era}");
            assert_eq!(record["session"].is_string(), !client.is_modern(), "{era}: {record}");
            assert!(record["address"].is_string(), "{era}: {record}");
        }
        if !client.is_modern() {
            sessions.push(client.session().to_owned());
        }
        let call = &now[0];
        assert_eq!((&call["native_tool"], &call["method"]), (&json!("echo"), &json!("tools/call")));
        assert!(call["duration_us"].as_u64() >= call["upstream_us"].as_u64(), "{era}: {call}");
        assert!(call["request_bytes"].as_u64() > Some(20), "{era}: {call}");
        assert!(call["response_bytes"].as_u64() > Some(20), "{era}: {call}");
        assert_eq!(now[6]["method"], "tools/list", "{era}");
        assert!(now[5]["items"].as_u64() > Some(4), "{era}");
    }
    let text = std::fs::read_to_string(gateway.folder().join("audit.jsonl")).unwrap();
    for secret in ["hunter2", KEY, &sessions[0]] {
        assert!(!text.contains(secret), "{secret}");
    }
    let status = gateway.status().await;
    assert_eq!(
        (&status["audit"]["last_seq"], &status["audit"]["dropped"]),
        (&json!(14), &json!(0))
    );
    assert_eq!(
        status["audit"]["last_hash"],
        json_lines(&gateway.folder().join("audit.jsonl"))[13]["hash"]
    );
}

#[tokio::test]
async fn refused_keys_profiles_rates_and_messages_are_recorded() {
    let upstream = Upstream::modern().await;
    let ann = client_table("ann", KEY, "profiles = [\"p\"]\nrate = \"3/h\"");
    let gateway = Gateway::with("s", upstream.http())
        .toml("[profiles.p]\n[profiles.q]\n")
        .toml(&ann)
        .toml(AUDIT)
        .start()
        .await;
    gateway.modern().call("s__echo", json!({})).await;
    gateway.modern().key("wrong-key").call("s__echo", json!({})).await;
    gateway.modern().key(KEY).at("/mcp/q").call("s__echo", json!({})).await;
    let ann = gateway.modern().key(KEY).at("/mcp/p");
    ann.ask("tools/list", json!({})).body("{").send().await.said().await;
    let lost = ann.ask_call("s__echo", json!({})).header("mcp-name", "other");
    lost.send().await.said().await;
    let plain = gateway.plain().key(KEY).at("/mcp/p");
    plain.ask("tools/list", json!({})).header("mcp-session-id", "gone").send().await.said().await;
    ann.call("s__echo", json!({})).await;
    let now = next_records(&gateway, 0, 7).await;
    let names = ["event", "decision", "principal", "profile", "check", "reason", "rule", "tool"];
    let told: Vec<_> = now.iter().map(|record| fields(record, &names)).collect();
    let expected = [
        ["request", "deny", "-", "default", "key", "key_missing", "-", "-"],
        ["request", "deny", "-", "default", "key", "key_unknown", "-", "-"],
        ["request", "deny", "ann", "q", "profile", "unknown_endpoint", "-", "-"],
        ["request", "deny", "ann", "p", "protocol", "parse_error", "-", "-"],
        ["request", "deny", "ann", "p", "headers", "header_mismatch", "-", "s__echo"],
        ["request", "deny", "ann", "p", "session", "session_lost", "-", "-"],
        ["request", "deny", "ann", "p", "limit", "over_limit", "client:ann", "s__echo"],
    ];
    assert_eq!(told, expected);
    let kinds: Vec<_> =
        now[..3].iter().map(|record| record["credential"]["kind"].clone()).collect();
    assert_eq!(kinds, ["none", "key", "key"]);
    let text = std::fs::read_to_string(gateway.folder().join("audit.jsonl")).unwrap();
    assert!(!text.contains("wrong-key") && !text.contains("gone"));
    assert_eq!(upstream.calls().len(), 0);
}

#[tokio::test]
async fn a_cancelled_call_is_recorded() {
    let upstream = Upstream::modern().await;
    upstream.does("slow", |_| vec![Step::Never]);
    let gateway = auditing(&upstream, AUDIT).start().await;
    let client = gateway.modern().key(KEY);
    let call = client.ask_call("s__slow", json!({})).send();
    let heard = upstream.heard("tools/call", 1);
    tokio::select! {
        _ = call => panic!("it never ends"),
        _ = heard => {}
    }
    client.disconnect().await;
    let now = next_records(&gateway, 0, 1).await;
    let names = ["decision", "outcome", "tool"];
    assert_eq!(fields(&now[0], &names), ["allow", "cancelled", "s__slow"]);
}

#[tokio::test]
async fn values_of_arguments_are_redacted_and_bounded() {
    let upstream = Upstream::modern().await;
    let audit = "arguments = true\narguments_size = \"64B\"\nredact_values = ['\\d{4}-\\d{4}']\n";
    let gateway = auditing(&upstream, &format!("{AUDIT}{audit}")).start().await;
    let client = gateway.modern().key(KEY);
    let long: String = (0..800).map(|n| format!("{n} ")).collect();
    client.call("s__echo", json!({ "password": "hunter2", "card": "1234-5678", "n": 1 })).await;
    client.call("s__echo", json!({ "long": long, "last": 7 })).await;
    let now = next_records(&gateway, 0, 2).await;
    let expected = json!({ "password": "[redacted]", "card": "[redacted]", "n": 1 });
    assert_eq!(now[0]["arguments"], expected);
    let told = now[1]["arguments"]["long"].as_str().unwrap();
    assert!(told.starts_with("0 1 2") && told.contains("… 3090 bytes, SHA-256 "), "{told}");
    assert!(told.ends_with("799 ") && told.len() < 300, "{told}");
    assert_eq!(now[1]["arguments"]["last"], 7);
    assert!(now[1]["arguments_blake2b"].is_string());
}

#[tokio::test]
async fn a_file_rotates_and_a_bounded_number_is_kept() {
    let upstream = Upstream::modern().await;
    let audit = "[audit]\nfile = \"audit.jsonl\"\nrotate_size = \"1KiB\"\nkeep = 2\n";
    let builder = |audit: &str| auditing(&upstream, audit);
    let gateway = builder(audit).start().await;
    let path = gateway.folder().join("audit.jsonl");
    let numbered = |number| PathBuf::from(format!("{}.{number}", path.display()));
    let client = gateway.modern().key(KEY);
    for _ in 0..8 {
        client.call("s__echo", json!({})).await;
    }
    until(|| json_lines(&path).last().is_some_and(|it| it["seq"] == 8)).await;
    assert!(numbered(2).exists() && !numbered(3).exists());
    let aged = "[audit]\nfile = \"audit.jsonl\"\nrotate_every = \"1ms\"\nrotate_size = \"off\"\n";
    assert_eq!(gateway.reload(builder(aged)).await, ReloadOutcome::Applied);
    client.call("s__echo", json!({})).await;
    until(|| json_lines(&path).last().is_some_and(|it| it["seq"] == 10)).await;
    assert_eq!(json_lines(&path).len(), 1, "the file was old");
    assert!(numbered(3).exists(), "more are kept");
}

#[tokio::test]
async fn a_full_disk_drops_records_and_counts_them() {
    let upstream = Upstream::modern().await;
    let full = "[audit]\nfile = \"/dev/full\"\nchain = true\nqueue_size = \"4KiB\"\n";
    let gateway = auditing(&upstream, full).start().await;
    let client = gateway.modern().key(KEY);
    for _ in 0..30 {
        assert!(!client.call("s__echo", json!({})).await.is_error(), "no call waits or fails");
    }
    let dropped = counted(&gateway.metrics().await, "dropped");
    assert!((10..30).contains(&dropped), "{dropped}");
    let status = gateway.status().await;
    assert!(status["audit"]["error"].as_str().unwrap().contains("No space left"), "{status}");
    assert_eq!(status["audit"]["dropped"], dropped);
    assert_eq!(gateway.reload(auditing(&upstream, AUDIT)).await, ReloadOutcome::Applied);
    let path = gateway.folder().join("audit.jsonl");
    until(|| json_lines(&path).iter().any(|record| record["event"] == "lost")).await;
    client.call("s__echo", json!({})).await;
    until(|| json_lines(&path).last().is_some_and(|record| record["event"] == "call")).await;
    let all = json_lines(&path);
    let calls = all.iter().filter(|record| record["event"] == "call").count() as u64;
    let lost: u64 = all.iter().filter_map(|record| record["records"].as_u64()).sum();
    assert_eq!((calls + lost, lost), (31, dropped));
    assert_eq!(gateway.status().await["audit"]["error"], Value::Null);
}

#[tokio::test]
async fn a_reload_changes_the_file_and_loses_nothing() {
    let upstream = Upstream::modern().await;
    let gateway = auditing(&upstream, AUDIT).start().await;
    let (first, second) = (gateway.folder().join("audit.jsonl"), gateway.folder().join("b.jsonl"));
    let client = gateway.modern().key(KEY);
    let mut sent = 0;
    for round in 0..6 {
        let file = if round % 2 == 0 { "b.jsonl" } else { "audit.jsonl" };
        let calls = join_all((0..20).map(|_| client.call("s__echo", json!({}))));
        let audit = format!("[audit]\nfile = \"{file}\"\nchain = true\n");
        let (outcome, _) = tokio::join!(gateway.reload(auditing(&upstream, &audit)), calls);
        assert_eq!(outcome, ReloadOutcome::Applied);
        sent += 20;
    }
    let calls =
        |path: &Path| json_lines(path).iter().filter(|record| record["event"] == "call").count();
    until(|| calls(&first) + calls(&second) == sent).await;
    for path in [&first, &second] {
        assert_eq!(chain_faults(path), "");
    }
    assert_eq!(gateway.reload(auditing(&upstream, "")).await, ReloadOutcome::Applied);
    client.call("s__echo", json!({})).await;
    assert_eq!(gateway.status().await["audit"], Value::Null);
}

#[tokio::test]
async fn a_gateway_for_one_client_keeps_standard_output_for_it() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).for_a_host().start().await;
    let stdout = Gateway::with("s", upstream.http()).toml("[audit]\nstdout = true\n");
    assert_eq!(gateway.reload(stdout).await, ReloadOutcome::Rejected);
}

fn chain_faults(path: &Path) -> String {
    let mut verifier = LogVerifier::new(ChainMode::Plain);
    let mut faults = String::new();
    let text = std::fs::read(path).unwrap();
    let tell = |line, fault| writeln!(faults, "{line}: {fault}").unwrap();
    verifier.read_file(text.as_slice(), tell).unwrap();
    faults
}
