//! Destinations of audit records and events that cannot be opened, as `check`, the log, `/readyz`,
//! `/status` and the metrics report them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::process::{Process, eventually, text};
use super::{DONE, FAILURE, Ran, contains_all, file, trunkline};

/// Checks a configuration with these lines.
fn check(folder: &Path, options: &[&str], lines: &str) -> Ran {
    let config = file(folder, &text(lines));
    trunkline(&[&["check", "--config", &config], options].concat())
}

#[test]
fn check_warns_of_sinks_that_cannot_be_opened_with_path_line_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(folder.path().join("plain"), "").unwrap();
    let missing = "No such file or directory";
    for (lines, place, told) in [
        (
            "[audit]\nfile = \"none/a.jsonl\"",
            "audit.file",
            format!("{} cannot be written: {missing}", path("none/a.jsonl")),
        ),
        ("[audit]\nfile = \".\"", "audit.file", "is a directory".to_owned()),
        (
            "[audit]\nsyslog = \"unix:none\"",
            "audit.syslog",
            format!("unix:{} cannot be written: {missing}", path("none")),
        ),
        ("[audit]\nsyslog = \"unix:plain\"", "audit.syslog", "expected a socket".to_owned()),
        (
            "[events]\nfile = \"none/e.jsonl\"",
            "events.file",
            format!("{} cannot be written: {missing}", path("none/e.jsonl")),
        ),
        (
            "[events]\nfile = \"e.jsonl\"\nqueue_dir = \"plain/queue\"",
            "events.queue_dir",
            "not a directory".to_owned(),
        ),
    ] {
        let ran = check(folder.path(), &[], lines).exits_with(DONE);
        let said =
            contains_all(&ran.0.stderr, &["warning: ", &format!(": {place}: "), "gateway.toml:"]);
        assert!(said.to_lowercase().contains(&told.to_lowercase()), "{told}: {said}");
    }
    let ran = check(folder.path(), &[], "[events]\ncommand = \"./none.sh\"").exits_with(DONE);
    contains_all(&ran.0.stderr, &["events.command: there is no program", "none.sh"]);
}

#[test]
fn check_names_the_sinks_that_it_does_not_test() {
    let folder = tempfile::tempdir().unwrap();
    let secret = "whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=";
    let webhook = format!("[events]\nurl = \"https://h.example/hook\"\nsecret = \"{secret}\"");
    let untested = "not tested, as a check uses no network: `serve` reports it";
    for (lines, key) in [
        ("[audit]\nsyslog = \"udp://127.0.0.1:514\"", "audit.syslog"),
        ("[audit]\nsyslog = \"tcp://127.0.0.1:514\"", "audit.syslog"),
        (&*webhook, "events.url"),
    ] {
        let ran = check(folder.path(), &[], lines).exits_with(DONE);
        contains_all(&ran.0.stderr, &[&format!("note: {key}: {untested}")]);
    }
    let ran = check(folder.path(), &[], "[audit]\nfile = \"a.jsonl\"").exits_with(DONE);
    assert!(!String::from_utf8_lossy(&ran.0.stderr).contains(untested));
}

#[test]
fn check_reports_a_required_audit_log_as_a_fault_and_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let required = "[audit]\nfile = \"none/a.jsonl\"\nrequired = true";
    let ran = check(folder.path(), &[], required).exits_with(FAILURE);
    ran.complains_of(&[
        "audit.file: ",
        "none/a.jsonl cannot be written: No such file",
        "gateway.toml:12",
    ]);
    // `serve` starts all the same.
    let ran = check(folder.path(), &["--start"], required).exits_with(DONE);
    contains_all(&ran.0.stderr, &["warning: ", "audit.file: "]);
    let usable = "[audit]\nfile = \"a.jsonl\"\nrequired = true\n\
                  [events]\nfile = \"e.jsonl\"\nqueue_dir = \"queue/below\"";
    check(folder.path(), &[], usable).exits_with(DONE);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["gateway.toml"]);
}

fn readiness(gateway: &Process) -> Value {
    serde_json::from_str(&gateway.operator("/readyz")).unwrap()
}

#[test]
fn serve_reports_sinks_that_cannot_be_opened_and_opens_them_as_soon_as_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "[audit]\nfile = \"later/audit.jsonl\"\n[events]\nfile = \"later/events.jsonl\"\n";
    let gateway = Process::start_in(folder, lines);
    let path = |name: &str| gateway.folder().join("later").join(name);
    let missing = "No such file or directory";
    let reason = |sink: &str, name: &str, reason: &str| {
        format!("{sink}: {}: {reason}", path(name).display())
    };
    let expected = json!([
        reason("audit", "audit.jsonl", missing),
        reason("events", "events.jsonl", &format!("it cannot be written: {missing}")),
    ]);
    eventually("both are reasons, and the gateway is ready", || {
        readiness(&gateway) == json!({ "ready": true, "reasons": expected })
    });
    let sinks = gateway.status()["sinks"].clone();
    assert_eq!((&sinks[0]["name"], &sinks[0]["error"]), (&json!("audit"), &json!(missing)));
    assert_eq!(sinks[1]["place"], json!(path("events.jsonl")));
    let up = |gateway: &Process, sink: &str, level: u8| {
        let series = format!("trunkline_sink_up{{sink=\"{sink}\"}} {level}\n");
        gateway.operator("/metrics").contains(&series)
    };
    assert!(up(&gateway, "audit", 0) && up(&gateway, "events", 0));
    let log = gateway.log();
    let of_audit = format!(
        "the audit log cannot be written to {}, and is retried: {missing}",
        path("audit.jsonl").display()
    );
    let of_events = format!("events cannot be delivered to {}: ", path("events.jsonl").display());
    for line in [&of_audit, &of_events] {
        assert_eq!(log.matches(line.as_str()).count(), 1, "{line}: {log}");
    }
    fs::create_dir(gateway.folder().join("later")).unwrap();
    eventually("both are open", || readiness(&gateway) == json!({ "ready": true, "reasons": [] }));
    assert!(path("audit.jsonl").exists() && path("events.jsonl").exists());
    assert!(up(&gateway, "audit", 1) && up(&gateway, "events", 1));
    for line in ["the audit log is written again", "events are delivered again"] {
        eventually(&format!("the log has {line:?}"), || gateway.log().contains(line));
    }
}

#[test]
fn a_program_for_events_that_is_missing_and_a_folder_that_cannot_be_used_are_reported_at_the_start()
{
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("plain"), "").unwrap();
    let lines = "[events]\ncommand = \"./reader.sh\"\nqueue_dir = \"plain/queue\"\n";
    let gateway = Process::start_in(folder, lines);
    let path = |name: &str| gateway.folder().join(name).display().to_string();
    eventually("both are reasons", || {
        let told = readiness(&gateway).to_string();
        told.contains("reader.sh: it cannot be started: there is no such program")
            && told.contains(&format!("events_queue: {}: ", path("plain/queue")))
    });
    assert!(gateway.log().contains("events cannot be delivered to"), "{}", gateway.log());
}
