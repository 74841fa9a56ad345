//! User instructions per call, counted by callgrind: the same on a busy machine as on an idle one.
//!
//! Calls are made one after the other over one connection. Counting begins after the first calls
//! and ends before the connection closes. This excludes the startup, which has a varying cost:
//! seeding the random numbers alone costs as much as thousands of calls. Until then the program
//! runs without counting, several times as fast.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trunkline::bench::{BenchCaller, Meter};
use trunkline::mcp::Era;
use url::Url;

use crate::plan::{
    Access, BASICS, DIRECT, Way, behind, configured, gateway, load, ready_way, servers,
};
use crate::process::{Process, Wrapper, binary, scratch};
use crate::replicas::{Relay, Replicas};

/// A path for which the instructions per call are counted.
#[derive(Clone, Copy)]
pub enum CountedWay {
    /// The bare proxy on the pooled client.
    Proxy(Era),
    /// The bare proxy that drives its connections itself.
    InlineProxy(Era),
    Gateway {
        client: Era,
        server: Era,
    },
    /// The gateway without an access log.
    QuietGateway(Era),
    /// The gateway while `trunkline top` watches it.
    WithTop,
    /// The gateway in front of a child process.
    Stdio,
    /// A client with an API key.
    ApiKey,
    /// A server with this many tools.
    Tools(usize),
    /// One of two replicas, which owns the session.
    AtOwner,
    /// Both replicas: one forwards the call to the owner of the session.
    Forwarded,
}

impl CountedWay {
    pub fn name(self) -> String {
        match self {
            Self::Proxy(client) => format!("proxy, {client:?} client"),
            Self::InlineProxy(client) => format!("inline proxy, {client:?} client"),
            Self::Gateway { client, server } => format!("{client:?} client, {server:?} server"),
            Self::QuietGateway(era) => format!("{era:?} without an access log"),
            Self::WithTop => "Modern client, Modern server, top open".to_owned(),
            Self::Stdio => "Modern client, stdio server".to_owned(),
            Self::ApiKey => "Modern client with an API key".to_owned(),
            Self::Tools(count) => format!("a server with {count} tools"),
            Self::AtOwner => "Legacy client, at the owner of two replicas".to_owned(),
            Self::Forwarded => "Legacy client, forwarded to the owner".to_owned(),
        }
    }

    /// Returns the instructions per call. `mock` has one tool.
    pub async fn count(self, mock: &Url) -> u64 {
        let count = Count::new(&self.name().replace([' ', ','], "-"));
        let (wrapper, folder) = (count.wrapper(), tempfile::tempdir().unwrap());
        let folder = folder.path();
        let to =
            |process: &Process, client, tool: &str| Way::new("", process.url.clone(), client, tool);
        match self {
            Self::Proxy(client) => {
                let proxy = Process::proxy(mock, &wrapper);
                count.per_call(&proxy, &to(&proxy, client, DIRECT)).await
            }
            Self::InlineProxy(client) => {
                let proxy = Process::inline_proxy(mock, &wrapper);
                count.per_call(&proxy, &to(&proxy, client, DIRECT)).await
            }
            Self::Gateway { client, server } => {
                let gateway = gateway(folder, mock, Access::Line, &wrapper).await;
                count.per_call(&gateway, &to(&gateway, client, behind(server))).await
            }
            Self::QuietGateway(era) => {
                let gateway = gateway(folder, mock, Access::Off, &wrapper).await;
                count.per_call(&gateway, &to(&gateway, era, behind(era))).await
            }
            Self::WithTop => {
                let gateway = gateway(folder, mock, Access::Line, &wrapper).await;
                let way = to(&gateway, Era::Modern, behind(Era::Modern));
                count.per_call_beside(&gateway, &way, || take_sample(folder)).await
            }
            Self::Stdio => {
                let text = format!(
                    "{BASICS}[servers.modern]\ncommand = \"trunkline\"\n\
                     args = [\"example\", \"load\"]\nera = \"modern\"\nrate = \"1000000/s\"\n"
                );
                count.configured(folder, &text, None).await
            }
            Self::ApiKey => {
                let text =
                    format!("{BASICS}{}[clients.bench]\nkey = \"{KEY_HASH}\"\n", servers(mock, ""));
                count.configured(folder, &text, Some(KEY)).await
            }
            Self::Tools(tools) => {
                let mock = Process::mock(&["--tools", &tools.to_string()]);
                let text = format!("{BASICS}{}", servers(&mock.url, ""));
                count.configured(folder, &text, None).await
            }
            Self::AtOwner | Self::Forwarded => self.count_replicas(&count, mock).await,
        }
    }

    /// Counts the calls of a session that the second of two replicas owns.
    async fn count_replicas(self, count: &Count, mock: &Url) -> u64 {
        let at_owner = Count::new(&format!("{}-owner", self.name().replace([' ', ','], "-")));
        let wrappers = [&count.wrapper(), &at_owner.wrapper()];
        let Replicas { gateways: [first, owner], .. } = &Replicas::start(mock, wrappers).await;
        let relay = Relay::start(owner).await;
        let way = Way::new("", relay.url.clone(), Era::Legacy, behind(Era::Legacy));
        ready_way(&way).await;
        let caller = open_caller(&way).await;
        if matches!(self, Self::AtOwner) {
            return count_calls_of_replicas(&[(&at_owner, owner)], caller).await;
        }
        ready_way(&Way { url: first.url.clone(), ..way.clone() }).await;
        relay.switch(first);
        count_calls_of_replicas(&[(count, first), (&at_owner, owner)], caller).await
    }
}

/// Prints the table. The profiles stay in `target/tmp/`.
pub async fn count() {
    print!("{}", table().await);
}

/// Returns the table, as Markdown.
pub async fn table() -> String {
    let mock = Process::mock(&[]);
    let mut rows = vec![
        "| way | instructions/call | to the proxy | to the inline proxy |".to_owned(),
        "|---|--:|--:|--:|".to_owned(),
    ];
    for era in [Era::Modern, Era::Legacy] {
        let bare = CountedWay::Proxy(era).count(&mock.url).await;
        let inline = CountedWay::InlineProxy(era).count(&mock.url).await;
        let mut add = |way: CountedWay, own: u64| {
            let (ratio, to_inline) = (own as f64 / bare as f64, own as f64 / inline as f64);
            rows.push(format!("| {} | {own} | **{ratio:.2}** | {to_inline:.2} |", way.name()));
        };
        add(CountedWay::Proxy(era), bare);
        add(CountedWay::InlineProxy(era), inline);
        for server in [era, other(era)] {
            let way = CountedWay::Gateway { client: era, server };
            add(way, way.count(&mock.url).await);
        }
        add(CountedWay::QuietGateway(era), CountedWay::QuietGateway(era).count(&mock.url).await);
    }
    rows.join("\n") + "\n"
}

pub fn other(era: Era) -> Era {
    match era {
        Era::Modern => Era::Legacy,
        Era::Legacy => Era::Modern,
    }
}

/// One callgrind profile.
pub struct Count {
    file: std::path::PathBuf,
}

impl Count {
    /// Creates a profile that goes into a file of that name.
    pub fn new(name: &str) -> Self {
        let count = Self { file: scratch(&format!("{name}.callgrind")) };
        for dump in 1..=MAX_DUMPS {
            let _ = std::fs::remove_file(count.dump_file(dump));
        }
        count
    }

    /// Returns the file of a dump on request, which has a numeric suffix.
    fn dump_file(&self, dump: u32) -> std::path::PathBuf {
        self.file.with_extension(format!("callgrind.{dump}"))
    }

    /// The program that must start the process.
    pub fn wrapper(&self) -> Wrapper {
        Wrapper::callgrind(&self.file)
    }

    /// Counts the calls of a Modern client through a gateway with a configuration.
    pub async fn configured(&self, folder: &Path, text: &str, key: Option<&str>) -> u64 {
        let gateway = configured(folder, "gateway.toml", text, &self.wrapper());
        let way = Way::new("", gateway.url.clone(), Era::Modern, behind(Era::Modern));
        let way = Way { key: key.map(str::to_owned), ..way };
        ready_way(&way).await;
        self.per_call(&gateway, &way).await
    }

    /// Makes calls on a path through the process, and returns the instructions per call.
    pub async fn per_call(&self, process: &Process, way: &Way) -> u64 {
        self.per_call_beside(process, way, || {}).await
    }

    /// Does the same, and runs `observe` once among the first calls and once among the counted ones.
    async fn per_call_beside(&self, process: &Process, way: &Way, observe: impl Fn()) -> u64 {
        count_calls(&[(self, process)], open_caller(way).await, observe).await
    }

    /// Returns the instructions of the last dump.
    fn total(&self) -> u64 {
        let mut dumps = (1..=MAX_DUMPS).rev().map(|dump| self.dump_file(dump));
        let last = dumps.find(|file| file.is_file()).expect("a profile");
        let profile = std::fs::read_to_string(last).unwrap();
        let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
        total.expect("a whole profile").trim().parse::<u64>().unwrap()
    }
}

/// Connects, and opens the session of a Legacy client.
pub async fn open_caller(way: &Way) -> BenchCaller {
    let load = load(1, &crate::QUICK);
    let script = Arc::new(way.script(&load).await.expect("the way leads there"));
    BenchCaller::open(script, &load).await.expect("a connection")
}

/// Instructions of [`COUNTED`] calls, and the time that they took.
struct CountedCalls {
    instructions: u64,
    took: Duration,
}

/// Makes calls, and returns the instructions per call of all these processes together.
async fn count_calls(
    counted: &[(&Count, &Process)],
    caller: BenchCaller,
    observe: impl Fn(),
) -> u64 {
    begin_counting(counted).await;
    make_calls(counted, caller, observe).await.instructions / COUNTED
}

/// Does the same without the work that replicas do by time, such as renewals of leases. It is counted first,
/// while there are no calls.
async fn count_calls_of_replicas(counted: &[(&Count, &Process)], caller: BenchCaller) -> u64 {
    begin_counting(counted).await;
    control(counted, "--zero");
    tokio::time::sleep(IDLE_TIME).await;
    control(counted, "--dump");
    let idle = u128::from(total(counted));
    let calls = make_calls(counted, caller, || {}).await;
    let by_time = idle * calls.took.as_nanos() / IDLE_TIME.as_nanos();
    let by_time = u64::try_from(by_time).expect("few instructions");
    eprintln!(
        "{idle} instructions in {} s without calls; {} in {} ms of {COUNTED} calls",
        IDLE_TIME.as_secs(),
        calls.instructions,
        calls.took.as_millis()
    );
    calls.instructions.saturating_sub(by_time) / COUNTED
}

/// Begins to count once the processes are idle.
async fn begin_counting(counted: &[(&Count, &Process)]) {
    for (_, process) in counted {
        settled(process.id()).await;
    }
    control(counted, "--instr=on");
}

async fn make_calls(
    counted: &[(&Count, &Process)],
    mut caller: BenchCaller,
    observe: impl Fn(),
) -> CountedCalls {
    for _ in 0..WARM {
        caller.call().await.expect("a right answer");
    }
    observe();
    control(counted, "--zero");
    let begun = Instant::now();
    for call in 0..COUNTED {
        if call == COUNTED / 2 {
            observe();
        }
        caller.call().await.expect("a right answer");
    }
    let took = begun.elapsed();
    control(counted, "--dump");
    caller.close().await;
    CountedCalls { instructions: total(counted), took }
}

/// Sends a command to the callgrind of each process.
fn control(counted: &[(&Count, &Process)], command: &str) {
    for (_, process) in counted {
        process.callgrind(command);
    }
}

/// Returns the instructions of the last dumps.
fn total(counted: &[(&Count, &Process)]) -> u64 {
    counted.iter().map(|(count, _)| count.total()).sum()
}

/// Asks a gateway of the folder for the document that `trunkline top` shows, as each of its samples
/// does. It takes one a second: with one in [`COUNTED`] calls, the gateway serves a thousand calls a
/// second.
fn take_sample(folder: &Path) {
    let config = folder.join(Access::Line.file_name());
    let asked = Command::new(binary()).args(["top", "--json", "--config"]).arg(config).output();
    let asked = asked.expect("the command runs");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
}

/// Waits until a program without requests is idle: some of its startup work is deferred by a
/// second.
async fn settled(id: u32) {
    let program = Meter::new(vec![id]).expect("it runs");
    tokio::time::sleep(BEHIND_START).await;
    loop {
        let before = program.cpu();
        tokio::time::sleep(LOOK).await;
        if program.cpu().saturating_sub(before) <= NEXT_TO_NOTHING {
            return;
        }
    }
}

/// Three renewals of a lease.
const IDLE_TIME: Duration = Duration::from_secs(9);
/// Dumps of one profile.
const MAX_DUMPS: u32 = 2;
const BEHIND_START: Duration = Duration::from_millis(1500);
const LOOK: Duration = Duration::from_millis(500);
/// A few per cent of a processor: threads check the time occasionally.
const NEXT_TO_NOTHING: Duration = Duration::from_millis(30);

/// An API key and its SHA-256.
pub const KEY: &str = "a-key-of-the-bench-0123456789abcdef";
pub const KEY_HASH: &str = "7ec2446d63e026216d33c28c9fbd1528f1ca2110087ae5a857e04ffd99529f40";

const WARM: u64 = 200;
const COUNTED: u64 = 1000;
