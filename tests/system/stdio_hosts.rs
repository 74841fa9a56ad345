//! Hosts on the official SDKs that start the gateway as a process, and its behaviour in a shell.

use std::path::Path;

use serde_json::{Value, json};

use super::peers::{Driver, file, reference};
use super::process::{Process, TRUNKLINE, Tag};
use super::rmcp_client;

/// A host, and its era.
type Host = (Option<(&'static str, &'static str)>, &'static str);

const HOSTS: [Host; 8] = [
    (Some(("node", "clients/ts_v1.mjs")), "legacy"),
    (Some(("node", "clients/ts_v2.mjs")), "legacy"),
    (Some(("node", "clients/ts_v2.mjs")), "modern"),
    (Some((".venv-v1/bin/python", "clients/py_v1.py")), "legacy"),
    (Some((".venv-v2/bin/python", "clients/py_v2.py")), "legacy"),
    (Some((".venv-v2/bin/python", "clients/py_v2.py")), "modern"),
    (None, "legacy"),
    (None, "modern"),
];

async fn run(host: Host, target: &str, steps: &[Value]) -> Vec<Value> {
    match host {
        (Some((program, script)), era) => Driver { program, script, era }.run(target, steps).await,
        (None, era) => rmcp_client::run(era, target, steps).await,
    }
}

/// Returns two servers of each era.
fn servers(tag: &Tag) -> String {
    let env = tag.env();
    let everything = reference("server-everything");
    let (python, script) = (file(".venv-v2/bin/python"), file("everything_server.py"));
    format!(
        "\n[servers.clock]\ncommand = \"trunkline\"\nargs = [\"example\", \"clock\"]\nenv = {{ {env} }}\n\
         \n[servers.notes]\ncommand = \"trunkline\"\nargs = [\"example\", \"notes\"]\nenv = {{ {env} }}\n\
         \n[servers.everything]\ncommand = \"node\"\nargs = [{everything:?}, \"stdio\"]\nenv = {{ {env} }}\n\
         \n[servers.python]\ncommand = {python:?}\nargs = [{script:?}, \"--stdio\"]\nenv = {{ {env} }}\n"
    )
}

fn config(folder: &Path, servers: &str) -> String {
    let path = folder.join("gateway.toml");
    // Unusable addresses: no port may be opened. Lists are kept here, not in the user's cache; the
    // first of them takes a while on a machine that is busy with other tests.
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:1\"\nstate_dir = \"state\"\nlist_wait = \"30s\"\n[admin]\nlisten = \"127.0.0.1:2\"\n[log]\nlevel = \"warn\"\naccess = false\n{servers}"
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn steps() -> Vec<Value> {
    let countdown = |seconds: u32| json!({ "seconds": seconds });
    vec![
        json!({ "op": "list" }),
        json!({ "op": "call", "name": "everything__echo", "arguments": { "message": "hello" } }),
        json!({ "op": "call", "name": "python__test_simple_text", "arguments": {} }),
        json!({ "op": "call", "name": "clock__countdown", "arguments": countdown(2), "progress": true, "expect": 2 }),
        json!({ "op": "call_cancel", "name": "clock__countdown", "arguments": countdown(60), "after_progress": 1 }),
        json!({ "op": "call_and_wait_list_changed", "name": "python__test_trigger_tool_change", "arguments": { "add": "grown" } }),
        json!({ "op": "call", "name": "python__grown", "arguments": {} }),
    ]
}

#[track_caller]
fn judge(host: Host, way: &str, lines: &[Value]) {
    assert_eq!(lines.len(), steps().len() + 1, "{host:?} {way}: {lines:#?}");
    for line in lines {
        assert_eq!(line["ok"], true, "{host:?} {way}: {line}");
    }
    let names = lines[1]["result"]["names"].as_array().unwrap();
    for name in ["clock__now", "notes__add", "everything__echo", "python__test_simple_text"] {
        assert!(names.contains(&json!(name)), "{host:?} {way}: {name} in {names:?}");
    }
    assert!(lines[2]["result"].to_string().contains("Echo: hello"), "{host:?} {way}");
    // An SDK may lose a notification that arrives together with the answer.
    let progress = lines[4]["result"]["progress"].as_array().unwrap();
    assert!(!progress.is_empty(), "{host:?} {way}");
    assert_eq!(lines[5]["result"]["cancelled"], true, "{host:?} {way}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sdks_host_uses_the_gateway_that_it_starts() {
    let tag = Tag::new();
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &servers(&tag));
    let target = format!("stdio:{}", json!([TRUNKLINE, "stdio", "--config", config]));
    let steps = steps();
    // One after the other: each starts a gateway with all its servers.
    for host in HOSTS {
        judge(host, "in process", &run(host, &target, &steps).await);
    }
    assert!(folder.path().join("state").is_dir());
    tag.gone();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sdks_host_uses_a_gateway_that_runs_elsewhere() {
    let tag = Tag::new();
    let gateway = Process::start(&servers(&tag));
    gateway.ready(&["clock", "notes", "everything", "python"]);
    let target = format!("stdio:{}", json!([TRUNKLINE, "stdio", "--connect", gateway.url()]));
    let steps = steps();
    for host in HOSTS {
        let mut lines = run(host, &target, &steps).await;
        judge(host, "by its URL", &lines);
        // For the next host the tool is new again.
        let shrink = json!({ "op": "call", "name": "python__test_trigger_tool_change", "arguments": { "remove": "grown" } });
        lines = run(host, &target, &[shrink]).await;
        assert_eq!(lines[1]["ok"], true, "{host:?}: {lines:?}");
    }
}
