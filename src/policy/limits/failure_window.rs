//! Counts of calls, and of failed ones, in a sliding window.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::BreakerConfig;

/// Recent calls, in [`WINDOW_PARTS`] counts.
#[derive(Debug)]
pub(super) struct FailureWindow {
    /// The length of one part.
    part: Duration,
    /// The counts, the newest last, and the time at which that one began.
    counts: [PartCount; WINDOW_PARTS],
    newest: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct PartCount {
    calls: usize,
    failures: usize,
}

/// The server's state, as the end of a call shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallVerdict {
    /// The server answered.
    Answered,
    /// The server failed.
    Failed,
}

impl FailureWindow {
    /// Creates an empty window of this length.
    pub(crate) fn new(length: Duration) -> Self {
        let part = (length / PARTS_AS_U32).max(Duration::from_millis(1));
        Self { part, counts: [PartCount::default(); WINDOW_PARTS], newest: None }
    }

    /// Counts a call that ended at this time.
    pub(crate) fn record(&mut self, now: Instant, verdict: CallVerdict) {
        self.advance(now);
        if let Some(last) = self.counts.last_mut() {
            last.calls += 1;
            last.failures += usize::from(verdict == CallVerdict::Failed);
        }
    }

    /// Returns true if the share of failures among enough calls reaches the limit.
    pub(super) fn is_over(&mut self, settings: &BreakerConfig, now: Instant) -> bool {
        let Some(percent) = settings.ratio else { return false };
        self.advance(now);
        let calls: usize = self.counts.iter().map(|part| part.calls).sum();
        let failures: usize = self.counts.iter().map(|part| part.failures).sum();
        calls >= settings.minimum && failures * 100 >= calls * percent
    }

    /// Drops the parts that have left the window by this time.
    fn advance(&mut self, now: Instant) {
        let began = *self.newest.get_or_insert(now);
        let passed = now.saturating_duration_since(began).as_nanos() / self.part.as_nanos();
        let parts = usize::try_from(passed).unwrap_or(usize::MAX).min(WINDOW_PARTS);
        if parts == 0 {
            return;
        }
        self.counts.rotate_left(parts);
        self.counts.iter_mut().rev().take(parts).for_each(|part| *part = PartCount::default());
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        self.newest = Some(if parts < WINDOW_PARTS { began + self.part * passed } else { now });
    }
}

/// Number of steps in which calls leave the window.
const WINDOW_PARTS: usize = 10;
const PARTS_AS_U32: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn calls_leave_the_window_in_steps() {
        let settings = BreakerConfig {
            failures: None,
            ratio: Some(100),
            window: Duration::from_secs(10),
            minimum: 1,
            open_time: Duration::ZERO,
            probes: 1,
        };
        let (mut window, start) = (FailureWindow::new(settings.window), clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        window.record(at(0), CallVerdict::Failed);
        assert!(window.is_over(&settings, at(9)));
        assert!(!window.is_over(&settings, at(10)), "none is left");
        window.record(at(11), CallVerdict::Answered);
        assert!(!window.is_over(&settings, at(12)));
        window.record(at(100_000), CallVerdict::Failed);
        assert!(window.is_over(&settings, at(100_001)));
    }
}
