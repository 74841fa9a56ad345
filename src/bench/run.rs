//! One run against one server: threads, connections, the clock, the end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::clock::RunClock;
use super::crew::LoadThreads;
use super::plan::Load;
use super::process::{Meter, Usage};
use super::script::Script;
use super::tally::Tally;
use super::{BenchFault, Interrupt};

/// What a run gave.
#[derive(Debug)]
pub struct RunOutcome {
    /// The counts.
    pub tally: Tally,
    /// How long was counted.
    pub elapsed: Duration,
    /// Open loop: what was due and never sent, because all connections waited.
    pub unsent: u64,
    /// What the process under test took meanwhile.
    pub usage: Option<Usage>,
    /// What the load generator itself took: seconds of CPU per second and thread.
    pub busy: f64,
    /// Whether it was ended before its time.
    pub interrupted: bool,
}

impl RunOutcome {
    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        ratio(self.tally.whole().in_time, self.elapsed.as_secs_f64())
    }

    /// Microseconds that a part of the operations took at most, if any was done.
    pub fn micros(&self, quantile: f64) -> Option<f64> {
        let whole = self.tally.whole();
        let found = whole.latency.value_at_quantile(quantile);
        (whole.done > 0).then(|| as_float(found) / 1e3)
    }

    /// Microseconds of CPU of the process under test, per operation.
    pub fn cpu_per_call(&self) -> Option<f64> {
        let usage = self.usage.as_ref()?;
        let whole = self.tally.whole();
        let calls = whole.in_time + whole.failed;
        (calls > 0).then(|| usage.cpu.as_secs_f64() * 1e6 / as_float(calls))
    }
}

/// Who watches a run.
pub trait RunWatcher {
    /// Told a few times a second: how far the clock is, what was done, what failed.
    fn see(&mut self, clock: &RunClock, done: u64, failed: u64);
    /// Told at the end.
    fn over(&mut self);
}

/// Runs a load.
///
/// # Errors
/// [`BenchFault`] where the connections cannot be opened.
pub async fn run(
    script: &Arc<Script>,
    load: &Load,
    meter: Option<&Meter>,
    interrupt: &Interrupt,
    watch: &mut dyn RunWatcher,
) -> Result<RunOutcome, BenchFault> {
    let mut crew = LoadThreads::gather(script, load).await?;
    let clock = Arc::new(RunClock::start(load, Instant::now()));
    crew.go(&clock);

    let mut supervisor = Supervisor { clock: &clock, crew: &mut crew, interrupt, watch };
    supervisor.until(clock.counted).await;
    let own = Meter::own();
    let before = (own.cpu(), meter.map(Meter::cpu));
    let counted = Instant::now();
    supervisor.until(clock.end.unwrap_or_else(|| counted + FOREVER)).await;
    let after = (own.cpu(), meter.map(Meter::cpu));
    let stopped = Instant::now();
    watch.over();

    let end = clock.end.map_or(stopped, |end| end.min(stopped));
    let unsent = clock.unsent(end);
    let (tally, last) = crew.finish().await?;
    // Where the number of calls decides, the last answer is the end.
    let end = if clock.end.is_none() && !clock.is_stopped() { last } else { end };
    let threads = load.threads.clamp(1, load.connections.max(1)) as u64;
    let wall = stopped.saturating_duration_since(counted).as_secs_f64();
    let spent = after.0.saturating_sub(before.0).as_secs_f64();
    let usage = match (meter, after.1, before.1) {
        (Some(meter), Some(after), Some(before)) => Some(meter.usage(after.saturating_sub(before))),
        _ => None,
    };
    Ok(RunOutcome {
        tally,
        elapsed: end.saturating_duration_since(clock.counted),
        unsent,
        usage,
        busy: if wall > 0.0 { spent / wall / as_float(threads) } else { 0.0 },
        interrupted: clock.is_stopped(),
    })
}

/// Looks after a run while others work.
struct Supervisor<'a> {
    clock: &'a RunClock,
    crew: &'a mut LoadThreads,
    interrupt: &'a Interrupt,
    watch: &'a mut dyn RunWatcher,
}

impl Supervisor<'_> {
    /// Waits for a time to come, or for all to be over before.
    async fn until(&mut self, then: Instant) {
        let mut tick = tokio::time::interval(TICK);
        let over = tokio::time::sleep_until(then.into());
        tokio::pin!(over);
        loop {
            if self.clock.is_stopped() {
                return;
            }
            tokio::select! {
                () = &mut over => return,
                () = self.interrupt.asked() => self.clock.stop(),
                () = self.crew.all_done() => return,
                _ = tick.tick() => {
                    let (done, failed) = (&self.clock.done, &self.clock.failed);
                    self.watch.see(self.clock, done.load(Relaxed), failed.load(Relaxed));
                }
            }
        }
    }
}

fn ratio(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { as_float(count) / seconds } else { 0.0 }
}

/// A count as something to divide.
pub fn as_float(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "nobody counts to 2^52 here")]
    let count = count as f64;
    count
}

/// How often those who watch are told.
const TICK: Duration = Duration::from_millis(200);
/// Longer than anybody waits.
const FOREVER: Duration = Duration::from_hours(24 * 365);
