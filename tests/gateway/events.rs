//! Lifecycle events to a webhook, a program and a file: their content and their order.

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::gateway::Builder;
use crate::support::webhook::{
    ENDLESS, SILENT, Webhook, down_address, event_section, own_certificate,
};
use crate::support::{Gateway, Step, Upstream, client_table, json_lines, until, until_async};

fn sending(upstream: &Upstream, events: &str) -> Builder {
    Gateway::with("s", upstream.http()).toml(events)
}

fn types(events: &[Value]) -> Vec<String> {
    let name = |event: &Value| event["type"].as_str().unwrap().replace("trunkline.", "");
    events.iter().map(name).collect()
}

async fn count(gateway: &Gateway, outcome: &str) -> u64 {
    let metrics = gateway.metrics().await;
    let series = format!("trunkline_events_total{{outcome=\"{outcome}\"}} ");
    let found = metrics.lines().find_map(|line| line.strip_prefix(&series));
    found.map_or(0, |count| count.parse().unwrap())
}

/// Waits until an event was dropped.
async fn given_up(gateway: &Gateway) {
    until_async(async || count(gateway, "given_up").await == 1).await;
}

#[tokio::test]
async fn a_file_gets_a_line_for_each_event_and_only_its_owner_can_read_it() {
    let upstream = Upstream::modern().await;
    let gateway = sending(&upstream, "[events]\nfile = \"events.jsonl\"").start().await;
    let path = gateway.folder().join("events.jsonl");
    until(|| types(&json_lines(&path)).contains(&"list.changed".to_owned())).await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let events = json_lines(&path);
    let ready = events.iter().find(|event| event["type"] == "trunkline.server.ready").unwrap();
    assert_eq!(ready["specversion"], "1.0");
    assert_eq!((&ready["source"], &ready["subject"]), (&json!("trunkline"), &json!("s")));
    let data = json!({ "server": "s", "protocol_version": "2026-07-28", "tools": 4 });
    assert_eq!(ready["data"], data);
    let changed = events.iter().find(|event| event["type"] == "trunkline.list.changed").unwrap();
    assert_eq!(changed["data"], json!({ "lists": ["tools"], "servers": ["s"] }));
    // Rotated away: the next event begins a new file.
    std::fs::rename(&path, path.with_extension("old")).unwrap();
    assert_eq!(gateway.reload_text("x = 1").await, ReloadOutcome::Rejected);
    until(|| types(&json_lines(&path)) == ["config.rejected"]).await;
    assert_eq!(json_lines(&path)[0]["data"], json!({ "faults": 1, "losses": 0 }));
}

#[tokio::test]
async fn a_server_is_lost_and_ready_again_and_failed() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio())
        .server("f", "command = \"false\"\nmax_restarts = 1")
        .server("g", "command = \"no-such-program-anywhere\"")
        .toml("[events]\nfile = \"events.jsonl\"\ntypes = [\"server.*\"]")
        .start()
        .await;
    let path = gateway.folder().join("events.jsonl");
    let of = |name: &str| {
        let mut events = json_lines(&path);
        events.retain(|event| event["subject"] == name);
        types(&events)
    };
    until(|| of("f") == ["server.lost", "server.failed"]).await;
    until(|| of("g") == ["server.failed"]).await;
    upstream.crash();
    until(|| of("s") == ["server.ready", "server.lost", "server.ready"]).await;
}

#[tokio::test]
async fn a_webhook_gets_every_event_in_order_although_it_fails_at_first() {
    let upstream = Upstream::legacy().await;
    upstream.does("no", |_| vec![Step::Result(json!({ "content": [], "isError": true }))]);
    let mut hook = Webhook::start().await;
    hook.answers(&[500, 302, 429]);
    let events = hook.section() + "types = [\"*\"]\nsource = \"urn:test\"\n";
    let keyed = client_table("ann", "ann-key", "");
    let gateway = sending(&upstream, &(keyed + &events)).start().await;
    let first = hook.next().await;
    assert_eq!(
        (&first["type"], &first["source"]),
        (&json!("trunkline.server.ready"), &json!("urn:test"))
    );
    for _ in 0..3 {
        assert_eq!(hook.next().await, first, "it is sent again");
    }
    let [_, (_, legacy)] =
        gateway.both_as("ann-key", "/mcp").await.map(|(era, client)| (era, client));
    let opened = hook.next_of("client.opened").await;
    assert_eq!((&opened["subject"], &opened["data"]["client"]), (&json!("ann"), &json!("ann")));
    assert_eq!(opened["data"]["protocol_version"], "2025-11-25");
    legacy.call("s__no", json!({})).await;
    let begun = hook.next_of("call.begun").await;
    assert_eq!(
        (&begun["data"]["client"], &begun["data"]["tool"], &begun["data"]["method"]),
        (&json!("ann"), &json!("s__no"), &json!("tools/call"))
    );
    let ended = hook.next().await;
    assert_eq!(ended["type"], "trunkline.call.ended");
    assert_eq!(ended["data"]["call"], begun["data"]["call"]);
    assert_eq!(
        (&ended["data"]["server"], &ended["data"]["outcome"]),
        (&json!("s"), &json!("tool_error"))
    );
    assert!(ended["data"]["duration_ms"].is_u64());
    legacy.http("DELETE", "/mcp").of_session().send().await;
    assert!(hook.next_of("client.closed").await["data"]["lasted_ms"].is_u64());
    assert!(count(&gateway, "delivered").await >= 5);
}

#[tokio::test]
async fn events_wait_for_a_webhook_that_is_down_and_none_delays_a_call() {
    let upstream = Upstream::modern().await;
    let down = down_address();
    let events = event_section("http", down.local_addr().unwrap());
    let gateway = sending(&upstream, &events).start().await;
    assert!(!gateway.modern().call("s__echo", json!({})).await.is_error());
    let mut hook = Webhook::on(down);
    assert_eq!(hook.next().await["type"], "trunkline.server.ready");
}

#[tokio::test]
async fn a_full_queue_drops_events_of_calls_first_and_counts_them() {
    let upstream = Upstream::modern().await;
    let down = down_address();
    let events = event_section("http", down.local_addr().unwrap());
    let events = events + "types = [\"*\"]\nqueue_size = \"4KiB\"\n";
    let gateway = sending(&upstream, &events).start().await;
    for _ in 0..30 {
        gateway.modern().call("s__echo", json!({})).await;
    }
    let dropped = count(&gateway, "dropped").await;
    assert!(dropped > 30, "{dropped} of some 60");
    let mut hook = Webhook::on(down);
    let first = hook.next().await;
    assert_eq!(first["type"], "trunkline.server.ready", "it is older than all that were dropped");
    gateway.reload_text("x = 1").await;
    let mut bytes = first.to_string().len();
    loop {
        let next = hook.next().await;
        if next["type"] == "trunkline.config.rejected" {
            break;
        }
        bytes += next.to_string().len();
    }
    assert!(bytes <= 4096, "{bytes}: no more than the queue");
}

#[tokio::test]
async fn an_event_is_given_up_when_its_time_is_over() {
    let upstream = Upstream::modern().await;
    for (statuses, more) in [
        (&[500; 50][..], "retry_for = \"10ms\""),
        (&[SILENT; 50], "retry_for = \"10ms\"\ntimeout = \"50ms\""),
    ] {
        let hook = Webhook::start().await;
        hook.answers(statuses);
        let events = hook.section() + "types = [\"server.ready\"]\n" + more;
        let gateway = sending(&upstream, &events).start().await;
        given_up(&gateway).await;
        assert_eq!(count(&gateway, "delivered").await, 0, "{more}");
    }
}

#[tokio::test]
async fn an_event_is_delivered_by_the_status_although_the_body_never_ends() {
    let upstream = Upstream::modern().await;
    let mut hook = Webhook::start().await;
    hook.answers(&[ENDLESS; 2]);
    let events = hook.section() + "timeout = \"400ms\"\n";
    let gateway = sending(&upstream, &events).start().await;
    let first = hook.next().await;
    assert_ne!(hook.next().await, first, "it is not sent again");
    gateway.stop().await;
}

#[tokio::test]
async fn a_webhook_with_an_untrusted_certificate_gets_nothing() {
    let upstream = Upstream::modern().await;
    let folder = tempfile::tempdir().unwrap();
    let mut hook = Webhook::with_tls(own_certificate(folder.path()).0);
    let events = hook.section() + "types = [\"server.ready\"]\nretry_for = \"10ms\"\n";
    let gateway = sending(&upstream, &events).start().await;
    given_up(&gateway).await;
    assert!(hook.next().now_or_never().is_none());
}

#[tokio::test]
async fn events_that_were_not_delivered_are_sent_after_a_restart() {
    let upstream = Upstream::modern().await;
    let mut hook = Webhook::start().await;
    hook.answers(&[503; 50]);
    let events = hook.section() + "types = [\"server.ready\"]\nqueue_dir = \"queue\"\n";
    let gateway = sending(&upstream, &events).gateway("drain = \"0s\"").start().await;
    let first = hook.next().await;
    let folder = gateway.stop().await;
    let queue = folder.path().join("queue/events.queue");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.path().join("queue")), mode(&queue)), (0o700, 0o600));
    assert_eq!(json_lines(&queue), std::slice::from_ref(&first));
    hook.forget();
    hook.answers(&[]);
    let gateway = sending(&upstream, &events).in_folder(folder).start().await;
    assert_eq!(hook.next().await, first, "the same as before, with the same id");
    let next = hook.next().await;
    assert_eq!(next["type"], first["type"]);
    assert_ne!(next["id"], first["id"]);
    let folder = gateway.stop().await;
    assert_eq!(json_lines(&folder.path().join("queue/events.queue")), Vec::<Value>::new());
}

#[tokio::test]
async fn a_program_reads_events_from_its_standard_input_and_is_started_again() {
    let upstream = Upstream::modern().await;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    let script = folder.path().join("reader.sh");
    let text =
        format!("read -r one; read -r two; printf '%s\\n%s\\n' \"$one\" \"$two\" >> {out:?}");
    std::fs::write(&script, text).unwrap();
    let events = format!("[events]\ncommand = \"sh\"\nargs = [{script:?}]\n");
    let gateway = sending(&upstream, &events).start().await;
    until(|| types(&json_lines(&out)) == ["server.ready", "list.changed"]).await;
    for _ in 0..3 {
        gateway.reload_text("x = 1").await;
    }
    until(|| types(&json_lines(&out)).contains(&"config.rejected".to_owned())).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_reload_changes_the_receiver_and_the_types_and_keeps_the_queue() {
    let upstream = Upstream::modern().await;
    let mut hook = Webhook::start().await;
    hook.answers(&[503; 500]);
    let events = hook.section() + "types = [\"server.ready\"]\n";
    let gateway = sending(&upstream, &events).start().await;
    hook.next().await;
    let file = "[events]\nfile = \"events.jsonl\"\ntypes = [\"config.*\"]";
    assert_eq!(gateway.reload(sending(&upstream, file)).await, ReloadOutcome::Applied);
    let path = gateway.folder().join("events.jsonl");
    until(|| types(&json_lines(&path)) == ["server.ready", "config.applied"]).await;
    let applied = json!({ "kept": 1, "replaced": 0, "added": 0, "removed": 0 });
    assert_eq!(json_lines(&path)[1]["data"], applied);
    assert_eq!(gateway.reload(sending(&upstream, "")).await, ReloadOutcome::Applied);
    gateway.reload_text("x = 1").await;
    let delivered = count(&gateway, "delivered").await;
    gateway.stop().await;
    assert_eq!(delivered, 2, "events are off");
}

#[tokio::test]
async fn events_hold_no_arguments_results_sessions_or_secrets() {
    let upstream = Upstream::legacy().await;
    upstream.does("leak", |_| {
        vec![Step::Result(json!({ "content": [{ "type": "text", "text": "hush-result" }] }))]
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    let lines = upstream.http() + "headers = { Authorization = \"Bearer ${env:TOKEN}\" }";
    let gateway = Gateway::with("s", lines)
        .variable("TOKEN", "hush-token")
        .toml(&client_table("ann", "hush-key", ""))
        .toml(&format!("[events]\nfile = {path:?}\ntypes = [\"*\"]"))
        .start()
        .await;
    let mut sessions = Vec::new();
    for (_, client) in gateway.both_as("hush-key", "/mcp").await {
        client.call("s__leak", json!({ "a": "hush-argument" })).await;
        client.read_resource("file:///hush-uri").await;
        if !client.is_modern() {
            sessions.push(client.session().to_owned());
        }
    }
    upstream.crash();
    gateway.stop().await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.matches("call.ended").count() >= 4, "{text}");
    assert!(!text.contains("hush") && !text.contains(&sessions[0]), "{text}");
}

#[tokio::test]
async fn without_a_receiver_there_are_no_events() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    gateway.modern().call("s__echo", json!({})).await;
    assert!(!gateway.metrics().await.contains("trunkline_events_total{"));
}
