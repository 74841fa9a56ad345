//! How long a call may take: so long without a sign of life, and so long in all.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::Alarm;

/// A call's time limit. Progress moves it, up to a cap (2026-07-28,
/// Cancellation, "Timeouts").
#[derive(Debug)]
pub(in crate::upstream) struct Deadline {
    alarm: Alarm,
    started: Instant,
    quiet: Duration,
    cap: Duration,
    /// Since when it stands still.
    paused: Option<Instant>,
}

impl Deadline {
    /// A limit of `quiet` without a sign of life, and of `cap` in all.
    pub(in crate::upstream) fn new(quiet: Duration, cap: Duration) -> Self {
        let started = Instant::now();
        let quiet = quiet.min(cap);
        Self { alarm: Alarm::after(quiet), started, quiet, cap, paused: None }
    }

    /// How long may pass without a sign of life.
    pub(in crate::upstream) fn quiet(&self) -> Duration {
        self.quiet
    }

    /// A sign of life came.
    pub(in crate::upstream) fn extend(&mut self) {
        let until = (Instant::now() + self.quiet).min(self.started + self.cap);
        self.alarm.set(until);
    }

    /// Stands still: it is the client that takes its time.
    pub(in crate::upstream) fn pause(&mut self) {
        self.paused.get_or_insert_with(Instant::now);
    }

    /// Goes on, as if the pause had not been; the server has all its time again.
    pub(in crate::upstream) fn go_on(&mut self) {
        if let Some(since) = self.paused.take() {
            self.started += since.elapsed();
            self.extend();
        }
    }

    /// Waits for the limit; gives how long the call has taken by then.
    ///
    /// # Cancel safety
    /// Safe.
    pub(in crate::upstream) async fn passed(&mut self) -> Duration {
        if self.paused.is_some() {
            std::future::pending::<()>().await;
        }
        (&mut self.alarm).await;
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

    #[tokio::test(start_paused = true)]
    async fn a_pause_does_not_count() {
        let second = Duration::from_secs(1);
        let mut deadline = Deadline::new(second * 2, second * 3);
        tokio::time::sleep(second).await;
        deadline.pause();
        let quiet = tokio::time::timeout(second * 60, deadline.passed()).await;
        assert!(quiet.is_err());
        deadline.go_on();
        let begun = Instant::now();
        deadline.passed().await;
        assert_eq!(begun.elapsed(), second * 2);
    }
}
