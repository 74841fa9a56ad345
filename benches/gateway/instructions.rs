//! User instructions per call, counted by callgrind: the same on a busy
//! machine as on an idle one.
//!
//! Calls go one after the other over one connection. Counting begins when the
//! first of them have been made and ends before the connection does, so that
//! what starting takes, which varies (the seeding of the random numbers alone
//! is worth thousands of calls), is left out. Until then the program runs
//! without being counted, several times as fast.

use std::sync::Arc;
use std::time::Duration;

use trunkline::bench::{Caller, Meter};
use trunkline::mcp::Era;
use url::Url;

use crate::plan::{Access, DIRECT, Way, behind, gateway, load};
use crate::process::{Process, Wrapper, scratch};

/// What is counted.
#[derive(Clone, Copy)]
pub enum Program {
    Proxy,
    Gateway(Access),
}

/// Prints the table. The profiles stay in `target/tmp/`.
pub async fn count() {
    print!("{}", table().await);
}

/// The table, as Markdown.
pub async fn table() -> String {
    let mock = Process::mock(&[]);
    let mut rows = vec![
        "| way | client | server | instructions/call | ratio |".to_owned(),
        "|---|---|---|--:|--:|".to_owned(),
    ];
    for era in [Era::Modern, Era::Legacy] {
        let bare = of(Program::Proxy, era, era, &mock.url).await;
        rows.push(format!("| proxy | {era:?} | {era:?} | {bare} | 1 |"));
        for (name, access, server) in [
            ("gateway", Access::Line, era),
            ("gateway", Access::Line, other(era)),
            ("no access line", Access::Off, era),
        ] {
            let own = of(Program::Gateway(access), era, server, &mock.url).await;
            let ratio = own as f64 / bare as f64;
            rows.push(format!("| {name} | {era:?} | {server:?} | {own} | **{ratio:.2}** |"));
        }
    }
    rows.join("\n") + "\n"
}

pub fn other(era: Era) -> Era {
    match era {
        Era::Modern => Era::Legacy,
        Era::Legacy => Era::Modern,
    }
}

/// Instructions per call through one of them.
pub async fn of(program: Program, client: Era, server: Era, mock: &Url) -> u64 {
    let name = match program {
        Program::Proxy => "proxy",
        Program::Gateway(Access::Line) => "gateway",
        Program::Gateway(Access::Off) => "quiet",
    };
    let count = Count::new(&format!("{name}-{client:?}-{server:?}"));
    let folder = tempfile::tempdir().unwrap();
    let (process, tool) = match program {
        Program::Proxy => (Process::proxy(mock, &count.wrapper()), DIRECT),
        Program::Gateway(access) => {
            (gateway(folder.path(), mock, access, &count.wrapper()).await, behind(server))
        }
    };
    count.per_call(&process, client, tool).await
}

/// One profile.
pub struct Count {
    file: std::path::PathBuf,
}

impl Count {
    /// Goes into a file of that name.
    pub fn new(name: &str) -> Self {
        Self { file: scratch(&format!("{name}.callgrind")) }
    }

    /// What the process has to be started by.
    pub fn wrapper(&self) -> Wrapper {
        Wrapper::callgrind(&self.file)
    }

    /// Makes calls of a tool, and counts.
    pub async fn per_call(&self, process: &Process, era: Era, tool: &str) -> u64 {
        let way = Way::new("", process.url.clone(), era, tool);
        let load = load(1, &crate::QUICK);
        let script = Arc::new(way.script(&load).await.expect("the way leads there"));
        let mut caller = Caller::open(script, &load).await.expect("a connection");
        settled(process.id()).await;
        process.callgrind("--instr=on");
        for _ in 0..WARM {
            caller.call().await.expect("a right answer");
        }
        process.callgrind("--zero");
        for _ in 0..COUNTED {
            caller.call().await.expect("a right answer");
        }
        process.callgrind("--dump");
        caller.close().await;
        // A dump on request has a number behind its name.
        let profile = std::fs::read_to_string(self.file.with_extension("callgrind.1")).unwrap();
        let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
        total.expect("a whole profile").trim().parse::<u64>().unwrap() / COUNTED
    }
}

/// Waits until a program that nobody asks anything does nothing: behind its start some of it is put
/// off for a second.
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

const BEHIND_START: Duration = Duration::from_millis(1500);
const LOOK: Duration = Duration::from_millis(500);
/// Some percent of a processor: threads look at the time now and then.
const NEXT_TO_NOTHING: Duration = Duration::from_millis(30);

const WARM: u64 = 200;
const COUNTED: u64 = 1000;
