//! The progress line of a run, on a terminal only.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use crate::bench::{Load, RunClock, RunWatcher};
use crate::clock;

/// The progress line on standard error.
pub(super) struct Progress {
    shown: bool,
    turn: usize,
    turns: usize,
    requests: Option<u64>,
}

impl Progress {
    /// Progress of `turns` runs, one after the other.
    pub(super) fn new(load: &Load, turns: usize) -> Self {
        let shown = std::io::stderr().is_terminal();
        Self { shown, turn: 0, turns, requests: load.requests }
    }

    fn line(&self, clock: &RunClock, done: u64, failed: u64, now: Instant) -> String {
        let passed = now.saturating_duration_since(clock.counted).as_secs_f64();
        if now < clock.counted {
            return format!("{} warming up", self.which());
        }
        let by_time = clock.end.map(|end| {
            let whole = end.saturating_duration_since(clock.counted).as_secs_f64();
            if whole > 0.0 { passed / whole } else { 1.0 }
        });
        #[expect(clippy::cast_precision_loss, reason = "a bar of twenty places")]
        let by_count = self.requests.map(|most| done as f64 / most as f64);
        let part = by_time.unwrap_or(0.0).max(by_count.unwrap_or(0.0)).clamp(0.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 20")]
        let full = (part * 20.0) as usize;
        #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
        let rate = if passed > 0.0 { done as f64 / passed } else { 0.0 };
        let bar = format!("{}{}", "━".repeat(full), "─".repeat(20 - full));
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        format!("{} {bar} {passed:.1} s  {done} answered, {rate:.0}/s{failed}", self.which())
    }

    fn which(&self) -> String {
        if self.turns > 1 { format!("[{}/{}]", self.turn + 1, self.turns) } else { String::new() }
    }
}

impl RunWatcher for Progress {
    fn see(&mut self, clock: &RunClock, done: u64, failed: u64) {
        if self.shown {
            let line = self.line(clock, done, failed, clock::real_now());
            // If the terminal is gone, there is nowhere to report it.
            let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
        }
    }

    fn over(&mut self) {
        self.turn += 1;
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
