//! What is compared with what.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trunkline::bench::{BenchFault, Contender, Expect, Load, Meter, Mix, Op, Pace, Script, Target};
use trunkline::mcp::Era;
use url::Url;

use crate::process::{Process, Wrapper};

/// How long it is measured, and how often.
pub struct Span {
    pub rounds: usize,
    pub warmup: Duration,
    pub measured: Duration,
    /// So many calls, instead of so long.
    pub requests: Option<u64>,
}

/// Everything that runs while it is measured.
pub struct Stage {
    mock: Process,
    proxy: Process,
    gateway: Process,
    quiet: Process,
    _folder: tempfile::TempDir,
}

/// Ways that are compared over so many connections.
pub struct Case {
    pub title: String,
    pub connections: usize,
    /// The first is the direct one, the second the proxy.
    pub ways: Vec<Way>,
}

/// One way for a call to take.
#[derive(Clone)]
pub struct Way {
    pub name: &'static str,
    pub url: Url,
    pub era: Era,
    pub tool: &'static str,
    /// Whose CPU counts; nobody's on the direct way.
    pub pid: Option<u32>,
}

/// How much the gateway says of each call.
#[derive(Clone, Copy)]
pub enum Access {
    /// A line for each, as by default.
    Line,
    /// Nothing.
    Off,
}

impl Stage {
    pub async fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mock = Process::mock();
        let proxy = Process::proxy(&mock.url, &Wrapper::none());
        let gateway = self::gateway(folder.path(), &mock.url, Access::Line, &Wrapper::none()).await;
        let quiet = self::gateway(folder.path(), &mock.url, Access::Off, &Wrapper::none()).await;
        Self { mock, proxy, gateway, quiet, _folder: folder }
    }

    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for era in [Era::Modern, Era::Legacy] {
            for connections in [1, 16, 64] {
                cases.push(Case {
                    title: format!("{era:?} client and server, {connections} connections"),
                    connections,
                    ways: self.ways(era),
                });
            }
        }
        cases.push(self.variants());
        cases
    }

    fn way(&self, name: &'static str, era: Era, tool: &'static str) -> Way {
        let process = match name {
            "direct" => None,
            "proxy" => Some(&self.proxy),
            "no access line" => Some(&self.quiet),
            _ => Some(&self.gateway),
        };
        let url = process.unwrap_or(&self.mock).url.clone();
        Way { name, url, era, tool, pid: process.map(Process::id) }
    }

    fn ways(&self, era: Era) -> Vec<Way> {
        vec![
            self.way("direct", era, DIRECT),
            self.way("proxy", era, DIRECT),
            self.way("gateway", era, behind(era)),
        ]
    }

    /// What crossing the eras and the access line cost.
    fn variants(&self) -> Case {
        let mut ways = self.ways(Era::Modern);
        ways.push(self.way("no access line", Era::Modern, behind(Era::Modern)));
        ways.push(self.way("Modern to Legacy", Era::Modern, behind(Era::Legacy)));
        ways.push(self.way("Legacy to Modern", Era::Legacy, behind(Era::Modern)));
        Case { title: "Variants, 16 connections".to_owned(), connections: 16, ways }
    }
}

impl Case {
    pub async fn contenders(&self, load: &Load) -> Vec<Contender> {
        let mut contenders = Vec::new();
        for way in &self.ways {
            let script = Arc::new(way.script(load).await.expect("the way leads there"));
            let meter = way.pid.map(|pid| Meter::new(vec![pid]).unwrap());
            contenders.push(Contender { name: way.name.to_owned(), script, meter });
        }
        contenders
    }
}

impl Way {
    /// What is sent on it.
    pub async fn script(&self, load: &Load) -> Result<Script, BenchFault> {
        let target = Target::new(&self.url, &[], None).await?;
        let load = Load { era: Some(self.era), tool: Some(self.tool.to_owned()), ..load.clone() };
        Script::prepare(target, &load).await
    }
}

/// Calls with a body of some 0.6 KB, each with a number that has to come back.
pub fn load(connections: usize, span: &Span) -> Load {
    let query = "who closes a connection? ".repeat(8);
    let arguments = format!(
        r#"{{"number":"{{{{n}}}}","path":"src/listen","query":"{query}","limit":20,"mode":"deep","tags":["rust","http","proxy"],"options":{{"case":false,"context":3}}}}"#
    );
    Load {
        era: None,
        mix: Mix::only(Op::Call),
        tool: None,
        arguments: Some(arguments),
        unchecked: false,
        seed: 1,
        expect: Some(Expect::new("number {{n}} ")),
        pace: Pace::Closed,
        connections,
        threads: 1,
        warmup: if span.requests.is_some() { Duration::ZERO } else { span.warmup },
        duration: span.requests.is_none().then_some(span.measured),
        requests: span.requests,
        timeout: Duration::from_secs(30),
    }
}

/// The public name of the tool, by the era of the server that has it.
pub fn behind(server: Era) -> &'static str {
    match server {
        Era::Modern => "modern__search",
        Era::Legacy => "legacy__search",
    }
}

/// A gateway before the mock server, which it knows as two: one of each era.
/// Ready once both are listed.
pub async fn gateway(folder: &Path, mock: &Url, access: Access, wrapper: &Wrapper) -> Process {
    let (name, access) = match access {
        Access::Line => ("line.toml", true),
        Access::Off => ("off.toml", false),
    };
    let path = folder.join(name);
    let server = |era: &str| {
        format!("[servers.{era}]\nurl = \"{mock}\"\nera = \"{era}\"\nrate = \"1000000/s\"\n")
    };
    let config = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nreload = \"off\"\nrate = \"1000000/s\"\n\
         client_rate = \"1000000/s\"\n[admin]\nlisten = \"off\"\n[log]\naccess = {access}\n{}{}",
        server("modern"),
        server("legacy")
    );
    std::fs::write(&path, config).unwrap();
    let process = Process::gateway(&path, wrapper);
    for server in [Era::Modern, Era::Legacy] {
        let way = Way {
            name: "gateway",
            url: process.url.clone(),
            era: Era::Modern,
            tool: behind(server),
            pid: None,
        };
        let span = Span { rounds: 1, requests: Some(1), ..crate::FULL };
        let load = load(1, &span);
        while way.script(&load).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    process
}

/// The tool's own name.
pub const DIRECT: &str = "search";
