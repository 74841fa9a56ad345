//! Memory of an idle gateway, per session and per stream.
//!
//! Resident memory as the kernel reports it (`VmRSS`), before and after opening many. The
//! difference includes all memory that the gateway keeps for one, and the memory that its allocator
//! does not return. It does not include the kernel's own memory for a connection.

use std::fmt::Write as _;
use std::time::Duration;

use trunkline::mcp::Era;

use super::Row;
use super::sessions::{raise_files, sessions, streams};
use crate::plan::{BASICS, behind, configured, ready, servers};
use crate::process::{Process, Wrapper};

pub async fn rows() -> Vec<Row> {
    let mut rows = vec![idle().await];
    rows.extend(each().await);
    rows
}

async fn idle() -> Row {
    let folder = tempfile::tempdir().unwrap();
    let mock = Process::mock(&["--tools", "50"]);
    let mut text = BASICS.to_owned();
    for number in 1..=10 {
        writeln!(text, "[servers.s{number}]\nurl = \"{}\"\nrate = \"1000000/s\"", mock.url)
            .unwrap();
    }
    let gateway = configured(folder.path(), "idle.toml", &text, &Wrapper::none());
    for number in 1..=10 {
        ready(&gateway, &format!("s{number}__search")).await;
    }
    tokio::time::sleep(SETTLED).await;
    let found = gateway.memory() as f64 / MB;
    let what = "memory, idle, 10 servers with 500 tools";
    Row::new(what, "≤ 20 MB", format!("{found:.1} MB"), Some(found <= 20.0))
}

async fn each() -> Vec<Row> {
    raise_files();
    let folder = tempfile::tempdir().unwrap();
    let mock = Process::mock(&[]);
    let text = format!("{BASICS}{}{}", limits(2 * MANY), servers(&mock.url, ""));
    let gateway = configured(folder.path(), "sessions.toml", &text, &Wrapper::none());
    ready(&gateway, behind(Era::Legacy)).await;
    // The first ones grow tables and page in code.
    let first = sessions(&gateway.url, FEW).await;
    tokio::time::sleep(SETTLED).await;
    let before = gateway.memory();
    let all = sessions(&gateway.url, MANY).await;
    tokio::time::sleep(SETTLED).await;
    let session = (gateway.memory().saturating_sub(before)) as f64 / MANY as f64 / KB;
    let _first = streams(&gateway.url, &first).await;
    tokio::time::sleep(SETTLED).await;
    let before = gateway.memory();
    let open = streams(&gateway.url, &all).await;
    tokio::time::sleep(SETTLED).await;
    let stream = (gateway.memory().saturating_sub(before)) as f64 / MANY as f64 / KB;
    assert!(open.iter().all(|seen| !seen.ended.get()), "a stream has ended");
    vec![
        Row::new(
            format!("memory of each idle Legacy session, of {MANY}"),
            "≤ 2 KB",
            format!("{session:.2} KB"),
            Some(session <= 2.0),
        ),
        Row::new(
            format!("memory of each open stream, its connection included, of {MANY}"),
            "≤ 24 KB",
            format!("{stream:.2} KB"),
            Some(stream <= 24.0),
        ),
    ]
}

/// Limits that allow this many sessions, streams and connections.
pub fn limits(count: usize) -> String {
    let room = count + 200;
    format!(
        "[gateway.limits]\nconnections = {room}\nsessions = {room}\nsessions_each = {room}\n\
         streams = {room}\n"
    )
}

const FEW: usize = 300;
const MANY: usize = 2000;
const SETTLED: Duration = Duration::from_millis(1500);
const MB: f64 = 1024.0 * 1024.0;
const KB: f64 = 1024.0;
