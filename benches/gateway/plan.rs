//! The comparisons.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use trunkline::bench::{
    BenchFault, BenchTarget, Contender, Contest, ContestRules, Expect, Interrupt, Load, LoadPace,
    Meter, Mix, Op, Script,
};
use trunkline::mcp::Era;
use url::Url;

use crate::nginx;
use crate::process::{Process, Wrapper};
use crate::watch::Line;

/// The duration and the number of measurements.
#[derive(Clone, Copy)]
pub struct Span {
    pub rounds: usize,
    pub warmup: Duration,
    pub measured: Duration,
    /// The number of calls, instead of a duration.
    pub requests: Option<u64>,
}

/// All processes of a measurement.
pub struct Stage {
    pub mock: Process,
    pub proxy: Process,
    pub inline_proxy: Process,
    pub gateway: Process,
    pub quiet: Process,
    /// nginx, if it is installed.
    pub nginx: Option<Process>,
    _folder: tempfile::TempDir,
}

/// Paths that take turns under the same load.
pub struct Case {
    pub title: String,
    pub load: Load,
    pub ways: Vec<Way>,
    /// The index of the path that the others are compared with.
    pub base: usize,
    /// The index of the direct path.
    pub direct: Option<usize>,
}

/// One path of a call.
#[derive(Clone)]
pub struct Way {
    pub name: String,
    pub url: Url,
    pub era: Era,
    pub tool: String,
    /// Processes with counted CPU time; none on the direct path.
    pub pids: Vec<u32>,
    /// The value of `Authorization`.
    pub key: Option<String>,
}

/// Access log of the gateway.
#[derive(Clone, Copy)]
pub enum Access {
    /// A line per call, as by default.
    Line,
    /// No access log.
    Off,
}

impl Access {
    /// Returns the name of the configuration of [`gateway`].
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Line => "line.toml",
            Self::Off => "off.toml",
        }
    }
}

impl Stage {
    pub async fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mock = Process::mock(&[]);
        let proxy = Process::proxy(&mock.url, &Wrapper::none());
        let inline_proxy = Process::inline_proxy(&mock.url, &Wrapper::none());
        let gateway = self::gateway(folder.path(), &mock.url, Access::Line, &Wrapper::none()).await;
        let quiet = self::gateway(folder.path(), &mock.url, Access::Off, &Wrapper::none()).await;
        let nginx = nginx::start(&mock.url, folder.path()).await;
        Self { mock, proxy, inline_proxy, gateway, quiet, nginx, _folder: folder }
    }

    pub fn cases(&self, span: &Span) -> Vec<Case> {
        let mut cases = Vec::new();
        for era in [Era::Modern, Era::Legacy] {
            for connections in [1, 16, 64] {
                cases.push(Case {
                    title: format!("{era:?} client and server, {connections} connections"),
                    load: load(connections, span),
                    ways: self.ways(era),
                    base: PROXY,
                    direct: Some(0),
                });
            }
        }
        cases.push(self.variants(span));
        cases
    }

    /// Returns the direct path, both proxies, the gateway, and nginx if it is installed.
    pub fn ways(&self, era: Era) -> Vec<Way> {
        let mut ways = vec![
            Way::new("direct", self.mock.url.clone(), era, DIRECT),
            Way::new("proxy", self.proxy.url.clone(), era, DIRECT).by(&self.proxy),
            Way::new("inline proxy", self.inline_proxy.url.clone(), era, DIRECT)
                .by(&self.inline_proxy),
            self.gateway(era, era),
        ];
        if let Some(nginx) = &self.nginx {
            ways.push(Way::new("nginx", nginx.url.clone(), era, DIRECT).by(nginx));
        }
        ways
    }

    /// Returns the path through the gateway, from one era to another.
    pub fn gateway(&self, client: Era, server: Era) -> Way {
        let name = if client == server {
            "gateway".to_owned()
        } else {
            format!("{client:?} to {server:?}")
        };
        let url = self.gateway.url.clone();
        Way::new(&name, url, client, behind(server)).by(&self.gateway)
    }

    /// Returns the case for the cost of crossing the eras and of the access log.
    fn variants(&self, span: &Span) -> Case {
        let mut ways = self.ways(Era::Modern);
        let quiet =
            Way::new("no access log", self.quiet.url.clone(), Era::Modern, behind(Era::Modern));
        ways.push(quiet.by(&self.quiet));
        ways.push(self.gateway(Era::Modern, Era::Legacy));
        ways.push(self.gateway(Era::Legacy, Era::Modern));
        Case {
            title: "Variants, 16 connections".to_owned(),
            load: load(16, span),
            ways,
            base: PROXY,
            direct: Some(0),
        }
    }
}

impl Case {
    /// Runs all paths in turns. An incorrect answer ends the bench.
    pub async fn hold(self, span: &Span) -> Contest {
        let contest = self.try_hold(span).await.expect("a contest");
        for place in 0..contest.contenders.len() {
            let tally = contest.together(place).unwrap();
            let name = &contest.contenders[place].name;
            assert_eq!(tally.whole().failed, 0, "{name}: {:?}", tally.troubles);
        }
        contest
    }

    /// Like [`Self::hold`], for contenders with arbitrary answers.
    pub async fn try_hold(self, span: &Span) -> Result<Contest, BenchFault> {
        let rules = ContestRules { rounds: span.rounds, base: self.base, direct: self.direct };
        let mut contenders = Vec::new();
        for way in &self.ways {
            let script = Arc::new(way.script(&self.load).await?);
            let meter = (!way.pids.is_empty()).then(|| Meter::new(way.pids.clone()));
            let meter = meter.transpose()?;
            contenders.push(Contender { name: way.name.clone(), script, meter });
        }
        let mut line = Line::new(&self.title, span.rounds * contenders.len());
        Contest::hold(contenders, &self.load, rules, &Interrupt::new(), &mut line).await
    }
}

impl Way {
    /// Creates a path without counted CPU time.
    pub fn new(name: &str, url: Url, era: Era, tool: &str) -> Self {
        Self { name: name.to_owned(), url, era, tool: tool.to_owned(), pids: Vec::new(), key: None }
    }

    /// Counts the CPU time of this process and its children.
    pub fn by(mut self, process: &Process) -> Self {
        self.pids = process.family();
        self
    }

    /// The requests on this path.
    pub async fn script(&self, load: &Load) -> Result<Script, BenchFault> {
        let key = self.key.iter().map(|key| {
            let value = HeaderValue::from_str(&format!("Bearer {key}")).expect("a header");
            (AUTHORIZATION, value)
        });
        let target = BenchTarget::new(&self.url, &key.collect::<Vec<_>>(), None).await?;
        let load = Load { era: Some(self.era), tool: Some(self.tool.clone()), ..load.clone() };
        Script::prepare(target, &load).await
    }
}

/// A load with bodies of about 0.6 KB, each with a number that the answer must contain.
pub fn load(connections: usize, span: &Span) -> Load {
    Load {
        era: None,
        mix: Mix::only(Op::Call),
        tool: None,
        arguments: Some(arguments(200)),
        unchecked: false,
        seed: 1,
        expect: Some(Expect::new("number {{n}} ")),
        pace: LoadPace::Closed,
        connections,
        threads: 1,
        warmup: if span.requests.is_some() { Duration::ZERO } else { span.warmup },
        duration: span.requests.is_none().then_some(span.measured),
        requests: span.requests,
        timeout: Duration::from_secs(30),
    }
}

/// Returns arguments of `size` bytes plus about 200.
pub fn arguments(size: usize) -> String {
    let query = "who closes a connection? ".repeat(size / 25);
    format!(
        r#"{{"number":"{{{{n}}}}","path":"src/listen","query":"{query}","limit":20,"mode":"deep","tags":["rust","http","proxy"],"options":{{"case":false,"context":3}}}}"#
    )
}

/// Returns the public name of the tool, by the era of its server.
pub fn behind(server: Era) -> &'static str {
    match server {
        Era::Modern => "modern__search",
        Era::Legacy => "legacy__search",
    }
}

/// Starts a gateway in front of the mock server, which is configured as two servers: one of each
/// era. Returns once both are listed.
pub async fn gateway(folder: &Path, mock: &Url, access: Access, wrapper: &Wrapper) -> Process {
    let (name, access) = (access.file_name(), matches!(access, Access::Line));
    let servers = servers(mock, "");
    let text = format!("{BASICS}[log]\naccess = {access}\n{servers}");
    let process = configured(folder, name, &text, wrapper);
    for server in [Era::Modern, Era::Legacy] {
        ready(&process, behind(server)).await;
    }
    process
}

/// Returns the mock server as one server of each era, with more settings for both.
pub fn servers(mock: &Url, more: &str) -> String {
    let server = |era: &str| {
        format!("[servers.{era}]\nurl = \"{mock}\"\nera = \"{era}\"\nrate = \"1000000/s\"\n{more}")
    };
    server("modern") + &server("legacy")
}

/// Starts a gateway with a configuration.
pub fn configured(folder: &Path, name: &str, text: &str, wrapper: &Wrapper) -> Process {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    Process::gateway(&path, wrapper)
}

/// Waits until a gateway has a tool.
pub async fn ready(process: &Process, tool: &str) {
    ready_way(&Way::new("gateway", process.url.clone(), Era::Modern, tool)).await;
}

/// Waits until the tool at the end of a path is listed.
pub async fn ready_way(way: &Way) {
    let load = load(1, &Span { rounds: 1, requests: Some(1), ..crate::FULL });
    let begun = std::time::Instant::now();
    while let Err(fault) = way.script(&load).await {
        assert!(begun.elapsed() < Duration::from_mins(4), "no {} in time: {fault}", way.tool);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Settings of all gateways here: rate limits that are checked but never reject.
pub const BASICS: &str = "[gateway]\nlisten = \"127.0.0.1:0\"\nreload = \"off\"\n\
    rate = \"1000000/s\"\nclient_rate = \"1000000/s\"\n[admin]\nlisten = \"off\"\n";
/// The tool's native name.
pub const DIRECT: &str = "search";
/// The index of the proxy on the pooled client among [`Stage::ways`].
pub const PROXY: usize = 1;
/// The index of the proxy that drives its connections itself.
pub const INLINE_PROXY: usize = 2;
/// The index of the gateway.
pub const GATEWAY: usize = 3;
/// The index of nginx, if it is installed.
pub const NGINX: usize = 4;
