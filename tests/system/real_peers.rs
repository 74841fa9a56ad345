//! Every client of the official SDKs against every real server, all behind one
//! gateway at once, both eras on both sides: list, call, progress, cancel,
//! list-changed. Prints a table.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::peers::{Driver, HttpServer, file, progress_of, reference};
use super::process::{Process, TRUNKLINE, Tag};
use super::rmcp_client;
use super::rmcp_server::RustServer;

use crate::support::until;

/// A server behind the gateway, and its features.
struct Server {
    name: &'static str,
    /// Its table in the configuration.
    toml: String,
    call: Asked,
    /// A call, and the progress that it reports.
    progress: Can<(Asked, &'static [f64])>,
    cancel: Can<Cancel>,
    changes: Can<&'static str>,
}

/// A call, and a part of its result's text.
struct Asked {
    tool: &'static str,
    arguments: Value,
    says: &'static str,
}

/// A feature of a server, or the reason that it is missing.
type Can<T> = Result<T, &'static str>;

/// Evidence that a server has noticed a cancellation.
enum Cancel {
    /// A line in the cancellation log.
    Log,
    /// A record of the Rust server.
    Told,
    /// None: the client's side and the call after it are checked.
    Unseen(&'static str, Value),
}

const FIXED: &str = "its list is fixed";
const QUICK: &str = "its tools answer at once";
const DEAF: &str =
    "it does not show whether it noticed: that the client is free and the server works is checked";

fn asked(tool: &'static str, arguments: Value, says: &'static str) -> Asked {
    Asked { tool, arguments, says }
}

/// Returns a server with `add`, `slow` and a tool that changes the list.
fn growing(name: &'static str, toml: String, cancel: Cancel, grow: &'static str) -> Server {
    let slow = json!({ "steps": 3, "delay_ms": 20 });
    Server {
        name,
        toml,
        call: asked("add", json!({ "a": 1, "b": 2 }), "3"),
        progress: Ok((asked("slow", slow, "done after 3 steps"), &[1.0, 2.0, 3.0])),
        cancel: Ok(cancel),
        changes: Ok(grow),
    }
}

fn reference_everything(name: &'static str, toml: String) -> Server {
    let short = json!({ "duration": 0.06, "steps": 3 });
    let long = json!({ "duration": 30, "steps": 600 });
    Server {
        name,
        toml,
        call: asked("echo", json!({ "message": "hello" }), "Echo: hello"),
        progress: Ok((
            asked("trigger-long-running-operation", short, "completed"),
            &[1.0, 2.0, 3.0],
        )),
        cancel: Ok(Cancel::Unseen("trigger-long-running-operation", long)),
        changes: Err(FIXED),
    }
}

fn quick(name: &'static str, toml: String, call: Asked) -> Server {
    Server { name, toml, call, progress: Err(QUICK), cancel: Err(QUICK), changes: Err(FIXED) }
}

/// All servers behind the gateway.
struct Behind {
    servers: Vec<Server>,
    log: PathBuf,
    rust: RustServer,
    _http: Vec<HttpServer>,
}

async fn behind(folder: &Path, tag: &Tag) -> Behind {
    let log = folder.join("cancelled");
    let env = format!("{}, EVERYTHING_CANCEL_LOG = \"{}\"", tag.env(), log.display());
    let stdio = |program: &str, args: &[&str], more: &str| {
        format!("command = {program:?}\nargs = {args:?}\nenv = {{ {env}{more} }}\n")
    };
    let http = |server: &HttpServer| format!("url = {:?}\n", server.url());
    let (python_1, python_2) = (file(".venv-v1/bin/python"), file(".venv-v2/bin/python"));
    let (legacy, everything) = (file("legacy_server.py"), file("everything_server.py"));
    let python = |program: &str, script: &str| {
        let mut command = Command::new(program);
        command.args([script, "--port", "0"]).env("EVERYTHING_CANCEL_LOG", &log);
        HttpServer::announcing(&mut command)
    };
    let http_servers =
        vec![python(&python_1, &legacy), python(&python_2, &everything), HttpServer::everything()];
    let rust = RustServer::start().await;
    let shared = folder.join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("greeting.txt"), "hello from a file").unwrap();
    let shared = shared.to_str().unwrap();
    let memory = format!(", MEMORY_FILE_PATH = \"{}\"", folder.join("memory.json").display());
    let (grow_1, grow_2) = ("grow", "test_trigger_tool_change");
    let node = |program: &str, args: &[&str], more: &str| {
        stdio("node", &[&[reference(program).as_str()], args].concat(), more)
    };
    let greeting = json!({ "path": format!("{shared}/greeting.txt") });
    let now = json!({ "zone": "Europe/Berlin" });
    let servers = vec![
        reference_everything("ts-stdio", node("server-everything", &["stdio"], "")),
        reference_everything("ts-http", http(&http_servers[2])),
        quick(
            "files",
            node("server-filesystem", &[shared], ""),
            asked("read_text_file", greeting, "hello from a file"),
        ),
        quick(
            "memory",
            node("server-memory", &[], &memory),
            asked("read_graph", json!({}), "entities"),
        ),
        growing("py2-stdio", stdio(&python_2, &[&everything, "--stdio"], ""), Cancel::Log, grow_2),
        growing("py2-http", http(&http_servers[1]), Cancel::Log, grow_2),
        growing(
            "py2-legacy",
            stdio(&python_2, &[&everything, "--stdio"], "") + "era = \"legacy\"\n",
            Cancel::Log,
            grow_2,
        ),
        growing("py1-stdio", stdio(&python_1, &[&legacy, "--stdio"], ""), Cancel::Log, grow_1),
        growing("py1-http", http(&http_servers[0]), Cancel::Log, grow_1),
        growing(
            "rmcp-http",
            format!("url = \"http://{}/mcp\"\n", rust.address),
            Cancel::Told,
            "grow",
        ),
        Server {
            name: "clock",
            toml: stdio(TRUNKLINE, &["example", "clock"], ""),
            call: asked("now", now, "Berlin"),
            progress: Ok((asked("countdown", json!({ "seconds": 1 }), "finished"), &[1.0])),
            cancel: Ok(Cancel::Unseen("countdown", json!({ "seconds": 60 }))),
            changes: Err(FIXED),
        },
        quick(
            "notes",
            stdio(TRUNKLINE, &["example", "notes"], ""),
            asked("list", json!({}), "total"),
        ),
    ];
    Behind { servers, log, rust, _http: http_servers }
}

/// A client in front of the gateway.
struct Client {
    name: &'static str,
    era: &'static str,
    driver: Option<Driver>,
}

impl Client {
    async fn run(&self, url: &str, steps: &[Value]) -> Vec<Value> {
        match &self.driver {
            Some(driver) => driver.run(url, steps).await,
            None => rmcp_client::run(self.era, url, steps).await,
        }
    }
}

fn clients() -> Vec<Client> {
    let sdk = |name, program, script, era| Client {
        name,
        era,
        driver: Some(Driver { program, script, era }),
    };
    let (python_1, python_2) = (".venv-v1/bin/python", ".venv-v2/bin/python");
    vec![
        sdk("ts1", "node", "clients/ts_v1.mjs", "legacy"),
        sdk("ts2-legacy", "node", "clients/ts_v2.mjs", "legacy"),
        sdk("ts2-modern", "node", "clients/ts_v2.mjs", "modern"),
        sdk("py1", python_1, "clients/py_v1.py", "legacy"),
        sdk("py2-legacy", python_2, "clients/py_v2.py", "legacy"),
        sdk("py2-modern", python_2, "clients/py_v2.py", "modern"),
        Client { name: "rmcp-legacy", era: "legacy", driver: None },
        Client { name: "rmcp-modern", era: "modern", driver: None },
    ]
}

/// Subject of a column of the table.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    List,
    Call,
    Progress,
    Cancel,
    Changes,
}

const COLUMNS: [(Column, char); 5] = [
    (Column::List, 'L'),
    (Column::Call, 'C'),
    (Column::Progress, 'P'),
    (Column::Cancel, 'X'),
    (Column::Changes, 'N'),
];

/// The steps of one client, with the server and the column of each.
struct Script {
    steps: Vec<Value>,
    owners: Vec<(usize, Column)>,
}

impl Script {
    /// Returns all steps but the changes of the list.
    fn of(client: &Client, servers: &[Server]) -> Self {
        let mut script = Self { steps: Vec::new(), owners: Vec::new() };
        for (index, server) in servers.iter().enumerate() {
            script.server(client, index, server);
        }
        script
    }

    /// Returns the steps that change the list.
    fn of_changes(client: &Client, servers: &[Server]) -> Self {
        let mut script = Self { steps: Vec::new(), owners: Vec::new() };
        for (index, server) in servers.iter().enumerate() {
            script.change(client, index, server);
        }
        script
    }

    fn push(&mut self, owner: (usize, Column), step: Value) {
        self.steps.push(step);
        self.owners.push(owner);
    }

    fn change(&mut self, client: &Client, index: usize, server: &Server) {
        let Ok(grow) = &server.changes else { return };
        let added = format!("added-by-{}", client.name);
        let key = if *grow == "grow" { "name" } else { "add" };
        let mut step = call(server, grow, &json!({ key: added }));
        step["op"] = json!("call_and_wait_list_changed");
        self.push((index, Column::Changes), step);
        self.push((index, Column::Changes), call(server, &added, &json!({})));
    }

    fn server(&mut self, client: &Client, index: usize, server: &Server) {
        self.push((index, Column::List), json!({ "op": "list" }));
        self.push((index, Column::Call), call(server, server.call.tool, &server.call.arguments));
        if let Ok((progress, expected)) = &server.progress {
            let mut step = call(server, progress.tool, &progress.arguments);
            step["expect"] = json!(expected.len());
            step["progress"] = json!(true);
            self.push((index, Column::Progress), step);
        }
        if let Ok(cancel) = &server.cancel {
            let label = format!("{}-by-{}", server.name, client.name);
            let (tool, arguments) = match cancel {
                Cancel::Unseen(tool, arguments) => (*tool, arguments.clone()),
                _ => ("slow", json!({ "steps": 1000, "delay_ms": 20, "label": label })),
            };
            let mut step = call(server, tool, &arguments);
            step["op"] = json!("call_cancel");
            step["after_progress"] = json!(1);
            step["settle_ms"] = json!(50);
            self.push((index, Column::Cancel), step);
            // The server continues to work.
            self.push(
                (index, Column::Cancel),
                call(server, server.call.tool, &server.call.arguments),
            );
        }
    }
}

/// Returns the step that calls a server's tool by its public name.
fn call(server: &Server, tool: &str, arguments: &Value) -> Value {
    json!({ "op": "call", "name": format!("{}__{tool}", server.name), "arguments": arguments })
}

/// Checks a step's line; the error is the difference from the expected one.
fn judge(column: Column, server: &Server, step: &Value, line: &Value) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {line}"));
    if line["ok"] != true {
        return wrong("failed");
    }
    let result = &line["result"];
    let says = |result: &Value, words: &str| {
        result["isError"] != true && result["content"].to_string().contains(words)
    };
    match (column, step["op"].as_str().unwrap()) {
        (Column::List, _) => {
            let public = json!(format!("{}__{}", server.name, server.call.tool));
            let listed = result["names"].as_array().is_some_and(|names| names.contains(&public));
            if listed { Ok(()) } else { wrong("not listed") }
        }
        (Column::Progress, _) => {
            let (asked, expected) = server.progress.as_ref().unwrap();
            if progress_of(result) != *expected {
                return wrong("other progress");
            }
            if says(&result["result"], asked.says) { Ok(()) } else { wrong("another result") }
        }
        (_, "call_cancel") if result["cancelled"] == true => Ok(()),
        (_, "call_cancel") => wrong("not cancelled"),
        (Column::Changes, "call_and_wait_list_changed") => Ok(()),
        (Column::Changes, _) if says(result, "was added while the server ran") => Ok(()),
        (_, _) if says(result, server.call.says) => Ok(()),
        _ => wrong("another result"),
    }
}

/// Waits until the server has noticed the cancellation, which may take a moment.
async fn noticed(behind: &Behind, server: &Server, client: &Client) -> Result<(), String> {
    let label = format!("{}-by-{}", server.name, client.name);
    let is_seen = || match server.cancel.as_ref().unwrap() {
        Cancel::Unseen(..) => true,
        Cancel::Told => behind.rust.cancelled().contains(&label),
        Cancel::Log => {
            let log = std::fs::read_to_string(&behind.log).unwrap_or_default();
            log.lines().any(|line| line == format!("cancelled slow {label}"))
        }
    };
    let noticed = tokio::time::timeout(Duration::from_secs(5), until(is_seen)).await;
    noticed.map_err(|_| "the server did not notice the cancellation".into())
}

/// A client's steps and their results: a line for connecting, then one a step.
struct Run {
    script: Script,
    lines: Vec<Value>,
}

impl Run {
    fn append(&mut self, script: Script, lines: Vec<Value>) {
        self.lines.resize(self.script.steps.len() + 1, Value::Null);
        self.script.steps.extend(script.steps);
        self.script.owners.extend(script.owners);
        self.lines.extend(lines.into_iter().skip(1));
    }
}

/// The table, and all failures.
#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
    faults: Vec<String>,
}

impl Table {
    async fn add(&mut self, behind: &Behind, client: &Client, run: &Run) {
        let Run { script, lines } = run;
        let connected = lines
            .first()
            .is_some_and(|line| line["ok"] == true && line["result"]["era"] == client.era);
        if !connected {
            self.faults.push(format!("{}: not connected: {:?}", client.name, lines.first()));
        }
        let mut row = Vec::new();
        for (index, server) in behind.servers.iter().enumerate() {
            let mut cell = String::new();
            for (column, letter) in COLUMNS {
                let own: Vec<usize> = (0..script.steps.len())
                    .filter(|at| script.owners[*at] == (index, column))
                    .collect();
                if own.is_empty() {
                    cell.push('-');
                    continue;
                }
                let judged = own.iter().try_for_each(|at| {
                    let line = lines.get(at + 1).cloned().unwrap_or_default();
                    judge(column, server, &script.steps[*at], &line)
                });
                let judged = match judged {
                    Ok(()) if column == Column::Cancel => noticed(behind, server, client).await,
                    judged => judged,
                };
                let unseen =
                    column == Column::Cancel && matches!(server.cancel, Ok(Cancel::Unseen(..)));
                cell.push(match &judged {
                    Ok(()) if unseen => 'x',
                    Ok(()) => letter,
                    Err(_) => '!',
                });
                if let Err(fault) = judged {
                    let cut: String = fault.chars().take(600).collect();
                    self.faults.push(format!("{} × {}, {letter}: {cut}", client.name, server.name));
                }
            }
            row.push(cell);
        }
        self.rows.push(row);
    }

    fn print(&self, clients: &[Client], behind: &Behind) -> String {
        let mut text = String::from("\n| server |");
        for client in clients {
            write!(text, " {} |", client.name).unwrap();
        }
        text.push_str("\n|---|");
        text.push_str(&"---|".repeat(clients.len()));
        for (index, server) in behind.servers.iter().enumerate() {
            write!(text, "\n| {} |", server.name).unwrap();
            for row in &self.rows {
                write!(text, " {} |", row[index]).unwrap();
            }
        }
        text.push_str("\n\nL list, C call, P progress, X cancel (noticed by the server), N list-changed; ! failed\n");
        for server in &behind.servers {
            let reasons = [
                ("P", server.progress.as_ref().err()),
                ("X", server.cancel.as_ref().err()),
                ("N", server.changes.as_ref().err()),
            ];
            for (letter, reason) in reasons {
                if let Some(reason) = reason {
                    writeln!(text, "- {} without {letter}: {reason}", server.name).unwrap();
                }
            }
            if matches!(server.cancel, Ok(Cancel::Unseen(..))) {
                writeln!(text, "- {} with x: {DEAF}", server.name).unwrap();
            }
        }
        text
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_uses_every_server_through_one_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let tag = Tag::new();
    let behind = behind(folder.path(), &tag).await;
    let mut servers = String::new();
    for server in &behind.servers {
        write!(servers, "\n[servers.{}]\n{}", server.name, server.toml).unwrap();
    }
    let gateway = Process::start(&servers);
    let names: Vec<&str> = behind.servers.iter().map(|server| server.name).collect();
    gateway.ready(&names);
    let clients = clients();
    let url = gateway.url();
    let mut runs = Vec::new();
    let everything = clients.iter().map(|client| {
        let script = Script::of(client, &behind.servers);
        async {
            let lines = client.run(&url, &script.steps).await;
            Run { script, lines }
        }
    });
    runs.extend(join_all(everything).await);
    // One after another, so that each is notified of its own change.
    for (client, run) in clients.iter().zip(&mut runs) {
        let script = Script::of_changes(client, &behind.servers);
        let lines = client.run(&url, &script.steps).await;
        run.append(script, lines);
    }
    let mut table = Table::default();
    for (client, run) in clients.iter().zip(&runs) {
        table.add(&behind, client, run).await;
    }
    println!("{}", table.print(&clients, &behind));
    assert!(table.faults.is_empty(), "{}", table.faults.join("\n"));
    drop(gateway);
    tag.gone();
}
