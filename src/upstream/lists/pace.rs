//! When a server is listed again.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The pace of one connection's listings. A change is followed at once; a
/// server that changes without pause, or whose listing fails, is listed ever
/// more rarely, but a listing that is due never falls away. Changes that are
/// several pauses apart bring the pause down again, so that what a burst
/// delays is no longer than the burst was.
pub(in crate::upstream) struct RelistPace {
    not_before: Instant,
    pause: Duration,
    /// How long after the last pause the listing became due.
    quiet: Duration,
    /// A listing failed: another is due though nothing was said.
    owed: bool,
}

impl RelistPace {
    pub(in crate::upstream) fn new() -> Self {
        Self { not_before: Instant::now(), pause: FIRST_PAUSE, quiet: CALM, owed: false }
    }

    /// Waits until a listing is due.
    ///
    /// # Cancel safety
    /// Safe: what was said stays said.
    pub(in crate::upstream) async fn due(&mut self, changed: &Notify) {
        if !self.owed {
            changed.notified().await;
            self.owed = true;
        }
        self.quiet = self.not_before.elapsed();
        sleep_until(self.not_before).await;
        self.owed = false;
    }

    /// Notes a listing.
    pub(in crate::upstream) fn listed(&mut self, succeeded: bool) {
        self.pause = if self.quiet >= CALM {
            FIRST_PAUSE
        } else if self.quiet >= self.pause * SPARSE {
            (self.pause / 2).max(FIRST_PAUSE)
        } else {
            (self.pause * 2).min(LAST_PAUSE)
        };
        self.not_before = Instant::now() + self.pause;
        self.owed = !succeeded;
    }
}

/// Between two listings at first.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Between two listings at most.
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// Changes so many pauses after the last one are no burst.
const SPARSE: u32 = 4;
/// After so long without a listing the pauses start over.
const CALM: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_changes_without_pause_is_listed_ever_more_rarely() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
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
    async fn changes_now_and_then_are_followed_at_once() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            changed.notify_one();
            let said = Instant::now();
            pace.due(&changed).await;
            assert_eq!(said.elapsed(), Duration::ZERO);
            tokio::time::sleep(Duration::from_millis(40)).await;
            pace.listed(true);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_delays_no_longer_than_it_was() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(4) {
            changed.notify_one();
            pace.due(&changed).await;
            pace.listed(true);
        }
        let burst = start.elapsed();
        changed.notify_one();
        pace.due(&changed).await;
        assert!(start.elapsed() <= burst * 3, "{:?} after {burst:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_that_failed_is_made_up_for() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        changed.notify_one();
        pace.due(&changed).await;
        pace.listed(false);
        pace.due(&changed).await;
    }
}
