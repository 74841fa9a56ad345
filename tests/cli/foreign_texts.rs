//! Texts of the gateway and its servers reach a terminal with escapes for characters that it obeys,
//! hides or reorders, in every command and as JSON.

use serde_json::{Value, json};

use super::fake_gateway::{FakeAnswer, FakeGateway};
use super::{DONE, FAILURE, Ran};

/// A text with a colour, a control character of one byte, a reordering one and a line of its own.
fn odd(label: &str) -> String {
    format!("{label}\u{1b}[31m\u{9b}\u{202e}\nFORGED")
}

/// The same in one line.
fn odd_line(label: &str) -> String {
    format!("{label}\u{1b}[31m\u{9b}\u{202e}")
}

const TIME: &str = "2026-11-28T10:00:00Z";

/// Answers every request of a command with a document.
#[track_caller]
fn shown(document: Value, args: &[&str], code: i32) -> String {
    let gateway = FakeGateway::start(move |_| FakeAnswer::Document(200, document.clone()));
    is_harmless(&gateway.asked(args).exits_with(code))
}

/// Checks that neither output has such a character or line. Returns both.
#[track_caller]
fn is_harmless(ran: &Ran) -> String {
    let [output, errors] = [&ran.0.stdout, &ran.0.stderr].map(|it| String::from_utf8_lossy(it));
    let both = format!("{output}\n{errors}");
    let odd = both.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
    assert_eq!(odd, None, "{both:?}");
    assert!(!both.lines().any(|line| line.starts_with("FORGED")), "{both}");
    both
}

/// Checks that the texts with these labels are there, with escapes.
#[track_caller]
fn has(text: &str, labels: &[&str]) {
    for label in labels {
        assert!(text.contains(&format!("{label}\\u{{1b}}[31m")), "{label}: {text}");
    }
}

fn server() -> Value {
    json!({
        "name": odd("name"), "state": odd("s"), "era": odd("e"), "since": TIME, "tools": 1,
        "restarts": 0, "instance_count": 0, "in_flight": 0, "queued": 0,
        "requests": { "calls": 0, "failed": 0, "refused": 0, "buckets": [0] }
    })
}

#[test]
fn in_the_status_and_in_a_frame() {
    let finding = json!({
        "level": odd("level"), "subject": odd("subject"), "text": odd("text"), "cure": odd("cure")
    });
    let status = json!({
        "version": odd("version"), "now": TIME, "started_at": TIME, "state": odd("state"),
        "configuration": { "path": odd("path") }, "catalog": { "tools": 1 }, "sessions": 0,
        "streams": 0, "findings": [finding], "servers": [server()]
    });
    let text = shown(status, &["status"], FAILURE);
    let labels = ["version", "state", "path", "level", "subject", "text", "cure", "name", "s", "e"];
    has(&text, &labels);
    let activity = json!({
        "version": odd("version"), "now": TIME, "started_at": TIME, "state": odd("state"),
        "memory_bytes": null, "sessions": 0, "streams": 0, "connections": 0, "parked": 0,
        "bucket_bounds": [0.1], "servers": [server()],
        "requests": { "calls": 0, "failed": 0, "refused": 1, "buckets": [0] },
        "failures": [{ "outcome": "refused", "reason": odd("reason"), "count": 1 }]
    });
    let wide = ["top", "--once", "--interval", "0.1", "--width", "300"];
    let text = shown(activity.clone(), &wide, DONE);
    has(&text, &["version", "state", "reason", "name"]);
    assert!(text.contains("s\\u{1b}[3"), "{text}");
    assert!(shown(activity, &["top", "--json"], DONE).contains("\\u009b\\u202e\\nFORGED"));
}

#[test]
fn in_the_log_and_in_calls() {
    let line = json!({
        "at": TIME, "level": odd("LEVEL"), "server": odd("server"), "client": odd("client"),
        "text": odd("text"), "fields": odd("fields")
    });
    let text = shown(json!({ "lines": [line] }), &["logs"], DONE);
    has(&text, &["server", "client", "text", "fields"]);
    assert!(text.contains("LEVEL\\u{1b}"), "{text}");
    let json = shown(json!({ "lines": [line] }), &["logs", "--json"], DONE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    let call = json!({
        "id": odd("id"), "at": TIME, "client": odd("client"), "software": odd("software"),
        "method": odd("method"), "name": odd("name"), "server": odd("server"),
        "outcome": odd("outcome"), "reason": odd("reason"), "limit": odd("limit"),
        "duration_ms": 1.5, "profile": odd("profile"), "native_name": odd("native"),
        "argument_bytes": 1, "result_bytes": null,
        "steps": [{ "step": odd("step"), "after_ms": 0.0, "duration_ms": 1.0 }]
    });
    let labels =
        ["id", "client", "software", "method", "name", "server", "outcome", "reason", "limit"];
    has(&shown(json!({ "calls": [call] }), &["logs", "--calls"], DONE), &labels);
    let steps = shown(call.clone(), &["logs", "--call", "x"], DONE);
    has(&steps, &labels);
    has(&steps, &["profile", "native", "step"]);
    let json = shown(call.clone(), &["logs", "--call", "x", "--json"], DONE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    for (record, args) in [(line, &["logs", "-f"][..]), (call, &["logs", "-f", "--calls"])] {
        let gateway = FakeGateway::start(move |_| FakeAnswer::Events(vec![record.clone()]));
        let text = is_harmless(&gateway.asked(args).exits_with(DONE));
        has(&text, &["server", "client"]);
        let json = is_harmless(&gateway.asked(&[args, &["--json"]].concat()).exits_with(DONE));
        assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    }
}

#[test]
fn in_results_of_calls() {
    let content = json!([
        { "type": "text", "text": odd_line("text") },
        { "type": "resource", "resource": { "text": odd_line("inner") } },
        { "type": odd("kind"), "uri": odd("uri") }
    ]);
    let result = json!({ "result": { "content": content } });
    let text = shown(result.clone(), &["call", "t"], DONE);
    has(&text, &["text", "inner", "kind", "uri"]);
    let json = shown(result, &["call", "t", "--json"], DONE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    let structured = json!({ "content": [], "structuredContent": { "a": odd("structured") } });
    let text = shown(json!({ "result": structured }), &["call", "t"], DONE);
    assert!(text.contains("structured\\u001b[31m\\u{9b}\\u{202e}"), "{text}");
    let question = json!({ "method": odd("method"), "params": { "message": odd("message") } });
    let result = json!({ "content": [], "resultType": "input_required", "inputRequests": { "a": question } });
    let text = shown(json!({ "result": result }), &["call", "t"], FAILURE);
    has(&text, &["method", "message"]);
    assert!(text.contains("the server asks for input"), "{text}");
    let error = json!({ "result": null, "error": { "code": -32602, "message": odd("error") } });
    has(&shown(error, &["call", "t"], FAILURE), &["error"]);
    let long = json!({ "result": null, "error": { "message": "x".repeat(2 << 20) } });
    assert!(shown(long, &["call", "t"], FAILURE).len() < (1 << 20) + 100);
    let failed = json!({ "result": { "content": [], "isError": true } });
    assert!(shown(failed, &["call", "t"], FAILURE).contains("is an error of the tool"));
}

#[test]
fn in_explanations() {
    let gate = json!({
        "gate": odd("gate"), "verdict": "refuses", "reason": odd("reason"),
        "setting": odd("setting"), "line": 7, "cure": odd("cure")
    });
    let explanation = json!({
        "client": odd("client"), "profile": odd("profile"), "tool": odd("tool"),
        "server": odd("server"), "assumptions": [odd("assumed")], "refused_by": odd("gate"),
        "gates": [gate]
    });
    let text = shown(explanation.clone(), &["why", "c", "t"], FAILURE);
    let labels =
        ["client", "profile", "tool", "server", "assumed", "gate", "reason", "setting", "cure"];
    has(&text, &labels);
    has(&text, &["The call is refused by: gate"]);
    let json = shown(explanation, &["why", "c", "t", "--json"], FAILURE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
}

fn plan() -> Value {
    let server = |name: &str| json!({ "name": odd(name), "sessions": 0, "calls": 0 });
    let client = json!({
        "client": odd("client"), "profile": odd("profile"), "gained": [odd("gained")],
        "lost": [odd("lost")], "renamed": [{ "before": odd("before"), "after": odd("after") }]
    });
    let changed = json!({
        "caller": odd("caller"), "tool": odd("tool"), "is_allowed": true, "rule": odd("rule"),
        "calls": 1
    });
    json!({
        "digest": odd("digest"), "faults": [], "is_unchanged": false,
        "consequences": {
            "added": [odd("added")], "restarted": [server("restarted")],
            "children": [{ "server": odd("child"), "instances": odd("one") }],
            "removed": [server("removed")], "clients": [client],
            "users_of": [odd("users")],
            "profiles": [{ "profile": odd("tokens"), "before": 1, "after": null }],
            "weakened": [odd("weaker")]
        },
        "calls": {
            "unchanged": 0, "changed": [changed], "without_arguments": 1, "without_token": 1,
            "without_tool": 1, "unreadable_files": [odd("file")], "unreadable_lines": 1
        }
    })
}

const PLAN_LABELS: [&str; 17] = [
    "users",
    "file",
    "client",
    "profile",
    "gained",
    "lost",
    "before",
    "after",
    "caller",
    "tool",
    "rule",
    "added",
    "restarted",
    "child",
    "removed",
    "tokens",
    "weaker",
];

#[test]
fn in_plans_and_reloads() {
    let text = shown(plan(), &["plan"], FAILURE);
    has(&text, &PLAN_LABELS);
    has(&text, &["--if digest"]);
    let json = shown(plan(), &["plan", "--json"], FAILURE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    let mut faulty = plan();
    faulty["faults"] = json!([odd("fault")]);
    has(&shown(faulty, &["plan"], FAILURE), &["fault: fault"]);
    let refused = json!({ "outcome": odd("outcome"), "faults": [odd("fault")], "backup": null });
    has(&shown(refused, &["reload"], FAILURE), &["outcome", "fault"]);
}

#[test]
fn in_versions_and_rollbacks() {
    let version = |actor: Value| {
        json!({
            "number": 1, "digest": odd("digest"), "applied_at": TIME, "applied_by": actor,
            "summary": odd("summary"), "text": odd_line("text"), "diff": odd_line("+diff"),
            "references": [odd("reference")]
        })
    };
    let (kind, name) =
        (json!({ "kind": odd("kind") }), json!({ "kind": "operator", "name": odd("actor") }));
    let versions = json!({ "versions": [version(kind), version(name.clone())], "running": "x" });
    let text = shown(versions.clone(), &["history"], DONE);
    has(&text, &["kind", "actor", "summary"]);
    assert!(text.contains("digest\\u{1b}"), "{text}");
    let json = shown(versions, &["history", "--json"], DONE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    has(&shown(version(name.clone()), &["history", "1"], DONE), &["reference", "+diff"]);
    has(&shown(version(name), &["history", "1", "--text"], DONE), &["text"]);
    for (outcome, code) in [("applied".to_owned(), DONE), (odd("outcome"), FAILURE)] {
        let answer =
            json!({ "outcome": outcome, "faults": [odd("fault")], "backup": odd("backup") });
        let gateway = FakeGateway::start(move |request| {
            let is_plan = request.ends_with("/plan");
            FakeAnswer::Document(200, if is_plan { plan() } else { answer.clone() })
        });
        let ran = gateway.asked(&["rollback", "1", "--yes"]).exits_with(code);
        let text = is_harmless(&ran);
        has(&text, &PLAN_LABELS);
        has(&text, if code == DONE { &["fault", "backup"] } else { &["fault", "outcome"] });
    }
}

#[test]
fn in_actions_on_servers_and_in_tests() {
    let state = |state: &str| {
        json!({
            "name": odd("name"), "state": state, "tools": 1, "in_flight": 1, "cure": odd("cure"),
            "last_error": { "message": odd("fault") }, "login": odd("login"),
            "disabled": { "by": odd("actor"), "survives_restart": false }
        })
    };
    for command in ["restart", "enable"] {
        has(&shown(state("ready"), &[command, "a"], DONE), &["name"]);
        has(&shown(state("idle"), &[command, "a"], DONE), &["name"]);
        has(&shown(state("ready"), &[command, "a", "--no-wait"], DONE), &["name"]);
        has(&shown(state("connecting"), &[command, "a"], FAILURE), &["name"]);
        has(&shown(state("login"), &[command, "a"], FAILURE), &["name", "login"]);
        let failed = shown(state(&odd("state")), &[command, "a"], FAILURE);
        has(&failed, &["name", "state", "fault", "cure"]);
    }
    has(&shown(state("disabled"), &["disable", "a"], DONE), &["name", "actor"]);
    for (command, at, code) in [("disable", "ready", DONE), ("enable", "failed", FAILURE)] {
        let json = shown(state(at), &[command, "a", "--json"], code);
        assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    }
    let unknown = FakeGateway::start(|request| match request {
        "GET /servers" => {
            FakeAnswer::Document(200, json!({ "servers": [{ "name": odd("known") }] }))
        }
        _ => FakeAnswer::Document(404, json!({ "code": "unknown_server", "detail": "none" })),
    });
    for command in ["restart", "disable", "enable", "test"] {
        let ran = unknown.asked(&[command, "clock"]).exits_with(FAILURE);
        has(&is_harmless(&ran), &["known"]);
    }
    let report = json!({
        "server": odd("server"), "note": odd("note"), "has_passed": false,
        "steps": [{ "step": odd("step"), "has_passed": false, "millis": 1, "text": odd("text") }],
        "result": odd("result"), "output": [odd("output")]
    });
    let text = shown(report.clone(), &["test", "a"], FAILURE);
    has(&text, &["server", "note", "step", "text", "result", "output"]);
    let json = shown(report, &["test", "a", "--json"], FAILURE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
}

#[test]
fn in_logins() {
    let login = json!({
        "login": odd("login"), "server": odd("server"), "kind": odd("kind"), "owner": odd("owner"),
        "issuer": odd("issuer"), "scopes": [odd("scope")], "since": TIME, "refreshable": true,
        "renewed_at": null, "ends_at": null, "active": true
    });
    let page = json!({ "logins": [login] });
    let labels = ["login", "server", "kind", "owner", "issuer", "scope"];
    has(&shown(page.clone(), &["logins"], DONE), &labels);
    let json = shown(page, &["logins", "--json"], DONE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    let revoked = json!({ "login": login, "provider": "refused", "reason": odd("reason") });
    let text = shown(revoked, &["logins", "--revoke", "1f"], FAILURE);
    has(&text, &["server", "kind", "owner", "reason"]);
}

fn listing(unlisted: Value) -> Value {
    json!({
        "estimate": "o200k_base", "unlisted": unlisted,
        "profiles": [{
            "name": odd("profile"), "tools": 1, "all_tokens": 9, "budget": 5,
            "listed": [{ "name": odd("tool"), "signature": odd("signature"), "tokens": 9 }]
        }],
        "servers": [
            { "name": odd("server"), "tools": 2, "tokens": 9, "denied": [] },
            { "name": "other", "tools": 0, "tokens": 0, "denied": [] }
        ],
        "tools": [{
            "name": odd("tool"), "server": odd("server"), "native": odd("native"), "tokens": 9
        }]
    })
}

#[test]
fn in_lists_of_tools_and_reports() {
    let silent = json!([{ "name": odd("silent"), "reason": odd("reason") }]);
    let text = shown(listing(silent.clone()), &["tools"], FAILURE);
    has(&text, &["signature", "silent", "reason"]);
    let text = shown(listing(json!([])), &["tools", "--tokens"], DONE);
    has(&text, &["tool", "profile", "server server"]);
    let json = shown(listing(json!([])), &["tools", "--json"], DONE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let record = "{\"time\":\"2026-11-01T00:00:00Z\",\"event\":\"list\"}\n";
    std::fs::write(&log, record).unwrap();
    let report = ["report", "--log", log.to_str().unwrap()];
    let text = shown(listing(silent), &report, FAILURE);
    has(&text, &["tool", "silent", "reason"]);
    assert!(text.contains("server\\u{1b}") && text.contains("native\\U0000001b"), "{text}");
    let json = shown(listing(json!([])), &[&report[..], &["--json"]].concat(), DONE);
    assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
}

#[test]
fn in_findings_of_a_scan() {
    let finding = json!({
        "server": odd("server"), "kind": odd("kind"), "native": odd("native"), "is_grave": true,
        "reasons": [odd("reason")]
    });
    let report = json!({ "findings": [finding], "elements": [], "servers": [], "unlisted": [] });
    let text = shown(report, &["check", "--scan"], FAILURE);
    has(&text, &["server", "kind", "native", "reason"]);
}

#[test]
fn in_audit_records() {
    let record = json!({
        "seq": 1, "time": TIME, "event": odd("event"), "principal": odd("principal"),
        "tool": odd("tool"), "server": odd("server"), "decision": odd("decision"),
        "rule": odd("rule"), "reason": odd("reason")
    });
    let page = json!({
        "records": [record], "next": null, "newest": 1, "oldest_at": null, "unreadable_lines": 0
    });
    for command in ["show", "tail"] {
        let text = shown(page.clone(), &["audit", command], DONE);
        has(&text, &["event", "principal", "tool", "server", "decision", "rule", "reason"]);
        let json = shown(page.clone(), &["audit", command, "--json"], DONE);
        assert!(json.contains("\\u009b\\u202e\\nFORGED"), "{json}");
        assert_eq!(json.trim().lines().count(), 1, "{json}");
    }
}

#[test]
fn in_refusals_and_answers_of_other_versions() {
    let problem = json!({ "code": odd("code"), "detail": odd("detail") });
    let gateway = FakeGateway::start(move |_| FakeAnswer::Document(403, problem.clone()));
    let text = is_harmless(&gateway.asked(&["status"]).exits_with(FAILURE));
    assert!(text.contains("detail[31m FORGED (code[31m FORGED)"), "{text}");
    let now = json!({ "now": odd("x") });
    let logins = json!({ "logins": [{ "since": odd("x") }] });
    let tools = json!({ "estimate": "", "profiles": odd("x") });
    for (document, args) in [
        (now.clone(), &["status"][..]),
        (now, &["top", "--once"]),
        (logins, &["logins"]),
        (tools, &["tools"]),
    ] {
        shown(document, args, FAILURE);
    }
}
