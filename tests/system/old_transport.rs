//! The transport of 2024-11-05, with official SDKs on both ends: clients that still speak it in
//! front, servers that still do behind.

use std::process::Command;

use serde_json::{Value, json};

use super::peers::{Driver, HttpServer, file};
use super::process::text;
use super::replicas::Front;

const CLIENTS: [(&str, &str); 4] = [
    ("node", "clients/ts_v1.mjs"),
    ("node", "clients/ts_v2.mjs"),
    (".venv-v1/bin/python", "clients/py_v1.py"),
    (".venv-v2/bin/python", "clients/py_v2.py"),
];

fn steps(name: &str) -> Vec<Value> {
    let slow = |steps: u32| json!({ "steps": steps, "delay_ms": 50 });
    vec![
        json!({ "op": "list" }),
        json!({ "op": "call", "name": "py__add", "arguments": { "a": 1, "b": 2 } }),
        json!({ "op": "call", "name": "ts__echo", "arguments": { "message": "hello" } }),
        json!({ "op": "call", "name": "py__slow", "arguments": slow(3), "progress": true }),
        json!({ "op": "call_cancel", "name": "py__slow", "arguments": slow(1000), "after_progress": 1 }),
        json!({ "op": "call_and_wait_list_changed", "name": "py__grow", "arguments": { "name": name } }),
        json!({ "op": "call", "name": format!("py__{name}"), "arguments": {} }),
    ]
}

#[track_caller]
fn judge(who: &str, lines: &[Value]) {
    assert_eq!(lines.len(), 8, "{who}: {lines:#?}");
    for line in lines {
        assert_eq!(line["ok"], true, "{who}: {line}");
    }
    let said = |line: usize, words: &str| lines[line]["result"].to_string().contains(words);
    assert!(said(2, "3") && said(3, "Echo: hello") && said(4, "done after 3 steps"), "{lines:#?}");
    assert_eq!(lines[4]["result"]["progress"].as_array().map(Vec::len), Some(3), "{who}");
    assert_eq!(lines[5]["result"]["cancelled"], true, "{who}");
}

/// Servers of the old transport, and their tables in the configuration.
fn old_servers() -> ([HttpServer; 2], String) {
    let mut python = Command::new(file(".venv-v1/bin/python"));
    let python = HttpServer::announcing(python.args([&file("legacy_server.py"), "--sse", "0"]));
    let typescript = HttpServer::reference("sse");
    // The transport is detected for the first, and configured for the second.
    let tables = format!(
        "\n[servers.py]\nurl = \"http://127.0.0.1:{}/sse\"\n\
         \n[servers.ts]\nurl = \"http://127.0.0.1:{}/sse\"\ntransport = \"sse\"\n",
        python.port, typescript.port
    );
    ([python, typescript], tables)
}

/// Runs every client by both transports, through one gateway or several replicas.
async fn run_clients(front: &Front) {
    for gateway in front.gateways() {
        gateway.ready(&["py", "ts"]);
    }
    for (index, (program, script)) in CLIENTS.into_iter().enumerate() {
        let driver = Driver { program, script, era: "legacy" };
        let old = format!("sse:http://{}/sse", front.address());
        let lines = driver.run(&old, &steps(&format!("old{index}"))).await;
        judge(&format!("{script} by /sse"), &lines);
        let lines = driver.run(&front.url(), &steps(&format!("new{index}"))).await;
        judge(&format!("{script} by /mcp"), &lines);
    }
}

/// Returns a configuration with these servers, for clients of both transports.
fn with_old_transport(servers: &str) -> String {
    text(servers).replacen("[gateway]", "[gateway]\nsse = true", 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn old_clients_and_old_servers_meet_each_other_and_new_ones() {
    let (_servers, tables) = old_servers();
    run_clients(&Front::start(&with_old_transport(&tables), 1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_clients_post_to_any_of_three_replicas() {
    let (_servers, tables) = old_servers();
    let front = Front::start(&with_old_transport(&tables), 3).await;
    run_clients(&front).await;
    for gateway in front.gateways() {
        let metrics = gateway.operator("/metrics");
        let line = "trunkline_forwarded_requests_total{outcome=\"answered\"} ";
        let forwarded = metrics.lines().find_map(|it| it.strip_prefix(line));
        assert_ne!(forwarded.unwrap_or("0"), "0", "messages for other replicas arrived here");
    }
}
