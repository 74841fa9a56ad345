//! Servers that an operator disables and enables.

use std::path::Path;
use std::pin::pin;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use trunkline::telemetry::metrics::ReloadOutcome;

use super::resources::{get, post};
use super::{code, send, with_roles};
use crate::support::{Gateway, Upstream, client_table, every_kind, until, within};

async fn act(gateway: &Gateway, server: &str, action: &str) -> Value {
    let said = post(gateway, &format!("/servers/{server}/{action}"), &json!({})).await;
    assert_eq!(said.status, 200, "{action}: {said:?}");
    said.json()
}

fn findings(status: &Value) -> Vec<String> {
    let all = status["findings"].as_array().unwrap().iter();
    all.map(|it| format!("{}: {} ({})", it["subject"], it["text"], it["cure"])).collect()
}

#[tokio::test]
async fn a_disabled_server_leaves_the_catalog_and_comes_back_when_enabled() {
    for kind in every_kind().await {
        let gateway = Gateway::with("s", &kind.lines).start().await;
        let client = gateway.modern();
        let before = client.tool_names().await;
        let mut stream = client.listen().await;
        let disabled = act(&gateway, "s", "disable").await;
        assert_eq!(disabled["state"], "disabled", "{}", kind.name);
        assert_eq!((&disabled["tools"], &disabled["pid"]), (&json!(0), &Value::Null));
        let by = disabled["disabled"]["by"].as_str().unwrap();
        assert!(by.starts_with("uid "), "{disabled}");
        assert!(disabled["disabled"]["at"].is_string() && disabled["since"].is_string());
        assert_eq!(disabled["disabled"]["survives_restart"], false, "there is no state_dir");
        let told = stream.message().await.unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed", "{}", kind.name);
        assert_eq!(client.tool_names().await, Vec::<String>::new(), "{}", kind.name);
        // Decision 81: like a name that has left the list, and like an unknown one.
        let said = client.call("s__echo", json!({})).await;
        assert_eq!(said.text(), "the tool s__echo is no longer available: list the tools again");
        assert_eq!(client.call("s__never", json!({})).await.code(), -32602);
        let status = gateway.status().await;
        let found = findings(&status);
        assert!(found[0].contains("it is disabled by uid "), "{found:?}");
        assert!(found[0].contains("gateway.state_dir is not set"), "{found:?}");
        assert!(found[0].contains("trunkline enable s"), "{found:?}");
        let metrics = gateway.metrics().await;
        for series in
            ["trunkline_server_disabled{server=\"s\"} 1", "trunkline_server_up{server=\"s\"} 0"]
        {
            assert!(metrics.contains(series), "{}: {metrics}", kind.name);
        }
        let ready = gateway.admin("/readyz").await;
        assert_eq!((ready.status, &ready.json()["reasons"]), (200, &json!([])));
        let enabled = act(&gateway, "s", "enable").await;
        assert_eq!((&enabled["state"], &enabled["disabled"]), (&json!("ready"), &Value::Null));
        assert_eq!(client.tool_names().await, before, "{}", kind.name);
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        let metrics = gateway.metrics().await;
        assert!(!metrics.contains("trunkline_server_disabled{"), "{metrics}");
        assert!(metrics.contains("trunkline_server_up{server=\"s\"} 1"), "{metrics}");
        assert_eq!(findings(&gateway.status().await), Vec::<String>::new());
    }
}

#[tokio::test]
async fn calls_in_flight_finish_before_a_disabled_server_ends() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.modern();
    let pid = get(&gateway, "/servers/s").await["pid"].as_i64().unwrap();
    let is_running = || std::path::Path::new(&format!("/proc/{pid}")).exists();
    let call = client.call("s__hold", json!({}));
    let disable = async {
        upstream.heard("tools/call", 1).await;
        let disabled = act(&gateway, "s", "disable").await;
        assert_eq!(disabled["in_flight"], 1, "{disabled}");
        assert!(is_running());
        upstream.release(1);
    };
    let (held, ()) = tokio::join!(call, disable);
    assert_eq!(held.text(), "held");
    within(async {
        while is_running() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_disabled_server_is_neither_refreshed_nor_restarted_nor_called() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http())).start().await;
    let operator = gateway.operator();
    for action in ["disable", "disable"] {
        act(&gateway, "s", action).await;
    }
    let requests = upstream.received().len();
    for action in ["restart", "restart?wait=false", "refresh"] {
        let said = send(&operator, "POST", &format!("/api/v1/servers/s/{action}")).await;
        assert_eq!(code(&said, 409), "server_disabled", "{action}");
    }
    let page = send(&operator, "POST", "/servers/s/refresh").await;
    assert_eq!(page.status, 503, "{page:?}");
    for action in ["disable", "enable"] {
        let said = send(&operator, "POST", &format!("/api/v1/servers/x/{action}")).await;
        assert_eq!(code(&said, 404), "unknown_server", "{action}");
    }
    let said = send(&operator, "POST", "/api/v1/servers/s/enable?wait=maybe").await;
    assert_eq!(code(&said, 400), "invalid_request");
    let why = post(&gateway, "/why", &json!({ "client": "plain", "tool": "s__echo" })).await;
    let text = why.body;
    assert!(text.contains("an operator has disabled the server s"), "{text}");
    assert_eq!(upstream.received().len(), requests, "nothing is sent to it");
    let enabled = post(&gateway, "/servers/s/enable?wait=false", &json!({})).await;
    assert_eq!(enabled.status, 200, "{enabled:?}");
    gateway.ready("s").await;
}

#[tokio::test]
async fn a_reload_keeps_a_server_disabled_and_its_removal_forgets_it() {
    let upstream = Upstream::modern().await;
    let other = Upstream::modern().await;
    let build = |lines: &str| {
        Gateway::with("s", upstream.http() + lines)
            .server("other", other.http())
            .toml(&client_table("ops", "ops-key", "role = \"operator\""))
    };
    let gateway = build("").start().await;
    let remote = gateway.remote_operator().key("ops-key");
    let said = send(&remote, "POST", "/api/v1/servers/s/disable").await;
    assert_eq!(said.json()["disabled"]["by"], "client ops", "{said:?}");
    let heard = upstream.received().len();
    // Neither a setting that needs no restart nor one that does starts it.
    for lines in ["timeout = \"7s\"\n", "start_timeout = \"9s\"\n"] {
        gateway.reload(build(lines)).await;
        let server = gateway.server("s").await;
        assert_eq!(
            (&server["state"], &server["disabled"]["by"]),
            (&json!("disabled"), &json!("client ops"))
        );
    }
    assert_eq!(upstream.received().len(), heard, "it was not started");
    let without = Gateway::with("other", other.http()).toml(&client_table(
        "ops",
        "ops-key",
        "role = \"operator\"",
    ));
    gateway.reload(without).await;
    gateway.reload(build("")).await;
    gateway.ready("s").await;
}

#[tokio::test]
async fn a_disabled_server_stays_so_over_a_restart_with_a_state_dir() {
    let upstream = Upstream::modern().await;
    let build = || Gateway::with("s", upstream.http()).gateway("state_dir = \"state\"");
    let gateway = build().start().await;
    let disabled = act(&gateway, "s", "disable").await;
    assert_eq!(disabled["disabled"]["survives_restart"], true);
    let found = findings(&gateway.status().await);
    assert!(!found[0].contains("state_dir"), "{found:?}");
    let folder = gateway.stop().await;
    let heard = upstream.received().len();
    let gateway = build().in_folder(folder).start().await;
    let server = gateway.server("s").await;
    assert_eq!(server["disabled"], disabled["disabled"]);
    assert_eq!(gateway.modern().tool_names().await, Vec::<String>::new());
    assert_eq!(upstream.received().len(), heard, "it was not started");
    act(&gateway, "s", "enable").await;
    let folder = gateway.stop().await;
    let gateway = build().in_folder(folder).start().await;
    gateway.ready("s").await;
    // A configuration without the server forgets it, also while the gateway is down.
    act(&gateway, "s", "disable").await;
    let folder = gateway.stop().await;
    let without = Gateway::alone().gateway("state_dir = \"state\"").in_folder(folder).start().await;
    let folder = without.stop().await;
    let gateway = build().in_folder(folder).start().await;
    gateway.ready("s").await;
}

/// The server answers no request. The operator disconnects while the refresh waits for it.
#[tokio::test]
async fn a_refresh_whose_client_disconnects_is_recorded_on_the_page_and_in_the_api() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("url = \"http://{}/mcp\"", listener.local_addr().unwrap());
    let lines = format!("{url}\nstart = \"lazy\"\nstart_timeout = \"2s\"\n");
    for path in ["/servers/s/refresh", "/api/v1/servers/s/refresh"] {
        let gateway = Gateway::with("s", &lines)
            .toml("[audit]\nfile = \"audit.jsonl\"")
            .start_at_once()
            .await;
        let socket = gateway.folder().join("admin.sock");
        let mut operator = tokio::net::UnixStream::connect(socket).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
        operator.write_all(head.as_bytes()).await.unwrap();
        let (server, _) = within(listener.accept()).await.unwrap();
        drop(operator);
        // The end of the connection has arrived when the gateway answers another request.
        assert_eq!(gateway.admin("/healthz").await.status, 200);
        drop(server);
        let log = gateway.folder().join("audit.jsonl");
        within(async {
            loop {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                if text.contains("\"/servers/s/refresh\"") {
                    break;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_reload_disables_the_servers_that_another_gateway_has_disabled() {
    let upstream = Upstream::modern().await;
    let gateway =
        Gateway::with("s", upstream.http()).gateway("state_dir = \"state\"").start().await;
    act(&gateway, "s", "disable").await;
    let folder = gateway.folder().join("state");
    let mut files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let file = files.find(|path| path.to_string_lossy().ends_with(".disabled.json"));
    let (file, path) = (file.unwrap(), gateway.folder().join("gateway.toml"));
    let disabled = std::fs::read(&file).unwrap();
    act(&gateway, "s", "enable").await;
    std::fs::write(&file, disabled).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(gateway.reload_text(&text).await, ReloadOutcome::Unchanged);
    assert_eq!(gateway.server("s").await["state"], "disabled");
    std::fs::write(&file, "{}").unwrap();
    let changed = text.replace("[admin]", "title = \"changed\"\n[admin]");
    assert_eq!(gateway.reload_text(&changed).await, ReloadOutcome::Applied);
    gateway.ready("s").await;
}

/// Returns the lines of a server that starts when the file `open` is in the folder, and otherwise
/// creates the file `waits` and waits.
fn gated(upstream: &Upstream, folder: &Path) -> String {
    let (open, waits) = (folder.join("open"), folder.join("waits"));
    let gate = format!("until [ -e {open:?} ]; do touch {waits:?}; sleep 0.05; done");
    let script = format!("{gate}; {}", upstream.program());
    let times = "start_timeout = \"5m\"\nstop_timeout = \"500ms\"";
    format!("command = \"bash\"\nargs = [\"-c\", {script:?}]\n{times}\n")
}

#[tokio::test]
async fn changes_do_not_wait_for_a_restart_of_a_server_that_starts() {
    let (upstream, other) = (Upstream::legacy().await, Upstream::modern().await);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("open"), "").unwrap();
    let build = |more: &str| {
        Gateway::with("s", gated(&upstream, folder.path())).server("other", other.http() + more)
    };
    let gateway = build("").start().await;
    let pid = async || get(&gateway, "/servers/s").await["pid"].clone();
    for change in ["reload", "disable"] {
        let before = pid().await;
        std::fs::remove_file(file("open")).unwrap();
        let nothing = json!({});
        let mut restart = pin!(post(&gateway, "/servers/s/restart", &nothing));
        let changes = async {
            until(|| file("waits").exists()).await;
            act(&gateway, "other", "disable").await;
            act(&gateway, "other", "enable?wait=false").await;
            if change == "reload" {
                let changed = build("start_timeout = \"9s\"\n");
                assert_eq!(gateway.reload(changed).await, ReloadOutcome::Applied);
            } else {
                act(&gateway, "s", "disable").await;
            }
        };
        if change == "reload" {
            tokio::select! {
                said = &mut restart => panic!("{said:?}"),
                () = changes => {}
            }
            assert_eq!(pid().await, before, "the restart goes on");
            std::fs::write(file("open"), "").unwrap();
            assert_eq!(restart.await.status, 200);
            assert_ne!(pid().await, before);
        } else {
            // It may end before the answer to the change.
            let (said, ()) = tokio::join!(restart, changes);
            assert_eq!(code(&said, 409), "server_disabled");
        }
        std::fs::remove_file(file("waits")).unwrap();
    }
    assert_eq!(gateway.server("s").await["state"], "disabled");
}

#[tokio::test]
async fn a_server_is_disabled_while_a_reload_waits_for_its_successor() {
    let upstream = Upstream::legacy().await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("open"), "").unwrap();
    let build = |more: &str| Gateway::with("s", gated(&upstream, folder.path()) + more);
    let gateway = build("").start().await;
    std::fs::remove_file(file("open")).unwrap();
    let changed = build("max_response = \"1MiB\"\nenv = { NEW = \"1\" }\n");
    let mut reload = pin!(gateway.reload(changed));
    let disable = async {
        until(|| file("waits").exists()).await;
        act(&gateway, "s", "disable").await;
    };
    tokio::select! {
        outcome = &mut reload => panic!("{outcome:?}"),
        () = disable => {}
    }
    assert_eq!(gateway.modern().tool_names().await, Vec::<String>::new());
    std::fs::write(file("open"), "").unwrap();
    assert_eq!(reload.await, ReloadOutcome::Applied);
    assert_eq!(gateway.server("s").await["state"], "disabled");
    act(&gateway, "s", "enable").await;
    gateway.ready("s").await;
}
