//! User instructions per call, counted by callgrind: the same on a busy
//! machine as on an idle one.
//!
//! Calls go one after the other over one connection. Counting begins when the
//! first of them have been made and ends before the connection does, so that
//! what starting takes, which varies (the seeding of the random numbers alone
//! is worth thousands of calls), is left out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trunkline::bench::Caller;
use trunkline::mcp::Era;
use url::Url;

use crate::plan::{Access, DIRECT, Way, behind, gateway, load};
use crate::process::{Process, Wrapper};

/// What is counted.
#[derive(Clone, Copy)]
enum Program {
    Proxy,
    Gateway(Access),
}

/// Prints the table. The profiles stay in `target/tmp/`.
pub async fn count() {
    let mock = Process::mock();
    println!("| way | client | server | instructions/call | ratio |\n|---|---|---|--:|--:|");
    for era in [Era::Modern, Era::Legacy] {
        let bare = per_call(Program::Proxy, era, era, &mock.url).await;
        println!("| proxy | {era:?} | {era:?} | {bare} | 1 |");
        for (name, access, server) in [
            ("gateway", Access::Line, era),
            ("no access line", Access::Off, era),
            ("no access line", Access::Off, other(era)),
        ] {
            let own = per_call(Program::Gateway(access), era, server, &mock.url).await;
            let ratio = own as f64 / bare as f64;
            println!("| {name} | {era:?} | {server:?} | {own} | **{ratio:.2}** |");
        }
    }
}

fn other(era: Era) -> Era {
    match era {
        Era::Modern => Era::Legacy,
        Era::Legacy => Era::Modern,
    }
}

async fn per_call(program: Program, client: Era, server: Era, mock: &Url) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let file = file(program, client, server);
    let wrapper = Wrapper::callgrind(&file);
    let (process, tool) = match program {
        Program::Proxy => (Process::proxy(mock, &wrapper), DIRECT),
        Program::Gateway(access) => {
            (gateway(folder.path(), mock, access, &wrapper).await, behind(server))
        }
    };
    let url = process.url.clone();
    let way = Way { name: "", url, era: client, tool, pid: None };
    let load = load(1, &crate::QUICK);
    let script = Arc::new(way.script(&load).await.expect("the way leads there"));
    let mut caller = Caller::open(script, &load).await.expect("a connection");
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
    let profile = std::fs::read_to_string(file.with_extension("callgrind.1")).unwrap();
    let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    total.expect("a whole profile").trim().parse::<u64>().unwrap() / COUNTED
}

fn file(program: Program, client: Era, server: Era) -> PathBuf {
    let name = match program {
        Program::Proxy => "proxy",
        Program::Gateway(Access::Line) => "gateway",
        Program::Gateway(Access::Off) => "quiet",
    };
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{client:?}-{server:?}.callgrind"))
}

const WARM: u64 = 200;
const COUNTED: u64 = 1000;
