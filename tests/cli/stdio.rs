//! `trunkline stdio`, started by a host.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::process::{TRUNKLINE, Tag, eventually, text};
use super::{DONE, FAILURE, WRONG_USE, clock, file};

/// A host that runs `trunkline stdio`.
struct Host {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    /// The folder, if the host owns it.
    _folder: Option<tempfile::TempDir>,
}

impl Host {
    fn start(servers: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut host = Self::start_in(folder.path(), servers, options);
        host._folder = Some(folder);
        host
    }

    /// Starts a gateway with its configuration and caches in this folder.
    fn start_in(folder: &Path, servers: &str, options: &[&str]) -> Self {
        // Addresses that cannot be bound: none may be opened.
        let text = text(servers).replace("127.0.0.1:0", "127.0.0.1:1").replacen(
            ":1\"\n\n[log]",
            ":2\"\n\n[log]",
            1,
        );
        // On a machine that is busy with other tests.
        let text = text.replacen("[gateway]\n", "[gateway]\nlist_wait = \"60s\"\n", 1);
        let config = file(folder, &text);
        let mut child = Command::new(TRUNKLINE)
            .args(["stdio", "--config", &config])
            .args(options)
            .env_remove("TRUNKLINE_LOG")
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap());
        Self { child, lines: std::io::BufRead::lines(lines), _folder: None }
    }

    /// Returns the number of listed tools.
    fn list(&mut self) -> usize {
        self.say(json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {} }));
        loop {
            let message = self.next().unwrap();
            if message["id"] == 7 {
                return message["result"]["tools"].as_array().unwrap().len();
            }
        }
    }

    fn say(&mut self, message: Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Returns the next message, without the notifications of started servers.
    fn next(&mut self) -> Option<Value> {
        let mut messages = self.lines.by_ref().map(|line| {
            let line = line.unwrap();
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}"))
        });
        let told = |message: &Value| message["method"] == "notifications/tools/list_changed";
        messages.find(|message| !told(message))
    }

    fn open(&mut self) {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "shell", "version": "1" },
        });
        self.say(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
        let answer = self.next().unwrap();
        assert_eq!(answer["result"]["serverInfo"]["name"], "trunkline", "{answer}");
        self.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    fn countdown(&mut self, seconds: u32) {
        let params = json!({ "name": "clock__countdown", "arguments": { "seconds": seconds }, "_meta": { "progressToken": 1 } });
        self.say(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }));
        let first = self.next().unwrap();
        assert_eq!(first["method"], "notifications/progress", "{first}");
    }

    fn ended(mut self) -> Option<i32> {
        let mut code = None;
        eventually("it has ended", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }
}

#[test]
fn a_stdio_gateway_answers_calls_in_progress_when_its_input_ends_and_leaves_nothing_behind() {
    let tag = Tag::new();
    let mut host = Host::start(&clock(&tag), &[]);
    host.open();
    host.countdown(2);
    drop(host.child.stdin.take());
    assert_eq!(host.next().unwrap()["method"], "notifications/progress");
    let answer = host.next().unwrap();
    assert!(answer["id"] == 1 && answer["result"].is_object(), "{answer}");
    assert!(host.next().is_none());
    assert_eq!(host.ended(), Some(DONE));
    tag.gone();
}

#[test]
fn a_stdio_gateway_introduces_itself_while_no_server_is_ready() {
    let tag = Tag::new();
    let mute = |n| {
        format!(
            "\n[servers.s{n}]\ncommand = \"sleep\"\nargs = [\"600\"]\nenv = {{ {} }}\n",
            tag.env()
        )
    };
    let began = std::time::Instant::now();
    let mut host = Host::start(&(0..8).map(mute).collect::<String>(), &[]);
    host.open();
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
    drop(host.child.stdin.take());
    assert_eq!(host.ended(), Some(DONE));
    tag.gone();
}

#[test]
fn the_first_list_of_a_stdio_gateway_has_all_servers() {
    let tag = Tag::new();
    let clocks = (0..8).map(|n| clock(&tag).replace("servers.clock", &format!("servers.c{n}")));
    let mut host = Host::start(&clocks.collect::<String>(), &[]);
    host.open();
    host.say(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    let list = host.next().unwrap();
    let names = list["result"]["tools"].to_string();
    assert!((0..8).all(|n| names.contains(&format!("\"c{n}__now\""))), "{names}");
    drop(host.child.stdin.take());
    assert_eq!(host.ended(), Some(DONE));
    tag.gone();
}

#[test]
fn a_stdio_gateway_ends_at_once_on_a_signal_and_on_closed_output() {
    for signal in [Some(Signal::TERM), Some(Signal::INT), None] {
        let tag = Tag::new();
        let mut host = Host::start(&clock(&tag), &[]);
        host.open();
        host.countdown(60);
        let began = std::time::Instant::now();
        let code = match signal {
            Some(signal) => {
                let pid = rustix::process::Pid::from_child(&host.child);
                rustix::process::kill_process(pid, signal).unwrap();
                assert!(host.next().is_none_or(|last| last["method"] == "notifications/progress"));
                DONE
            }
            None => {
                let mut other = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
                let nothing = std::io::BufReader::new(other.stdout.take().unwrap());
                other.wait().unwrap();
                host.lines = std::io::BufRead::lines(nothing);
                FAILURE
            }
        };
        assert_eq!(host.ended(), Some(code), "{signal:?}");
        assert!(began.elapsed() < std::time::Duration::from_secs(10));
        tag.gone();
    }
}

#[test]
fn the_second_start_of_a_stdio_gateway_lists_before_any_server_starts() {
    let (tag, folder) = (Tag::new(), tempfile::tempdir().unwrap());
    let permission = folder.path().join("servers-may-start");
    let server = |number: usize| {
        let script = format!(
            "until [ -e '{}' ]; do sleep 0.05; done; exec '{TRUNKLINE}' example notes",
            permission.display()
        );
        let env = tag.env();
        format!(
            "\n[servers.s{number}]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\nenv = {{ {env} }}\nstop_timeout = \"100ms\"\n"
        )
    };
    let servers: String = (0..8).map(server).collect();
    let list = || {
        let mut host = Host::start_in(folder.path(), &servers, &[]);
        host.open();
        let tools = host.list();
        drop(host.child.stdin.take());
        assert_eq!(host.ended(), Some(DONE));
        tools
    };
    std::fs::write(&permission, "").unwrap();
    let tools = list();
    assert!(tools > 8, "{tools}");
    let kept = folder.path().join("cache/trunkline");
    for file in std::fs::read_dir(&kept).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::remove_file(&permission).unwrap();
    assert_eq!(list(), tools);
    tag.gone();
}

#[test]
fn a_stdio_gateway_shows_the_given_profile_and_asks_its_host_for_no_key() {
    let tag = Tag::new();
    let key = "[clients.ci]\nkey = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n";
    let config = clock(&tag) + "[profiles.time]\ntools = [\"clock__now\"]\n" + key;
    let mut host = Host::start(&config, &["--profile", "time"]);
    host.open();
    host.say(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }));
    let tools = host.next().unwrap()["result"]["tools"].clone();
    assert_eq!((tools.as_array().unwrap().len(), &tools[0]["name"]), (1, &json!("clock__now")));
    drop(host.child.stdin.take());
    assert_eq!(host.ended(), Some(DONE));
    assert_eq!(Host::start(&config, &["--profile", "tim"]).ended(), Some(WRONG_USE));
    tag.gone();
}

#[test]
fn a_stdio_gateway_opens_the_doors_that_it_is_asked_to_open() {
    let tag = Tag::new();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (clients, operators) = (free(), free());
    let mut host = Host::start(&clock(&tag), &["--listen", &clients, "--admin", &operators]);
    host.open();
    for address in [&clients, &operators] {
        TcpStream::connect(address).unwrap();
    }
    drop(host.child.stdin.take());
    assert_eq!(host.ended(), Some(DONE));
    assert!(TcpStream::connect(&clients).is_err());
    tag.gone();
}
