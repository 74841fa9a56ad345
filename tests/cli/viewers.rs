//! A viewer over TCP beside an operator on the private socket: the output of servers in the log.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use super::DONE;
use super::process::{Process, eventually};
use super::running::beside;

/// SHA-256 of `looks-key` and of `acts-key`.
const LOOKS_KEY: &str = "cb2a9581d6000bc66ae78c81d2ded025b9188f0c2d1c1761bb6c2c68f6452cbc";
const ACTS_KEY: &str = "6bcf947c90fde3cf4551eac1a387b27b4d0429122cdbef43e118a96f5f1d121c";

/// A gateway with a viewer, and a server that writes a line and exits.
fn noisy_gateway() -> Process {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\ndrain = \"2s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [log]\nlevel = \"info\"\n[clients.looks]\nkey = \"{LOOKS_KEY}\"\nrole = \"viewer\"\n\
         [clients.acts]\nkey = \"{ACTS_KEY}\"\nrole = \"operator\"\n\
         [servers.noisy]\ncommand = \"sh\"\nargs = [\"-c\", \"echo a private line >&2\"]\n"
    );
    std::fs::write(&config, text).unwrap();
    let gateway = Process::start_with(folder, &config, &[]);
    eventually("the server has failed", || !gateway.server("noisy")["last_error"].is_null());
    gateway
}

fn ask(key: &str, path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n"
    )
}

fn with_key(gateway: &Process, key: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.admin).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(ask(key, path).as_bytes()).unwrap();
    stream
}

fn as_viewer(gateway: &Process, path: &str) -> TcpStream {
    with_key(gateway, "looks-key", path)
}

fn as_operator(gateway: &Process, path: &str) -> UnixStream {
    let mut stream = UnixStream::connect(gateway.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(ask("", path).as_bytes()).unwrap();
    stream
}

/// Returns the lines of a page of the log.
fn lines(mut stream: impl std::io::Read) -> Vec<Value> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let page: Value = serde_json::from_str(body).unwrap();
    page["lines"].as_array().unwrap().clone()
}

/// Reads records until one that is about this fault of the configuration file.
fn records_until(stream: impl std::io::Read, mark: &str) -> Vec<Value> {
    let mut records = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        let Some(data) = line.strip_prefix("data: ").or(line.strip_prefix("data:")) else {
            continue;
        };
        let is_last = data.contains(mark);
        records.push(serde_json::from_str(data).unwrap());
        if is_last {
            return records;
        }
    }
    panic!("the stream has ended: {records:#?}");
}

fn has_output(records: &[Value]) -> bool {
    records.iter().any(|record| record["is_output"] == true)
}

#[test]
fn a_viewer_sees_no_output_of_servers_in_the_log() {
    let gateway = noisy_gateway();
    for query in ["", "?limit=1000", "?server=noisy", "?level=trace"] {
        let path = format!("/api/v1/log{query}");
        let (seen, all) = (lines(as_viewer(&gateway, &path)), lines(as_operator(&gateway, &path)));
        assert!(has_output(&all), "{query}: {all:#?}");
        assert!(!seen.is_empty() && !has_output(&seen), "{query}: {seen:#?}");
    }
    let path = "/api/v1/log/live?limit=1000";
    let (viewer, operator) = (as_viewer(&gateway, path), as_operator(&gateway, path));
    // Another start writes another line, before the fault.
    beside(&gateway, &["restart", "noisy"]);
    let written = std::fs::read_to_string(gateway.config()).unwrap();
    std::fs::write(gateway.config(), format!("{written}nonsense = 1\n")).unwrap();
    let all = records_until(operator, "nonsense");
    assert!(has_output(&all), "{all:#?}");
    let seen = records_until(viewer, "nonsense");
    assert!(!has_output(&seen), "{seen:#?}");
    beside(&gateway, &["logs", "noisy"]).exits_with(DONE).prints(&["a private line"]);
}

#[test]
fn the_live_log_ends_for_an_operator_who_becomes_a_viewer() {
    let gateway = noisy_gateway();
    let path = "/api/v1/log/live?limit=1000";
    let (mut live, own) = (with_key(&gateway, "acts-key", path), as_operator(&gateway, path));
    let written = std::fs::read_to_string(gateway.config()).unwrap();
    let lowered = written.replace("role = \"operator\"", "role = \"viewer\"");
    assert_ne!(written, lowered);
    std::fs::write(gateway.config(), lowered).unwrap();
    records_until(own, "the configuration is reloaded");
    let mut rest = String::new();
    live.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"is_output\":true"), "it has begun as an operator's: {rest}");
    let mut live = BufReader::new(with_key(&gateway, "acts-key", path));
    let mut status = String::new();
    live.read_line(&mut status).unwrap();
    assert!(status.starts_with("HTTP/1.1 200"), "as a viewer: {status}");
}
