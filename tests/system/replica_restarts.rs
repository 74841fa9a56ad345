//! Replicas stop and start again while clients of both eras call through a balancer.
//!
//! `TRUNKLINE_RESTART_RATE=500` sets the calls per second.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::process::text;
use super::replicas::Replicas;
use crate::support::{Client, Step, Upstream};

/// Callers of both eras, each with calls at its own pace.
struct Callers {
    tasks: JoinSet<Vec<CallOutcome>>,
    ends: Arc<AtomicBool>,
    /// The number of calls so far, which numbers them.
    made: Arc<AtomicU64>,
}

/// The outcome of one call.
struct CallOutcome {
    number: u64,
    /// Any answer but a correct one.
    failure: Option<CallFailure>,
}

/// The status and the text of a failed call.
#[derive(Debug)]
struct CallFailure {
    status: u16,
    text: String,
}

impl Callers {
    async fn start(address: SocketAddr) -> Self {
        let rate = std::env::var("TRUNKLINE_RESTART_RATE");
        let rate: u32 = rate.map_or(RATE, |rate| rate.parse().unwrap());
        let (ends, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut callers = Self { tasks: JoinSet::new(), ends, made };
        for number in 0..CALLERS {
            let client = match number % 2 {
                0 => Client::modern(address),
                _ => Client::legacy(address, "2025-11-25").await,
            };
            callers.begin(client, Duration::from_secs(1) * CALLERS / rate);
        }
        callers
    }

    fn begin(&mut self, client: Client, pause: Duration) {
        let (ends, made) = (Arc::clone(&self.ends), Arc::clone(&self.made));
        self.tasks.spawn(async move {
            let mut pace = interval(pause);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut outcomes = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                pace.tick().await;
                let number = made.fetch_add(1, Ordering::Relaxed);
                let said = client.call("s__count", json!({ "number": number })).await;
                let is_right = said.status == 200 && !said.is_error();
                let text = || format!("modern: {}, {said:?}", client.is_modern());
                let failure =
                    (!is_right).then(|| CallFailure { status: said.status, text: text() });
                outcomes.push(CallOutcome { number, failure });
            }
            outcomes
        });
    }

    /// Waits until so many more calls were made.
    async fn make(&self, calls: u64) {
        let until = self.made.load(Ordering::Relaxed) + calls;
        crate::support::until(|| self.made.load(Ordering::Relaxed) >= until).await;
    }

    /// Ends the calls. Returns their outcomes.
    async fn end(self) -> Vec<CallOutcome> {
        self.ends.store(true, Ordering::Relaxed);
        self.tasks.join_all().await.into_iter().flatten().collect()
    }
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
    for CallOutcome { number, failure } in outcomes {
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
    let began = Instant::now();
    callers.make(CALLS_BETWEEN).await;
    for number in 0..replicas.all.len() {
        replicas.restart(number, Signal::TERM).await;
        replicas.all[number].ready(&["s"]);
        callers.make(CALLS_BETWEEN).await;
    }
    let outcomes = callers.end().await;
    println!("{} calls in {:?}", outcomes.len(), began.elapsed());
    check_executions(&upstream, &outcomes);
    let failures: Vec<_> = outcomes.iter().filter_map(|it| it.failure.as_ref()).collect();
    assert!(failures.is_empty(), "{} of {}: {failures:#?}", failures.len(), outcomes.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_replicas_repeat_no_call_and_lose_no_session() {
    let upstream = counting_server().await;
    let mut replicas = start(&upstream).await;
    let callers = Callers::start(replicas.address()).await;
    for number in 0..replicas.all.len() {
        callers.make(CALLS_BETWEEN).await;
        replicas.restart(number, Signal::KILL).await;
        replicas.all[number].ready(&["s"]);
    }
    callers.make(CALLS_BETWEEN).await;
    let outcomes = callers.end().await;
    check_executions(&upstream, &outcomes);
    for CallOutcome { failure, .. } in &outcomes {
        let Some(CallFailure { status, text }) = failure else { continue };
        // A broken connection at the balancer or between replicas, and a session whose owner is not
        // known to be gone yet.
        assert!([502, 503, 504].contains(status), "{status} {text}");
    }
}

const CALLERS: u32 = 10;
/// Calls per second, unless `TRUNKLINE_RESTART_RATE` sets them.
const RATE: u32 = 50;
/// Calls between two restarts.
const CALLS_BETWEEN: u64 = 60;
