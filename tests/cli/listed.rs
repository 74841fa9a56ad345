//! `tools`, `report` and `check --scan` ask the running gateway, and start servers without one.

use std::path::Path;

use serde_json::Value;

use super::process::{Process, TRUNKLINE, Tag, eventually, text};
use super::running::beside;
use super::{DONE, FAILURE, clock, contains_all};

/// Returns `[servers.counted]`, whose program writes a line into a file at each start.
fn counted(starts: &Path) -> String {
    let script = format!("echo start >> {}; exec {TRUNKLINE} example clock", starts.display());
    format!("\n[servers.counted]\ncommand = \"sh\"\nargs = [\"-c\", '{script}']\n")
}

fn count(starts: &Path) -> usize {
    std::fs::read_to_string(starts).unwrap_or_default().lines().count()
}

#[test]
fn nothing_is_started_a_second_time_beside_a_running_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let audit = "[audit]\nfile = \"audit.jsonl\"\n";
    let gateway = Process::start(&format!("{}{audit}", counted(&starts)));
    gateway.ready(&["counted"]);
    assert_eq!(count(&starts), 1);
    // A report needs a record.
    beside(&gateway, &["call", "counted__now", "zone=UTC"]).exits_with(DONE);
    let commands: [&[&str]; 4] =
        [&["tools"], &["tools", "--tokens"], &["report"], &["check", "--scan"]];
    let asked: Vec<_> =
        commands.iter().map(|args| beside(&gateway, args).exits_with(DONE)).collect();
    assert_eq!(count(&starts), 1, "the gateway was asked");
    for (ran, args) in asked.iter().zip(commands) {
        contains_all(&ran.0.stderr, &[]);
        let noted = String::from_utf8_lossy(&ran.0.stderr).contains("its servers are started");
        assert!(!noted, "{args:?}");
        let started = beside(&gateway, &[args, &["--offline"]].concat()).exits_with(DONE);
        assert_eq!(started.said(), ran.said(), "{args:?}: the same text");
    }
    assert_eq!(count(&starts), 1 + commands.len());
    for args in [&["tools", "--json"][..], &["report", "--json"]] {
        let asked = beside(&gateway, args).exits_with(DONE).said();
        let started = beside(&gateway, &[args, &["--start"]].concat()).exits_with(DONE).said();
        let [asked, started] =
            [asked, started].map(|it| serde_json::from_str::<Value>(&it).unwrap());
        assert_eq!(asked, started, "{args:?}");
    }
    beside(&gateway, &["tools", "--profile", "nope"])
        .exits_with(FAILURE)
        .complains_of(&["no profile \"nope\""]);
}

#[test]
fn without_a_gateway_a_line_says_that_servers_are_started() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let path = super::file(folder.path(), &clock(&tag));
    for args in [&["tools", &path][..], &["check", "--scan", &path]] {
        let ran = super::trunkline(args).exits_with(DONE);
        contains_all(&ran.0.stderr, &["no gateway runs with", "its servers are started"]);
    }
    super::trunkline(&["tools", "--offline", &path]).exits_with(DONE).prints(&["clock__now("]);
}

#[test]
fn a_scan_has_the_reasons_of_the_status_and_names_servers_that_the_gateway_lacks() {
    let tag = Tag::new();
    let down = "\n[servers.down]\ncommand = \"sh\"\nargs = [\"-c\", \"echo broken; exit 3\"]\nmax_restarts = 0\n";
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let text =
        text(&format!("{}{down}", clock(&tag))).replace("drain = ", "reload = \"off\"\ndrain = ");
    std::fs::write(&config, text).unwrap();
    let gateway = Process::start_with(folder, &config, &[]);
    gateway.ready(&["clock"]);
    eventually("it has failed", || gateway.server("down")["state"] == "failed");
    let reason = gateway.server("down")["last_error"]["message"].as_str().unwrap().to_owned();
    let scanned = beside(&gateway, &["check", "--scan"]).exits_with(FAILURE);
    contains_all(&scanned.0.stderr, &[&format!("servers.down: it cannot be listed: {reason}")]);
    let written = std::fs::read_to_string(gateway.config()).unwrap();
    let late = "\n[servers.late]\ncommand = \"trunkline\"\nargs = [\"example\", \"clock\"]\n";
    std::fs::write(gateway.config(), format!("{written}{late}")).unwrap();
    let scanned = beside(&gateway, &["check", "--scan"]).exits_with(FAILURE);
    contains_all(&scanned.0.stderr, &["servers.late: the running gateway does not have it"]);
    // A known server with another command was not scanned either.
    std::fs::write(gateway.config(), written.replace("example", "--version")).unwrap();
    let scanned = beside(&gateway, &["check", "--scan"]).exits_with(FAILURE);
    contains_all(&scanned.0.stderr, &["the running gateway has another version of the file"]);
}

#[test]
fn a_gateway_that_cannot_be_asked_is_not_taken_for_none() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let socket = folder.path().join("folder-instead-of-a-socket/x");
    std::fs::write(folder.path().join("folder-instead-of-a-socket"), "a file").unwrap();
    let config = format!("{}\n[admin]\nsocket = \"{}\"\n", clock(&tag), socket.display());
    let path = super::file(folder.path(), &config);
    let ran = super::trunkline(&["tools", &path]).exits_with(super::running::UNREACHABLE);
    contains_all(&ran.0.stderr, &["no gateway runs with", "tried"]);
    assert!(!String::from_utf8_lossy(&ran.0.stderr).contains("servers are started"));
    std::fs::write(&path, config.replace(&socket.display().to_string(), "off")).unwrap();
    let ran = super::trunkline(&["tools", &path]).exits_with(DONE);
    contains_all(&ran.0.stderr, &["admin.socket is \"off\"", "its servers are started"]);
}
