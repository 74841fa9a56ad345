//! All features of MCP, by all clients and with all servers: features × client SDK and era × server
//! SDK, eras and transport. Prints a table and the number of cells.
//!
//! The servers are the everything-servers: Legacy-only, Modern-only, and dual-era ones, which serve
//! both eras in one process. First the drivers run directly against the servers, over HTTP: a
//! feature that works there must work through a gateway in front of all servers of a transport, in
//! all combinations of eras. An impossible combination is in [`EMPTY`] with its reason, and fails when
//! it works. Events around calls and lists are in [`situations`], with scripted peers.

mod features;
mod servers;
mod situations;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};

use super::peers::Driver;
use super::process::{Tag, text};
use super::replicas::Front;
use super::rmcp_client;
use features::{CANCEL, FEATURES, Feature, Names, TASKS, Told, Use, cancel_label};
use servers::{Listed, SERVERS, Server};

use crate::support::until;

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

/// Returns true if the client has a step of this kind.
///
/// Tasks: the extension builds on the capabilities of each request, which the Legacy era lacks. The
/// Rust SDK uses it in a Legacy session all the same; the gateway gives such a client the result of
/// the finished task.
fn can_ask(client: &Client, feature: &Feature) -> bool {
    feature.name != TASKS || (client.driver.is_none() && client.era == Era::Modern)
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

/// The features of a round, and the file in which servers log cancelled calls.
#[derive(Clone, Copy)]
struct Round<'a> {
    features: &'a [&'a Feature],
    log: &'a Path,
}

/// The steps of one driver's run, and their positions by feature and server.
///
/// The order is feature by feature. The gateway requests a server's list at most once in a second:
/// with one server after another, most of the running time would be waiting for changes. Lists are
/// the same step for all servers and are requested once for each feature.
#[derive(Default)]
struct Script {
    steps: Vec<Value>,
    places: Vec<Vec<Vec<usize>>>,
}

impl Script {
    fn new(client: &Client, uses: &[Use<'_>], features: &[&Feature]) -> Self {
        let mut script = Self::default();
        for feature in features {
            let first = script.steps.len();
            let asks = can_ask(client, feature);
            let each = uses.iter().map(|on| if asks { (feature.steps)(on) } else { vec![] });
            let places =
                each.map(|own| own.into_iter().map(|step| script.add(first, step)).collect());
            let places = places.collect();
            script.places.push(places);
        }
        script
    }

    /// Returns the position of a step. Adds it unless the feature, whose steps begin at `first`, has
    /// it already.
    fn add(&mut self, first: usize, step: Value) -> usize {
        if let Some(at) = self.steps[first..].iter().position(|other| *other == step) {
            return first + at;
        }
        self.steps.push(step);
        self.steps.len() - 1
    }
}

/// Runs one driver over some servers, with the features of a round.
async fn run(
    client: &Client,
    servers: &[&Server],
    target: &str,
    through: bool,
    round: Round<'_>,
) -> Cells {
    let uses: Vec<_> = servers
        .iter()
        .map(|server| Use {
            names: Names { server: through.then_some(server.name) },
            client: client.name,
            server: server.name,
        })
        .collect();
    let script = Script::new(client, &uses, round.features);
    let lines = client.run(target, &script.steps).await;
    let nothing = Value::Null;
    let connected = lines.first().unwrap_or(&nothing);
    let steps_told = lines.get(1..).unwrap_or_default();
    let mut cells: Cells = vec![Vec::new(); servers.len()];
    for (feature, places) in round.features.iter().zip(&script.places) {
        for ((on, own), row) in uses.iter().zip(places).zip(&mut cells) {
            let lines = own.iter().map_while(|step| steps_told.get(*step)).collect();
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
                Ok(()) if feature.name == CANCEL => noticed(round.log, &cancel_label(on)).await,
                judged => judged,
            };
            row.push(match (judged, reason(client, on, feature)) {
                (Ok(()), None) => Cell::Ok,
                (Ok(()), Some(why)) => Cell::Failed(format!("works, though it is said: {why}")),
                (Err(_), Some(why)) => Cell::Empty(why),
                (Err(why), None) => Cell::Failed(why.chars().take(500).collect()),
            });
        }
    }
    cells
}

/// Waits until the server has logged the cancellation, which may take a moment.
async fn noticed(log: &Path, label: &str) -> Result<(), String> {
    let line = format!("cancelled slow {label}");
    let is_logged = || {
        let written = std::fs::read_to_string(log).unwrap_or_default();
        written.lines().any(|other| other == line)
    };
    let noticed = tokio::time::timeout(Duration::from_secs(5), until(is_logged)).await;
    noticed.map_err(|_| "the server did not notice the cancellation".into())
}

/// Prints the rows and the number of their cells, and returns their failures.
fn print(title: &str, rows: &[(String, Vec<Cell>)]) -> Vec<String> {
    let mut text = format!("\n{title}\n\n|");
    for (at, feature) in FEATURES.iter().enumerate() {
        write!(text, " {} {} |", letter(at), feature.name).unwrap();
    }
    text.push('\n');
    let mut reasons: Vec<&str> = Vec::new();
    let mut faults = Vec::new();
    let (mut cells_in_all, mut empty) = (0, 0);
    for (name, cells) in rows {
        let mut row = String::new();
        cells_in_all += cells.len();
        for (at, cell) in cells.iter().enumerate() {
            row.push(match cell {
                Cell::Ok => letter(at),
                Cell::Empty(_) => '-',
                Cell::Failed(_) => '!',
            });
            match cell {
                Cell::Ok => {}
                Cell::Empty(why) => {
                    empty += 1;
                    if !reasons.contains(why) {
                        reasons.push(why);
                    }
                }
                Cell::Failed(why) => faults.push(format!("{name}, {}: {why}", FEATURES[at].name)),
            }
        }
        writeln!(text, "{row}  {name}").unwrap();
    }
    for why in reasons {
        writeln!(text, "- {why}").unwrap();
    }
    let (tried, failed) = (cells_in_all - empty, faults.len());
    let passed = tried - failed;
    writeln!(text, "{tried} cells tried, {passed} passed, {failed} failed; {empty} empty").unwrap();
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
    let listed: Vec<_> = SERVERS.into_iter().filter(|(_, _, is_http, _)| *is_http).collect();
    let servers = Server::start_all(&listed, &log);
    let clients = clients();
    let all: Vec<_> = FEATURES.iter().collect();
    let round = Round { features: &all, log: &log };
    // A server notifies all its clients about a change: one client at a time, but three servers.
    let each = stream::iter(&servers).map(|server| async {
        let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
        for client in clients.iter().filter(|client| server.eras.speaks(client.era)) {
            let url = server.http.as_ref().unwrap().url();
            let mut cells = run(client, &[server], &url, false, round).await;
            rows.push((format!("{} × {}", client.name, server.name), cells.remove(0)));
        }
        rows
    });
    let rows: Vec<_> = each.buffered(3).concat().await;
    let faults = print("Without a gateway:", &rows);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Starts so many replicas with all servers of a transport behind them, for all clients.
async fn lane(servers: Vec<Listed>, tag: String, replicas: usize) -> Vec<(String, Vec<Cell>)> {
    let folder = tempfile::tempdir().unwrap();
    let log = log_in(folder.path());
    let servers = Server::start_all(&servers, &log);
    let clients = clients();
    let env = format!("{tag}, EVERYTHING_CANCEL_LOG = \"{}\"", log.display());
    let mut toml = String::new();
    for server in &servers {
        write!(toml, "\n[servers.{}]\n{}", server.name, server.toml(&env)).unwrap();
    }
    // More than one page of each list, for clients that iterate pages.
    let config = text(&toml).replacen("[gateway]\n", "[gateway]\npage_size = 50\n", 1);
    let front = Front::start(&config, replicas).await;
    let names: Vec<_> = servers.iter().map(|server| server.name).collect();
    for gateway in front.gateways() {
        gateway.ready(&names);
        // The first Legacy list waits until the eras of all servers are known. On a busy machine
        // this takes longer than a step of a driver may.
        for _ in 0..3 {
            let list = json!({ "op": "list" });
            let lines = rmcp_client::run("legacy", &gateway.url(), &[list]).await;
            if lines.last().is_some_and(|line| line["ok"] == true) {
                break;
            }
        }
        servers.iter().for_each(|server| server.check_eras(gateway));
    }
    let all: Vec<_> = servers.iter().collect();
    let mut told: [Vec<Vec<Cell>>; 2] = [Vec::new(), Vec::new()];
    for (features, cells) in rounds().iter().zip(&mut told) {
        let round = Round { features, log: &log };
        for client in &clients {
            cells.extend(run(client, &all, &front.url(), true, round).await);
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
async fn three_replicas_behind_a_balancer_are_like_one_gateway() {
    let tag = Tag::new();
    let servers = SERVERS.into_iter().filter(|(_, _, is_http, _)| *is_http).collect();
    let rows = lane(servers, tag.env(), 3).await;
    let faults = print("Through three replicas:", &rows);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_has_every_feature_of_every_server() {
    let tag = Tag::new();
    // A server notifies all its clients about a change, so clients run one after another. The two
    // transports run at once, each with a gateway of its own.
    let (http, stdio): (Vec<_>, Vec<_>) =
        SERVERS.into_iter().partition(|(_, _, is_http, _)| *is_http);
    let lanes = [http, stdio].map(|servers| tokio::spawn(lane(servers, tag.env(), 1)));
    let mut rows = Vec::new();
    for lane in lanes {
        rows.extend(lane.await.unwrap());
    }
    let faults = print("Through the gateway:", &rows);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let is_needed = |empty: &Empty| {
        let is_it = |cell: &Cell| matches!(cell, Cell::Empty(why) if *why == empty.3);
        rows.iter().flat_map(|(_, cells)| cells).any(is_it)
    };
    if let Some(empty) = EMPTY.iter().find(|empty| !is_needed(empty)) {
        panic!("no cell is empty for this reason: {}", empty.3);
    }
    tag.gone();
}
