//! The cost of a plain call: instructions, CPU, time, and across the eras.

use trunkline::bench::{Leg, Load, LoadPace};
use trunkline::mcp::Era;

use super::{Row, beside, spread};
use crate::instructions::{CountedWay, other};
use crate::plan::{
    BASICS, Case, GATEWAY, INLINE_PROXY, NGINX, PROXY, Span, Stage, Way, behind, configured, load,
    ready, servers,
};
use crate::process::{Process, Wrapper};

/// Counted as in the gate.
pub async fn instructions() -> Vec<Row> {
    let mock = Process::mock(&[]);
    let mut rows = Vec::new();
    for client in [Era::Modern, Era::Legacy] {
        let proxy = CountedWay::Proxy(client).count(&mock.url).await;
        let inline = CountedWay::InlineProxy(client).count(&mock.url).await;
        for server in [client, other(client)] {
            let way = CountedWay::Gateway { client, server };
            let own = way.count(&mock.url).await;
            let (ratio, to_inline) = (own as f64 / proxy as f64, own as f64 / inline as f64);
            rows.push(Row::new(
                format!("user instructions, {}", way.name()),
                "≤ 1.65 × proxy",
                format!("{own} to {proxy}: {ratio:.2} × ({to_inline:.2} × the inline proxy)"),
                Some(ratio <= 1.65),
            ));
        }
    }
    rows
}

/// Closed loop, compared with the proxy and nginx.
pub async fn cpu(span: &Span) -> Vec<Row> {
    let stage = Stage::set().await;
    let mut rows = Vec::new();
    for era in [Era::Modern, Era::Legacy] {
        for connections in [16, 64] {
            let ways = stage.ways(era);
            let title = format!("CPU per call, {era:?}, {connections} connections");
            let case = Case {
                title: title.clone(),
                load: load(connections, span),
                ways,
                base: PROXY,
                direct: Some(0),
            };
            let contest = case.hold(span).await;
            let own = spread(contest.figures(GATEWAY, Leg::cpu_per_call), "µs");
            let proxy = contest.ratio(GATEWAY, Leg::cpu_per_call);
            rows.push(Row::ratio(format!("{title}, beside the proxy: {own}"), 1.25, proxy));
            let inline = beside(&contest, GATEWAY, INLINE_PROXY, Leg::cpu_per_call);
            rows.push(Row::told(format!("{title}, beside the inline proxy"), inline));
            if stage.nginx.is_some() {
                let nginx = beside(&contest, GATEWAY, NGINX, Leg::cpu_per_call);
                rows.push(Row::ratio(format!("{title}, beside nginx"), 1.4, nginx));
            } else {
                rows.push(Row::new(format!("{title}, beside nginx"), "≤ 1.4 ×", "no nginx", None));
            }
        }
    }
    rows
}

/// Open loop, at a third of the gateway's maximum.
pub async fn added(span: &Span) -> Vec<Row> {
    let stage = Stage::set().await;
    let mut rows = Vec::new();
    for era in [Era::Modern, Era::Legacy] {
        let once = Span { rounds: 1, ..*span };
        let most = Case {
            title: format!("saturation, {era:?}"),
            load: load(16, span),
            ways: vec![stage.gateway(era, era)],
            base: 0,
            direct: None,
        };
        let most = most.hold(&once).await.rounds[0][0].per_second();
        let rate = most / 3.0;
        let mut ways = stage.ways(era);
        ways.truncate(GATEWAY + 1);
        let load = Load {
            pace: LoadPace::Open { per_second: rate },
            duration: Some(span.measured * 2),
            ..load(16, span)
        };
        let title = format!("{era:?} at {rate:.0} calls/s");
        let case = Case { title: title.clone(), load, ways, base: PROXY, direct: Some(0) };
        let contest = case.hold(span).await;
        for (name, at) in [("p50", 0.5), ("p99", 0.99)] {
            let (own, ratio) = contest.added(GATEWAY, |leg| leg.micros(at));
            let (proxy, _) = contest.added(PROXY, |leg| leg.micros(at));
            let median = |of: Option<trunkline::bench::Spread>| of.map_or(f64::NAN, |of| of.median);
            let (own, proxy) = (median(own), median(proxy));
            let what = format!("added {name}, {title}: {own:.0} µs, by the proxy {proxy:.0} µs");
            // If the proxy appears to add nothing, there is nothing to compare with.
            let ratio = ratio.filter(|_| proxy > 0.0);
            rows.push(Row::ratio(what, 1.5, ratio));
        }
    }
    rows
}

/// A call across the eras, compared with one within an era.
pub async fn eras(span: &Span) -> Vec<Row> {
    let stage = Stage::set().await;
    let mut rows = Vec::new();
    for client in [Era::Modern, Era::Legacy] {
        let server = other(client);
        let title =
            format!("{client:?} client, {server:?} server, beside {client:?} to {client:?}");
        let case = Case {
            title: title.clone(),
            load: load(16, span),
            ways: vec![stage.gateway(client, client), stage.gateway(client, server)],
            base: 0,
            direct: None,
        };
        let contest = case.hold(span).await;
        rows.push(Row::ratio(format!("CPU, {title}"), 1.2, contest.ratio(1, Leg::cpu_per_call)));
    }
    rows
}

/// One gateway may use one processor, the other two. If the load and the server need the same
/// processors, calls per second cannot double, and are not judged; but a call must not take more
/// CPU time on two threads than on one.
pub async fn threads(span: &Span) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let mock = Process::mock(&[]);
    let text = format!("{BASICS}{}", servers(&mock.url, ""));
    let tool = behind(Era::Modern);
    let mut ways = Vec::new();
    let mut processes = Vec::new();
    for (name, processors) in [("one", "0"), ("two", "0,1")] {
        let file = format!("{name}.toml");
        let process = configured(folder.path(), &file, &text, &Wrapper::on(processors));
        ready(&process, tool).await;
        ways.push(Way::new(name, process.url.clone(), Era::Modern, tool).by(&process));
        processes.push(process);
    }
    let case = Case {
        title: "one thread and two".to_owned(),
        load: load(64, span),
        ways,
        base: 0,
        direct: None,
    };
    let contest = case.hold(span).await;
    let rate = contest.ratio(1, |leg| Some(leg.per_second()));
    let rate = rate.expect("calls");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    vec![
        Row::ratio(
            "CPU per call, two threads beside one",
            1.1,
            contest.ratio(1, Leg::cpu_per_call),
        ),
        Row::new(
            format!("calls per second, two threads beside one ({cores} processors for all)"),
            "≥ 1.8 ×",
            format!("{:.2} × ({:.2}–{:.2})", rate.median, rate.least, rate.most),
            (cores >= ENOUGH).then_some(rate.median >= 1.8),
        ),
    ]
}

/// Enough processors for two gateway threads, the load and the server.
const ENOUGH: usize = 5;
