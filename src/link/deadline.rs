//! How long a call may take: so long without a sign of life, and so long in all.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A call's time limit. Progress moves it, up to a cap (2026-07-28,
/// Cancellation, "Timeouts").
#[derive(Debug)]
pub(super) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    started: Instant,
    quiet: Duration,
    cap: Duration,
}

impl Deadline {
    /// A limit of `quiet` without a sign of life, and of `cap` in all.
    pub(super) fn new(quiet: Duration, cap: Duration) -> Self {
        let started = Instant::now();
        let quiet = quiet.min(cap);
        Self { sleep: Box::pin(sleep_until(started + quiet)), started, quiet, cap }
    }

    /// A sign of life came.
    pub(super) fn extend(&mut self) {
        let until = (Instant::now() + self.quiet).min(self.started + self.cap);
        self.sleep.as_mut().reset(until);
    }

    /// Waits for the limit; gives how long the call has taken by then.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn passed(&mut self) -> Duration {
        self.sleep.as_mut().await;
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_extends_the_limit_up_to_the_cap() {
        let second = Duration::from_secs(1);
        let mut deadline = Deadline::new(second * 2, second * 5);
        tokio::time::sleep(second).await;
        deadline.extend();
        assert_eq!(deadline.passed().await, second * 3);
        let mut deadline = Deadline::new(second * 2, second * 3);
        tokio::time::sleep(second * 2).await;
        deadline.extend();
        assert_eq!(deadline.passed().await, second * 3);
    }
}
