//! Commands beside a gateway that refuses, answers something else, or nothing: exit codes and bounds.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fake_gateway::{FakeAnswer, FakeGateway};
use super::process::{TRUNKLINE, eventually};
use super::running::UNREACHABLE;
use super::{DONE, FAILURE, WRONG_USE, contains_all};

/// Every command that asks the running gateway, besides those that follow.
const ASKING: [&[&str]; 22] = [
    &["status"],
    &["top", "--once"],
    &["logs"],
    &["logs", "--calls"],
    &["logs", "--call", "x"],
    &["call", "t"],
    &["why", "c", "t"],
    &["plan"],
    &["reload"],
    &["restart", "s"],
    &["disable", "s"],
    &["enable", "s"],
    &["test", "s"],
    &["history"],
    &["history", "1"],
    &["rollback", "1", "--yes"],
    &["logins"],
    &["logins", "--revoke", "1f"],
    &["tools"],
    &["check", "--scan"],
    &["audit", "show"],
    &["audit", "tail"],
];

/// A server that leaves a file if it is started.
const STARTED: &str = "[servers.counted]\ncommand = \"touch\"\nargs = [\"started\"]\n";

#[track_caller]
fn all_exit_with(gateway: &FakeGateway, code: i32, words: &[&str]) {
    let log = gateway.folder().join("audit.jsonl");
    std::fs::write(&log, "").unwrap();
    let report = ["report", "--log", log.to_str().unwrap()];
    for args in ASKING.into_iter().chain([&report[..]]) {
        let before = gateway.requests().len();
        let ran = gateway.asked(args);
        let said = String::from_utf8_lossy(&ran.0.stderr);
        assert_eq!(ran.0.status.code(), Some(code), "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?}: {word:?} in {said}");
        }
        assert!(gateway.requests().len() > before, "{args:?}");
    }
    assert!(!gateway.folder().join("started").exists(), "no server is started beside it");
}

#[test]
fn a_refusal_is_a_failure_with_its_reason() {
    let gateway = FakeGateway::start_with(STARTED, |_| {
        FakeAnswer::Document(403, json!({ "code": "role_needed", "detail": "it needs more" }))
    });
    all_exit_with(&gateway, FAILURE, &["it needs more (role_needed)"]);
    for args in [&["logs", "-f"][..], &["logs", "-f", "--calls"]] {
        gateway.asked(args).exits_with(FAILURE).complains_of(&["it needs more (role_needed)"]);
    }
    let other = FakeGateway::start(|_| FakeAnswer::Document(404, json!("no page")));
    other.asked(&["status"]).exits_with(FAILURE).complains_of(&["the gateway answered 404"]);
}

#[test]
fn an_answer_of_another_version_is_named_as_such() {
    let gateway = FakeGateway::start_with(STARTED, |_| FakeAnswer::Document(200, json!([])));
    all_exit_with(&gateway, FAILURE, &["the gateway has another version"]);
    let gateway = FakeGateway::start(|_| FakeAnswer::Events(vec![json!([])]));
    for args in [&["logs", "-f"][..], &["logs", "-f", "--calls"]] {
        gateway.asked(args).exits_with(FAILURE).complains_of(&["has another version"]);
    }
}

#[test]
fn an_answer_that_is_no_document_is_not_that_of_a_gateway() {
    let gateway = FakeGateway::start_with(STARTED, |_| {
        FakeAnswer::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_vec())
    });
    all_exit_with(&gateway, FAILURE, &["is not that of a gateway"]);
    let events = b"HTTP/1.1 200 OK\r\n\r\ndata: hello\n\n".to_vec();
    let gateway = FakeGateway::start(move |_| FakeAnswer::Bytes(events.clone()));
    gateway.asked(&["logs", "-f"]).exits_with(UNREACHABLE).complains_of(&["not a document"]);
}

#[test]
fn a_connection_that_ends_before_its_answer_is_no_answer() {
    let gateway = FakeGateway::start_with(STARTED, |_| FakeAnswer::Bytes(Vec::new()));
    all_exit_with(&gateway, UNREACHABLE, &["does not answer"]);
    let part = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n: \n\n".to_vec();
    let gateway = FakeGateway::start(move |_| FakeAnswer::Bytes(part.clone()));
    for args in [&["status"][..], &["logs", "-f"]] {
        gateway.asked(args).exits_with(UNREACHABLE).complains_of(&["does not answer"]);
    }
}

#[test]
fn an_answer_without_an_end_is_left_at_its_limit() {
    for status in [200, 403] {
        let gateway = FakeGateway::start(move |_| FakeAnswer::Endless(status));
        for args in [&["status"][..], &["logs", "-f"]] {
            gateway.asked(args).exits_with(UNREACHABLE).complains_of(&["does not answer"]);
        }
    }
}

#[test]
fn a_gateway_that_never_answers_is_left_after_the_time_of_the_command() {
    let gateway = FakeGateway::start(|_| FakeAnswer::Silence);
    let begun = Instant::now();
    gateway
        .asked(&["call", "t", "--timeout", "1"])
        .exits_with(UNREACHABLE)
        .complains_of(&["it takes too long"]);
    // A shell waits for the names.
    let config = gateway.folder().join("gateway.toml");
    let complete = ["complete", "--", "call", "-c", config.to_str().unwrap(), ""];
    super::trunkline(&complete).exits_with(DONE).prints(&[]);
    let top = gateway.asked(&["top", "--once"]).exits_with(UNREACHABLE);
    top.complains_of(&["it takes too long"]);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(gateway.requests().len(), 3);
}

#[test]
fn names_and_numbers_that_cannot_be_meant_are_not_sent() {
    let gateway = FakeGateway::start(|_| FakeAnswer::Document(200, json!({})));
    for (args, words) in [
        (&["call", "t", "a=1", "a=2"][..], "the argument \"a\" is given twice"),
        (&["why", "c", "t", "a=1", "a=2"], "the argument \"a\" is given twice"),
        (&["test", "s", "t", "a=1", "a=2"], "the argument \"a\" is given twice"),
        (&["call", "t", "a"], "expected KEY=VALUE"),
        (&["call", "t", "--timeout", "0"], "1..=86400"),
        (&["call", "t", "--json-arguments", "[1]"], "expected a JSON object"),
        (&["call", "t", "a=1", "--json-arguments", "{}"], "cannot be used with"),
        (&["logins", "--revoke", "x/y"], "hexadecimal digits"),
        (&["logins", "--revoke", ""], "hexadecimal digits"),
        (&["plan", "--days", "0"], "1..=3650"),
        (&["report", "--days", "0"], "1..=3650"),
        (&["rollback", "1", "--days", "0"], "1..=3650"),
        (&["rollback", "x"], "invalid digit"),
        (&["history", "--text"], "--text: expected the number"),
        (&["audit", "show", "-n", "0"], "1..=1000"),
        (&["audit", "tail", "-n", "1001"], "1..=1000"),
        (&["logs", "-n", "1001"], "0..=1000"),
        (&["logs", "--calls", "--level", "warn"], "cannot be used with"),
        (&["logs", "--outcome", "ok"], "--calls"),
        (&["logs", "a", "--call", "x"], "cannot be used with"),
        (&["top", "--interval", "nan"], "0.1 to 3600"),
        (&["top", "--width", "10", "--once"], "20..=500"),
        (&["top", "--once", "--json"], "cannot be used with"),
        (&["try", "--timeout", "0", "--", "true"], "1..=3600"),
        (&["try"], "<COMMAND>"),
    ] {
        let ran = gateway.asked(args).exits_with(WRONG_USE);
        contains_all(&ran.0.stderr, &[words]);
    }
    assert_eq!(gateway.requests(), Vec::<String>::new());
}

#[test]
fn numbers_reach_the_gateway_with_all_their_digits() {
    let gateway = FakeGateway::start(|_| FakeAnswer::Document(200, json!([])));
    let numbers = ["a=123456789012345678901", "b={\"c\":[0.12345678901234567890123]}", "d=1E400"];
    let object =
        "{\"a\":123456789012345678901,\"b\":{\"c\":[0.12345678901234567890123]},\"d\":1E400}";
    for start in [&["call", "t"][..], &["why", "c", "t"], &["test", "s", "t"]] {
        gateway.asked(&[start, &numbers].concat()).exits_with(FAILURE);
        let sent = gateway.requests().pop().unwrap();
        assert!(sent.contains(&format!("\"arguments\":{object}")), "{start:?}: {sent}");
    }
    gateway.asked(&["call", "t", "--json-arguments", object]).exits_with(FAILURE);
    assert!(gateway.requests().pop().unwrap().contains(&format!("\"arguments\":{object}")));
}

#[test]
fn numbers_of_an_answer_keep_all_their_digits() {
    let digits = "123456789012345678901";
    let answer = |body: String| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        FakeGateway::start(move |_| FakeAnswer::Bytes(format!("{head}{body}").into_bytes()))
    };
    let result = answer(format!(
        "{{\"result\":{{\"content\":[],\"structuredContent\":{{\"id\":{digits}}}}},\"error\":null}}"
    ));
    result.asked(&["call", "t"]).exits_with(DONE).prints(&[digits]);
    result.asked(&["call", "t", "--json"]).exits_with(DONE).prints(&[digits]);
    let error = answer(format!(
        "{{\"result\":null,\"error\":{{\"code\":-1,\"message\":\"no\",\"data\":{{\"id\":{digits}}}}}}}"
    ));
    let failed = error.asked(&["call", "t", "--json"]).exits_with(FAILURE);
    contains_all(&failed.0.stdout, &[digits]);
    contains_all(&failed.0.stderr, &["trunkline: no"]);
    let records = answer(format!(
        "{{\"records\":[{{\"seq\":1,\"arguments\":{{\"id\":{digits}}}}}],\"next\":null,\"newest\":1,\"oldest_at\":null,\"unreadable_lines\":0}}"
    ));
    for command in ["show", "tail"] {
        records.asked(&["audit", command, "--json"]).exits_with(DONE).prints(&[digits]);
    }
}

#[test]
fn a_rollback_applies_exactly_the_plan_that_it_has_shown() {
    let consequences = json!({
        "added": [], "restarted": [], "children": [], "removed": [], "clients": [],
        "users_of": [], "profiles": [], "weakened": []
    });
    let plan = |digest: Value| {
        json!({
            "digest": digest, "faults": [], "is_unchanged": false, "consequences": consequences,
            "calls": null
        })
    };
    let planned = plan("3f2a".into());
    let gateway = FakeGateway::start(move |request| {
        let applied = json!({ "outcome": "applied", "faults": [], "backup": null });
        let is_plan = request.ends_with("/plan");
        FakeAnswer::Document(200, if is_plan { planned.clone() } else { applied })
    });
    gateway.asked(&["rollback", "7", "--yes"]).exits_with(DONE);
    let requests = gateway.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests[0].starts_with("POST /configuration/plan ")
            && requests[0].contains("\"version\":7")
    );
    assert!(requests[1].starts_with("POST /configuration/rollback/7 "), "{requests:?}");
    assert!(requests[1].contains("\"digest\":\"3f2a\""), "{requests:?}");
    // Without a terminal, and without --yes, nothing is applied.
    gateway.asked(&["rollback", "7"]).exits_with(WRONG_USE);
    assert_eq!(gateway.requests().len(), 3);
    gateway.asked(&["reload", "--if", "3f2a"]).exits_with(DONE);
    assert!(gateway.requests()[3].contains("\"digest\":\"3f2a\""), "{:?}", gateway.requests());
    let undecided = plan(Value::Null);
    let gateway = FakeGateway::start(move |_| FakeAnswer::Document(200, undecided.clone()));
    let ran = gateway.asked(&["rollback", "7", "--yes"]).exits_with(FAILURE);
    contains_all(&ran.0.stderr, &["version 7 cannot be applied any more"]);
    assert_eq!(gateway.requests().len(), 1);
}

/// Answers each connection of an address with these bytes, over and over if there is no end.
fn listen(bytes: Vec<u8>, is_endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
            while std::io::Write::write_all(&mut stream, &bytes).is_ok() && is_endless {}
        }
    });
    url
}

#[test]
fn an_address_that_is_no_gateway_is_named_as_such() {
    let other = listen(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".to_vec(), false);
    super::trunkline(&["status", "--url", &other])
        .exits_with(FAILURE)
        .complains_of(&["is not that of a gateway"]);
    let mut bytes = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    bytes.resize(1 << 16, b'0');
    super::trunkline(&["status", "--url", &listen(bytes, true)])
        .exits_with(UNREACHABLE)
        .complains_of(&["does not answer"]);
    for wrong in [format!("{other}/api"), other.replace("http", "ftp"), "nothing".to_owned()] {
        super::trunkline(&["status", "--url", &wrong]).exits_with(WRONG_USE);
    }
}

#[test]
fn completions_have_a_bounded_number_of_names_and_none_that_a_shell_interprets() {
    let mut names: Vec<_> = (0..10_001).map(|number| format!("tool-{number}")).collect();
    names.extend(["tool-$(id)".to_owned(), "other".to_owned()]);
    names.rotate_right(2);
    let document = json!({ "names": names });
    let gateway = FakeGateway::start(move |_| FakeAnswer::Document(200, document.clone()));
    let config = gateway.folder().join("gateway.toml");
    let complete = ["complete", "--", "call", "-c", config.to_str().unwrap(), "tool-"];
    let mut said = String::new();
    // A busy machine may take longer than a user waits.
    eventually("the names are completed in time", || {
        said = super::trunkline(&complete).exits_with(DONE).said();
        said.lines().count() == 10_000
    });
    assert!(said.lines().all(|name| name.starts_with("tool-") && !name.contains('$')));
}

#[test]
fn a_follower_tells_of_missing_lines_and_of_the_end() {
    let events = b"HTTP/1.1 200 OK\r\n\r\nevent: missed\ndata: {\"missed\":7}\n\n".to_vec();
    let gateway = FakeGateway::start(move |_| FakeAnswer::Bytes(events.clone()));
    for (args, words) in [
        (&["logs", "-f"][..], "7 lines are missing"),
        (&["logs", "-f", "--calls"], "7 calls are missing"),
    ] {
        let ran = gateway.asked(args).exits_with(DONE);
        ran.complains_of(&[words, "the gateway has ended the stream"]);
    }
}

/// Runs a command whose reader has seen enough after one line. Its time is bounded.
fn with_head(gateway: &FakeGateway, args: &str) -> i32 {
    let config = gateway.folder().join("gateway.toml");
    let line =
        format!("{TRUNKLINE} {args} -c {} | head -n 1; echo ${{PIPESTATUS[0]}}", config.display());
    let ran = Command::new("timeout").args(["60", "bash", "-c", &line]).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{said}");
    said.lines().last().unwrap().parse().unwrap()
}

#[test]
fn a_follower_ends_with_the_reader_of_its_output() {
    let line = json!({ "at": "2026-11-28T10:00:00Z", "level": "info", "text": "x", "fields": "" });
    let gateway = FakeGateway::start(move |_| FakeAnswer::Stream(line.clone()));
    assert_eq!(with_head(&gateway, "logs -f"), DONE);
    let record = json!({ "seq": 1, "event": "call", "reason": "x".repeat(1 << 17) });
    let page = json!({ "records": [record, record], "next": null, "newest": 1, "oldest_at": null, "unreadable_lines": 0 });
    let gateway = FakeGateway::start(move |_| FakeAnswer::Document(200, page.clone()));
    assert_eq!(with_head(&gateway, "audit tail -f --json"), DONE);
}

#[test]
fn records_are_collected_from_pages_and_shown_in_their_order() {
    let gateway = FakeGateway::start(|request| {
        let numbers = if request.contains("cursor=") { &[2][..] } else { &[4, 3] };
        let record = |number: &i32| json!({ "seq": number, "event": "call" });
        let next = if numbers.len() > 1 { json!("9-9") } else { Value::Null };
        let records: Vec<_> = numbers.iter().map(record).collect();
        let rest = json!({ "oldest_at": null, "unreadable_lines": 0, "newest": 4 });
        let mut page = json!({ "records": records, "next": next });
        page.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        FakeAnswer::Document(200, page)
    });
    let shown = gateway.asked(&["audit", "show", "-n", "3", "--json"]).exits_with(DONE).said();
    let numbers: Vec<_> =
        shown.lines().map(|it| serde_json::from_str::<Value>(it).unwrap()["seq"].clone()).collect();
    assert_eq!(numbers, [2, 3, 4]);
    let requests = gateway.requests();
    assert!(requests[0].contains("limit=3") && !requests[0].contains("cursor"), "{requests:?}");
    assert!(requests[1].contains("limit=1&cursor=9-9"), "{requests:?}");
}

#[test]
fn tokens_are_counted_once_in_a_while() {
    let server = json!({
        "name": "a", "state": "ready", "since": "2026-11-28T10:00:00Z", "restarts": 0,
        "instance_count": 0, "in_flight": 0, "queued": 0,
        "requests": { "calls": 0, "failed": 0, "refused": 0, "buckets": [0] }
    });
    let activity = json!({
        "version": "1", "now": "2026-11-28T10:00:00Z", "started_at": "2026-11-28T10:00:00Z",
        "state": "ready", "memory_bytes": null, "sessions": 0, "streams": 0, "connections": 0,
        "parked": 0, "bucket_bounds": [0.1], "failures": [], "servers": [server],
        "requests": { "calls": 0, "failed": 0, "refused": 0, "buckets": [0] }
    });
    let gateway = FakeGateway::start(move |_| FakeAnswer::Document(200, activity.clone()));
    gateway.asked(&["top", "--once", "--interval", "0.1"]).exits_with(DONE);
    let requests = gateway.requests();
    let count = |target: &str| requests.iter().filter(|it| it.starts_with(target)).count();
    assert_eq!((count("GET /activity"), count("GET /catalog")), (2, 1), "{requests:?}");
}
