//! Servers that misbehave, in every way that the fixtures know, over both
//! transports and in both eras: each spoils its own call and nothing else.

use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;

use super::peers::HttpServer;
use super::process::{Process, TRUNKLINE, Tag};
use super::support::{Client, Said};

/// A way to misbehave, and how a call of it ends.
struct Mode {
    name: &'static str,
    args: &'static [&'static str],
    /// Other settings than the rest have.
    settings: &'static str,
    ends: Ends,
    /// What becomes of calls of the same server's good tool meanwhile.
    others: Others,
}

#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// With the answer: what was wrong with it does not matter.
    Well,
    /// With a tool result that reports an error, in which these words are.
    Badly(&'static str),
}

#[derive(Clone, Copy, PartialEq)]
enum Others {
    /// They have their answers.
    Served,
    /// The process, or its only pipe, is gone or blocked: they wait or fail, too.
    Concerned,
}

use Ends::{Badly, Well};
use Others::{Concerned, Served};

const fn mode(name: &'static str, ends: Ends, others: Others) -> Mode {
    Mode { name, args: &[], settings: "", ends, others }
}

const PATIENT: &str = "timeout = \"15s\"\n";

/// The modes of `hostile.py`.
const STDIO: [Mode; 19] = [
    mode("garbage", Well, Served),
    mode("half", Badly("no valid JSON"), Concerned),
    mode("huge", Badly("larger than"), Concerned),
    Mode { args: &["--id-at", "back"], ..mode("huge", Badly("larger than"), Concerned) },
    Mode { args: &["--seconds", "4"], ..mode("endless-line", Badly("within 3.0 s"), Concerned) },
    mode("wrong-id", Badly("within 3.0 s"), Served),
    mode("duplicate", Well, Served),
    mode("both", Badly("invalid"), Served),
    mode("shapeless", Badly("invalid answer"), Served),
    mode("silence", Badly("within 3.0 s"), Served),
    Mode { settings: PATIENT, ..mode("drip", Well, Concerned) },
    mode("exit", Badly("it ended"), Concerned),
    Mode { args: &["--seconds", "1"], ..mode("flood", Well, Served) },
    mode("utf8", Badly("valid"), Served),
    mode("deep", Badly("valid"), Served),
    mode("close", Badly("it ended"), Concerned),
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
    mode("endless-body", Badly("within 3.0 s"), Served),
    Mode { settings: PATIENT, ..mode("drip", Well, Served) },
    mode("huge", Badly("larger than"), Served),
    mode("huge-event", Badly("larger than"), Served),
    mode("sse-endless", Badly("within 3.0 s"), Served),
    mode("sse-garbage", Badly("valid"), Served),
    mode("sse-closed", Badly("without an answer"), Served),
    mode("sse-split", Well, Served),
    mode("priming", Well, Served),
    mode("reset", Badly("broke off"), Served),
    mode("half", Badly("broke off"), Served),
    mode("silence", Badly("within 3.0 s"), Served),
    mode("wrong-id", Badly("another request"), Served),
    mode("invalid-utf8", Badly("valid"), Served),
    mode("lost-404", Well, Served),
    mode("lost-400", Well, Served),
    mode("normal", Well, Served),
];

impl Mode {
    /// A name that fits a configuration.
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
    let timeout = if settings.is_empty() { "timeout = \"3s\"\n" } else { settings };
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

/// What is wrong with how a call ended.
fn judge(said: &Said, ends: Ends) -> Result<(), String> {
    let result = &said.answer()["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    match ends {
        Well if result["isError"] != true && text.starts_with("bad") => Ok(()),
        Badly(words) if result["isError"] == true && text.contains(words) => Ok(()),
        _ => Err(format!("{said:?}").chars().take(400).collect()),
    }
}

/// Calls the bad tool, and good ones beside it and after it.
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
    // What the fixture still has to say may take the next answers with it; the
    // server comes back by itself, or is brought back.
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
    /// Calls a tool that works; says what is wrong if it does not.
    async fn call_good(&self, tool: &str) -> Option<String> {
        let said = self.call(tool, json!({})).await;
        let result = &said.answer()["result"];
        let well = result["content"][0]["text"].is_string() && result["isError"] != true;
        (!well).then(|| format!("{tool}: {said:?}").chars().take(400).collect())
    }
}

/// Has every mode misbehave at once, for a client of each era.
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
