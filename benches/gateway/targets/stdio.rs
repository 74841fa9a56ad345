//! A call to a child process, compared with writing and reading its lines
//! directly ([`crate::bridge`]).

use std::process::Command;

use trunkline::bench::Leg;
use trunkline::mcp::Era;

use super::{Row, spread};
use crate::plan::{BASICS, Case, DIRECT, Span, Way, configured, load, ready};
use crate::process::{Process, Wrapper, binary};

pub async fn rows(span: &Span) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(crate::bridge::OPTION).arg(binary());
    let bridge = Process::saying(command);
    let text = format!(
        "{BASICS}[servers.child]\ncommand = \"trunkline\"\nargs = [\"example\", \"load\"]\n\
         rate = \"1000000/s\"\n"
    );
    let gateway = configured(folder.path(), "stdio.toml", &text, &Wrapper::none());
    let tool = "child__search";
    ready(&gateway, tool).await;
    let mut rows = Vec::new();
    for connections in [1, 16] {
        let title =
            format!("CPU of a stdio call, {connections} connections, beside the same by hand");
        // The CPU time of the child itself is not counted.
        let own = |way: Way, process: &Process| Way { pids: vec![process.id()], ..way };
        let case = Case {
            title: title.clone(),
            load: load(connections, span),
            ways: vec![
                own(Way::new("by hand", bridge.url.clone(), Era::Modern, DIRECT), &bridge),
                own(Way::new("gateway", gateway.url.clone(), Era::Modern, tool), &gateway),
            ],
            base: 0,
            direct: None,
        };
        let contest = case.hold(span).await;
        let figure = |place| spread(contest.figures(place, Leg::cpu_per_call), "µs");
        let what = format!("{title}: {} to {}", figure(1), figure(0));
        rows.push(Row::ratio(what, 1.5, contest.ratio(1, Leg::cpu_per_call)));
    }
    rows
}
