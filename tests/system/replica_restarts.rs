//! Replicas stop and start again while clients of both eras call through a balancer, at a constant
//! rate, whether or not earlier calls were answered.
//!
//! `TRUNKLINE_RESTART_RATE=500` sets the calls per second. At such rates the replicas have to be a
//! release build: `TRUNKLINE_REPLICA_PROGRAM=target/release/trunkline`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, interval};

use super::process::text;
use super::replicas::Replicas;
use crate::support::{Client, Step, Upstream};

/// Callers of both eras.
struct Callers {
    calls: JoinHandle<Vec<CallOutcome>>,
    began: Instant,
    ends: Arc<AtomicBool>,
    /// The number of calls so far, which numbers them.
    made: Arc<AtomicU64>,
}

/// The outcome of one call.
struct CallOutcome {
    number: u64,
    /// Time from the moment at which the call was due to its answer.
    latency: Duration,
    /// Any answer but a correct one.
    failure: Option<CallFailure>,
}

/// The status and the text of a failed call.
#[derive(Debug)]
struct CallFailure {
    status: u16,
    text: String,
}

impl CallOutcome {
    async fn of_call(client: &Client, number: u64, due: Instant) -> Self {
        let said = client.call("s__count", json!({ "number": number })).await;
        let is_right = said.status == 200 && !said.is_error();
        let text = || format!("modern: {}, {said:?}", client.is_modern());
        let failure = (!is_right).then(|| CallFailure { status: said.status, text: text() });
        Self { number, latency: due.elapsed(), failure }
    }
}

impl Callers {
    async fn start(address: SocketAddr) -> Self {
        let mut clients = Vec::new();
        for number in 0..CALLERS {
            clients.push(Arc::new(match number % 2 {
                0 => Client::modern(address),
                _ => Client::legacy(address, "2025-11-25").await,
            }));
        }
        let (ends, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let calls = tokio::spawn(Self::call(clients, Arc::clone(&ends), Arc::clone(&made)));
        Self { calls, began: Instant::now(), ends, made }
    }

    /// Makes calls, each by the next client, until the end.
    async fn call(
        clients: Vec<Arc<Client>>,
        ends: Arc<AtomicBool>,
        made: Arc<AtomicU64>,
    ) -> Vec<CallOutcome> {
        let places = Arc::new(Semaphore::new(MAX_OPEN_CALLS));
        let (mut open, mut outcomes) = (JoinSet::new(), Vec::new());
        // A call that is late is made at once.
        let mut pace = interval(Duration::from_secs(1) / rate());
        for client in clients.iter().cycle() {
            let due = pace.tick().await;
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            if ends.load(Ordering::Relaxed) {
                break;
            }
            let (client, number) = (Arc::clone(client), made.fetch_add(1, Ordering::Relaxed));
            open.spawn(async move {
                let _place = place;
                CallOutcome::of_call(&client, number, due).await
            });
            while let Some(outcome) = open.try_join_next() {
                outcomes.push(outcome.unwrap());
            }
        }
        outcomes.extend(open.join_all().await);
        outcomes
    }

    /// Waits until the calls of another second were made.
    async fn make_more(&self) {
        let until = self.made.load(Ordering::Relaxed) + u64::from(rate());
        crate::support::until(|| self.made.load(Ordering::Relaxed) >= until).await;
    }

    /// Ends the calls. Returns their outcomes, and the rate of answers per second.
    async fn end(self) -> (Vec<CallOutcome>, f64) {
        self.ends.store(true, Ordering::Relaxed);
        let outcomes = self.calls.await.unwrap();
        let reached = outcomes.len() as f64 / self.began.elapsed().as_secs_f64();
        (outcomes, reached)
    }
}

/// Returns the calls per second.
fn rate() -> u32 {
    let rate = std::env::var("TRUNKLINE_RESTART_RATE");
    rate.map_or(DEFAULT_RATE, |rate| rate.parse().unwrap())
}

/// A server that counts the calls by number.
async fn counting_server() -> Upstream {
    let upstream = Upstream::modern().await;
    upstream.does("count", |_| vec![Step::text("counted")]);
    upstream
}

async fn start(upstream: &Upstream) -> Replicas {
    let servers = format!("\n[servers.s]\n{}", upstream.http());
    let replicas = Replicas::start(3, &text(&servers)).await;
    replicas.all.iter().for_each(|replica| replica.ready(&["s"]));
    replicas
}

/// Checks that each call was executed at most once, and exactly once if it succeeded.
fn check_executions(upstream: &Upstream, outcomes: &[CallOutcome]) {
    let mut executed: HashMap<u64, u32> = HashMap::new();
    for call in upstream.all("tools/call") {
        let number = call.params["arguments"]["number"].as_u64().unwrap();
        *executed.entry(number).or_default() += 1;
    }
    for CallOutcome { number, failure, .. } in outcomes {
        let times = executed.get(number).copied().unwrap_or(0);
        match failure {
            None => assert_eq!(times, 1, "call {number}"),
            Some(failure) => assert!(times <= 1, "call {number}: {times} times, {failure:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_fails_no_call_and_repeats_none() {
    let upstream = counting_server().await;
    let mut replicas = start(&upstream).await;
    let callers = Callers::start(replicas.address()).await;
    callers.make_more().await;
    for number in 0..replicas.all.len() {
        replicas.restart(number, Signal::TERM).await;
        replicas.all[number].ready(&["s"]);
        callers.make_more().await;
    }
    let (outcomes, reached) = callers.end().await;
    let mut latencies: Vec<_> = outcomes.iter().map(|outcome| outcome.latency).collect();
    latencies.sort_unstable();
    let share = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    println!(
        "{} calls, {reached:.0} per second, latency {:.1?} (median), {:.1?} (99 %), {:.1?} (longest)",
        outcomes.len(),
        share(50),
        share(99),
        share(100)
    );
    check_executions(&upstream, &outcomes);
    let failures: Vec<_> = outcomes.iter().filter_map(|it| it.failure.as_ref()).collect();
    assert!(failures.is_empty(), "{} of {}: {failures:#?}", failures.len(), outcomes.len());
    assert!(reached >= f64::from(rate()) * REACHED_SHARE, "only {reached:.0} calls per second");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_replicas_repeat_no_call_and_lose_no_session() {
    let upstream = counting_server().await;
    let mut replicas = start(&upstream).await;
    let callers = Callers::start(replicas.address()).await;
    for number in 0..replicas.all.len() {
        callers.make_more().await;
        replicas.restart(number, Signal::KILL).await;
        replicas.all[number].ready(&["s"]);
    }
    callers.make_more().await;
    let (outcomes, _) = callers.end().await;
    check_executions(&upstream, &outcomes);
    for CallOutcome { failure, .. } in &outcomes {
        let Some(CallFailure { status, text }) = failure else { continue };
        // A broken connection at the balancer or between replicas, and a session whose owner is not
        // known to be gone yet.
        assert!([502, 503, 504].contains(status), "{status} {text}");
    }
}

const CALLERS: usize = 20;
/// Calls per second, unless `TRUNKLINE_RESTART_RATE` sets them.
const DEFAULT_RATE: u32 = 50;
/// Share of the rate that has to be reached.
const REACHED_SHARE: f64 = 0.95;
/// Maximum number of calls without an answer. The balancer has more connections.
const MAX_OPEN_CALLS: usize = 400;
