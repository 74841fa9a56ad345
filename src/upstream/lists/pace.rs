//! The pace of list requests.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::clock;

use super::{ListingOutcome, ListingPart};

/// The pace of one connection's list requests. A change is followed at once.
/// For a server that changes constantly, or whose lists fail, the pause between
/// requests grows, but a request that is due is always made. Changes that are
/// several pauses apart shorten the pause again, so that a burst delays
/// requests no longer than it lasted.
///
/// Lists that have changed are announced to all clients, which request them
/// again: such listings are rarer still, some at once and then one per
/// [`REFILL`].
///
/// A request of an operator is made [`FIRST_PAUSE`] after the last one, and leaves the pace as it is:
/// the server is not its cause.
pub(in crate::upstream) struct RelistPace {
    not_before: Instant,
    backoff: Backoff,
    /// How long after the last pause the request became due.
    quiet: Duration,
    /// Whether a request is due without a notification, because the last one
    /// failed.
    owed: bool,
    /// When changed lists have no effect on the pace any more: each moves this
    /// by [`REFILL`].
    refilled: Instant,
    /// When the last request ended.
    last_end: Option<Instant>,
    /// True if the request that is due is an operator's.
    is_operators: bool,
}

/// The causes of list requests.
pub(in crate::upstream) struct RelistCauses<'a> {
    /// The server's lists may have changed.
    pub(in crate::upstream) changed: &'a Notify,
    /// An operator asks for them.
    pub(in crate::upstream) asked: &'a Notify,
}

impl RelistPace {
    pub(in crate::upstream) fn new() -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
        let now = clock::now();
        Self {
            not_before: now,
            backoff,
            quiet: CALM,
            owed: false,
            refilled: now,
            last_end: None,
            is_operators: false,
        }
    }

    /// Waits until a list request is due.
    ///
    /// # Cancel safety
    /// Safe: a notification that was received is not lost.
    pub(in crate::upstream) async fn due(&mut self, causes: RelistCauses<'_>) {
        if !self.is_operators {
            tokio::select! {
                biased;
                () = causes.asked.notified() => self.is_operators = true,
                () = self.change_due(causes.changed) => {}
            }
        }
        if self.is_operators {
            let earliest = self.last_end.map(|end| end + FIRST_PAUSE);
            sleep_until(earliest.unwrap_or_else(clock::now)).await;
        }
        // A change that was announced during the pause is in the lists that are requested now.
        let _ = causes.changed.notified().now_or_never();
        self.owed = false;
    }

    /// Waits until a request for a change is due.
    async fn change_due(&mut self, changed: &Notify) {
        if !self.owed {
            changed.notified().await;
            self.owed = true;
        }
        self.quiet = self.not_before.elapsed();
        sleep_until(self.not_before.max(self.affordable())).await;
    }

    /// The earliest time at which the server may change its lists again.
    fn affordable(&self) -> Instant {
        self.refilled.checked_sub(REFILL * (CHANGES - 1)).unwrap_or(self.not_before)
    }

    /// Records a list request; `None` if it failed.
    pub(in crate::upstream) fn listed(&mut self, outcome: Option<&ListingOutcome>) {
        let now = clock::now();
        self.last_end = Some(now);
        self.owed = outcome.is_none_or(|outcome| outcome.part == ListingPart::Some);
        if std::mem::take(&mut self.is_operators) {
            return;
        }
        if self.quiet >= CALM {
            self.backoff.reset();
        } else if self.quiet >= self.backoff.wait() * SPARSE {
            self.backoff.ease();
        } else {
            self.backoff.next_wait();
        }
        self.not_before = now + self.backoff.wait();
        if outcome.is_some_and(|outcome| outcome.has_changed) {
            self.refilled = self.refilled.max(now) + REFILL;
        }
    }
}

/// The first pause between two requests.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two requests.
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// Changes this many pauses after the last one are no burst.
const SPARSE: u32 = 4;
/// How many changed lists are followed at once, and how long until one more is.
const CHANGES: u32 = 10;
const REFILL: Duration = Duration::from_secs(5);
/// After this long without a request the pause is reset.
const CALM: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: ListingOutcome = ListingOutcome { part: ListingPart::Whole, has_changed: false };
    const CHANGED: ListingOutcome = ListingOutcome { has_changed: true, ..SAME };

    /// No operator asks.
    fn only(changed: &Notify) -> RelistCauses<'_> {
        static NEVER: Notify = Notify::const_new();
        RelistCauses { changed, asked: &NEVER }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_an_operator_wait_no_longer_with_each() {
        let (changed, asked, mut pace) = (Notify::new(), Notify::new(), RelistPace::new());
        // The server announces changes all the time, and its lists fail.
        for _ in 0..20 {
            changed.notify_one();
            pace.due(only(&changed)).await;
            pace.listed(None);
        }
        let pause = pace.backoff.wait();
        assert_eq!(pause, LAST_PAUSE);
        for _ in 0..100 {
            asked.notify_one();
            let begun = clock::now();
            pace.due(RelistCauses { changed: &changed, asked: &asked }).await;
            assert!(begun.elapsed() <= FIRST_PAUSE, "{:?}", begun.elapsed());
            pace.listed(Some(&CHANGED));
        }
        assert_eq!(pace.backoff.wait(), pause, "the pace of the server stays");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_changes_without_pause_is_listed_ever_more_rarely() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        let start = clock::now();
        let mut listings = 0;
        while start.elapsed() < Duration::from_mins(1) {
            changed.notify_one();
            pace.due(only(&changed)).await;
            listings += 1;
            pace.listed(Some(&SAME));
        }
        assert!(listings < 15, "{listings} listings in a minute");
        tokio::time::sleep(LAST_PAUSE + CALM * 2).await;
        changed.notify_one();
        pace.due(only(&changed)).await;
        pace.listed(Some(&SAME));
        assert_eq!(pace.backoff.wait(), FIRST_PAUSE, "a calm while starts it over");
    }

    #[tokio::test(start_paused = true)]
    async fn announcements_now_and_then_are_followed_at_once() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(700)).await;
            changed.notify_one();
            let said = clock::now();
            pace.due(only(&changed)).await;
            assert_eq!(said.elapsed(), Duration::ZERO);
            tokio::time::sleep(Duration::from_millis(40)).await;
            pace.listed(Some(&SAME));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_change_again_and_again_are_followed_ever_more_rarely() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        let start = clock::now();
        let mut listings = 0;
        while start.elapsed() < Duration::from_mins(1) {
            // Sparse enough that the pause stays short.
            tokio::time::sleep(Duration::from_millis(260)).await;
            changed.notify_one();
            pace.due(only(&changed)).await;
            listings += 1;
            pace.listed(Some(&CHANGED));
        }
        assert!((10..=22).contains(&listings), "{listings} listings in a minute");
        // A list that has changed and then stays is followed at once after a while.
        tokio::time::sleep(REFILL * CHANGES).await;
        for _ in 0..CHANGES {
            tokio::time::sleep(CALM * 2).await;
            changed.notify_one();
            let said = clock::now();
            pace.due(only(&changed)).await;
            assert_eq!(said.elapsed(), Duration::ZERO);
            pace.listed(Some(&CHANGED));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_delays_no_longer_than_it_was() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        let start = clock::now();
        while start.elapsed() < Duration::from_secs(4) {
            changed.notify_one();
            pace.due(only(&changed)).await;
            pace.listed(Some(&SAME));
        }
        let burst = start.elapsed();
        changed.notify_one();
        pace.due(only(&changed)).await;
        assert!(start.elapsed() <= burst * 3, "{:?} after {burst:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn changes_during_a_pause_are_followed_by_one_request() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        pace.listed(Some(&SAME));
        changed.notify_one();
        let announced = async {
            tokio::time::sleep(FIRST_PAUSE / 2).await;
            changed.notify_one();
        };
        tokio::join!(pace.due(only(&changed)), announced);
        pace.listed(Some(&SAME));
        let more = tokio::time::timeout(LAST_PAUSE * 2, pace.due(only(&changed))).await;
        assert!(more.is_err(), "nothing has changed since");
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_that_failed_is_made_up_for() {
        let (changed, mut pace) = (Notify::new(), RelistPace::new());
        changed.notify_one();
        pace.due(only(&changed)).await;
        pace.listed(None);
        pace.due(only(&changed)).await;
    }
}
