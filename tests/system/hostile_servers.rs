//! Servers that misbehave, in all ways of the fixtures, over both transports and in both eras: each
//! fails only its own calls.

use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;

use super::peers::HttpServer;
use super::process::{Process, TRUNKLINE, Tag, eventually};
use super::support::{Client, Said};

/// A kind of misbehaviour, and the outcome of its call.
struct Mode {
    name: &'static str,
    args: &'static [&'static str],
    /// Settings that differ from the others.
    settings: &'static str,
    ends: Ends,
    /// Outcome of concurrent calls to the same server's good tool.
    others: Others,
}

#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// With the answer: the fault has no effect.
    Well,
    /// With a tool result that reports an error with these words.
    Badly(&'static str),
}

#[derive(Clone, Copy, PartialEq)]
enum Others {
    /// They get their answers.
    Served,
    /// The process, or its only pipe, is gone or blocked: they wait or fail, too.
    Concerned,
}

use Ends::{Badly, Well};
use Others::{Concerned, Served};

const fn mode(name: &'static str, ends: Ends, others: Others) -> Mode {
    Mode { name, args: &[], settings: "", ends, others }
}

/// Settings of servers that never answer: short, because the test waits for the timeout.
const SHORT: &str = "timeout = \"4s\"\n";

/// Returns a mode that ends by the call's timeout.
const fn silent(name: &'static str, others: Others) -> Mode {
    Mode { settings: SHORT, ..mode(name, Badly("did not respond within"), others) }
}

/// The modes of `hostile.py`.
const STDIO: [Mode; 19] = [
    mode("garbage", Well, Served),
    mode("half", Badly("not valid JSON"), Concerned),
    mode("huge", Badly("larger than"), Concerned),
    Mode { args: &["--id-at", "back"], ..mode("huge", Badly("larger than"), Concerned) },
    Mode { args: &["--seconds", "4"], ..silent("endless-line", Concerned) },
    silent("wrong-id", Served),
    mode("duplicate", Well, Served),
    mode("both", Badly("invalid"), Served),
    mode("shapeless", Badly("invalid response"), Served),
    silent("silence", Served),
    mode("drip", Well, Concerned),
    mode("exit", Badly("it exited"), Concerned),
    Mode { args: &["--seconds", "1"], ..mode("flood", Well, Served) },
    mode("utf8", Badly("valid"), Served),
    mode("deep", Badly("valid"), Served),
    mode("close", Badly("it exited"), Concerned),
    mode("stderr", Well, Served),
    mode("ask", Well, Served),
    mode("deaf", Well, Served),
];

/// The modes of `hostile_http.py`.
const HTTP: [Mode; 25] = [
    mode("content-type", Badly("text/html"), Served),
    mode("html", Badly("text/html"), Served),
    mode("empty", Badly("valid"), Served),
    mode("status-500", Badly("500"), Served),
    mode("status-429", Badly("429"), Served),
    mode("status-401", Badly("401"), Served),
    mode("redirect", Badly("redirects"), Served),
    mode("redirect-loop", Badly("redirects"), Served),
    silent("endless-body", Served),
    mode("drip", Well, Served),
    mode("huge", Badly("larger than"), Served),
    mode("huge-event", Badly("larger than"), Served),
    silent("sse-endless", Served),
    mode("sse-garbage", Badly("valid"), Served),
    mode("sse-closed", Badly("without a response"), Served),
    mode("sse-split", Well, Served),
    mode("priming", Well, Served),
    mode("reset", Badly("connection was lost"), Served),
    mode("half", Badly("connection was lost"), Served),
    silent("silence", Served),
    mode("wrong-id", Badly("another request"), Served),
    mode("invalid-utf8", Badly("valid"), Served),
    mode("lost-404", Well, Served),
    mode("lost-400", Well, Served),
    mode("normal", Well, Served),
];

impl Mode {
    /// Returns a name that is valid in a configuration.
    fn server(&self) -> String {
        let args: String = self.args.iter().filter(|arg| arg.contains("back")).copied().collect();
        format!("{}{args}", self.name)
    }

    fn command(&self, script: &str, era: &str, at: &str) -> Vec<String> {
        let own = ["--mode", self.name, "--era", era, "--at", at, "--lifetime", "300"];
        let script = format!("{}/tests/fixtures/{script}", env!("CARGO_MANIFEST_DIR"));
        let args = own.iter().chain(self.args).map(ToString::to_string);
        std::iter::once(script).chain(args).collect()
    }

    fn stdio(&self, era: &str, at: &str, tag: &Tag) -> String {
        let args = self.command("hostile.py", era, at);
        format!("command = \"python3\"\nargs = {args:?}\nenv = {{ {} }}\n{CHILD}", tag.env())
    }

    fn http(&self, era: &str, at: &str) -> HttpServer {
        HttpServer::announcing(Command::new("python3").args(self.command(
            "hostile_http.py",
            era,
            at,
        )))
    }
}

const CHILD: &str = "stop_timeout = \"300ms\"\nmax_restarts = 100\n";

fn table(name: &str, transport: &str, settings: &str) -> String {
    let timeout = if settings.is_empty() { "timeout = \"15s\"\n" } else { settings };
    format!("\n[servers.{name}]\n{transport}{timeout}max_timeout = \"15s\"\n")
}

fn healthy(tag: &Tag) -> String {
    let own = format!(
        "command = {TRUNKLINE:?}\nargs = [\"example\", \"clock\"]\nenv = {{ {} }}\n",
        tag.env()
    );
    format!("\n[servers.healthy]\n{own}")
}

async fn clients(gateway: &Process) -> [(&'static str, Client); 2] {
    [
        ("Modern", Client::modern(gateway.address)),
        ("Legacy", Client::legacy(gateway.address, "2025-11-25").await),
    ]
}

/// Returns the difference from the expected outcome.
fn judge(said: &Said, ends: Ends) -> Result<(), String> {
    let result = &said.answer()["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    match ends {
        Well if result["isError"] != true && text.starts_with("bad") => Ok(()),
        Badly(words) if result["isError"] == true && text.contains(words) => Ok(()),
        _ => Err(format!("{said:?}").chars().take(400).collect()),
    }
}

/// Calls the bad tool, and good ones during and after it.
async fn misbehave(client: &Client, mode: &Mode) -> Vec<String> {
    let (name, mut faults) = (mode.server(), Vec::new());
    let tool = |tool: &str| format!("{name}__{tool}");
    let bad = async {
        client.ask_call(&tool("bad"), json!({})).token(json!(7)).send().await.said().await
    };
    let good = async {
        if mode.others == Concerned {
            return Vec::new();
        }
        let tool = tool("good");
        join_all((0..3).map(|_| client.call_good(&tool))).await
    };
    let healthy = async {
        let mut faults = Vec::new();
        for _ in 0..3 {
            faults.extend(client.call_good("healthy__now").await);
        }
        faults
    };
    let (bad, good, healthy) = futures_util::future::join3(bad, good, healthy).await;
    if let Err(fault) = judge(&bad, mode.ends) {
        faults.push(format!("{name}: {fault}"));
    }
    faults.extend(good.into_iter().flatten().chain(healthy));
    // The fixture's remaining messages may affect the next answers. The server recovers by itself,
    // or is restarted.
    let until = Instant::now() + Duration::from_secs(15);
    while let Some(fault) = client.call_good(&tool("good")).await {
        if Instant::now() > until || mode.others == Served {
            faults.push(format!("afterwards: {fault}"));
            break;
        }
    }
    faults
}

trait CallGood {
    async fn call_good(&self, tool: &str) -> Option<String>;
}

impl CallGood for Client {
    /// Calls a working tool; returns the fault if it fails.
    async fn call_good(&self, tool: &str) -> Option<String> {
        let said = self.call(tool, json!({})).await;
        let result = &said.answer()["result"];
        let well = result["content"][0]["text"].is_string() && result["isError"] != true;
        (!well).then(|| format!("{tool}: {said:?}").chars().take(400).collect())
    }
}

/// Makes all modes misbehave at once, for a client of each era.
async fn all_misbehave(modes: &[Mode], gateway: &Process) {
    let names: Vec<String> = modes.iter().map(Mode::server).collect();
    let mut ready: Vec<&str> = names.iter().map(String::as_str).collect();
    ready.push("healthy");
    gateway.ready(&ready);
    let mut faults = Vec::new();
    for (era, client) in clients(gateway).await {
        for fault in join_all(modes.iter().map(|mode| misbehave(&client, mode))).await.concat() {
            faults.push(format!("{era} client: {fault}"));
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

async fn hostile_children(era: &str) {
    let tag = Tag::new();
    let mut servers = healthy(&tag);
    for mode in &STDIO {
        servers += &table(&mode.server(), &mode.stdio(era, "call", &tag), mode.settings);
    }
    let mut gateway = Process::start(&servers);
    all_misbehave(&STDIO, &gateway).await;
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().success());
    tag.gone();
}

async fn hostile_http_servers(era: &str) {
    let tag = Tag::new();
    let fixtures: Vec<HttpServer> = HTTP.iter().map(|mode| mode.http(era, "call")).collect();
    let mut servers = healthy(&tag);
    for (mode, fixture) in HTTP.iter().zip(&fixtures) {
        let url = format!("url = {:?}\n", fixture.url());
        servers += &table(&mode.server(), &url, mode.settings);
    }
    let gateway = Process::start(&servers);
    all_misbehave(&HTTP, &gateway).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_legacy_children_spoil_their_own_calls_alone() {
    hostile_children("legacy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_modern_children_spoil_their_own_calls_alone() {
    hostile_children("modern").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_legacy_http_servers_spoil_their_own_calls_alone() {
    hostile_http_servers("legacy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_modern_http_servers_spoil_their_own_calls_alone() {
    hostile_http_servers("modern").await;
}

/// The first 100 MB of an endless answer cost the gateway no more than its limit for one answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_100_mb_costs_no_more_than_the_limit() {
    let tag = Tag::new();
    let small = "max_response = \"4MiB\"\n";
    let huge = [&STDIO[2], &STDIO[3]];
    let (body, event) =
        (http_mode("huge").http("legacy", "call"), http_mode("huge-event").http("modern", "call"));
    let mut servers = healthy(&tag);
    for mode in huge {
        servers += &table(&mode.server(), &(mode.stdio("legacy", "call", &tag) + small), "");
    }
    for (name, fixture) in [("body", &body), ("event", &event)] {
        servers += &table(name, &format!("url = {:?}\n{small}", fixture.url()), "");
    }
    let gateway = Process::start(&servers);
    let names = [huge[0].server(), huge[1].server(), "body".into(), "event".into()];
    gateway.ready(&names.each_ref().map(String::as_str));
    let client = Client::modern(gateway.address);
    let before = gateway.memory("VmHWM");
    for _ in 0..2 {
        let calls = names.each_ref().map(|name| {
            let (client, tool) = (&client, format!("{name}__bad"));
            async move { client.call(&tool, json!({})).await }
        });
        for said in join_all(calls).await {
            assert!(
                said.is_error() && said.text().contains("larger than 4194304 bytes"),
                "{said:?}"
            );
        }
    }
    let most = gateway.memory("VmHWM");
    // Four at once, with buffers that grow by doubling; less than one complete answer.
    assert!(most < before + 90 * 1024, "from {before} to {most} KiB");
}

fn http_mode(name: &str) -> &'static Mode {
    HTTP.iter().find(|mode| mode.name == name).unwrap()
}

/// Sends a call without a library; returns all bytes until the connection's end.
fn call_by_hand(gateway: &Process, tool: &str) -> String {
    use std::io::{Read as _, Write as _};
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "hand", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut socket = std::net::TcpStream::connect(gateway.address).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: {tool}\r\ncontent-length: {}\r\n\r\n",
        gateway.address,
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A closed connection may appear as a reset.
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_turns_out_too_large_is_cut_and_never_looks_whole() {
    let mode = mode("huge-chunked", Well, Served);
    let fixture = mode.http("legacy", "call");
    let transport = format!("url = {:?}\nmax_response = \"4MiB\"\n", fixture.url());
    let gateway = Process::start(&table("big", &transport, ""));
    gateway.ready(&["big"]);
    let answer = call_by_hand(&gateway, "big__bad");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("chunked"), "{answer:.300}");
    assert!(answer.len() > 1 << 20, "{} bytes", answer.len());
    assert!(!answer.ends_with("0\r\n\r\n"), "it looks whole");
    assert!(call_by_hand(&gateway, "big__good").ends_with('}'));
}

/// Servers that misbehave before they are ready, and true for those that become ready.
const AT_START: [(&str, bool); 17] = [
    ("garbage", true),
    ("half", false),
    ("huge", false),
    ("wrong-id", false),
    ("duplicate", true),
    ("both", false),
    ("shapeless", false),
    ("silence", false),
    ("drip", false),
    ("exit", false),
    ("flood", true),
    ("utf8", true),
    ("deep", false),
    ("close", false),
    ("stderr", true),
    ("ask", true),
    ("deaf", true),
];

/// Starts every child that misbehaves in its handshake, and one that works, which must not be
/// affected.
async fn misbehaving_at_start(era: &str) {
    let tag = Tag::new();
    let mut servers = String::new();
    for (name, becomes_ready) in AT_START {
        let mode = Mode { args: &["--seconds", "1"], ..mode(name, Well, Served) };
        let patience = match name {
            _ if becomes_ready => 50,
            "silence" => 12,
            _ => 4,
        };
        let transport =
            mode.stdio(era, "start", &tag) + &format!("start_timeout = \"{patience}s\"\n");
        servers += &table(name, &transport, "");
    }
    servers += &healthy(&tag);
    let mut gateway = Process::start(&servers);
    let client = Client::modern(gateway.address);
    gateway.ready(&["healthy"]);
    assert_eq!(gateway.server("silence")["state"], "connecting", "it did not wait for the others");
    assert_eq!(client.call_good("healthy__now").await, None);
    let verdicts = |gateway: &Process| {
        AT_START.map(|(name, _)| {
            let server = gateway.server(name);
            (server["state"] == "ready", server["last_error"].as_object().is_some())
        })
    };
    eventually("all have a verdict", || {
        verdicts(&gateway).iter().all(|(ready, failed)| *ready || *failed)
    });
    let mut faults = Vec::new();
    for ((name, expected), (ready, _)) in AT_START.into_iter().zip(verdicts(&gateway)) {
        if ready != expected {
            faults.push(format!("{name}: {}", gateway.server(name)));
        } else if !expected {
            let said = client.call(&format!("{name}__good"), json!({})).await;
            assert_eq!(said.code(), -32602, "no list, no tool: {said:?}");
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(client.call_good("healthy__now").await, None);
    gateway.signal(Signal::TERM);
    assert!(gateway.ended().success());
    tag.gone();
}

#[tokio::test(flavor = "multi_thread")]
async fn legacy_children_that_misbehave_at_start_delay_no_client() {
    misbehaving_at_start("legacy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modern_children_that_misbehave_at_start_delay_no_client() {
    misbehaving_at_start("modern").await;
}

/// A Legacy server that mishandles `server/discover` is served as a Legacy server.
#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_child_may_take_the_probe_as_badly_as_it_likes() {
    let tag = Tag::new();
    let mut servers = String::new();
    let names = AT_START.map(|(name, _)| name);
    for name in names {
        let mode = Mode { args: &["--seconds", "1"], ..mode(name, Well, Served) };
        let transport = mode.stdio("legacy", "probe", &tag) + "start_timeout = \"12s\"\n";
        servers += &table(name, &transport, "");
    }
    let gateway = Process::start(&servers);
    gateway.ready(&names);
    let client = Client::modern(gateway.address);
    for name in names {
        assert_eq!(client.call_good(&format!("{name}__good")).await, None);
    }
}
