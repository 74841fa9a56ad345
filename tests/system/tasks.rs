//! Tasks with official SDKs on both ends. Behind is the reference server. Its research is available
//! only as a task (2025-11-25) and may ask for clarification. In front are clients with such tasks,
//! clients with the extension, and clients with neither. The extension's own server is in the
//! matrix and in the official suite.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::peers::{Driver, HttpServer, reference};
use super::process::{Process, Tag};
use super::rmcp_client;

const TOOL: &str = "simulate-research-query";
const SERVERS: [&str; 2] = ["child", "web"];

/// A client, its era, and true if it supports tasks of either form.
const CLIENTS: [(&str, &str, &str, bool); 7] = [
    ("node", "clients/ts_v1.mjs", "legacy", true),
    (".venv-v1/bin/python", "clients/py_v1.py", "legacy", true),
    (".venv-v1/bin/python", "clients/py_v1.py", "legacy", false),
    (".venv-v2/bin/python", "clients/py_v2.py", "legacy", false),
    (".venv-v2/bin/python", "clients/py_v2.py", "modern", false),
    ("node", "clients/ts_v2.mjs", "legacy", false),
    ("node", "clients/ts_v2.mjs", "modern", false),
];

fn steps(op: &str) -> Vec<Value> {
    let step = |server: &str, ambiguous: bool| {
        let arguments = json!({ "topic": "python", "ambiguous": ambiguous });
        json!({ "op": op, "name": format!("{server}__{TOOL}"), "arguments": arguments })
    };
    SERVERS.iter().flat_map(|server| [step(server, false), step(server, true)]).collect()
}

/// Checks that each research was completed, and that the client was asked if it was ambiguous.
#[track_caller]
fn judge(who: &str, lines: &[Value], is_task: bool) {
    assert_eq!(lines.len(), 1 + 2 * SERVERS.len(), "{who}: {lines:#?}");
    for (at, line) in lines.iter().enumerate().skip(1) {
        assert_eq!(line["ok"], true, "{who}: {line}");
        let mut result = &line["result"];
        if is_task {
            let (begun, ended) = (&result["begun"], &result["ended"]);
            let id = begun["taskId"].as_str().unwrap_or_else(|| panic!("{who}: {line}"));
            assert!(id.starts_with(&format!("{}.", SERVERS[(at - 1) / 2])), "{who}: {id}");
            assert_eq!(ended["status"], "completed", "{who}: {line}");
            result = &ended["result"];
        }
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("Research Report: python"), "{who}: {line}");
        assert_eq!(text.contains("**Clarification**"), at % 2 == 0, "{who}: {line}");
        assert!(!text.contains("unavailable"), "{who}: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_has_the_task_of_a_legacy_server_in_its_own_way() {
    let tag = Tag::new();
    let http = HttpServer::everything();
    let toml = format!(
        "[servers.child]\ncommand = \"node\"\nargs = [{:?}, \"stdio\"]\nenv = {{ {} }}\n\
         [servers.web]\nurl = {:?}\n",
        reference("server-everything"),
        tag.env(),
        http.url(),
    );
    let gateway = Process::start(&toml);
    gateway.ready(&SERVERS);
    let url = gateway.url();
    let runs = CLIENTS.iter().map(|&(program, script, era, is_task)| {
        let (driver, url) = (Driver { program, script, era }, url.clone());
        async move {
            let op = if is_task { "call_task" } else { "call" };
            let lines = driver.run(&url, &steps(op)).await;
            judge(&format!("{script} {era} {op}"), &lines, is_task);
        }
    });
    let rust = async {
        let lines = rmcp_client::run("modern", &url, &steps("call_task")).await;
        judge("rmcp modern call_task", &lines, true);
    };
    futures_util::join!(join_all(runs), rust);
    drop(gateway);
    tag.gone();
}
