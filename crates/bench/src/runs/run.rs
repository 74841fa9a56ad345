//! One run against one server: threads, connections, the clock, the end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use trunkline_core::clock;

use super::process::{Meter, Usage};
use crate::load::clock::RunClock;
use crate::load::tally::Tally;
use crate::load::threads::LoadThreads;
use crate::session::plan::Load;
use crate::session::script::Script;
use crate::{BenchFault, Interrupt};

/// The result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The counts.
    pub tally: Tally,
    /// The duration of the counted part.
    pub elapsed: Duration,
    /// Open loop: operations that were due but never sent, because all connections waited.
    pub unsent: u64,
    /// The resource usage of the process under test.
    pub usage: Option<Usage>,
    /// The CPU usage of the load generator: seconds of CPU per second and thread.
    pub busy: f64,
    /// True if the run was ended early.
    pub interrupted: bool,
}

impl RunOutcome {
    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        ratio(self.tally.whole().in_time, self.elapsed.as_secs_f64())
    }

    /// Returns the latency at a quantile, in microseconds; `None` if no operation succeeded.
    pub fn micros(&self, quantile: f64) -> Option<f64> {
        let whole = self.tally.whole();
        let found = whole.latency.value_at_quantile(quantile);
        (whole.done > 0).then(|| as_float(found) / 1e3)
    }

    /// CPU time of the process under test per operation, in microseconds.
    pub fn cpu_per_call(&self) -> Option<f64> {
        let usage = self.usage.as_ref()?;
        let whole = self.tally.whole();
        let calls = whole.in_time + whole.tool_errors + whole.failed;
        (calls > 0).then(|| usage.cpu.as_secs_f64() * 1e6 / as_float(calls))
    }
}

/// Observes a run.
pub trait RunWatcher {
    /// Called a few times a second, with the counts of successes and failures.
    fn see(&mut self, clock: &RunClock, done: u64, failed: u64);
    /// Called at the end.
    fn over(&mut self);
}

/// Runs a load.
///
/// # Errors
/// [`BenchFault`] if the connections cannot be opened.
pub async fn run(
    script: &Arc<Script>,
    load: &Load,
    meter: Option<&Meter>,
    interrupt: &Interrupt,
    watch: &mut dyn RunWatcher,
) -> Result<RunOutcome, BenchFault> {
    let mut crew = LoadThreads::gather(script, load).await?;
    let clock = Arc::new(RunClock::start(load, clock::real_now()));
    crew.go(&clock);

    let mut supervisor = Supervisor { clock: &clock, crew: &mut crew, interrupt, watch };
    supervisor.until(clock.counted).await;
    let own = Meter::own();
    let before = (own.cpu(), meter.map(Meter::cpu));
    let counted = clock::real_now();
    supervisor.until(clock.end.unwrap_or_else(|| counted + UNLIMITED_DURATION)).await;
    let after = (own.cpu(), meter.map(Meter::cpu));
    let stopped = clock::real_now();
    watch.over();

    let end = clock.end.map_or(stopped, |end| end.min(stopped));
    let unsent = clock.unsent(end);
    let (tally, last) = crew.finish().await?;
    // If the number of calls is fixed, the run ends with the last answer.
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

/// Observes a run while its threads work.
struct Supervisor<'a> {
    clock: &'a RunClock,
    crew: &'a mut LoadThreads,
    interrupt: &'a Interrupt,
    watch: &'a mut dyn RunWatcher,
}

impl Supervisor<'_> {
    /// Waits until a time, or until all threads are done.
    async fn until(&mut self, then: Instant) {
        let mut tick = tokio::time::interval(WATCH_INTERVAL);
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

/// Converts a count for divisions.
pub(crate) fn as_float(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^52 here")]
    let count = count as f64;
    count
}

/// Interval between the calls of the watcher.
const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Longer than any run.
const UNLIMITED_DURATION: Duration = Duration::from_hours(24 * 365);
