//! CPU time and instructions of a Legacy call at a single gateway, at the owner of its session, and through
//! another replica.
//!
//! CPU time is that of the gateways' processes, user and system: callgrind sees neither the kernel nor the
//! processor's instructions for SHA-256. The ways take turns in each round, on connections that stay open, all
//! of them through a relay of this bench. Replicas work without requests, too: they renew their leases. The
//! time of the idle processes is measured first, and subtracted from that of the calls.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use trunkline::bench::{BenchCaller, Meter, Spread};
use trunkline::mcp::Era;

use crate::instructions::{CountedWay, open_caller};
use crate::plan::{BASICS, Span, Way, behind, configured, ready_way, servers};
use crate::process::{Process, Wrapper, has};
use crate::replicas::{Relay, Replicas};

/// One way of the calls of some clients.
struct MeasuredWay {
    name: &'static str,
    meter: Meter,
    /// Seconds of CPU time in a second without calls.
    idle: f64,
    callers: Vec<BenchCaller>,
    /// Microseconds of CPU time per call, by round.
    rounds: Vec<f64>,
}

/// Measures, and prints the table.
pub async fn print(span: &Span) {
    print!("{}", table(span).await);
}

/// Returns the table, as Markdown.
pub async fn table(span: &Span) -> String {
    let (mock, folder) = (Process::mock(&[]), tempfile::tempdir().unwrap());
    let single = format!("{BASICS}{}", servers(&mock.url, ""));
    let single = configured(folder.path(), "single.toml", &single, &Wrapper::none());
    let replicas = Replicas::start(&mock.url, [&Wrapper::none(), &Wrapper::none()]).await;
    let [first, owner] = &replicas.gateways;
    for gateway in [&single, first, owner] {
        ready_way(&legacy_way(gateway)).await;
    }
    let meters = [vec![single.id()], vec![owner.id()], vec![first.id(), owner.id()]];
    let meters = meters.map(|ids| Meter::new(ids).expect("they run"));
    let idle = measure_idle(&meters).await;
    let mut text =
        "| way | connections | CPU, µs/call | to a single gateway |\n|---|--:|--:|--:|\n"
            .to_owned();
    for connections in CONNECTIONS {
        let [at_single, at_owner, at_first] =
            [Relay::start(&single).await, Relay::start(owner).await, Relay::start(owner).await];
        let mut ways = Vec::new();
        for (place, relay) in [&at_single, &at_owner, &at_first].into_iter().enumerate() {
            let way = Way { url: relay.url.clone(), ..legacy_way(&single) };
            let mut callers = Vec::new();
            for _ in 0..connections {
                callers.push(open_caller(&way).await);
            }
            let (name, meter, idle) = (NAMES[place], meters[place].clone(), idle[place]);
            ways.push(MeasuredWay { name, meter, idle, callers, rounds: Vec::new() });
        }
        // The sessions stay at their owner, and the other replica forwards from now on.
        at_first.switch(first);
        for _ in 0..span.rounds {
            for way in &mut ways {
                way.measure(span).await;
            }
        }
        write_rows(&mut text, connections, &ways);
        for way in ways {
            join_all(way.callers.into_iter().map(BenchCaller::close)).await;
        }
    }
    let [single, owner, _] = idle.map(|idle| idle * 1e6);
    writeln!(
        text,
        "\nWithout calls, a single gateway takes {single:.0} µs of CPU time in a second, and a replica {owner:.0} µs \
         (leases, and the connection to the store)."
    )
    .unwrap();
    if has("valgrind") {
        text += &instruction_rows(&mock).await;
    }
    text
}

async fn instruction_rows(mock: &Process) -> String {
    let mut text =
        "\n| way | user instructions/call | to a single gateway |\n|---|--:|--:|\n".to_owned();
    let mut base = None;
    let ways = [ALONE, CountedWay::AtOwner, CountedWay::Forwarded];
    for (name, way) in NAMES.iter().zip(ways) {
        let count = way.count(&mock.url).await;
        let ratio = count as f64 / *base.get_or_insert(count) as f64;
        writeln!(text, "| {name} | {count} | {ratio:.2} |").unwrap();
    }
    text
}

fn write_rows(text: &mut String, connections: usize, ways: &[MeasuredWay]) {
    let base = &ways[0].rounds;
    for way in ways {
        let own = Spread::of(way.rounds.clone()).expect("a round").median;
        let ratios = way.rounds.iter().zip(base).map(|(own, base)| own / base);
        let ratio = Spread::of(ratios.collect()).expect("a round");
        let Spread { median, least, most } = ratio;
        let name = way.name;
        writeln!(
            text,
            "| {name} | {connections} | {own:.1} | **{median:.2}** ({least:.2}–{most:.2}) |"
        )
        .unwrap();
    }
}

impl MeasuredWay {
    /// Makes calls on all connections at once, and adds the CPU time of one of them.
    async fn measure(&mut self, span: &Span) {
        self.call_for(span.warmup).await;
        let (before, begun) = (self.meter.cpu(), Instant::now());
        let calls = self.call_for(span.measured).await;
        let (cpu, took) = (self.meter.cpu().saturating_sub(before), begun.elapsed());
        let of_calls = cpu.as_secs_f64() - self.idle * took.as_secs_f64();
        self.rounds.push(of_calls * 1e6 / calls as f64);
    }

    /// Makes calls for some time. Returns their number.
    async fn call_for(&mut self, time: Duration) -> u64 {
        let end = Instant::now() + time;
        let calling = self.callers.iter_mut().map(|caller| async move {
            let mut calls = 0_u64;
            while calls == 0 || Instant::now() < end {
                caller.call().await.expect("a right answer");
                calls += 1;
            }
            calls
        });
        join_all(calling).await.into_iter().sum()
    }
}

/// Returns the seconds of CPU time that each of these takes in a second without calls.
async fn measure_idle(meters: &[Meter; 3]) -> [f64; 3] {
    tokio::time::sleep(SETTLED_AFTER).await;
    let before = meters.each_ref().map(Meter::cpu);
    tokio::time::sleep(IDLE_TIME).await;
    let after = meters.each_ref().map(Meter::cpu);
    let spent = |place: usize| after[place].saturating_sub(before[place]).as_secs_f64();
    [0, 1, 2].map(|place| spent(place) / IDLE_TIME.as_secs_f64())
}

fn legacy_way(gateway: &Process) -> Way {
    Way::new("", gateway.url.clone(), Era::Legacy, behind(Era::Legacy))
}

const ALONE: CountedWay = CountedWay::Gateway { client: Era::Legacy, server: Era::Legacy };
const NAMES: [&str; 3] = ["a single gateway", "at the owner", "forwarded, both replicas"];
/// Clients that call at once.
const CONNECTIONS: [usize; 2] = [1, 16];
/// Some of the work of a start is deferred by a second.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// Three renewals of a lease.
const IDLE_TIME: Duration = Duration::from_secs(9);
