//! Faults, output and tests of servers.

use serde_json::{Value, json};

use super::resources::{get, post};
use super::{code, send, with_roles};
use crate::support::upstream::tool;
use crate::support::{Gateway, Step, Upstream, every_kind};

fn steps(report: &Value) -> Vec<(&str, bool)> {
    let steps = report["steps"].as_array().unwrap().iter();
    steps.map(|it| (it["step"].as_str().unwrap(), it["has_passed"].as_bool().unwrap())).collect()
}

async fn test(gateway: &Gateway, query: &str, body: &Value) -> Value {
    let said = post(gateway, &format!("/servers/s/test{query}"), body).await;
    assert_eq!(said.status, 200, "{said:?}");
    said.json()
}

/// Returns a server that prints its secret and a control character, and exits.
fn talkative() -> String {
    let script = "printf 'token %s \\033[31m\\n' \"$TOKEN\" >&2; exit 3";
    format!(
        "command = \"sh\"\nargs = [\"-c\", '''{script}''']\nmax_restarts = 1\n\
         env = {{ TOKEN = \"hunter2-is-secret\" }}\n"
    )
}

#[tokio::test]
async fn faults_and_output_are_kept_without_secrets_over_a_restart_by_an_operator() {
    let gateway = Gateway::with("s", talkative()).start_at_once().await;
    gateway.wait_for(|status| status["servers"][0]["state"] == "failed").await;
    let page = get(&gateway, "/servers/s/faults").await;
    let faults = page["faults"].as_array().unwrap();
    assert_eq!(faults[0]["state"], "failed", "the last one first: {page}");
    for fault in faults {
        assert!(fault["count"].as_u64().unwrap() >= 1, "{fault}");
        assert_eq!(fault["instance"], Value::Null);
        assert!(fault["reason"].as_str().unwrap().contains("token ***"), "{fault}");
        assert!(fault["next_retry_at"].is_string() && fault["first_at"].is_string(), "{fault}");
    }
    let before = get(&gateway, "/servers/s/output").await;
    let lines = before["lines"].as_array().unwrap();
    assert_eq!(lines[0]["text"], "token *** \\u{1b}[31m", "{before}");
    assert!(lines[0]["at"].is_string());
    let count = |page: &Value| {
        let faults = page["faults"].as_array().unwrap().iter();
        faults.map(|it| it["count"].as_u64().unwrap()).sum::<u64>()
    };
    let restarted = post(&gateway, "/servers/s/restart", &json!({})).await;
    assert_eq!(restarted.status, 200, "{restarted:?}");
    let after = get(&gateway, "/servers/s/faults").await;
    assert!(count(&after) > count(&page), "counted on: {after}");
    let output = get(&gateway, "/servers/s/output").await;
    assert!(output["written"].as_u64() > before["written"].as_u64(), "{output}");
    assert!(!format!("{page}{after}{output}").contains("hunter2"), "{output}");
    for path in ["/servers/x/faults", "/servers/x/output"] {
        let said = send(&gateway.operator(), "GET", &format!("/api/v1{path}")).await;
        assert_eq!(code(&said, 404), "unknown_server");
    }
}

#[tokio::test]
async fn a_server_declares_capabilities_in_its_state() {
    for kind in every_kind().await {
        let gateway = Gateway::with("s", &kind.lines).start().await;
        let server = get(&gateway, "/servers/s").await;
        assert!(server["capabilities"]["tools"].is_object(), "{}: {server}", kind.name);
        assert_eq!(server["instances"][0]["reason"], "main");
    }
}

#[tokio::test]
async fn a_test_starts_a_server_apart_from_the_running_one() {
    for kind in every_kind().await {
        let gateway = Gateway::with("s", &kind.lines).start().await;
        let before = gateway.server("s").await;
        // The second one lists other tools, which clients do not see.
        kind.upstream.set_tools([tool("echo").to_string(), tool("new").to_string()]);
        let report = test(&gateway, "", &json!({})).await;
        assert_eq!(steps(&report), [("start", true), ("list", true)], "{}: {report}", kind.name);
        assert_eq!((&report["instance"], &report["has_passed"]), (&json!("apart"), &json!(true)));
        assert!(report["steps"][1]["text"].as_str().unwrap().starts_with("2 tools, "), "{report}");
        assert_eq!(report["result"], Value::Null);
        let called = test(&gateway, "?tool=echo", &json!({ "arguments": { "a": 1 } })).await;
        assert_eq!(steps(&called).last(), Some(&("call", true)), "{}: {called}", kind.name);
        assert!(called["result"].as_str().unwrap().contains("{\\\"a\\\":1}"), "{called}");
        let after = gateway.server("s").await;
        for member in ["pid", "since", "restarts", "instance_count", "tools"] {
            assert_eq!(after[member], before[member], "{} {member}", kind.name);
        }
    }
}

#[tokio::test]
async fn the_process_of_a_test_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let upstream = Upstream::legacy().await;
    let script = format!("echo $$ >> {}\n{}", pids.display(), upstream.program());
    let lines = format!("command = \"bash\"\nargs = [\"-c\", {script:?}]\n");
    let gateway = Gateway::with("s", lines).start().await;
    assert_eq!(test(&gateway, "", &json!({})).await["has_passed"], true);
    let text = std::fs::read_to_string(&pids).unwrap();
    let started: Vec<_> = text.lines().map(|pid| format!("/proc/{pid}")).collect();
    let is_running = |at: usize| std::path::Path::new(&started[at]).exists();
    assert_eq!(started.len(), 2, "{text}");
    crate::support::within(async {
        while is_running(1) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(is_running(0), "the running one stays");
}

#[tokio::test]
async fn a_test_names_the_step_that_fails_and_its_reason() {
    let gateway = Gateway::with("s", talkative()).start_at_once().await;
    let report = test(&gateway, "", &json!({})).await;
    assert_eq!(steps(&report), [("start", false)], "{report}");
    assert_eq!(report["has_passed"], false);
    assert!(report["steps"][0]["text"].as_str().unwrap().contains("token ***"), "{report}");
    assert!(report["output"][0].as_str().unwrap().contains("token ***"), "{report}");
    assert!(!report.to_string().contains("hunter2"), "{report}");
}

#[tokio::test]
async fn a_tested_tool_has_to_be_listed_admitted_and_called_with_valid_arguments() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "required": ["city"] });
    let weather = json!({ "name": "weather", "inputSchema": schema });
    upstream.tool(&weather, |_| vec![Step::text("fine hunter2-is-secret")]);
    let headers = "headers = { X-Api-Key = \"hunter2-is-secret\" }\ntools.deny = [\"secret*\"]\n";
    let gateway = Gateway::with("s", upstream.http() + headers).start().await;
    for (tool, arguments, reason) in [
        ("secret_tool", json!({}), "the configuration hides the tool"),
        ("none", json!({}), "the server has no tool"),
        ("weather", json!({}), "city"),
    ] {
        let body = json!({ "arguments": arguments });
        let report = test(&gateway, &format!("?tool={tool}"), &body).await;
        assert_eq!(steps(&report).last(), Some(&("call", false)), "{report}");
        assert!(report["steps"][2]["text"].as_str().unwrap().contains(reason), "{report}");
    }
    assert!(upstream.calls().is_empty());
    let body = json!({ "arguments": { "city": "Bern" } });
    let report = test(&gateway, "?tool=weather", &body).await;
    assert_eq!(report["has_passed"], true, "{report}");
    let result = report["result"].as_str().unwrap();
    assert!(result.contains("fine ***"), "secrets are hidden: {result}");
}

#[tokio::test]
async fn a_test_that_calls_a_tool_needs_the_role_admin_and_is_recorded_with_the_tool() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http()))
        .toml("[audit]\nfile = \"audit.jsonl\"")
        .start()
        .await;
    let looks = gateway.remote_operator().key("looks-key");
    for (part, status) in [("faults", 200), ("output", 403)] {
        let said = send(&looks, "GET", &format!("/api/v1/servers/s/{part}")).await;
        assert_eq!(said.status, status, "{part}: {said:?}");
    }
    let path = "/api/v1/servers/s/test";
    let acts = gateway.remote_operator().key("acts-key");
    assert_eq!(send(&acts, "POST", path).await.status, 200);
    let refused = send(&acts, "POST", &format!("{path}?tool=echo")).await;
    assert_eq!(code(&refused, 403), "role_needed");
    assert!(upstream.calls().is_empty());
    let rules = gateway.remote_operator().key("rules-key");
    assert_eq!(send(&rules, "POST", &format!("{path}?tool=echo")).await.status, 200);
    assert_eq!(upstream.calls().len(), 1);
    let nameless = post(&gateway, "/servers/s/test", &json!({ "arguments": { "a": 1 } })).await;
    assert_eq!(code(&nameless, 400), "invalid_request");
    let unknown = post(&gateway, "/servers/x/test", &json!({})).await;
    assert_eq!(code(&unknown, 404), "unknown_server");
    let log = gateway.folder().join("audit.jsonl");
    crate::support::within(async {
        loop {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let record = text.lines().find(|line| {
                line.contains("/servers/s/test?tool=echo\"") && line.contains("\"ok\"")
            });
            if record.is_some_and(|line| line.contains("client rules")) {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_with_a_login_is_tested_as_it_runs_and_a_disabled_one_not_at_all() {
    let upstream = Upstream::modern().await;
    let lines = format!("{}[servers.s.oauth]\nclient_id = \"x\"\n", upstream.http());
    let gateway = Gateway::with("s", lines).start().await;
    let starts = upstream.all("server/discover").len();
    let report = test(&gateway, "?tool=echo", &json!({})).await;
    assert_eq!(report["instance"], "running", "{report}");
    assert!(report["note"].as_str().unwrap().contains("login"), "{report}");
    assert_eq!(steps(&report), [("start", true), ("list", true), ("call", true)], "{report}");
    assert_eq!(upstream.all("server/discover").len(), starts, "no second session");
    post(&gateway, "/servers/s/disable", &json!({})).await;
    let said = post(&gateway, "/servers/s/test", &json!({})).await;
    assert_eq!(code(&said, 409), "server_disabled");
}

#[tokio::test]
async fn the_result_of_a_test_is_bounded() {
    let upstream = Upstream::modern().await;
    for (name, bytes) in [("large", 200 << 10), ("huge", 5 << 20)] {
        let schema = json!({ "name": name, "inputSchema": { "type": "object" } });
        upstream.tool(&schema, move |_| vec![Step::text("x".repeat(bytes))]);
    }
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let large = test(&gateway, "?tool=large", &json!({})).await;
    assert_eq!(large["has_passed"], true, "{}", large["steps"]);
    assert_eq!(large["result"].as_str().unwrap().len(), 64 << 10);
    let huge = test(&gateway, "?tool=huge", &json!({})).await;
    assert_eq!((&huge["has_passed"], &huge["result"]), (&json!(false), &Value::Null));
    let text = huge["steps"][2]["text"].as_str().unwrap();
    assert!(text.contains("the answer has more than 4194304 bytes"), "{text}");
}
