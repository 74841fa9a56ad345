//! `trunkline logs`: the log of the running gateway, its calls, and new ones as they come.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::process::{Process, TRUNKLINE, eventually};
use super::{DONE, FAILURE, Ran, WRONG_USE};

/// Exit code of a command that finds no gateway.
const UNREACHABLE: i32 = 3;

fn command(gateway: &Process, args: &[&str]) -> Command {
    let mut command = Command::new(TRUNKLINE);
    command.env("XDG_RUNTIME_DIR", gateway.folder()).env_remove("TRUNKLINE_CONFIG");
    command.args(args).current_dir(gateway.folder()).stdin(Stdio::null());
    command
}

fn beside(gateway: &Process, args: &[&str]) -> Ran {
    Ran(command(gateway, args).output().unwrap())
}

/// A command that follows, until it is dropped.
struct Follower {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(gateway: &Process, args: &[&str]) -> Self {
        let mut child =
            command(gateway, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn next_line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a gateway whose log has the lines of servers, with a server that writes some.
fn noisy_gateway() -> Process {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let script = "echo my-secret-token >&2; printf '\\033[31mred\\n' >&2; echo ready to fail >&2";
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\ndrain = \"2s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [log]\nlevel = \"info\"\n\
         [servers.clock]\ncommand = \"trunkline\"\nargs = [\"example\", \"clock\"]\n\
         [servers.noisy]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n\
         env = {{ TOKEN = \"${{file:token}}\" }}\n"
    );
    std::fs::write(folder.path().join("token"), "my-secret-token").unwrap();
    std::fs::write(&config, text).unwrap();
    let gateway = Process::start_with(folder, &config, &[]);
    gateway.ready(&["clock"]);
    eventually("the server has failed", || !gateway.server("noisy")["last_error"].is_null());
    gateway
}

#[test]
fn the_log_is_shown_by_server_and_level_without_secrets() {
    let gateway = noisy_gateway();
    let all = beside(&gateway, &["logs"]).exits_with(DONE).said();
    for words in ["INFO", "clients connect to ", "server=noisy ", "ready to fail"] {
        assert!(all.contains(words), "{words}: {all}");
    }
    assert!(!all.contains("my-secret-token") && !all.contains('\u{1b}'), "{all}");
    let own = beside(&gateway, &["logs", "noisy"]).exits_with(DONE).said();
    assert!(own.contains("ready to fail") && own.lines().all(|line| line.contains("server=noisy")));
    let faults = beside(&gateway, &["logs", "noisy", "--level", "warn"]).exits_with(DONE).said();
    assert!(
        faults.lines().all(|line| line.contains(" WARN ") || line.contains("ERROR ")),
        "{faults}"
    );
    assert!(!faults.is_empty());
    let document =
        beside(&gateway, &["logs", "noisy", "--json", "-n", "1"]).exits_with(DONE).said();
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["lines"].as_array().unwrap().len(), 1);
    assert_eq!(document["lines"][0]["server"], "noisy");
    assert!(document["earlier"].is_u64());
    assert_eq!(beside(&gateway, &["logs", "--since", "2999-01-01T00:00:00Z"]).said(), "");
    beside(&gateway, &["logs", "--since", "1h"]).exits_with(DONE).prints(&["server=noisy"]);
    beside(&gateway, &["logs", "nosy"]).exits_with(FAILURE).complains_of(&["no server \"nosy\""]);
    beside(&gateway, &["logs", "nosy", "-f"]).exits_with(FAILURE).complains_of(&["unknown_server"]);
    for wrong in
        [&["logs", "--since", "now"][..], &["logs", "--client", "a"], &["logs", "-n", "1001"]]
    {
        beside(&gateway, wrong).exits_with(WRONG_USE);
    }
    let stopped = ["logs", "-f", "-c", "elsewhere.toml"];
    beside(&gateway, &stopped).exits_with(UNREACHABLE).complains_of(&["no gateway runs"]);
}

#[test]
fn new_lines_are_followed_until_the_gateway_stops() {
    let mut gateway = noisy_gateway();
    let mut warnings = Follower::start(&gateway, &["logs", "-f", "--level", "warn", "-n", "1"]);
    let mut records = Follower::start(&gateway, &["logs", "-f", "--json", "-n", "1"]);
    // With a past line they have begun to observe.
    assert!(warnings.next_line().contains("server=noisy"));
    let first: Value = serde_json::from_str(&records.next_line()).unwrap();
    assert!(first["text"].is_string(), "{first}");
    let written = std::fs::read_to_string(gateway.config()).unwrap();
    std::fs::write(gateway.config(), format!("{written}nonsense = 1\n")).unwrap();
    loop {
        let line = warnings.next_line();
        assert!(line.contains(" WARN ") || line.contains(" ERROR "), "{line}");
        if line.contains("nonsense") {
            break;
        }
    }
    while !records.next_line().contains("nonsense") {}
    gateway.signal(Signal::TERM);
    for mut follower in [warnings, records] {
        while follower.lines.next().is_some() {}
        assert!(follower.child.wait().unwrap().success());
    }
    gateway.ended();
}

#[test]
fn new_records_of_the_audit_log_are_followed_until_the_gateway_stops() {
    let mut gateway = Process::start("[audit]\nfile = \"audit.jsonl\"\n");
    beside(&gateway, &["reload"]).exits_with(DONE);
    let one = ["audit", "show", "--kind", "reload"];
    let is_recorded = || !beside(&gateway, &one).exits_with(DONE).said().is_empty();
    eventually("it is recorded", is_recorded);
    let mut records = Follower::start(&gateway, &["audit", "tail", "-f", "--json", "-n", "1"]);
    let mut reloads = Follower::start(&gateway, &["audit", "tail", "-f", "--kind", "reload"]);
    // With a past record they have begun to observe.
    let past: Value = serde_json::from_str(&records.next_line()).unwrap();
    assert!(reloads.next_line().contains("Z  reload uid "));
    beside(&gateway, &["reload"]).exits_with(DONE);
    let next: Value = serde_json::from_str(&records.next_line()).unwrap();
    assert_eq!(next["seq"].as_u64(), past["seq"].as_u64().map(|seq| seq + 1), "{next}");
    assert!(reloads.next_line().contains("Z  reload uid "));
    gateway.signal(Signal::TERM);
    for mut follower in [records, reloads] {
        while follower.lines.next().is_some() {}
        assert!(follower.child.wait().unwrap().success());
    }
    gateway.ended();
}

/// Calls a tool of the gateway.
fn call(gateway: &Process, tool: &str) {
    let mut client = Command::new(TRUNKLINE);
    client
        .args(["stdio", "--connect", &gateway.url()])
        .stdout(Stdio::piped())
        .stdin(Stdio::piped());
    let mut client = client.stderr(Stdio::null()).spawn().unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "agent", "version": "2" },
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut input = client.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, format!("{message}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.contains("\"id\":1"), "{answer}");
    drop(input);
    client.wait().unwrap();
}

#[test]
fn calls_are_listed_followed_and_shown_with_their_steps() {
    let gateway = Process::start(
        "\n[servers.clock]\ncommand = \"trunkline\"\nargs = [\"example\", \"clock\"]\n",
    );
    gateway.ready(&["clock"]);
    let none = beside(&gateway, &["logs", "--calls"]).exits_with(DONE);
    none.complains_of(&["no recent calls", "admin.recent"]);
    // The look has begun an observation.
    call(&gateway, "clock__now");
    let listed = beside(&gateway, &["logs", "--calls"]).exits_with(DONE).said();
    assert!(listed.contains("client=anonymous tools/call clock__now: ok in "), "{listed}");
    assert!(listed.contains("server=clock software=\"agent 2\" id="), "{listed}");
    let mut follower = Follower::start(&gateway, &["logs", "--calls", "-f", "-n", "1"]);
    assert!(follower.next_line().contains("clock__now: ok"));
    call(&gateway, "clock__none");
    assert!(follower.next_line().contains("clock__none: refused (unknown_tool)"));
    call(&gateway, "clock__\u{1b}[31m");
    let line = follower.next_line();
    assert!(line.contains("\\u{1b}[31m: refused") && !line.contains('\u{1b}'), "{line}");
    let id = listed.trim().rsplit_once("id=").unwrap().1;
    let shown = beside(&gateway, &["logs", "--call", id]).exits_with(DONE).said();
    for words in ["clock__now: ok", "native name now", "STEP ", "  client ", "  server "] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let json = beside(&gateway, &["logs", "--call", id, "--json"]).exits_with(DONE).said();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["steps"][0]["step"], "client");
    beside(&gateway, &["logs", "--call", "none"])
        .exits_with(FAILURE)
        .complains_of(&["unknown_call"]);
    beside(&gateway, &["logs", "--calls", "clock"]).exits_with(DONE).prints(&["clock__now"]);
    beside(&gateway, &["logs", "--calls", "--outcome", "good"])
        .exits_with(FAILURE)
        .complains_of(&["expected one of ok, "]);
}
