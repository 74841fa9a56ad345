//! `trunkline restart`, `disable` and `enable` of a running gateway.

use serde_json::Value;

use super::process::{Process, Tag, eventually};
use super::running::{UNREACHABLE, beside};
use super::{DONE, FAILURE, WRONG_USE, clock, trunkline};

#[test]
fn a_server_is_disabled_and_enabled_by_commands() {
    let tag = Tag::new();
    let gateway = Process::start(&clock(&tag));
    gateway.ready(&["clock"]);
    beside(&gateway, &["disable", "clock"]).exits_with(DONE).prints(&[
        "clock is disabled by uid ",
        "clients do not see its tools",
        "a restart of the gateway enables it (gateway.state_dir is not set)",
    ]);
    let json = beside(&gateway, &["disable", "clock", "--json"]).exits_with(DONE);
    let json: Value = serde_json::from_str(&json.said()).unwrap();
    assert_eq!(json["state"], "disabled");
    beside(&gateway, &["status"]).exits_with(FAILURE).prints(&[
        "clock   disabled",
        "warning: servers.clock: it is disabled by uid ",
        "  = cure: trunkline enable clock",
    ]);
    beside(&gateway, &["restart", "clock"])
        .exits_with(FAILURE)
        .complains_of(&["enable it first (`trunkline enable`) (server_disabled)"]);
    beside(&gateway, &["enable", "clock"]).exits_with(DONE).prints(&["clock is ready, with "]);
    beside(&gateway, &["status"]).exits_with(DONE);
}

#[test]
fn a_restart_waits_for_the_new_process_or_names_the_fault() {
    let tag = Tag::new();
    let down = "\n[servers.down]\ncommand = \"no-such-program-anywhere\"\n";
    let gateway = Process::start(&format!("{}{down}", clock(&tag)));
    gateway.ready(&["clock"]);
    let before = gateway.server("clock")["pid"].clone();
    beside(&gateway, &["restart", "clock"]).exits_with(DONE).prints(&["clock is ready, with "]);
    let after = gateway.server("clock")["pid"].clone();
    assert_ne!(before, after);
    beside(&gateway, &["restart", "clock", "--no-wait"])
        .exits_with(DONE)
        .prints(&["clock is being started"]);
    eventually("another process", || {
        let server = gateway.server("clock");
        server["state"] == "ready" && server["pid"] != after
    });
    beside(&gateway, &["restart", "down"]).exits_with(FAILURE).complains_of(&[
        "down is not ready (failed): ",
        "no-such-program-anywhere",
        "`trunkline restart down` tries it at once",
    ]);
}

#[test]
fn an_unknown_server_is_compared_with_the_known_ones() {
    let tag = Tag::new();
    let gateway = Process::start(&clock(&tag));
    gateway.ready(&["clock"]);
    for command in ["restart", "disable", "enable"] {
        beside(&gateway, &[command, "clokc"])
            .exits_with(FAILURE)
            .complains_of(&["there is no server \"clokc\": did you mean clock?"]);
        beside(&gateway, &[command, "a/b c?"])
            .exits_with(FAILURE)
            .complains_of(&["there is no server \"a/b c?\": expected one of clock"]);
        beside(&gateway, &[command]).exits_with(WRONG_USE);
        trunkline(&[command, "clock", "-c", "/no/such/gateway.toml"]).exits_with(UNREACHABLE);
    }
}

#[test]
fn a_server_is_tested_apart_from_the_running_one() {
    let tag = Tag::new();
    let down = "\n[servers.down]\ncommand = \"no-such-program-anywhere\"\n";
    let gateway = Process::start(&format!("{}{down}", clock(&tag)));
    gateway.ready(&["clock"]);
    let pid = gateway.server("clock")["pid"].clone();
    beside(&gateway, &["test", "clock"]).exits_with(DONE).prints(&[
        "ok      start  ",
        "ok      list   ",
        " tools, ",
        "The test of clock has passed.",
    ]);
    let called = beside(&gateway, &["test", "clock", "now", "zone=UTC"]).exits_with(DONE);
    called.prints(&["ok      call   ", "the tool answered with "]);
    assert_eq!(gateway.server("clock")["pid"], pid);
    let json = beside(&gateway, &["test", "clock", "none", "--json"]).exits_with(FAILURE);
    let json: Value = serde_json::from_str(&json.said()).unwrap();
    assert_eq!(json["steps"][2]["text"], "the server has no tool \"none\"");
    let text = beside(&gateway, &["test", "down"]).exits_with(FAILURE).said();
    assert!(text.contains("failed  start") && text.contains("no-such-program"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    beside(&gateway, &["test", "clock", "now", "zone"])
        .exits_with(WRONG_USE)
        .complains_of(&["KEY=VALUE"]);
    beside(&gateway, &["test", "clokc"]).exits_with(FAILURE).complains_of(&["did you mean clock?"]);
}
