//! The log of the built program: its sentences, and the access log of requests that are no calls.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use trunkline::crypto::sha256;

use super::file;
use super::process::{Process, TRUNKLINE, eventually};

fn example(name: &str) -> String {
    format!("\n[servers.{name}]\ncommand = {TRUNKLINE:?}\nargs = [\"example\", \"{name}\"]\n")
}

#[test]
fn the_log_says_when_servers_are_ready_and_what_a_reload_changes() {
    let gone = "\n[servers.gone]\ncommand = \"no-such-program-anywhere\"\n";
    let gateway = Process::start(&(example("clock") + gone));
    let has = |text: &str| gateway.log().contains(text);
    eventually("the servers are counted", || {
        has(" INFO 1 of 2 servers are ready; not ready: gone (failed) tools=")
    });
    assert!(has(" ERROR server=gone it could not be started: cannot find the program"));
    assert!(has("next try in 2 min: install the program"));
    gateway.replace_config(&(example("clock") + &example("notes")));
    eventually("the reload names the changes", || {
        has("the configuration is reloaded: added servers.notes; removed servers.gone kept=1")
    });
    eventually("all servers are ready", || has(" INFO all 2 servers are ready tools="));
    for line in gateway.log().lines() {
        let (time, rest) = line.split_at("2026-07-28T12:00:00Z".len());
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        let level = rest.split_whitespace().next().unwrap();
        assert!(["INFO", "WARN", "ERROR"].contains(&level), "{line}");
        assert!(!line.contains("trunkline::"), "{line}");
    }
}

/// Sends a message of the client `ci`. Returns the head of the answer in lower case.
fn post(address: SocketAddr, session: Option<&str>, message: &Value) -> String {
    post_with("ci-key", address, session, message)
}

/// Returns the lines of refused requests in the access log, which is JSON.
fn refusals(gateway: &Process) -> Vec<Value> {
    let log = gateway.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines = lines.filter(|line| line["target"] == "trunkline::access");
    lines.filter(|line| line["outcome"] == "refused").collect()
}

/// Like [`post`], with this key.
fn post_with(key: &str, address: SocketAddr, session: Option<&str>, message: &Value) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = message.to_string();
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nauthorization: Bearer {key}\r\n\
         connection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    if let Some(session) = session {
        write!(head, "mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n").unwrap();
    }
    write!(stream, "{head}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().0.to_ascii_lowercase()
}

/// Opens the stream of a session, and returns the start of the response.
fn open_stream(gateway: SocketAddr, session: &str) -> (TcpStream, [u8; 12]) {
    let mut stream = TcpStream::connect(gateway).unwrap();
    write!(
        stream,
        "GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\
         authorization: Bearer ci-key\r\nmcp-session-id: {session}\r\n\
         mcp-protocol-version: 2025-11-25\r\n\r\n"
    )
    .unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    (stream, status)
}

/// Subscribes a Modern client to resources, and returns the stream and the start of the response.
fn listen(gateway: SocketAddr, uris: &[&str]) -> (TcpStream, String) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let params = json!({ "notifications": { "resourceSubscriptions": uris }, "_meta": meta });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params });
    let body = body.to_string();
    let mut stream = TcpStream::connect(gateway).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n\
         authorization: Bearer ci-key\r\ncontent-type: application/json\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: subscriptions/listen\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    (stream, String::from_utf8_lossy(&status).to_ascii_lowercase())
}

#[test]
fn the_access_log_has_introductions_lists_and_requests_above_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let key = HEXLOWER.encode(&sha256(b"ci-key"));
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [log]\nformat = \"json\"\n[clients.ci]\nkey = \"{key}\"\nrate = \"2/h\"\n{}",
        example("clock")
    );
    let config = file(folder.path(), &text);
    let gateway = Process::start_with(folder, config.as_ref(), &[]);
    gateway.ready(&["clock"]);
    let message = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let client = json!({ "name": "agent", "version": "1.0" });
    let introduction =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let opened = post(gateway.address, None, &message("initialize", introduction));
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let list = message("tools/list", json!({}));
    assert!(post(gateway.address, Some(session), &list).starts_with("http/1.1 200"));
    // In a session an error has the status 200.
    post(gateway.address, Some(session), &list);
    let lines = || {
        let log = gateway.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["target"] == "trunkline::access").collect::<Vec<_>>()
    };
    eventually("each request has its line", || lines().len() == 3);
    let lines = lines();
    for (line, method, outcome) in [
        (&lines[0], "initialize", "ok"),
        (&lines[1], "tools/list", "ok"),
        (&lines[2], "tools/list", "refused"),
    ] {
        assert_eq!(
            (&line["method"], &line["outcome"]),
            (&json!(method), &json!(outcome)),
            "{line}"
        );
        assert_eq!((&line["principal"], &line["address"]), (&json!("ci"), &json!("127.0.0.1")));
        assert!(line["duration_ms"].is_number(), "{line}");
    }
    for line in &lines {
        let software = (&line["client_software"], &line["client_era"]);
        assert_eq!(software, (&json!("agent 1.0"), &json!("legacy")), "{line}");
    }
    assert!(lines[1]["items"].as_u64().unwrap() > 0, "{}", lines[1]);
    let limit = lines[2]["limit"].as_str().unwrap();
    assert_eq!((limit, &lines[2]["reason"]), ("client:ci", &json!("over_limit")));
}

#[test]
fn the_access_log_names_the_limit_that_refused_a_request_before_it_was_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let key = HEXLOWER.encode(&sha256(b"ci-key"));
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nfailed_logins = \"1/h\"\n\
         limits = {{ sessions_each = 1, body = \"64KiB\", streams = 1, subscriptions = 1 }}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
         [clients.ci]\nkey = \"{key}\"\n{}",
        example("clock")
    );
    let config = file(folder.path(), &text);
    let gateway = Process::start_with(folder, config.as_ref(), &[]);
    gateway.ready(&["clock"]);
    let message = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let client = json!({ "name": "agent", "version": "1.0" });
    let introduction =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let initialize = message("initialize", introduction);
    let opened = post(gateway.address, None, &initialize);
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    // A session with a stream is in use, and makes no room for another one.
    let (_stream, status) = open_stream(gateway.address, session);
    assert_eq!(&status, b"HTTP/1.1 200");
    let (_, status) = open_stream(gateway.address, session);
    assert_eq!(&status, b"HTTP/1.1 503");
    assert_eq!(listen(gateway.address, &["test:a", "test:b"]).1, "http/1.1 429");
    assert!(post(gateway.address, None, &initialize).starts_with("http/1.1 503"));
    let nameless = message("initialize", json!({}));
    assert!(post(gateway.address, None, &nameless).starts_with("http/1.1 200"));
    for _ in 0..2 {
        post_with("wrong-key", gateway.address, None, &initialize);
    }
    let large = message("tools/list", json!({ "x": "x".repeat(100_000) }));
    post(gateway.address, None, &large);
    let lines = || refusals(&gateway);
    eventually("each refusal has its line", || lines().len() == 6);
    let lines = lines();
    for (line, method, limit, principal) in [
        (&lines[0], "", json!("streams"), json!("ci")),
        (&lines[1], "subscriptions/listen", json!("subscriptions"), json!("ci")),
        (&lines[2], "initialize", json!("sessions_each"), json!("ci")),
        (&lines[3], "initialize", Value::Null, json!("ci")),
        (&lines[4], "", json!("failed_logins"), Value::Null),
        (&lines[5], "", json!("body"), json!("ci")),
    ] {
        let found = (&line["method"], &line["limit"], &line["principal"]);
        assert_eq!(found, (&json!(method), &limit, &principal), "{line}");
        assert_eq!((&line["address"], &line["profile"]), (&json!("127.0.0.1"), &json!("default")));
    }
    for (line, software, era) in [
        (&lines[0], json!("agent 1.0"), "legacy"),
        (&lines[1], Value::Null, "modern"),
        (&lines[2], json!("agent 1.0"), "legacy"),
    ] {
        let found = (&line["client_software"], &line["client_era"]);
        assert_eq!(found, (&software, &json!(era)), "{line}");
    }
}

/// A Legacy server over stdio with two resources, to which clients may subscribe.
const RESOURCES: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {}}
    if asked["method"] == "initialize":
        answer["result"] = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "r", "version": "1"},
                            "capabilities": {"resources": {"subscribe": True}}}
    elif asked["method"] == "resources/list":
        answer["result"] = {"resources": [{"uri": "test:" + it, "name": it} for it in "ab"]}
    elif asked["method"] == "resources/templates/list":
        answer["result"] = {"resourceTemplates": []}
    print(json.dumps(answer), flush=True)
"#;

#[test]
fn the_access_log_has_refused_pipes_and_each_refused_subscription() {
    let folder = tempfile::tempdir().unwrap();
    let key = HEXLOWER.encode(&sha256(b"ci-key"));
    let script = folder.path().join("server.py");
    std::fs::write(&script, RESOURCES).unwrap();
    let text = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nsse = true\nuris = \"original\"\n\
         limits = {{ streams = 2, all_subscriptions = 1 }}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
         [clients.ci]\nkey = \"{key}\"\n\
         [servers.r]\ncommand = \"python3\"\nargs = [{script:?}]\n"
    );
    let config = file(folder.path(), &text);
    let gateway = Process::start_with(folder, config.as_ref(), &[]);
    eventually("the server is ready", || gateway.server("r")["state"] == "ready");
    let message = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let client = json!({ "name": "agent", "version": "1.0" });
    let introduction =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let opened = post(gateway.address, None, &message("initialize", introduction));
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    for uri in ["test:a", "test:b"] {
        let subscribe = message("resources/subscribe", json!({ "uri": uri }));
        post(gateway.address, Some(session), &subscribe);
    }
    // The stream begins, and tells which subscriptions it has.
    let (_listening, status) = listen(gateway.address, &["test:b"]);
    assert_eq!(status, "http/1.1 200");
    let open_pipe = || {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let head = "GET /sse HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\
                    authorization: Bearer ci-key\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (stream, String::from_utf8_lossy(&status).into_owned())
    };
    let (_pipe, status) = open_pipe();
    assert_eq!(status, "HTTP/1.1 200");
    assert_eq!(open_pipe().1, "HTTP/1.1 503");
    let lines = || refusals(&gateway);
    eventually("each refusal has its line", || lines().len() == 3);
    for (line, method, limit) in [
        (&lines()[0], "resources/subscribe", "subscriptions"),
        (&lines()[1], "subscriptions/listen", "subscriptions"),
        (&lines()[2], "", "streams"),
    ] {
        assert_eq!((&line["method"], &line["limit"]), (&json!(method), &json!(limit)), "{line}");
        assert_eq!((&line["principal"], &line["profile"]), (&json!("ci"), &json!("default")));
    }
}
