//! Other gateways, in front of the same mock server and under the same load.
//!
//! `benches/peers/peers.toml` lists them with their commands; `benches/peers/install.py` installs
//! them. Each takes turns with the bare proxy, with no other process running: a ratio to the proxy
//! can be compared with any other. A peer that is not installed, does not start, does not speak an
//! era or answers incorrectly is reported as such.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::bench::{Contest, Leg, Spread};
use trunkline::mcp::Era;
use url::Url;

use crate::plan::{
    Access, BASICS, Case, DIRECT, Span, Way, behind, configured, gateway, load, ready,
};
use crate::process::{Process, Wrapper, binary, free_port, scratch};
use crate::{FULL, nginx};

#[derive(Deserialize)]
struct Peers {
    peer: Vec<Peer>,
}

/// One peer of the file; the head of the file documents the fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Peer {
    name: String,
    from: String,
    package: String,
    version: String,
    folder: String,
    server: String,
    #[serde(default)]
    #[allow(dead_code, reason = "the installer's")]
    features: Vec<String>,
    #[serde(default)]
    eras: Vec<String>,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// A command that prints the key for clients as its last line.
    #[serde(default)]
    key: Vec<String>,
    /// The request that registers the mock server once the peer runs.
    register: Option<Register>,
    #[serde(default = "endpoint")]
    path: String,
    #[serde(default)]
    settings: String,
    left_out: Option<String>,
}

/// A request with a JSON body.
#[derive(Deserialize)]
struct Register {
    path: String,
    body: String,
}

/// A peer that is measured beside the proxy.
struct Entrant<'a> {
    name: String,
    /// The server behind the peer.
    server: &'a str,
    process: &'a Process,
    tool: String,
    key: Option<String>,
}

/// Returns the table, and the omitted peers. `names` select folders.
pub async fn table(names: &[String], span: &Span) -> String {
    let span = if span.rounds < FULL.rounds { QUICK } else { SPAN };
    let mut told = Told { text: HEAD.to_owned(), notes: String::new() };
    print!("{HEAD}");
    let mock = Process::mock(&[]);
    let proxy = Process::proxy(&mock.url, &Wrapper::none());
    let folder = tempfile::tempdir().unwrap();
    if names.is_empty() {
        ours(&mut told, &mock, &proxy, folder.path(), &span).await;
    }
    for peer in peers() {
        if !names.is_empty() && !names.contains(&peer.folder) {
            continue;
        }
        let name = format!("{} {}", peer.name, peer.version);
        if let Some(why) = &peer.left_out {
            told.note(&format!("{name}: not measured: {why}"));
            continue;
        }
        let (process, key) = match peer.start(&mock.url).await {
            Ok(started) => started,
            Err(why) => {
                told.note(&format!("{name}: not measured: {why}"));
                continue;
            }
        };
        for era in [Era::Modern, Era::Legacy] {
            if !peer.eras.iter().any(|known| known == era.as_str()) {
                told.row(&name, &peer.server, era, "does not speak it");
                continue;
            }
            let entrant = Entrant {
                name: name.clone(),
                server: &peer.server,
                process: &process,
                tool: DIRECT.to_owned(),
                key: key.clone(),
            };
            told.entrant(&entrant, &proxy, era, &span).await;
        }
        told.note(&format!("{name} ({}, {}): {}", peer.from, peer.package, peer.settings));
    }
    format!("{}\n{}", told.text, told.notes)
}

/// Measures this gateway and nginx.
async fn ours(told: &mut Told, mock: &Process, proxy: &Process, folder: &Path, span: &Span) {
    let http = gateway(folder, &mock.url, Access::Line, &Wrapper::none()).await;
    let text = format!(
        "{BASICS}[servers.child]\ncommand = \"trunkline\"\nargs = [\"example\", \"load\"]\n\
         rate = \"1000000/s\"\n"
    );
    let stdio = configured(folder, "stdio.toml", &text, &Wrapper::none());
    ready(&stdio, "child__search").await;
    let nginx = nginx::start(&mock.url, folder).await;
    for era in [Era::Modern, Era::Legacy] {
        let mut entrants = Vec::new();
        let mut enter = |name: &str, server: &'static str, process, tool: &str| {
            let (name, tool) = (name.to_owned(), tool.to_owned());
            entrants.push(Entrant { name, server, process, tool, key: None });
        };
        enter("**trunkline**", "http", &http, behind(era));
        enter("**trunkline**", "stdio", &stdio, "child__search");
        let name = format!("nginx {}", nginx::version().unwrap_or_default());
        if let Some(nginx) = &nginx {
            enter(&name, "http", nginx, DIRECT);
        }
        for entrant in &entrants {
            told.entrant(entrant, proxy, era, span).await;
        }
    }
}

fn peers() -> Vec<Peer> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/peers.toml");
    let text = std::fs::read_to_string(file).unwrap();
    toml::from_str::<Peers>(&text).expect("peers.toml").peer
}

impl Peer {
    /// Starts the peer; returns the key for its clients if it requires one.
    async fn start(&self, mock: &Url) -> Result<(Process, Option<String>), String> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let here = target.join("peers").join(&self.folder);
        let wanted = format!("{} {}\n", self.package, self.version);
        if std::fs::read_to_string(here.join("installed")).ok() != Some(wanted) {
            return Err("not installed here (benches/peers/install.py)".to_owned());
        }
        let scratch = scratch(&format!("peer-{}", self.folder));
        // State of earlier runs must not affect this one.
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir_all(&scratch).unwrap();
        let port = free_port();
        let secret: String = (0..SECRET).map(|_| fastrand::alphanumeric()).collect();
        let fill =
            |text: &String| fill(&text.replace("{secret}", &secret), &here, &scratch, mock, port);
        for (name, text) in &self.files {
            std::fs::write(scratch.join(name), fill(text)).unwrap();
        }
        let command = |words: &[String]| {
            let mut words = words.iter().map(fill);
            let mut command = Command::new(words.next()?);
            command.args(words).current_dir(&scratch);
            command.envs(self.env.iter().map(|(name, value)| (name, fill(value))));
            Some(command)
        };
        let key = command(&self.key).map(|mut command| {
            let told = command.output().map_err(|error| error.to_string())?;
            let told = String::from_utf8_lossy(&told.stdout).into_owned();
            told.lines().last().map(str::to_owned).ok_or("it makes no key".to_owned())
        });
        let key = key.transpose()?;
        let url = Url::parse(&format!("http://127.0.0.1:{port}{}", self.path)).unwrap();
        let command = command(&self.command).expect("a command");
        let process = Process::foreign(command, url, &scratch.join("log")).await?;
        // The peer listens; its connection to the server may take longer.
        tokio::time::sleep(SETTLED).await;
        if let Some(Register { path, body }) = &self.register {
            post(port, path, key.as_deref().unwrap_or_default(), &fill(body)).await?;
        }
        Ok((process, key))
    }
}

/// Sends JSON; the response must be a success.
async fn post(port: u16, path: &str, key: &str, body: &str) -> Result<(), String> {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(1 << 20).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(PATIENCE, exchange).await;
    let answer = answer.map_err(|_| "no answer in time")?.map_err(|error| error.to_string())?;
    if answer.starts_with("HTTP/1.1 2") {
        return Ok(());
    }
    Err(answer.lines().last().unwrap_or_default().chars().take(200).collect())
}

fn endpoint() -> String {
    "/mcp".to_owned()
}

fn fill(text: &str, here: &Path, scratch: &Path, mock: &Url, port: u16) -> String {
    let path = |path: &Path| path.display().to_string();
    text.replace("{here}", &path(here))
        .replace("{scratch}", &path(scratch))
        .replace("{trunkline}", &path(binary()))
        .replace("{url}", mock.as_str())
        .replace("{origin}", mock.as_str().trim_end_matches("/mcp"))
        .replace("{port}", &port.to_string())
}

/// The output.
struct Told {
    text: String,
    notes: String,
}

impl Told {
    fn note(&mut self, text: &str) {
        eprintln!("{text}");
        writeln!(self.notes, "- {text}").unwrap();
    }

    fn row(&mut self, name: &str, server: &str, era: Era, rest: &str) {
        let line = format!("| {name} | {server} | {era:?} | {rest} |\n");
        print!("{line}");
        self.text += &line;
    }

    async fn entrant(&mut self, who: &Entrant<'_>, proxy: &Process, era: Era, span: &Span) {
        let own = Way {
            key: who.key.clone(),
            ..Way::new(&who.name, who.process.url.clone(), era, &who.tool).by(who.process)
        };
        let case = |ways: Vec<Way>, span: &Span| Case {
            title: format!("{}, {era:?}", who.name),
            load: load(CONNECTIONS, span),
            ways,
            base: 0,
            direct: None,
        };
        // Some take seconds for a call: they get longer turns.
        let few = Span { rounds: 1, requests: Some(FEW), ..*span };
        let rest = match case(vec![own.clone()], &few).try_hold(&few).await {
            Ok(contest) => {
                let rate = contest.rounds[0][0].per_second().max(0.1);
                let enough = Duration::from_secs_f64(ENOUGH / rate);
                let span = Span { measured: enough.clamp(span.measured, MAX_TURN_TIME), ..*span };
                let proxy = Way::new("proxy", proxy.url.clone(), era, DIRECT).by(proxy);
                case(vec![proxy, own], &span).try_hold(&span).await.map(|it| figures(&it))
            }
            Err(fault) => Err(fault),
        };
        let rest = rest.unwrap_or_else(|fault| {
            let why: String = fault.to_string().chars().take(160).collect();
            format!("could not be measured: {}", why.replace(['\n', '|'], " "))
        });
        self.row(&who.name, who.server, era, &rest);
    }
}

/// The cells from the CPU column on.
fn figures(contest: &Contest) -> String {
    let median = |read: fn(&Leg) -> Option<f64>| {
        Spread::of(contest.figures(1, read)).map_or(f64::NAN, |spread| spread.median)
    };
    let ratio = |read: fn(&Leg) -> Option<f64>| match contest.ratio(1, read) {
        Some(it) if it.median >= 10.0 => {
            format!("**{:.0}** ({:.0}–{:.0})", it.median, it.least, it.most)
        }
        Some(it) if it.median < 0.1 => {
            format!("**{:.4}** ({:.4}–{:.4})", it.median, it.least, it.most)
        }
        Some(it) => format!("**{:.2}** ({:.2}–{:.2})", it.median, it.least, it.most),
        None => "–".to_owned(),
    };
    let memory = |leg: &Leg| leg.usage.map(|usage| usage.memory as f64 / (1024.0 * 1024.0));
    let tally = contest.together(1).unwrap();
    let whole = tally.whole();
    let mut failed = whole.failed.to_string();
    if let Some((kind, _)) = tally.troubles.iter().max_by_key(|(_, (count, _))| *count) {
        write!(failed, " of {} ({kind})", whole.done + whole.failed).unwrap();
    }
    let cells = [
        number(median(Leg::cpu_per_call), 0),
        ratio(Leg::cpu_per_call),
        number(median(|leg| Some(leg.per_second())), 0),
        ratio(|leg| Some(leg.per_second())),
        number(median(|leg| leg.micros(0.5)) / 1e3, 2),
        number(median(|leg| leg.micros(0.99)) / 1e3, 2),
        number(median(memory), 0),
        failed,
    ];
    cells.join(" | ")
}

/// A figure that may be missing.
fn number(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// Parses the whole list, to check that it is valid.
pub fn try_out() {
    let scratch = PathBuf::from("/nowhere");
    for peer in peers() {
        let started = !peer.command.is_empty() && !peer.eras.is_empty();
        assert!(started != peer.left_out.is_some(), "{}: started or left out", peer.name);
        let url = Url::parse("http://127.0.0.1:1/mcp").unwrap();
        let words = peer.command.iter().chain(&peer.key).chain(peer.env.values());
        for text in words.chain(peer.files.values()) {
            let text = fill(&text.replace("{secret}", ""), &scratch, &scratch, &url, 7);
            assert!(!text.contains('{'), "{}: {text}", peer.name);
        }
    }
}

const HEAD: &str = "| gateway | server | era | CPU µs/call | × proxy | calls/s | × proxy | p50 ms | p99 ms | MB | failed |\n\
    |---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
const CONNECTIONS: usize = 16;
/// Calls that estimate the throughput.
const FEW: u64 = 32;
/// The number of calls that a turn should have.
const ENOUGH: f64 = 40.0;
/// Maximum duration of a turn.
const MAX_TURN_TIME: Duration = Duration::from_secs(5);
const SETTLED: Duration = Duration::from_secs(2);
/// Time limit for a request outside the measurement.
const PATIENCE: Duration = Duration::from_secs(30);
/// The length of a secret.
const SECRET: usize = 64;
const SPAN: Span = Span {
    rounds: 3,
    warmup: Duration::from_millis(500),
    measured: Duration::from_secs(2),
    requests: None,
};
const QUICK: Span = Span { rounds: 1, measured: Duration::from_secs(1), ..SPAN };
