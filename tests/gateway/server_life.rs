//! Servers that start late, stop early, crash and come back.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::gateway::of;
use crate::support::upstream::{Era, Received};
use crate::support::{Gateway, Step, Upstream};

#[tokio::test]
async fn a_lazy_server_starts_with_the_first_list() {
    for upstream in Upstream::both().await {
        let lines = upstream.stdio() + "start = \"lazy\"";
        let gateway = Gateway::with("s", lines).example("clock").start().await;
        assert_eq!(
            (gateway.server("s").await["state"].clone(), upstream.starts()),
            (json!("idle"), 0)
        );
        let first = gateway.modern().tool_names().await;
        assert!(first.iter().any(|name| name == "s__echo"), "it is waited for: {first:?}");
        assert_eq!(gateway.modern().call("s__echo", json!({})).await.text(), "{}");
        assert_eq!(upstream.starts(), 1);
    }
}

#[tokio::test]
async fn an_idle_child_is_stopped_and_started_again_by_a_call_with_its_list_kept() {
    for upstream in Upstream::both().await {
        let lines = upstream.stdio() + "idle_stop = \"200ms\"";
        let gateway = Gateway::with("s", lines).start().await;
        let names = gateway.modern().tool_names().await;
        for n in 1..=2 {
            let at_rest = |status: &Value| {
                let server = of(status, "s");
                server["state"] == "idle" && server["pid"].is_null()
            };
            gateway.wait_for(at_rest).await;
            assert_eq!(gateway.server("s").await["last_error"], json!(null));
            assert_eq!(gateway.modern().tool_names().await, names, "the list stays");
            assert_eq!(upstream.starts(), n, "listing does not start it");
            assert_eq!(gateway.modern().call("s__echo", json!({})).await.text(), "{}");
            assert_eq!(upstream.starts(), n + 1);
        }
    }
}

#[tokio::test]
async fn a_call_keeps_a_child_from_being_idle() {
    let upstream = Upstream::legacy().await;
    upstream.does("long", |_| {
        vec![Step::Pause(std::time::Duration::from_millis(600)), Step::text("done")]
    });
    let gateway = Gateway::with("s", upstream.stdio() + "idle_stop = \"100ms\"").start().await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 5).await;
    assert_eq!(gateway.modern().call("s__long", json!({})).await.text(), "done");
}

#[tokio::test]
async fn a_child_that_crashes_comes_back_with_its_list_kept() {
    for upstream in Upstream::both().await {
        let gateway = Gateway::with("s", upstream.stdio()).start().await;
        let client = gateway.modern();
        let call = client.call("s__hold", json!({}));
        let crash = async {
            upstream.heard("tools/call", 1).await;
            upstream.crash();
        };
        let (said, ()) = tokio::join!(call, crash);
        assert!(said.is_error() && said.text().contains("server s"), "{said:?}");
        assert_eq!(client.tool_names().await.len(), 4, "the list stays while it is down");
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "a call waits for it");
        let server = gateway.server("s").await;
        assert_eq!((&server["restarts"], &server["state"]), (&json!(1), &json!("ready")));
        assert!(server["last_error"]["message"].is_string());
    }
}

#[tokio::test]
async fn a_child_that_keeps_ending_is_marked_failed_and_the_others_work() {
    let lines = "command = \"bash\"\nargs = [\"-c\", \"echo no such luck >&2; exit 3\"]\nmax_restarts = 1\n";
    let gateway = Gateway::with("bad", lines).example("clock").start_at_once().await;
    gateway.ready("clock").await;
    gateway.wait_for(|status| status["servers"][0]["state"] == "failed").await;
    let error = gateway.server("bad").await["last_error"]["message"].to_string();
    assert!(error.contains("no such luck"), "{error}");
    assert!(!gateway.modern().call("clock__now", json!({})).await.is_error());
    let ready = gateway.admin("/readyz").await;
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)));
    assert!(ready.json()["reasons"][0].as_str().unwrap().starts_with("bad: failed"));
}

#[tokio::test]
async fn a_program_that_is_not_there_says_so() {
    let gateway = Gateway::with("s", "command = \"no-such-program-anywhere\"").start().await;
    let error = gateway.server("s").await["last_error"]["message"].to_string();
    assert!(
        error.contains("no-such-program-anywhere") || error.contains("could not be started"),
        "{error}"
    );
    assert!(gateway.modern().tools().await.is_empty());
}

#[tokio::test]
async fn a_server_that_prints_text_and_never_a_message_is_shown_with_its_first_line() {
    for line in ["Usage: server --port PORT", r#"{"level":"info","msg":"Usage"}"#] {
        let script = format!("echo '{line}'; echo later; exec sleep 100");
        let lines = format!(
            "command = \"bash\"\nargs = [\"-c\", {script:?}]\nstart_timeout = \"1s\"\nstop_timeout = \"100ms\"\n"
        );
        let gateway = Gateway::with("s", lines).start().await;
        let server = gateway.server("s").await;
        let error = server["last_error"]["message"].as_str().unwrap();
        let line = line.replace('"', "\\\"");
        let expected =
            format!("no response within 1s; it printed text instead of a message: {line}");
        assert!(error.contains(&expected), "{error}");
        let said = gateway.modern().call("s__echo", json!({})).await;
        assert!(!said.body.contains("Usage"), "{said:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_down_at_first_joins_when_it_comes() {
    // A port that is certainly free at first, and then used.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let lines = format!("url = \"http://{address}/mcp\"");
    let gateway = Gateway::with("late", lines).example("clock").start().await;
    let client = gateway.modern();
    let mut stream = client.listen().await;
    assert!(client.tool_names().await.iter().all(|name| name.starts_with("clock__")));
    assert_eq!(gateway.admin("/readyz").await.status, 200, "the others work");
    let late = Upstream::at(Era::Modern, address).await;
    let change = stream.message().await.unwrap();
    assert_eq!(change["method"], "notifications/tools/list_changed");
    assert_eq!(client.tool_names().await[0], "late__echo", "in file order");
    assert_eq!(client.call("late__echo", json!({})).await.text(), "{}");
    assert_eq!(late.calls().len(), 1);
}

#[tokio::test]
async fn an_http_server_that_goes_away_and_comes_back_is_found_again() {
    for era in [Era::Modern, Era::Legacy] {
        let first = Upstream::start(era).await;
        let gateway = Gateway::with("s", first.http()).start().await;
        let client = gateway.modern();
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        let address = first.http_address();
        drop(first);
        let said = client.call("s__echo", json!({})).await;
        assert!(said.is_error(), "{era:?}: {said:?}");
        assert_eq!(client.tool_names().await.len(), 4, "the list stays");
        let _second = Upstream::at(era, address).await;
        gateway.ready("s").await;
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era:?}");
    }
}

#[tokio::test]
async fn a_server_that_changes_its_era_is_asked_again() {
    let first = Upstream::modern().await;
    let gateway = Gateway::with("s", first.http()).start().await;
    let address = first.http_address();
    drop(first);
    let second = Upstream::at(Era::Legacy, address).await;
    let client = gateway.modern();
    client.call("s__echo", json!({})).await;
    gateway.wait_for(|status| status["servers"][0]["era"] == "legacy").await;
    gateway.ready("s").await;
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(second.all("initialize").len(), 2, "the gateway's session and the client's");
}

#[tokio::test]
async fn a_silent_server_holds_nothing_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let lines = format!("url = \"http://{}/mcp\"", silent.local_addr().unwrap());
    let gateway = Gateway::with("silent", lines)
        .server("mute", "command = \"sleep\"\nargs = [\"60\"]\nstop_timeout = \"100ms\"")
        .example("notes")
        .start_at_once()
        .await;
    gateway.ready("notes").await;
    for (era, client) in gateway.both().await {
        assert!(client.tool_names().await.iter().all(|name| name.starts_with("notes__")), "{era}");
        assert!(!client.call("notes__list", json!({})).await.is_error(), "{era}");
    }
    gateway.stop().await;
}

fn session_of(received: &Received) -> String {
    received.header("mcp-session-id").expect("a session").to_owned()
}

#[tokio::test]
async fn stopping_closes_sessions_of_servers() {
    let (http, child) = (Upstream::legacy().await, Upstream::legacy().await);
    let gateway = Gateway::with("h", http.http()).server("s", child.stdio()).start().await;
    let pid = gateway.server("s").await["pid"].as_u64().unwrap();
    gateway.stop().await;
    // One, or a second one on a busy machine, where the first start can take too long.
    let closed: BTreeSet<_> = http.all("DELETE").iter().map(session_of).collect();
    let opened = http.all("initialize").len();
    assert!(opened > 0 && closed.len() == opened, "opened: {opened}, closed: {closed:?}");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the child is gone: {stat}");
}

#[tokio::test]
async fn a_child_lives_on_under_every_setting_that_is_read_with_each_call() {
    let upstream = Upstream::modern().await;
    let with = |line: &str| Gateway::with("s", format!("{}{line}\n", upstream.stdio()));
    let gateway = with("").start().await;
    let pid = async || gateway.server("s").await["pid"].as_u64().expect("a child process");
    let first = pid().await;
    let starts = upstream.starts();
    // Each setting that `snapshot/diff.rs` copies from the old server for the comparison.
    for line in [
        "timeout = \"59s\"",
        "max_timeout = \"599s\"",
        "rate = \"1000/s\"",
        "in_flight = 7",
        "queue = 7",
        "queue_timeout = \"7s\"",
        "tools.deny = [\"count\"]",
        "resource_vars = { table = \"x\" }",
        "read_cache = \"7MiB\"",
    ] {
        for lines in [line, ""] {
            assert_eq!(format!("{:?}", gateway.reload(with(lines)).await), "Applied", "{line}");
            assert_eq!((pid().await, upstream.starts()), (first, starts), "{line}");
            assert_eq!(gateway.modern().call("s__echo", json!({})).await.text(), "{}", "{line}");
        }
    }
    gateway.reload(with("env = { OTHER = \"1\" }")).await;
    gateway.ready("s").await;
    assert_ne!(pid().await, first, "what a process depends on replaces it");
}
