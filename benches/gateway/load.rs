//! Calls without pause over some connections, and what they took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::{Conversation, Target};
use crate::plan::Way;
use crate::process::Process;

/// How long it is measured, and how often.
pub struct Span {
    pub rounds: usize,
    warm: Duration,
    measured: Duration,
}

impl Span {
    pub const FULL: Self =
        Self { rounds: 5, warm: Duration::from_millis(200), measured: Duration::from_millis(900) };
    pub const QUICK: Self =
        Self { rounds: 3, warm: Duration::from_millis(100), measured: Duration::from_millis(300) };
}

/// One way in one round.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Microseconds of CPU for each call, of the process under measurement.
    pub cpu: f64,
    /// Calls per second.
    pub rate: f64,
    /// Microseconds that half of the calls took at most.
    pub p50: f64,
    /// Microseconds that 99 of 100 calls took at most.
    pub p99: f64,
}

#[derive(Default)]
struct Progress {
    calls: AtomicU64,
    measuring: AtomicBool,
    over: AtomicBool,
}

/// Has so many connections make so many calls each.
pub async fn calls(target: &Target, connections: usize, calls: usize) {
    let mut open = JoinSet::new();
    for _ in 0..connections {
        let target = *target;
        open.spawn(async move {
            let mut conversation = Conversation::open(&target).await;
            for _ in 0..calls {
                conversation.call().await;
            }
            conversation.close().await;
        });
    }
    open.join_all().await;
}

pub async fn measure(way: &Way<'_>, connections: usize, span: &Span) -> Measured {
    let progress = Arc::new(Progress::default());
    let mut open = JoinSet::new();
    for _ in 0..connections {
        let conversation = Conversation::open(&way.target).await;
        open.spawn(call_until_over(conversation, Arc::clone(&progress)));
    }
    sleep(span.warm).await;
    let cpu = || way.process.map_or(Duration::ZERO, Process::cpu);
    let (cpu_before, calls_before, begun) = (cpu(), progress.calls.load(Relaxed), Instant::now());
    progress.measuring.store(true, Relaxed);
    sleep(span.measured).await;
    progress.measuring.store(false, Relaxed);
    let (cpu_after, calls_after, took) = (cpu(), progress.calls.load(Relaxed), begun.elapsed());
    progress.over.store(true, Relaxed);
    let mut times: Vec<u32> = open.join_all().await.concat();
    times.sort_unstable();
    let calls = (calls_after - calls_before) as f64;
    Measured {
        cpu: cpu_after.saturating_sub(cpu_before).as_secs_f64() * 1e6 / calls,
        rate: calls / took.as_secs_f64(),
        p50: quantile(&times, 50),
        p99: quantile(&times, 99),
    }
}

/// The time of each call that ended while it was measured, in nanoseconds.
async fn call_until_over(mut conversation: Conversation, progress: Arc<Progress>) -> Vec<u32> {
    let mut times = Vec::with_capacity(1 << 14);
    while !progress.over.load(Relaxed) {
        let begun = Instant::now();
        conversation.call().await;
        progress.calls.fetch_add(1, Relaxed);
        if progress.measuring.load(Relaxed) {
            times.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
    }
    conversation.close().await;
    times
}

fn quantile(sorted: &[u32], percent: usize) -> f64 {
    f64::from(sorted[(sorted.len() - 1) * percent / 100]) / 1e3
}
