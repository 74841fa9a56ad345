//! `trunkline bench --self`: the cost of this gateway on this machine.
//!
//! A server that costs next to nothing, a proxy that does nothing, and the
//! gateway each run as a separate process, so that their CPU time is measured
//! separately. Each ends with its standard input, and so with the bench,
//! however that ends.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use url::Url;

use crate::bench::{BenchFault, BenchTarget, Contender, Load, Meter, Mix, Op, Script};
use crate::clock;
use crate::mcp::Era;

/// The processes under measurement.
pub(super) struct ComparedProcesses {
    mock: BenchProcess,
    proxy: BenchProcess,
    gateway: BenchProcess,
}

impl ComparedProcesses {
    /// Starts all three processes.
    pub(super) async fn set(era: Era) -> Result<Self, BenchFault> {
        let any = "127.0.0.1:0";
        let mock = ["example", "load", "--listen", any, "--until-eof"];
        let mock = BenchProcess::start("server", &mock).await?;
        let url = mock.url.as_str();
        let proxy = ["example", "proxy", url, "--listen", any, "--until-eof"];
        let proxy = BenchProcess::start("proxy", &proxy).await?;
        let config = ConfigFolder::write(&mock.url, era)
            .map_err(|error| BenchFault::Start { what: "gateway", why: error.to_string() })?;
        let path = config.file();
        let gateway = ["stdio", "--config", &path.to_string_lossy(), "--listen", any];
        let gateway = BenchProcess::start("gateway", &gateway).await?;
        Ok(Self { mock, proxy, gateway })
    }

    /// The contenders: direct, through the proxy, through the gateway.
    pub(super) async fn contenders(&self, load: &Load) -> Result<Vec<Contender>, BenchFault> {
        let mut contenders = Vec::new();
        for (name, process) in
            [("direct", &self.mock), ("proxy", &self.proxy), ("gateway", &self.gateway)]
        {
            let script = Arc::new(process.script(load).await?);
            // The server works in every turn, so its CPU time is not counted.
            let meter = (name != "direct").then(|| Meter::new(vec![process.id]));
            let meter = meter.transpose()?;
            contenders.push(Contender { name: name.into(), script, meter });
        }
        Ok(contenders)
    }

    /// Ends all three processes.
    pub(super) async fn end(self) {
        // Downstream processes first.
        for process in [self.gateway, self.proxy, self.mock] {
            process.end().await;
        }
    }
}

/// Returns the default arguments: 0.6 KB, from which the mock server returns the number.
pub(super) fn arguments() -> String {
    let query = "who closes a connection? ".repeat(8);
    format!(
        r#"{{"number":"{{{{n}}}}","path":"src/listen","query":"{query}","limit":20,"mode":"deep","tags":["rust","http","proxy"],"options":{{"case":false,"context":3}}}}"#
    )
}

/// The era that supports the operations; Modern if both do.
pub(super) fn era(mix: &Mix) -> Era {
    if mix.has(Op::Session) { Era::Legacy } else { Era::Modern }
}

/// The tool to call.
pub(super) const BENCH_TOOL: &str = "search";
/// The text that every answer must contain.
pub(super) const EXPECTED_TEXT: &str = "number {{n}} ";

struct BenchProcess {
    child: Child,
    id: u32,
    url: Url,
}

impl BenchProcess {
    /// Starts this program in another role, and waits until it prints its
    /// address.
    async fn start(what: &'static str, args: &[&str]) -> Result<Self, BenchFault> {
        let fault = |why: String| BenchFault::Start { what, why };
        let start = async {
            let mut child = Command::new(std::env::current_exe()?)
                .args(args)
                .env("NO_COLOR", "1")
                .env_remove("TRUNKLINE_CONFIG")
                .env_remove("TRUNKLINE_LOG")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                // Ctrl-C reaches only the bench, which then ends the processes in order.
                .process_group(0)
                .kill_on_drop(true)
                .spawn()?;
            let log = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
            let address = listens(BufReader::new(log)).await?;
            Ok::<_, io::Error>((child, address))
        };
        let started = tokio::time::timeout(READY_TIMEOUT, start).await;
        let (child, address) = match started {
            Ok(started) => started.map_err(|error| fault(error.to_string()))?,
            Err(_) => return Err(fault("it did not listen in time".into())),
        };
        let url = Url::parse(&format!("http://{address}/mcp"));
        let url = url.map_err(|error| fault(error.to_string()))?;
        let id = child.id().ok_or_else(|| fault("it has ended".into()))?;
        Ok(Self { child, id, url })
    }

    /// Prepares the requests to this process, once it lists the tool.
    async fn script(&self, load: &Load) -> Result<Script, BenchFault> {
        let target = BenchTarget::new(&self.url, &[], None).await?;
        let begun = clock::real_now();
        loop {
            match Script::prepare(target.clone(), load).await {
                Err(BenchFault::UnknownTool { .. }) if begun.elapsed() < READY_TIMEOUT => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                script => return script,
            }
        }
    }

    async fn end(mut self) {
        drop(self.child.stdin.take());
        if tokio::time::timeout(EXIT_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

/// Reads a log until it contains the address. The rest is read and discarded,
/// as a supervisor would.
async fn listens(
    mut log: impl tokio::io::AsyncBufRead + Unpin + Send + 'static,
) -> io::Result<SocketAddr> {
    let mut said = String::new();
    loop {
        let from = said.len();
        if said.len() > MAX_LOG_BYTES || log.read_line(&mut said).await? == 0 {
            let last = said.lines().last().unwrap_or("it printed nothing").to_owned();
            return Err(io::Error::other(last));
        }
        let line = said.get(from..).unwrap_or_default();
        if let Some((_, rest)) = line.split_once("clients connect to http://")
            && let Some(address) = rest.split('/').next().and_then(|it| it.parse().ok())
        {
            tokio::spawn(async move {
                let mut rest = vec![0; 1 << 16];
                while matches!(log.read(&mut rest).await, Ok(1..)) {}
            });
            return Ok(address);
        }
    }
}

/// A folder with the gateway's configuration; deleted when it is dropped, by
/// when the gateway has read it.
struct ConfigFolder(PathBuf);

impl ConfigFolder {
    fn write(server: &Url, era: Era) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let name = format!("trunkline-bench-{}-{:016x}", std::process::id(), fastrand::u64(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let config = Self(folder);
        std::fs::write(config.file(), text(server, era))?;
        Ok(config)
    }

    fn file(&self) -> PathBuf {
        self.0.join(CONFIG_FILE)
    }
}

impl Drop for ConfigFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The default policy: prefixed names, arguments validated against the schema,
/// rate limits that never reject, access log on.
fn text(server: &Url, era: Era) -> String {
    format!(
        "[gateway]\nreload = \"off\"\nrate = \"1000000/s\"\nclient_rate = \"1000000/s\"\n\n\
         [admin]\nlisten = \"off\"\n\n\
         [servers.load]\nurl = \"{server}\"\nera = \"{}\"\nrate = \"1000000/s\"\n",
        era.as_str()
    )
}

const CONFIG_FILE: &str = "gateway.toml";
/// Time limit for a process to listen, and for the gateway to list its server.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for a process to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum bytes of log before the address.
const MAX_LOG_BYTES: usize = 1024 * 1024;
