//! What a shell sees of the program: exit codes, what is printed where, and
//! what signals do.

#![allow(
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    dead_code,
    reason = "a test that cannot go on fails; the process serves other tests, too"
)]

#[path = "system/process.rs"]
mod process;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use process::{Process, TRUNKLINE, Tag, eventually, text};
use rustix::process::Signal;
use serde_json::{Value, json};

const DONE: i32 = 0;
const FAILURE: i32 = 1;
const WRONG_USE: i32 = 2;
const CONFIG_FAULT: i32 = 3;

/// A run of the program to its end.
struct Ran(Output);

fn trunkline(args: &[&str]) -> Ran {
    let mut command = Command::new(TRUNKLINE);
    command.env_remove("TRUNKLINE_CONFIG").env_remove("TRUNKLINE_LOG");
    Ran(command.args(args).stdin(Stdio::null()).output().unwrap())
}

impl Ran {
    #[track_caller]
    fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{:?}", self.0);
        self
    }

    /// It says this on standard error, for a human, and nothing on standard output.
    #[track_caller]
    fn complains_of(self, words: &[&str]) -> Self {
        let said = String::from_utf8(self.0.stderr.clone()).unwrap();
        for word in words {
            assert!(said.contains(word), "{word:?} in {said}");
        }
        assert!(self.0.stdout.is_empty(), "{:?}", self.0);
        assert!(!said.contains("panicked") && !said.contains('\u{1b}'), "{said}");
        self
    }

    /// It says this on standard output, and nothing on standard error.
    #[track_caller]
    fn prints(self, words: &[&str]) -> Self {
        let said = String::from_utf8(self.0.stdout.clone()).unwrap();
        for word in words {
            assert!(said.contains(word), "{word:?} in {said}");
        }
        assert!(self.0.stderr.is_empty(), "{:?}", self.0);
        self
    }
}

impl Ran {
    fn said(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }
}

fn file(folder: &Path, text: &str) -> String {
    let file = folder.join("gateway.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn commands_that_only_print_print_and_succeed() {
    trunkline(&["version"]).exits_with(DONE).prints(&["trunkline 0."]);
    trunkline(&["--version"]).exits_with(DONE).prints(&["trunkline 0."]);
    trunkline(&["--help"])
        .exits_with(DONE)
        .prints(&["serve", "check", "schema", "cert", "key", "bench", "example"]);
    trunkline(&["serve", "--help"]).exits_with(DONE).prints(&["--config", "--listen", "--log"]);
    trunkline(&["stdio", "--help"]).exits_with(DONE).prints(&[
        "--config",
        "--connect",
        "--header",
        "--listen",
        "--profile",
        "TRUNKLINE_KEY",
    ]);
    trunkline(&["example"]).exits_with(DONE).prints(&["clock", "notes", "load", "proxy"]);
    trunkline(&["completions", "bash"]).exits_with(DONE).prints(&["trunkline"]);
    let schema = trunkline(&["schema"]).exits_with(DONE).prints(&["servers"]);
    assert!(serde_json::from_slice::<Value>(&schema.0.stdout).unwrap().is_object());
}

#[test]
fn a_wrong_command_line_is_told_from_a_failure() {
    trunkline(&["juggle"]).exits_with(WRONG_USE).complains_of(&["juggle"]);
    trunkline(&["serve", "--listen", "x"]).exits_with(WRONG_USE).complains_of(&["--listen"]);
    trunkline(&["serve", "--listen", "nowhere"]).exits_with(WRONG_USE).complains_of(&["nowhere"]);
    for (options, word) in [
        (["--connect", "x", "--log", "info"], "--connect"),
        (["--connect", "ftp://a.test/", "--log", "info"], "http://"),
        (["--connect", "http://a.test/", "--listen", "127.0.0.1:0"], "--listen"),
        (["--connect", "http://a.test/", "--header", "a b: c"], "a b"),
        (["--connect", "http://a.test/", "--ca", "/nowhere.pem"], "/nowhere.pem"),
        (["--connect", "http://a.test/", "--log", "shout"], "shout"),
        (["--config", "x", "--header", "a: b"], "--connect"),
        (["--connect", "http://a.test/", "--profile", "x"], "--profile"),
    ] {
        let args: Vec<_> = ["stdio"].into_iter().chain(options).collect();
        trunkline(&args).exits_with(WRONG_USE).complains_of(&[word]);
    }
    trunkline(&["stdio", "--config", "/nowhere.toml"])
        .exits_with(CONFIG_FAULT)
        .complains_of(&["/nowhere.toml"]);
    trunkline(&["completions", "cmd"]).exits_with(WRONG_USE).complains_of(&["bash"]);
    let folder = tempfile::tempdir().unwrap();
    let fine = file(folder.path(), "");
    let loud = ["check", "--config", &fine, "--log", "shout"];
    trunkline(&loud).exits_with(WRONG_USE).complains_of(&["--log", "not a log filter"]);
    let taken = ["check", "--config", &fine, "--listen", "127.0.0.1:8081"];
    trunkline(&taken).exits_with(WRONG_USE).complains_of(&["--listen", "admin"]);
}

#[test]
fn a_configuration_that_cannot_be_read_is_a_configuration_fault() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml");
    let missing = missing.to_str().unwrap();
    for command in ["check", "serve"] {
        let ran = trunkline(&[command, "--config", missing]);
        ran.exits_with(CONFIG_FAULT).complains_of(&["cannot read", missing, "No such file"]);
        let ran = trunkline(&[command, "--config", folder.path().to_str().unwrap()]);
        ran.exits_with(CONFIG_FAULT).complains_of(&["cannot read", "directory"]);
    }
}

#[test]
fn check_and_serve_tell_every_fault_with_its_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = file(
        folder.path(),
        "[gateway]\nlisten = \"here\"\nlimts = {}\n[servers.a]\nurl = \"ftp://x\"\n[servers.b]\n",
    );
    for command in ["check", "serve"] {
        trunkline(&[command, "--config", &faulty]).exits_with(CONFIG_FAULT).complains_of(&[
            "gateway.listen",
            "gateway.limts",
            "limits",
            "servers.a.url",
            "servers.b",
            "gateway.toml:2",
        ]);
    }
    let broken = file(folder.path(), "[gateway\n");
    trunkline(&["check", "--config", &broken])
        .exits_with(CONFIG_FAULT)
        .complains_of(&["gateway.toml:1"]);
    let key = file(
        folder.path(),
        "[gateway]\ntls = { cert = \"no.pem\", key = \"no.key\" }\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"off\"\n",
    );
    for command in ["check", "serve"] {
        trunkline(&[command, "--config", &key]).exits_with(CONFIG_FAULT).complains_of(&["no.pem"]);
    }
}

#[test]
fn check_says_that_all_is_well_without_starting_anything() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let server = format!("[servers.a]\ncommand = \"touch\"\nargs = [{ran:?}]\n");
    let fine = file(folder.path(), &server);
    trunkline(&["check", "--config", &fine]).exits_with(DONE).prints(&["fine", "1 server"]);
    assert!(!ran.exists());
}

#[test]
fn what_the_image_runs_is_a_command_that_works() {
    let root = env!("CARGO_MANIFEST_DIR");
    let dockerfile = std::fs::read_to_string(format!("{root}/Dockerfile")).unwrap();
    let runs = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let runs: Vec<String> = serde_json::from_str(runs).unwrap();
    let shipped = format!("{root}/gateway.toml");
    let args = runs.iter().map(|arg| match arg.as_str() {
        // The same, without the sockets.
        "serve" => "check",
        "/etc/trunkline/gateway.toml" => &shipped,
        arg => arg,
    });
    trunkline(&args.collect::<Vec<_>>()).exits_with(DONE);
    assert!(dockerfile.contains("cargo build --profile dist --locked"), "linked as one");
}

#[test]
fn an_address_in_use_ends_it_before_any_server_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let server = format!("\n[servers.a]\ncommand = \"touch\"\nargs = [{ran:?}]\n");
    let config = file(folder.path(), &text(&server));
    trunkline(&["serve", "--config", &config, "--listen", &address])
        .exits_with(FAILURE)
        .complains_of(&[&address, "in use"]);
    assert!(!ran.exists());
}

#[test]
fn certificates_are_never_written_over_and_an_unwritable_folder_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("certs");
    let out = out.to_str().unwrap();
    let ran = trunkline(&["cert", "--dir", out]).exits_with(DONE);
    assert!(ran.0.stderr.is_empty() && !ran.0.stdout.is_empty());
    trunkline(&["cert", "--dir", out]).exits_with(FAILURE).complains_of(&["exists", "--force"]);
    let nowhere = trunkline(&["cert", "--dir", "/proc/nowhere"]);
    nowhere.exits_with(FAILURE).complains_of(&["/proc/nowhere"]);
}

#[test]
fn the_shipped_configuration_finds_the_certificates_that_cert_writes() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = include_str!("../gateway.toml");
    let config = file(folder.path(), &shipped.replacen("#tls = ", "tls = ", 1));
    trunkline(&["check", "--config", &config]).exits_with(CONFIG_FAULT);
    let out = folder.path().join("certs");
    trunkline(&["cert", "--dir", out.to_str().unwrap()]).exits_with(DONE);
    trunkline(&["check", "--config", &config]).exits_with(DONE).prints(&["fine"]);
}

#[test]
fn what_key_prints_can_be_pasted() {
    for (name, table) in [("ci", "ci"), ("ann@example.com", "\"ann@example.com\"")] {
        let ran = trunkline(&["key", name]).exits_with(DONE);
        let said = ran.prints(&["tlk_", &format!("[clients.{table}]"), "sha256:"]).said();
        let folder = tempfile::tempdir().unwrap();
        let pasted = said.split("For gateway.toml:").nth(1).unwrap();
        let config = file(folder.path(), pasted);
        trunkline(&["check", "--config", &config]).exits_with(DONE).prints(&["fine"]);
        let key = said.split_whitespace().find(|word| word.starts_with("tlk_")).unwrap();
        let hash = key_hash(key).exits_with(DONE).said();
        assert!(pasted.contains(hash.trim()), "{pasted} {hash}");
    }
    trunkline(&["key", "--help"]).exits_with(DONE).prints(&["--plain", "--hash", "> ci.key"]);
}

#[test]
fn keys_are_made_and_hashed_for_scripts() {
    let [one, other] = [(); 2].map(|()| trunkline(&["key", "--plain"]).exits_with(DONE).said());
    assert!(one != other && one.starts_with("tlk_") && one.trim_end().len() == 47, "{one}");
    // The line end is no part of it.
    assert_eq!(key_hash(&one).said(), key_hash(one.trim_end()).said());
    key_hash("").exits_with(FAILURE).complains_of(&["no key"]);
    key_hash("two words").exits_with(FAILURE).complains_of(&["no key"]);
    trunkline(&["key", "--plain", "--hash"]).exits_with(WRONG_USE).complains_of(&["--hash"]);
}

/// `trunkline key --hash` of what is on its standard input.
fn key_hash(key: &str) -> Ran {
    let mut child = Command::new(TRUNKLINE)
        .args(["key", "--hash"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
    Ran(child.wait_with_output().unwrap())
}

#[test]
fn a_gateway_that_is_open_to_anyone_says_so_and_a_file_that_opens_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = "[gateway]\nlisten = \"0.0.0.0:0\"\nallowed_hosts = [\"x\"]\n";
    let fault = file(folder.path(), open);
    for command in ["check", "serve"] {
        let ran = trunkline(&[command, "--config", &fault]).exits_with(CONFIG_FAULT);
        ran.complains_of(&["gateway.listen", "[clients.NAME]", "anonymous = \"anyone\""]);
    }
    let said = file(folder.path(), &format!("{open}anonymous = \"anyone\"\n"));
    trunkline(&["check", "--config", &said]).exits_with(DONE).prints(&["fine"]);
    let known =
        "[clients.ci]\nkey = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"";
    let known = file(folder.path(), &format!("{open}{known}\n"));
    trunkline(&["check", "--config", &known]).exits_with(DONE).prints(&["fine"]);
    // A container listens everywhere and leaves it to its host who gets there.
    let plain = file(folder.path(), "");
    let args = ["check", "--config", &plain, "--listen", "0.0.0.0:8080"];
    let ran = trunkline(&args).exits_with(DONE);
    let warned = String::from_utf8(ran.0.stderr.clone()).unwrap();
    assert!(warned.contains("warning: other machines can reach the gateway"), "{warned}");
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let mut child = Command::new(TRUNKLINE)
        .arg("schema")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// A Modern call of the clock's countdown, sent and not waited for.
fn countdown(gateway: &Process, seconds: u64) -> TcpStream {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "shell", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 1,
    });
    let params =
        json!({ "name": "clock__countdown", "arguments": { "seconds": seconds }, "_meta": meta });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: clock__countdown\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).unwrap();
    eventually("the call is in flight", || gateway.server("clock")["in_flight"] == 1);
    socket
}

fn read(mut socket: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn clock(tag: &Tag) -> String {
    let env = tag.env();
    format!(
        "\n[servers.clock]\ncommand = \"trunkline\"\nargs = [\"example\", \"clock\"]\nenv = {{ {env} }}\n"
    )
}

#[test]
fn sigterm_and_sigint_let_calls_in_flight_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        let tag = Tag::new();
        let mut gateway = Process::start(&clock(&tag));
        gateway.ready(&["clock"]);
        let call = countdown(&gateway, 1);
        gateway.signal(signal);
        let answer = read(call);
        assert!(answer.contains("finished") && answer.ends_with("0\r\n\r\n"), "{answer}");
        assert_eq!(gateway.ended().code(), Some(DONE));
        assert!(TcpStream::connect(gateway.address).is_err());
        tag.gone();
    }
}

#[test]
fn a_call_longer_than_the_drain_time_is_cut_and_the_exit_is_clean() {
    let tag = Tag::new();
    let mut gateway = Process::start(&clock(&tag));
    gateway.ready(&["clock"]);
    let call = countdown(&gateway, 60);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().code(), Some(DONE));
    assert!(!read(call).contains("finished"));
    tag.gone();
}

#[test]
fn the_command_line_wins_over_the_file() {
    let tag = Tag::new();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    // An address that nobody can listen on, and a level that says nothing.
    let file = text(&clock(&tag))
        .replacen("127.0.0.1:0", "127.0.0.1:1", 1)
        .replace("level = \"info", "level = \"off");
    std::fs::write(&config, file).unwrap();
    let options = ["--listen", "127.0.0.1:0", "--log", "info"];
    let mut gateway = Process::start_with(folder, &config, &options);
    gateway.ready(&["clock"]);
    // It still does after a reload.
    gateway.signal(Signal::HUP);
    eventually("the reload is done", || {
        !gateway.status()["configuration"]["last_reload"].is_null()
    });
    TcpStream::connect(gateway.address).unwrap();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().code(), Some(DONE));
    tag.gone();
}

/// `trunkline stdio` as a host starts it.
struct Host {
    child: std::process::Child,
    lines: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
    _folder: tempfile::TempDir,
}

impl Host {
    fn start(servers: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Addresses that nobody can listen on: none is to be opened.
        let text = text(servers).replace("127.0.0.1:0", "127.0.0.1:1").replacen(
            ":1\"\n\n[log]",
            ":2\"\n\n[log]",
            1,
        );
        let config = file(folder.path(), &text);
        let mut child = Command::new(TRUNKLINE)
            .args(["stdio", "--config", &config])
            .args(options)
            .env_remove("TRUNKLINE_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap());
        Self { child, lines: std::io::BufRead::lines(lines), _folder: folder }
    }

    fn say(&mut self, message: Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn next(&mut self) -> Option<Value> {
        let line = self.lines.next()?.unwrap();
        Some(serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line}")))
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
fn a_stdio_gateway_answers_what_is_under_way_when_its_input_ends_and_leaves_nothing_behind() {
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
fn a_stdio_gateway_ends_at_once_on_a_signal_and_when_nobody_reads() {
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
fn a_stdio_gateway_shows_the_profile_that_it_is_told_to_show_and_asks_its_host_for_no_key() {
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
