//! `trunkline call`: real calls through the running gateway.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::process::{Process, TRUNKLINE, Tag, eventually};
use super::running::{UNREACHABLE, beside};
use super::{DONE, FAILURE, WRONG_USE, clock, contains_all, file, trunkline};

const POLICY: &str = "[clients.ci]\nkey = \"0000000000000000000000000000000000000000000000000000000000000001\"\n\
    [policy.rules.ci]\nprincipals = [\"ci\"]\nwhen = \"has(arguments.zone) && arguments.zone != 'UTC'\"\n\
    [policy.rules.operator]\nprincipals = [\"anonymous\"]\n\
    [audit]\nfile = \"audit.jsonl\"\n";

fn calls(gateway: &Process) -> Vec<Value> {
    let log = std::fs::read_to_string(gateway.folder().join("audit.jsonl")).unwrap_or_default();
    let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter(|record| record["event"] == "call").collect()
}

#[test]
fn a_call_is_made_as_the_operator_or_as_a_client() {
    let tag = Tag::new();
    let gateway = Process::start(&format!("{}{POLICY}", clock(&tag)));
    gateway.ready(&["clock"]);
    beside(&gateway, &["call", "clock__now", "zone=UTC"]).exits_with(DONE).prints(&["UTC"]);
    let denied = beside(&gateway, &["call", "clock__now", "zone=UTC", "--as", "ci"]);
    denied.exits_with(FAILURE).complains_of(&["not allowed"]);
    let zone =
        ["call", "clock__now", "--as", "ci", "--json", "--json-arguments", "{\"zone\": \"CET\"}"];
    let made: Value =
        serde_json::from_str(&beside(&gateway, &zone).exits_with(DONE).said()).unwrap();
    assert_eq!((&made["client"], made["error"].is_null()), (&Value::from("ci"), true), "{made}");
    eventually("the calls are recorded", || calls(&gateway).len() == 3);
    assert_eq!(calls(&gateway)[2]["actors"][0], made["operator"]);

    let wrong = beside(&gateway, &["call", "clock__now", "zone=nowhere"]).exits_with(FAILURE);
    contains_all(&wrong.0.stderr, &["the result is an error of the tool"]);
    beside(&gateway, &["call", "clock__nothing"])
        .exits_with(FAILURE)
        .complains_of(&["unknown tool"]);
    beside(&gateway, &["call", "clock__now", "--as", "nobody"])
        .exits_with(FAILURE)
        .complains_of(&["there is no client \"nobody\"", "(unknown_client)"]);
    for wrong in [&["call"][..], &["call", "t", "zone"], &["call", "t", "--json-arguments", "[]"]] {
        beside(&gateway, wrong).exits_with(WRONG_USE);
    }
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "");
    trunkline(&["call", "-c", &config, "t"]).exits_with(UNREACHABLE).complains_of(&["no gateway"]);
}

#[test]
fn an_interrupted_command_cancels_its_call() {
    let tag = Tag::new();
    let gateway = Process::start(&format!("{}[audit]\nfile = \"audit.jsonl\"\n", clock(&tag)));
    gateway.ready(&["clock"]);
    let mut command = Command::new(TRUNKLINE);
    command.env("XDG_RUNTIME_DIR", gateway.folder()).env_remove("TRUNKLINE_CONFIG");
    let slow = ["call", "clock__countdown", "seconds=60"];
    let mut calling =
        command.args(slow).current_dir(gateway.folder()).stdin(Stdio::null()).spawn().unwrap();
    eventually("the call is in flight", || gateway.server("clock")["in_flight"] == 1);
    kill_process(Pid::from_child(&calling), Signal::INT).unwrap();
    assert!(!calling.wait().unwrap().success());
    eventually("the call is recorded", || calls(&gateway).len() == 1);
    let record = &calls(&gateway)[0];
    assert_eq!(record["outcome"], "cancelled", "{record}");
    eventually("no call is in flight", || gateway.server("clock")["in_flight"] == 0);
}
