//! Quotas of a gateway that is killed: the counts that survive.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::clock;
use super::process::{Process, Tag, eventually, text};

const QUOTA: u64 = 20;

/// Starts a gateway with a quota and a `state_dir` in a folder that outlives it.
fn gateway(home: &Path, tag: &Tag) -> Process {
    let quota = format!("[profiles.default]\nquota = \"{QUOTA}/day\"\n");
    let text = text(&(clock(tag) + &quota)).replacen('\n', "\nstate_dir = \"state\"\n", 1);
    let config = home.join("gateway.toml");
    std::fs::write(&config, text).unwrap();
    let gateway = Process::start_with(tempfile::tempdir().unwrap(), &config, &[]);
    gateway.ready(&["clock"]);
    gateway
}

/// Makes a call. Returns true if it was within the quota.
fn call(gateway: &Process) -> bool {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "shell", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "clock__now", "arguments": {}, "_meta": meta });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: clock__now\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let is_refused = answer.starts_with("HTTP/1.1 429") && answer.contains("quota:profile:default");
    assert!(is_refused || answer.starts_with("HTTP/1.1 200"), "{answer}");
    !is_refused
}

/// Counts the calls that a gateway admits until it refuses one.
fn admitted(gateway: &Process) -> u64 {
    (0..=QUOTA).take_while(|_| call(gateway)).count() as u64
}

/// Returns the number of calls in the file.
fn stored(home: &Path) -> u64 {
    let files = std::fs::read_dir(home.join("state")).into_iter().flatten().flatten();
    let file = files.map(|it| it.path()).find(|it| it.to_string_lossy().ends_with(".quotas.json"));
    let read = file.and_then(|file| std::fs::read(file).ok());
    let counts: Value = read.and_then(|it| serde_json::from_slice(&it).ok()).unwrap_or_default();
    let window = counts["windows"].as_array().and_then(|windows| windows.first());
    window.map_or(0, |window| window["used"]["quota:profile:default"].as_u64().unwrap_or(0))
}

#[test]
fn a_killed_gateway_forgets_no_call_that_was_written_and_no_more_than_the_last_ones() {
    let (tag, home) = (Tag::new(), tempfile::tempdir().unwrap());
    let mut first = gateway(home.path(), &tag);
    assert!((0..8).all(|_| call(&first)));
    eventually("the counts are written", || stored(home.path()) == 8);
    assert!((0..5).all(|_| call(&first)));
    first.signal(Signal::KILL);
    first.ended();
    let known = stored(home.path());
    assert!((8..=13).contains(&known), "{known}");

    let mut second = gateway(home.path(), &tag);
    assert_eq!(admitted(&second), QUOTA - known, "what the file says, and nothing else");
    eventually("the counts are written", || stored(home.path()) == QUOTA);
    second.signal(Signal::KILL);
    second.ended();
    let third = gateway(home.path(), &tag);
    assert_eq!(admitted(&third), 0, "a quota that is used up stays so");
}
