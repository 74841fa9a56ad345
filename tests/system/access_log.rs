//! The access log of the built program: one line for each call with any outcome, and no secret in
//! any output, with all log levels on.

use serde_json::{Value, json};

use super::process::{Process, eventually};
use super::support::{Client, Step, Upstream, client_table};

/// Part of every secret below, which must not appear in any output.
const SECRET: &str = "S3CRET";

fn configuration(modern: &Upstream, legacy: &Upstream) -> String {
    let client = client_table("ci", "key-S3CRET", "");
    format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\ndrain = \"2s\"\nstate_keys = [\"state-key-of-32-bytes-S3CRET-0123\"]\n\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\n\
         [log]\nlevel = \"trace\"\nformat = \"json\"\n\n\
         {client}\n\
         [servers.m]\n{}headers = {{ Authorization = \"Bearer header-S3CRET\" }}\ntimeout = \"1s\"\n\
         tools.count.rate = \"1/h\"\n\n\
         [servers.l]\n{}env = {{ TOKEN = \"variable-S3CRET\" }}\n",
        modern.http(),
        legacy.stdio()
    )
}

/// Returns the access log's lines of tool calls, as (tool, outcome, reason).
fn calls(log: &str) -> Vec<(String, String, String)> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines
        .filter(|line| line["target"] == "trunkline::access" && line["method"] == "tools/call")
        .map(|line| (text(&line["tool"]), text(&line["outcome"]), text(&line["reason"])))
        .collect()
}

// The thread that starts the process waits for it: another one serves the servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_one_line_and_no_output_has_a_secret() {
    let (modern, legacy) = (Upstream::modern().await, Upstream::legacy().await);
    for upstream in [&modern, &legacy] {
        upstream.does("says", |_| vec![Step::text("result-S3CRET")]);
        upstream.does("fails", |_| {
            let content = json!([{ "type": "text", "text": "S3CRET" }]);
            vec![Step::Result(json!({ "content": content, "isError": true }))]
        });
        upstream.does("begins", |_| vec![Step::Progress(1), Step::Never]);
        upstream.does("never", |_| vec![Step::Never]);
    }
    // Large enough to be forwarded before it is complete.
    modern.does("large", |_| vec![Step::text("result-S3CRET".repeat(50_000))]);
    modern.does("asks", |_| {
        let form = json!({ "mode": "form", "message": "S3CRET?", "requestedSchema": { "type": "object", "properties": {} } });
        let asked = json!({ "q": { "method": "elicitation/create", "params": form } });
        vec![Step::Result(
            json!({ "resultType": "input_required", "inputRequests": asked, "requestState": "of-the-server-S3CRET" }),
        )]
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, configuration(&modern, &legacy)).unwrap();
    let mut gateway = Process::start_with(folder, &path, &[]);
    gateway.ready(&["m", "l"]);

    let arguments = || json!({ "password": "argument-S3CRET" });
    let stranger = Client::modern(gateway.address).key("wrong-S3CRET");
    assert_eq!(stranger.call("m__says", arguments()).await.status, 401);
    let client = Client::modern(gateway.address).key("key-S3CRET");
    let client = client.offering(json!({ "elicitation": { "form": {} } })).await;
    let h2 = Client::modern(gateway.address).key("key-S3CRET").h2();
    let session =
        Client::sessionless(gateway.address, "2025-11-25").key("key-S3CRET").initialized().await;
    for client in [&client, &h2, &session] {
        for tool in ["m__says", "l__says"] {
            assert_eq!(client.call(tool, arguments()).await.text(), "result-S3CRET");
        }
    }
    for tool in ["m__fails", "l__fails", "m__never", "m__count", "m__large"] {
        client.call(tool, arguments()).await;
    }
    for tool in ["m__count", "m__missing"] {
        client.call(tool, arguments()).await.error();
    }
    assert_eq!(client.call("m__asks", arguments()).await.result()["resultType"], "input_required");
    let mut begun = client.ask_call("l__begins", arguments()).token(json!(1)).send().await;
    begun.message().await.unwrap();
    drop(begun);

    let mut wanted = vec![
        ("m__fails", "tool_error"),
        ("l__fails", "tool_error"),
        ("m__never", "failed"),
        ("m__count", "ok"),
        ("m__count", "refused"),
        ("m__large", "ok"),
        ("m__missing", "refused"),
        ("m__asks", "input_required"),
        ("l__begins", "cancelled"),
    ];
    wanted.extend([("m__says", "ok"); 3]);
    wanted.extend([("l__says", "ok"); 3]);
    wanted.sort_unstable();
    eventually("every call has its line", || calls(&gateway.log()).len() >= wanted.len());
    let outputs = [gateway.operator("/status"), gateway.operator("/metrics")];
    gateway.signal(rustix::process::Signal::TERM);
    gateway.ended();
    let log = gateway.log();
    let mut found = calls(&log);
    found.sort_unstable();
    let found: Vec<_> =
        found.iter().map(|(tool, outcome, _)| (tool.as_str(), outcome.as_str())).collect();
    assert_eq!(found, wanted);
    assert!(log.lines().any(|line| line.contains("\"level\":\"TRACE\"")), "everything is logged");
    for output in outputs.iter().chain([&log]) {
        let leak = output.lines().find(|line| line.contains(SECRET));
        assert_eq!(leak, None);
    }
    assert!(!log.contains(session.session()), "a session's id is as good as a key");
}
