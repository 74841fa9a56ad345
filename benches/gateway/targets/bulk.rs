//! Long lists, large arguments, large results.

use trunkline::bench::{Leg, Load, Mix, Op};
use trunkline::mcp::Era;

use super::{Row, spread};
use crate::plan::{
    BASICS, Case, DIRECT, Span, Way, arguments, behind, configured, load, ready, servers,
};
use crate::process::{Process, Wrapper};

/// A thousand tools of 1 KB: the gateway serves a prepared list.
pub async fn list(span: &Span) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let mock = Process::mock(&["--tools", "1000", "--tool-bytes", "400"]);
    let proxy = Process::proxy(&mock.url, &Wrapper::none());
    let mut rows = Vec::new();
    for era in [Era::Modern, Era::Legacy] {
        let name = era.as_str();
        let text = format!(
            "{BASICS}[servers.{name}]\nurl = \"{}\"\nera = \"{name}\"\nrate = \"1000000/s\"\n",
            mock.url
        );
        let gateway = configured(folder.path(), "list.toml", &text, &Wrapper::none());
        ready(&gateway, behind(era)).await;
        let title = format!("tools/list, {era:?}, 1,000 tools of 1 KB");
        let case = Case {
            title: title.clone(),
            load: Load { mix: Mix::only(Op::List), expect: None, ..load(4, span) },
            ways: vec![
                Way::new("proxy", proxy.url.clone(), era, DIRECT).by(&proxy),
                Way::new("gateway", gateway.url.clone(), era, behind(era)).by(&gateway),
            ],
            base: 0,
            direct: None,
        };
        let contest = case.hold(span).await;
        let own = spread(contest.figures(1, Leg::cpu_per_call), "µs");
        let ratio = contest.ratio(1, Leg::cpu_per_call);
        rows.push(Row::ratio(format!("CPU of {title}, beside the proxy: {own}"), 0.5, ratio));
    }
    rows
}

/// Each case has its own gateway and proxy, so that their peaks are separate.
pub async fn large(span: &Span) -> Vec<Row> {
    let mut rows = Vec::new();
    for (what, bytes, size) in
        [("57 KB of arguments", "900", 57_000), ("a result of 1 MB", "1000000", 200)]
    {
        let folder = tempfile::tempdir().unwrap();
        let mock = Process::mock(&["--bytes", bytes]);
        let proxy = Process::proxy(&mock.url, &Wrapper::none());
        let text = format!("{BASICS}{}", servers(&mock.url, ""));
        let gateway = configured(folder.path(), "large.toml", &text, &Wrapper::none());
        ready(&gateway, behind(Era::Modern)).await;
        ready(&gateway, behind(Era::Legacy)).await;
        let of = |era: Era, size: usize| Case {
            title: format!("a call with {what}, {era:?}"),
            load: Load { arguments: Some(arguments(size)), ..load(CONNECTIONS, span) },
            ways: vec![
                Way::new("proxy", proxy.url.clone(), era, DIRECT).by(&proxy),
                Way::new("gateway", gateway.url.clone(), era, behind(era)).by(&gateway),
            ],
            base: 0,
            direct: None,
        };
        let idle = [proxy.memory(), gateway.memory()];
        let mut peaks = [0; 2];
        for era in [Era::Modern, Era::Legacy] {
            let case = of(era, size);
            let title = case.title.clone();
            let contest = case.hold(span).await;
            let own = spread(contest.figures(1, Leg::cpu_per_call), "µs");
            let ratio = contest.ratio(1, Leg::cpu_per_call);
            rows.push(Row::ratio(format!("CPU of {title}, beside the proxy: {own}"), 1.2, ratio));
            for (place, peak) in peaks.iter_mut().enumerate() {
                let usage = contest.rounds.last().and_then(|round| round[place].usage);
                *peak = usage.expect("a meter").peak;
            }
        }
        // Its memory beyond the proxy's, which buffers none of the bodies, is its buffer for the
        // calls in flight.
        let grown = |place: usize| (peaks[place].saturating_sub(idle[place])) as f64 / MB;
        let most = (CONNECTIONS * size.max(bytes.parse().unwrap())) as f64 / MB;
        rows.push(Row::new(
            format!("memory for {CONNECTIONS} calls at once with {what}: peak over idle"),
            format!("the proxy's + {most:.1} MB (each once)"),
            format!("{:.1} MB, the proxy {:.1} MB", grown(1), grown(0)),
            Some(grown(1) <= grown(0) + most),
        ));
    }
    rows
}

const CONNECTIONS: usize = 16;
const MB: f64 = 1024.0 * 1024.0;
