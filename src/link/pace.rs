//! When a server is listed again.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The pace of one connection's listings. A change is followed at once; a
/// server that changes without pause, or whose listing fails, is listed ever
/// more rarely, but a listing that is due never falls away.
pub(super) struct Pace {
    not_before: Instant,
    pause: Duration,
    /// A listing failed: another is due though nothing was said.
    owed: bool,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { not_before: Instant::now(), pause: FIRST_PAUSE, owed: false }
    }

    /// Waits until a listing is due.
    ///
    /// # Cancel safety
    /// Safe: what was said stays said.
    pub(super) async fn due(&mut self, changed: &Notify) {
        if !self.owed {
            changed.notified().await;
            self.owed = true;
        }
        sleep_until(self.not_before).await;
        self.owed = false;
    }

    /// Notes a listing.
    pub(super) fn listed(&mut self, succeeded: bool) {
        let now = Instant::now();
        let calm = now.saturating_duration_since(self.not_before) > CALM;
        self.pause = if calm { FIRST_PAUSE } else { (self.pause * 2).min(LAST_PAUSE) };
        self.not_before = now + self.pause;
        self.owed = !succeeded;
    }
}

/// Between two listings at first.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Between two listings at most.
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// After so long without a listing the pauses start over.
const CALM: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_changes_without_pause_is_listed_ever_more_rarely() {
        let (changed, mut pace) = (Notify::new(), Pace::new());
        let start = Instant::now();
        let mut listings = 0;
        while start.elapsed() < Duration::from_mins(1) {
            changed.notify_one();
            pace.due(&changed).await;
            listings += 1;
            pace.listed(true);
        }
        assert!(listings < 15, "{listings} listings in a minute");
        tokio::time::sleep(LAST_PAUSE + CALM * 2).await;
        changed.notify_one();
        pace.due(&changed).await;
        pace.listed(true);
        assert_eq!(pace.pause, FIRST_PAUSE, "a calm while starts it over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_that_failed_is_made_up_for() {
        let (changed, mut pace) = (Notify::new(), Pace::new());
        changed.notify_one();
        pace.due(&changed).await;
        pace.listed(false);
        pace.due(&changed).await;
    }
}
