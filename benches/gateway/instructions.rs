//! User instructions per call, counted by callgrind: the same on a busy
//! machine as on an idle one.
//!
//! Each program runs twice, for few calls and for many, one after the other on
//! one connection; the difference leaves out what starting and ending take.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::client::{Era, Target};
use crate::load;
use crate::plan::{Access, DIRECT, behind, gateway};
use crate::process::{Process, Wrapper};

/// What is counted.
#[derive(Clone, Copy)]
enum Program {
    Proxy,
    Gateway(Access),
}

/// Prints the table. The profiles of the longer runs stay in `target/`.
pub async fn count() {
    let mock = Process::role(&["mock"], &Wrapper::none());
    println!("| way | client | server | instructions/call | ratio |\n|---|---|---|--:|--:|");
    for era in [Era::Modern, Era::Legacy] {
        let bare = per_call(Program::Proxy, era, era, mock.address).await;
        println!("| proxy | {era:?} | {era:?} | {bare} | 1 |");
        for (name, access, server) in [
            ("gateway", Access::Line, era),
            ("no access line", Access::Off, era),
            ("no access line", Access::Off, other(era)),
        ] {
            let own = per_call(Program::Gateway(access), era, server, mock.address).await;
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

async fn per_call(program: Program, client: Era, server: Era, mock: SocketAddr) -> u64 {
    let few = total(program, client, server, (mock, FEW)).await;
    let many = total(program, client, server, (mock, MANY)).await;
    (many - few) / (MANY - FEW) as u64
}

async fn total(
    program: Program,
    client: Era,
    server: Era,
    (mock, calls): (SocketAddr, usize),
) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let file = file(program, client, server);
    let wrapper = Wrapper::callgrind(&file);
    let (process, tool) = match program {
        Program::Proxy => (Process::role(&["proxy", &mock.to_string()], &wrapper), DIRECT),
        Program::Gateway(access) => {
            (gateway(folder.path(), mock, access, &wrapper).await, behind(server))
        }
    };
    let target = Target { address: process.address, era: client, tool };
    load::calls(&target, 1, calls).await;
    // Its end writes the profile.
    drop(process);
    let profile = std::fs::read_to_string(&file).unwrap();
    let total = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    total.expect("a whole profile").trim().parse().unwrap()
}

fn file(program: Program, client: Era, server: Era) -> PathBuf {
    let name = match program {
        Program::Proxy => "proxy",
        Program::Gateway(Access::Line) => "gateway",
        Program::Gateway(Access::Off) => "quiet",
    };
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{client:?}-{server:?}.callgrind"))
}

const FEW: usize = 300;
const MANY: usize = 1300;
