//! Time limit of a call: without progress, and in total.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::clock;

/// Time limit of a call. Progress extends it, up to a cap (2026-07-28, Cancellation, "Timeouts").
#[derive(Debug)]
pub(crate) struct Deadline {
    timer: Pin<Box<Sleep>>,
    started: Instant,
    quiet: Duration,
    cap: Duration,
    /// Start of the current pause, if the deadline is paused.
    paused: Option<Instant>,
}

impl Deadline {
    /// Creates a deadline of `quiet` without progress, and of `cap` in total.
    pub(crate) fn new(quiet: Duration, cap: Duration) -> Self {
        let started = clock::now();
        let quiet = quiet.min(cap);
        let timer = Box::pin(sleep_until(started + quiet));
        Self { timer, started, quiet, cap, paused: None }
    }

    /// Returns the time that the call may go without progress.
    pub(crate) fn quiet(&self) -> Duration {
        self.quiet
    }

    /// Extends the deadline after progress.
    pub(crate) fn extend(&mut self) {
        let until = (clock::now() + self.quiet).min(self.started + self.cap);
        self.timer.as_mut().reset(until);
    }

    /// Pauses the deadline while the client is asked for input.
    pub(crate) fn pause(&mut self) {
        self.paused.get_or_insert_with(clock::now);
    }

    /// Resumes the deadline. The pause does not count, and the server has the
    /// full time again.
    pub(super) fn go_on(&mut self) {
        if let Some(since) = self.paused.take() {
            self.started += since.elapsed();
            self.extend();
        }
    }

    /// Waits for the deadline and returns how long the call has taken.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn passed(&mut self) -> Duration {
        if self.paused.is_some() {
            std::future::pending::<()>().await;
        }
        self.timer.as_mut().await;
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
        let begun = clock::now();
        deadline.passed().await;
        assert_eq!(begun.elapsed(), second * 2);
    }
}
