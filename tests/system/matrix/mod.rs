//! All features of MCP, by all clients and with all servers: features × client SDK and era × server
//! SDK, era and transport. Prints a table.
//!
//! The servers are the everything-servers, each of one era alone. First the drivers run directly
//! against the servers: a feature that works there must work through one gateway in front of all
//! servers, in all combinations of eras. An impossible combination is in [`EMPTY`] with its reason,
//! and fails when it works. Events around calls and lists are in [`situations`], with scripted
//! peers.

mod features;
mod situations;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::Value;

use super::peers::{Driver, HttpServer, file};
use super::process::{Process, Tag, text};
use super::rmcp_client;
use features::{CANCEL, FEATURES, Feature, Names, TASKS, Told, Use, cancel_label};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Era {
    Legacy,
    Modern,
}

impl Era {
    fn word(self) -> &'static str {
        if self == Self::Legacy { "legacy" } else { "modern" }
    }
}

/// A client in front.
struct Client {
    name: &'static str,
    era: Era,
    driver: Option<Driver>,
}

impl Client {
    async fn run(&self, target: &str, steps: &[Value]) -> Vec<Value> {
        match &self.driver {
            Some(driver) => driver.run(target, steps).await,
            None => rmcp_client::run(self.era.word(), target, steps).await,
        }
    }
}

fn clients() -> Vec<Client> {
    let sdk = |name, program, script, era: Era| Client {
        name,
        era,
        driver: Some(Driver { program, script, era: era.word() }),
    };
    let (python_1, python_2) = (".venv-v1/bin/python", ".venv-v2/bin/python");
    let (legacy, modern) = (Era::Legacy, Era::Modern);
    vec![
        sdk("ts1", "node", "clients/ts_v1.mjs", legacy),
        sdk("ts2-legacy", "node", "clients/ts_v2.mjs", legacy),
        sdk("ts2-modern", "node", "clients/ts_v2.mjs", modern),
        sdk("py1", python_1, "clients/py_v1.py", legacy),
        sdk("py2-legacy", python_2, "clients/py_v2.py", legacy),
        sdk("py2-modern", python_2, "clients/py_v2.py", modern),
        Client { name: "rmcp-legacy", era: legacy, driver: None },
        Client { name: "rmcp-modern", era: modern, driver: None },
    ]
}

/// A server behind.
struct Server {
    name: &'static str,
    era: Era,
    command: Vec<String>,
    /// Its HTTP server, if it has one.
    http: Option<HttpServer>,
}

/// SDK, era, true for HTTP, and the name of the combination.
const SERVERS: [(&str, Era, bool, &str); 12] = [
    ("py", Era::Legacy, true, "py-legacy-http"),
    ("py", Era::Legacy, false, "py-legacy-stdio"),
    ("py", Era::Modern, true, "py-modern-http"),
    ("py", Era::Modern, false, "py-modern-stdio"),
    ("ts", Era::Legacy, true, "ts-legacy-http"),
    ("ts", Era::Legacy, false, "ts-legacy-stdio"),
    ("ts", Era::Modern, true, "ts-modern-http"),
    ("ts", Era::Modern, false, "ts-modern-stdio"),
    ("rs", Era::Legacy, true, "rs-legacy-http"),
    ("rs", Era::Legacy, false, "rs-legacy-stdio"),
    ("rs", Era::Modern, true, "rs-modern-http"),
    ("rs", Era::Modern, false, "rs-modern-stdio"),
];

impl Server {
    fn start(
        (sdk, era, is_http, name): (&'static str, Era, bool, &'static str),
        log: &Path,
    ) -> Self {
        let mut command = match sdk {
            "py" => vec![file(".venv-v2/bin/python"), file("everything_server.py")],
            "ts" => vec!["node".into(), file("everything_server_v2.mjs")],
            _ => vec![rust_server()],
        };
        let more = ["--era", era.word(), "--page-size", "7"];
        command.extend(more.iter().map(|word| (*word).to_owned()));
        let http = is_http.then(|| {
            let mut process = Command::new(&command[0]);
            process.args(&command[1..]).args(["--port", "0"]).env("EVERYTHING_CANCEL_LOG", log);
            HttpServer::announcing(&mut process)
        });
        command.push("--stdio".into());
        Self { name, era, command, http }
    }

    /// Returns its table in the gateway's configuration.
    fn toml(&self, env: &str) -> String {
        match &self.http {
            Some(http) => format!("url = {:?}\n", http.url()),
            None => {
                let (program, args) = self.command.split_first().unwrap();
                format!("command = {program:?}\nargs = {args:?}\nenv = {{ {env} }}\n")
            }
        }
    }
}

/// Returns the everything-server on the Rust SDK, which cargo builds with the tests.
fn rust_server() -> String {
    let tests = std::env::current_exe().unwrap();
    let server = tests.parent().unwrap().parent().unwrap().join("examples/everything_server");
    assert!(server.exists(), "cargo build --example everything_server builds what is missing");
    server.to_str().unwrap().to_owned()
}

/// A cell that stays empty, with the reason: client, server and feature, each `*` or a part of the
/// name.
struct Empty(&'static str, &'static str, &'static str, &'static str);

const EMPTY: [Empty; 3] = [
    Empty(
        "!rmcp-modern",
        "*",
        TASKS,
        "of the SDKs' clients only rmcp has the extension, in the Modern era",
    ),
    Empty("rmcp-modern", "!rs", TASKS, "of the SDKs' servers only rmcp has the extension"),
    Empty("rmcp-modern", "rs-legacy", TASKS, "the extension is of the Modern era"),
];

/// Returns true if a name contains a part; `!` negates it.
fn fits(part: &str, name: &str) -> bool {
    match part.strip_prefix('!') {
        Some(part) => !fits(part, name),
        None => part == "*" || name.contains(part),
    }
}

fn reason(client: &Client, on: &Use<'_>, feature: &Feature) -> Option<&'static str> {
    let fitting = |Empty(c, s, f, _): &&Empty| {
        fits(c, client.name) && fits(s, on.server) && (*f == "*" || *f == feature.name)
    };
    EMPTY.iter().find(fitting).map(|Empty(.., reason)| *reason)
}

/// Returns true if the driver has a step of this kind.
fn can_ask(client: &Client, feature: &Feature) -> bool {
    feature.name != TASKS || client.driver.is_none()
}

#[derive(Clone)]
enum Cell {
    Ok,
    Empty(&'static str),
    Failed(String),
}

/// Cells of a client: for each server, for each feature of a round.
type Cells = Vec<Vec<Cell>>;

/// Returns the features in two rounds. A request of a shared Legacy child soon after a cancellation
/// could belong to the cancelled call, and is not forwarded to other clients. So all clients
/// complete the other features before any of them cancels.
fn rounds() -> [Vec<&'static Feature>; 2] {
    let (last, first) = FEATURES.iter().partition(|feature| feature.name == CANCEL);
    [first, last]
}

/// Returns the cells of both rounds, in the order of the features.
fn in_order([first, last]: [Vec<Cell>; 2]) -> Vec<Cell> {
    let (mut first, mut last) = (first.into_iter(), last.into_iter());
    let next = |feature: &Feature| if feature.name == CANCEL { last.next() } else { first.next() };
    FEATURES.iter().map(next).map(Option::unwrap).collect()
}

/// Runs one driver over some servers, with the features of a round.
async fn run(
    client: &Client,
    servers: &[&Server],
    target: &str,
    through: bool,
    (log, features): (&Path, &[&Feature]),
) -> Cells {
    let uses: Vec<_> = servers
        .iter()
        .map(|server| Use {
            names: Names { server: through.then_some(server.name) },
            client: client.name,
            server: server.name,
        })
        .collect();
    let mut steps = Vec::new();
    let mut places = Vec::new();
    for on in &uses {
        for feature in features {
            let own = if can_ask(client, feature) { (feature.steps)(on) } else { vec![] };
            places.push(steps.len()..steps.len() + own.len());
            steps.extend(own);
        }
    }
    let lines = client.run(target, &steps).await;
    let nothing = Value::Null;
    let connected = lines.first().unwrap_or(&nothing);
    let steps_told = lines.get(1..).unwrap_or_default();
    let mut cells = Vec::new();
    for (at, on) in uses.iter().enumerate() {
        let mut row = Vec::new();
        for (number, feature) in features.iter().enumerate() {
            let place = places[at * features.len() + number].clone();
            let lines = steps_told.get(place).unwrap_or_default();
            let told = Told { connected, lines };
            let judged =
                if connected["ok"] != true || connected["result"]["era"] != client.era.word() {
                    Err(format!("not connected: {connected}"))
                } else if !can_ask(client, feature) {
                    Err("the driver cannot ask for it".into())
                } else {
                    (feature.judge)(on, &told)
                };
            let judged = match judged {
                Ok(()) if feature.name == CANCEL => noticed(log, &cancel_label(on)).await,
                judged => judged,
            };
            row.push(match (judged, reason(client, on, feature)) {
                (Ok(()), None) => Cell::Ok,
                (Ok(()), Some(why)) => Cell::Failed(format!("works, though it is said: {why}")),
                (Err(_), Some(why)) => Cell::Empty(why),
                (Err(why), None) => Cell::Failed(why.chars().take(500).collect()),
            });
        }
        cells.push(row);
    }
    cells
}

/// Waits until the server has logged the cancellation, which may take a moment.
async fn noticed(log: &Path, label: &str) -> Result<(), String> {
    let line = format!("cancelled slow {label}");
    for _ in 0..500 {
        let written = std::fs::read_to_string(log).unwrap_or_default();
        if written.lines().any(|other| other == line) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("the server did not notice the cancellation".into())
}

/// Prints the rows, and returns their failures.
fn print(title: &str, rows: &[(String, Vec<Cell>)]) -> Vec<String> {
    let mut text = format!("\n{title}\n\n|");
    for (at, feature) in FEATURES.iter().enumerate() {
        write!(text, " {} {} |", letter(at), feature.name).unwrap();
    }
    text.push('\n');
    let mut reasons: Vec<&str> = Vec::new();
    let mut faults = Vec::new();
    for (name, cells) in rows {
        let mut row = String::new();
        for (at, cell) in cells.iter().enumerate() {
            row.push(match cell {
                Cell::Ok => letter(at),
                Cell::Empty(_) => '-',
                Cell::Failed(_) => '!',
            });
            match cell {
                Cell::Empty(why) if !reasons.contains(why) => reasons.push(why),
                Cell::Failed(why) => faults.push(format!("{name}, {}: {why}", FEATURES[at].name)),
                _ => {}
            }
        }
        writeln!(text, "{row}  {name}").unwrap();
    }
    for why in reasons {
        writeln!(text, "- {why}").unwrap();
    }
    println!("{text}");
    faults
}

fn letter(at: usize) -> char {
    char::from(b'A' + u8::try_from(at).unwrap())
}

fn log_in(folder: &Path) -> PathBuf {
    folder.join("cancelled")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_driver_has_every_feature_of_its_own_eras_servers() {
    let folder = tempfile::tempdir().unwrap();
    let log = log_in(folder.path());
    let servers: Vec<_> = SERVERS
        .into_iter()
        .filter(|(_, _, is_http, _)| *is_http)
        .map(|server| Server::start(server, &log))
        .collect();
    let clients = clients();
    // A server notifies all its clients about a change: one client at a time, but two servers.
    let each = stream::iter(&servers).map(|server| async {
        let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
        for client in clients.iter().filter(|client| client.era == server.era) {
            let url = server.http.as_ref().unwrap().url();
            let all: Vec<_> = FEATURES.iter().collect();
            let mut cells = run(client, &[server], &url, false, (&log, &all)).await;
            rows.push((format!("{} × {}", client.name, server.name), cells.remove(0)));
        }
        rows
    });
    let rows: Vec<_> = each.buffered(2).concat().await;
    let faults = print("Without a gateway:", &rows);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Starts a gateway with all servers behind it, for some of the clients.
async fn lane(clients: &[&Client], tag: &Tag) -> Vec<(String, Vec<Cell>)> {
    let folder = tempfile::tempdir().unwrap();
    let log = log_in(folder.path());
    let servers: Vec<_> = SERVERS.into_iter().map(|server| Server::start(server, &log)).collect();
    let env = format!("{}, EVERYTHING_CANCEL_LOG = \"{}\"", tag.env(), log.display());
    let mut toml = String::new();
    for server in &servers {
        write!(toml, "\n[servers.{}]\n{}", server.name, server.toml(&env)).unwrap();
    }
    // More than one page of each list, for clients that iterate pages.
    let config = text(&toml).replacen("[gateway]\n", "[gateway]\npage_size = 50\n", 1);
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, config).unwrap();
    let gateway = Process::start_with(tempfile::tempdir().unwrap(), &path, &[]);
    gateway.ready(&servers.iter().map(|server| server.name).collect::<Vec<_>>());
    let all: Vec<_> = servers.iter().collect();
    let mut told: [Vec<Vec<Cell>>; 2] = [Vec::new(), Vec::new()];
    for (features, cells) in rounds().iter().zip(&mut told) {
        for client in clients {
            cells.extend(run(client, &all, &gateway.url(), true, (&log, features)).await);
        }
    }
    let [first, last] = told;
    let names = clients.iter().flat_map(|client| {
        servers.iter().map(move |server| format!("{} × {}", client.name, server.name))
    });
    let cells = first.into_iter().zip(last).map(|(first, last)| in_order([first, last]));
    names.zip(cells).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_has_every_feature_of_every_server() {
    let tag = Tag::new();
    let clients = clients();
    // A server notifies all its clients about a change, so clients run one after another. Two
    // gateways may run at once, each with servers of its own.
    let (first, second): (Vec<_>, Vec<_>) =
        clients.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    let lanes =
        [first, second].map(|lane| lane.into_iter().map(|(_, client)| client).collect::<Vec<_>>());
    let rows: Vec<_> =
        stream::iter(&lanes).map(|clients| lane(clients, &tag)).buffered(2).concat().await;
    let faults = print("Through the gateway:", &rows);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    tag.gone();
}
