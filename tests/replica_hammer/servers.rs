//! The scripted servers, which log each execution.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::history::Execution;
use crate::network::FRONT;
use crate::run::Run;
use crate::support::Upstream;
use crate::support::redis::free_port;
use crate::support::upstream::marked::{ask, line, progress, require, say, touches};
use crate::support::upstream::{Era, Received, Step};

/// Starts a Legacy server with a session for each client, one with shared sessions, and a Modern
/// one. Returns them with their tables.
pub async fn start(run: &Arc<Run>) -> (Vec<Upstream>, String) {
    let (mut servers, mut tables) = (Vec::new(), String::new());
    let kinds = [
        (Era::Legacy, "isolation = \"client\"\n"),
        (Era::Legacy, "isolation = \"shared\"\n"),
        (Era::Modern, ""),
    ];
    for (name, (era, more)) in NAMES.into_iter().zip(kinds) {
        let address = SocketAddr::from((FRONT, free_port()));
        let upstream = Upstream::at(era, address).await;
        upstream.keeps_nothing().logs();
        upstream.inner.capabilities.lock().unwrap()["resources"] =
            json!({ "listChanged": true, "subscribe": true });
        script(&upstream, era, run);
        let header = "headers = { X-Process = \"${env:HAMMERED_PROCESS}\" }";
        tables.push_str(&format!("\n[servers.{name}]\n{}{header}\n{more}", upstream.http()));
        servers.push(upstream);
    }
    (servers, tables)
}

fn script(upstream: &Upstream, era: Era, run: &Arc<Run>) {
    let does = |tool: &str, steps: fn(&Received, &str) -> Vec<Step>| {
        let run = Arc::clone(run);
        upstream.does(tool, move |call| steps(call, &log(&run, call)));
    };
    does("say", say);
    does("linger", linger);
    does("ask", if era == Era::Legacy { ask } else { require });
    let (run, inner) = (Arc::clone(run), Arc::downgrade(&upstream.inner));
    upstream.does("touch", move |call| {
        let mark = log(&run, call);
        touches(&inner.upgrade().unwrap(), call);
        vec![Step::text(mark)]
    });
}

/// Logs the execution of a call. Returns its mark.
fn log(run: &Run, call: &Received) -> String {
    let mark = call.arguments()["mark"].as_str().unwrap().to_owned();
    run.log_execution(Execution {
        mark: mark.clone(),
        round: if call.params.get("inputResponses").is_some() { 2 } else { 1 },
        process: call.header("x-process").unwrap().to_owned(),
        at: run.now(),
    });
    mark
}

/// Takes so many tenths of a second, with progress and a line in each.
fn linger(call: &Received, mark: &str) -> Vec<Step> {
    let times = call.arguments()["times"].as_u64().unwrap();
    let tenth =
        |count| [progress(call, mark, count), line(mark), Step::Pause(Duration::from_millis(100))];
    let mut steps: Vec<_> = (1..=times).flat_map(tenth).collect();
    steps.push(Step::text(mark));
    steps
}

pub const NAMES: [&str; 3] = ["lc", "ls", "mh"];
