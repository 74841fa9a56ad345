//! System calls per call.
//!
//! Counted by `perf` if the kernel permits it, which costs the gateway very little; otherwise by
//! `strace`, which slows down each system call so much that one poll of the sockets returns more
//! answers than usual.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use trunkline::bench::{Interrupt, Load, run};
use trunkline::mcp::Era;

use super::Row;
use crate::plan::{Span, Stage, load};
use crate::process::{Process, has, scratch};
use crate::watch::Line;

pub async fn rows(span: &Span) -> Vec<Row> {
    let stage = Stage::set().await;
    let mut rows = Vec::new();
    for era in [Era::Modern, Era::Legacy] {
        for connections in [1, 16, 64] {
            let mut title = format!("system calls per call, {era:?}, {connections} connections");
            let calls = if span.rounds < crate::FULL.rounds { 4_000 } else { 20_000 };
            let load = Load { requests: Some(calls), duration: None, ..load(connections, span) };
            let load = Load { warmup: Duration::ZERO, ..load };
            let way = stage.gateway(era, era);
            let script = Arc::new(way.script(&load).await.expect("the way leads there"));
            let Some(attached) = Counter::attach(&stage.gateway).await else {
                rows.push(Row::new(title, "≤ 4.5", "neither perf nor strace can be used", None));
                continue;
            };
            let mut line = Line::new(&title, 1);
            let outcome = run(&script, &load, None, &Interrupt::new(), &mut line).await;
            let counted = attached.end();
            let tally = outcome.expect("a run").tally;
            assert_eq!(tally.whole().failed, 0, "{:?}", tally.troubles);
            let each = counted.count as f64 / calls as f64;
            title = format!("{title}, by {}", counted.by);
            rows.push(Row::new(title, "≤ 4.5", format!("{each:.2}"), Some(each <= 4.5)));
        }
    }
    rows
}

struct Counter {
    by: &'static str,
    child: Child,
}

struct Counted {
    by: &'static str,
    count: u64,
}

impl Counter {
    async fn attach(process: &Process) -> Option<Self> {
        let pid = process.id().to_string();
        if has("perf") {
            let mut command = Command::new("perf");
            command.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", &pid, "-o"]);
            if let Some(counter) = Self::start("perf", command.arg(scratch("perf.txt"))).await {
                return Some(counter);
            }
        }
        if !has("strace") {
            return None;
        }
        let mut command = Command::new("strace");
        command.args(["-f", "-q", "-c", "-p", &pid, "-o"]).arg(scratch("strace.txt"));
        Self::start("strace", &mut command).await
    }

    /// Starts a counter. An immediate exit is a failure.
    async fn start(by: &'static str, command: &mut Command) -> Option<Self> {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        tokio::time::sleep(Duration::from_millis(800)).await;
        let ended = child.try_wait().ok()?.is_some();
        (!ended).then_some(Self { by, child })
    }

    fn end(mut self) -> Counted {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        let _ = kill_process(pid, Signal::INT);
        let _ = self.child.wait();
        let count = match self.by {
            "perf" => by_perf(&scratch("perf.txt")),
            _ => by_strace(&scratch("strace.txt")),
        };
        Counted { by: self.by, count: count.expect("a count") }
    }
}

/// Parses `20421,,raw_syscalls:sys_enter,…`.
fn by_perf(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.contains("sys_enter"))?;
    line.split(',').next()?.parse().ok()
}

/// Parses the fourth column, the calls, of the total: `100.00 0.1 2 40842 31 total`.
fn by_strace(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.trim_end().ends_with("total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}
