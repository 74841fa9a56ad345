//! `trunkline bench` as run from a shell, against servers that are part of the program.

#![allow(
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

#[path = "bench/report.rs"]
mod report;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const TRUNKLINE: &str = env!("CARGO_BIN_EXE_trunkline");
const DONE: i32 = 0;
const FAILURE: i32 = 1;
const WRONG_USE: i32 = 2;

/// A server of the program itself; it ends with its input, and so with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn load(options: &[&str]) -> Self {
        Self::start(&[&["load", "--listen", "127.0.0.1:0", "--until-eof"], options].concat())
    }

    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(TRUNKLINE)
            .arg("example")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        log.read_line(&mut said).unwrap();
        let url = said.trim().strip_prefix("clients connect to ").expect(&said).to_owned();
        Self { child, url }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Returns the nanoseconds of CPU time of its one busy thread.
    #[cfg(target_os = "linux")]
    fn cpu(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(TRUNKLINE);
    command.arg("bench").args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn bench(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs the bench successfully without output on standard error; returns its output.
#[track_caller]
fn prints(args: &[&str]) -> String {
    let done = bench(args);
    assert_eq!(done.status.code(), Some(DONE), "{done:?}");
    assert!(done.stderr.is_empty(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// Returns the output with `--json`.
#[track_caller]
fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&prints(&[args, &["--json"]].concat())).unwrap()
}

/// Checks that the bench ends with a code, and that its error message contains these words.
#[track_caller]
fn complains(args: &[&str], code: i32, words: &[&str]) {
    let done = bench(args);
    assert_eq!(done.status.code(), Some(code), "{done:?}");
    let said = String::from_utf8(done.stderr).unwrap();
    for word in words {
        assert!(said.contains(word), "{word:?} in {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

const FEW: [&str; 6] = ["--requests", "60", "--warmup", "0", "--connections", "3"];

#[test]
fn both_eras_are_found_or_forced_and_every_answer_counts() {
    let server = Server::load(&["--tools", "3"]);
    for (era, found) in [(None, "modern"), (Some("modern"), "modern"), (Some("legacy"), "legacy")] {
        let mut args = vec![server.url.as_str()];
        args.extend(FEW);
        args.extend(era.iter().flat_map(|era| ["--era", era]));
        let told = json_of(&args);
        let target = &told["targets"][0];
        assert_eq!(target["era"], found);
        assert_eq!(target["tool"], "search");
        let round = &target["rounds"][0];
        assert_eq!((&round["answered"], &round["failed"]), (&json!(60), &json!(0)), "{round}");
        assert!(round["per_second"].as_f64() > Some(0.0));
        let latency = &round["latency_us"];
        assert!(
            latency["p50"].as_f64() > Some(0.0)
                && latency["max"].as_f64() >= latency["p99"].as_f64()
        );
        assert_eq!(round["operations"].as_object().unwrap().keys().collect::<Vec<_>>(), ["call"]);
        assert!(!round["over_time"]["slices"].as_array().unwrap().is_empty());
    }
}

#[test]
fn answers_in_events_are_read_too() {
    let server = Server::load(&["--sse"]);
    let told = json_of(&[&[server.url.as_str()][..], &FEW].concat());
    assert_eq!(told["targets"][0]["rounds"][0]["answered"], 60);
}

#[test]
fn an_open_loop_sends_due_calls() {
    let server = Server::load(&[]);
    let told = json_of(&[&[server.url.as_str(), "--rate", "300/s"][..], &FEW].concat());
    let round = &told["targets"][0]["rounds"][0];
    assert_eq!((&round["answered"], &round["unsent"]), (&json!(60), &json!(0)));
    assert_eq!(told["load"]["rate"], 300.0);
    // The last of sixty is due a fifth of a second after the first.
    assert!(round["elapsed_s"].as_f64() >= Some(0.19), "{round}");
}

#[test]
fn a_session_is_counted_whole_and_by_its_parts() {
    let server = Server::load(&[]);
    let told = json_of(&[&[server.url.as_str(), "--scenario", "session"][..], &FEW].concat());
    let target = &told["targets"][0];
    assert_eq!(target["era"], "legacy");
    let round = &target["rounds"][0];
    assert_eq!(round["answered"], 60);
    for part in ["session", "session: initialize", "session: call", "session: delete"] {
        assert_eq!(round["operations"][part]["answered"], 60, "{part}");
    }
}

#[test]
fn a_mix_is_done_by_its_weights() {
    let server = Server::load(&[]);
    let mix = ["--mix", "call=4,list=1", "--requests", "50", "--warmup", "0", "--connections", "1"];
    let told = json_of(&[&[server.url.as_str()][..], &mix].concat());
    let ops = &told["targets"][0]["rounds"][0]["operations"];
    assert_eq!((&ops["call"]["answered"], &ops["list"]["answered"]), (&json!(40), &json!(10)));
}

#[test]
fn the_number_of_each_call_comes_back_or_the_call_has_failed() {
    let server = Server::load(&[]);
    let call = ["--tool", "search", "--args", r#"{"number":"{{n}}","path":"a","query":"b"}"#];
    let with = |expect: &'static str| {
        [&[server.url.as_str()][..], &FEW, &call, &["--expect", expect]].concat()
    };
    let told = json_of(&with("number {{n}} "));
    assert_eq!(told["targets"][0]["rounds"][0]["failed"], 0);
    let done = bench(&[&with("number 7{{n}}")[..], &["--json"]].concat());
    assert_eq!(done.status.code(), Some(FAILURE), "nothing was answered well");
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    let failures = &told["targets"][0]["rounds"][0]["failures"];
    assert_eq!((&failures[0]["kind"], &failures[0]["count"]), (&json!("not expected"), &json!(60)));
}

#[test]
fn arguments_are_read_from_a_file() {
    let server = Server::load(&[]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, r#"{{"number":1,"path":"a","query":"b"}}"#).unwrap();
    let args = format!("@{}", file.path().display());
    let told = prints(&[&[server.url.as_str(), "--args", &args][..], &FEW].concat());
    assert!(told.contains("errors") && told.contains("p99.9"), "{told}");
}

#[test]
fn two_endpoints_take_turns_and_a_page_shows_them() {
    let server = Server::load(&[]);
    let proxy = Server::start(&["proxy", &server.url, "--until-eof"]);
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let (page, pids) = (page.to_str().unwrap(), [server.pid(), proxy.pid()]);
    let mut args = vec!["--compare", &server.url, &proxy.url, "--rounds", "2", "--html", page];
    args.extend(FEW);
    if cfg!(target_os = "linux") {
        args.extend(["--pid", &pids[0], "--pid", &pids[1]]);
    }
    let told = json_of(&args);
    let targets = told["targets"].as_array().unwrap();
    assert_eq!(targets.iter().map(|target| &target["name"]).collect::<Vec<_>>(), ["A", "B"]);
    assert!(targets.iter().all(|target| target["rounds"].as_array().unwrap().len() == 2));
    let ratio = &told["ratios"][0];
    assert_eq!((&ratio["name"], &ratio["to"]), (&json!("B"), &json!("A")));
    let of = &ratio["of"]["p50"];
    assert!(
        of["min"].as_f64() <= of["median"].as_f64() && of["median"].as_f64() <= of["max"].as_f64()
    );
    if cfg!(target_os = "linux") {
        assert!(targets[1]["rounds"][1]["process"]["memory_bytes"].as_u64() > Some(1 << 20));
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("</html>"));
}

#[test]
fn both_proxies_pass_every_answer_on() {
    for options in [&[][..], &["--sse"], &["--bytes", "300000"]] {
        let server = Server::load(options);
        for inline in [&[][..], &["--inline", "--threads", "2"]] {
            let proxy = Server::start(&[&["proxy", &server.url, "--until-eof"], inline].concat());
            let args = [&[proxy.url.as_str(), "--scenario", "session"][..], &FEW].concat();
            let told = json_of(&args);
            let round = &told["targets"][0]["rounds"][0];
            assert_eq!((&round["answered"], &round["failed"]), (&json!(60), &json!(0)), "{round}");
            assert_eq!(round["reconnects"], 0, "{round}");
        }
    }
}

#[test]
fn the_gateway_is_measured_beside_a_bare_proxy() {
    let told = json_of(&["--self", "-n", "20", "--warmup", "0", "-c", "2", "--rounds", "1"]);
    let names: Vec<_> =
        told["targets"].as_array().unwrap().iter().map(|target| &target["name"]).collect();
    assert_eq!(names, ["direct", "proxy", "gateway"]);
    for target in told["targets"].as_array().unwrap() {
        assert_eq!(target["rounds"][0]["answered"], 20, "{target}");
    }
    assert_eq!(told["targets"][2]["tool"], "load__search");
    let ratios = told["ratios"].as_array().unwrap();
    assert_eq!(ratios.iter().map(|ratio| &ratio["to"]).collect::<Vec<_>>(), ["proxy", "proxy"]);
    assert!(ratios[1]["of"]["added_p50"]["us"].is_number(), "{told}");
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_prints_the_figures_so_far() {
    let server = Server::load(&[]);
    let args = [server.url.as_str(), "--duration", "10m", "--warmup", "0", "--connections", "2"];
    let before = server.cpu();
    let mut child = command(&args).spawn().unwrap();
    // More than a handshake takes: the load is running.
    while server.cpu() < before + 50_000_000 {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let mut told = String::new();
    child.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(status.code(), Some(DONE), "{told}");
    assert!(told.contains("stopped before its time") && told.contains("errors"), "{told}");
}

#[test]
fn untestable_servers_are_reported_clearly() {
    let server = Server::load(&["--tools", "2"]);
    let url = server.url.as_str();
    let elsewhere = url.replace("/mcp", "/");
    complains(&["http://127.0.0.1:1/mcp"], FAILURE, &["cannot connect", "refused"]);
    complains(&["ftp://127.0.0.1/mcp"], WRONG_USE, &["http://"]);
    complains(&[url, "--tool", "serch"], FAILURE, &["no tool \"serch\"", "near", "\"search\""]);
    complains(&[url, "--args", r#"{"x":1}"#], FAILURE, &["inputSchema", "number", "--unchecked"]);
    complains(&[url, "--args", "[1]"], WRONG_USE, &["--args", "object"]);
    complains(&[url, "--args", "@/nowhere.json"], WRONG_USE, &["/nowhere.json"]);
    complains(&[url, "--mix", "jump=1"], WRONG_USE, &["jump"]);
    complains(&[url, "--rate", "0"], WRONG_USE, &["--rate"]);
    complains(&[url, "--pid", "4294967295"], WRONG_USE, &["--pid"]);
    complains(&[url, "--header", "a b: secret"], WRONG_USE, &["--header"]);
    complains(&[url, "--compare", url, url], WRONG_USE, &["--compare"]);
    complains(&[url, "--scenario", "session", "--era", "modern"], WRONG_USE, &["sessions"]);
    complains(&[], WRONG_USE, &["URL"]);
    // This server accepts any path; a port with another protocol has no MCP server.
    prints(&[&[elsewhere.as_str()][..], &FEW].concat());
}

#[test]
fn a_port_that_speaks_something_else_is_no_endpoint() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let _ = socket.read(&mut [0; 4096]);
            let page = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
            let _ = socket.write_all(page.as_bytes());
        }
    });
    complains(&[&url], FAILURE, &["not an MCP endpoint", "404", "/mcp"]);
}

#[test]
fn the_load_server_speaks_over_standard_streams_too() {
    let mut child = Command::new(TRUNKLINE)
        .args(["example", "load", "--latency", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let call = json!({ "name": "search", "arguments": { "number": 5 } });
    for (id, method, params) in [
        (1, "tools/call", call.clone()),
        (2, "initialize", json!({ "protocolVersion": "2025-11-25" })),
        (3, "tools/call", call),
    ] {
        writeln!(
            input,
            "{}",
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
        )
        .unwrap();
    }
    drop(input);
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said[0]["error"]["code"], -32600);
    assert_eq!(said[1]["result"]["serverInfo"]["name"], "trunkline-load");
    assert!(said[2]["result"]["content"][0]["text"].as_str().unwrap().starts_with("number 5 "));
}
