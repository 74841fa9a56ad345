//! The pace of list requests.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::catalog::{ByKind, Kind};
use crate::clock;

use crate::upstream::notifications::changes::ChangedLists;

use super::{ListingOutcome, ListingPart};

/// Pace of one connection's list requests, by kind.
///
/// The first change is followed at once. A change soon after a request is followed one
/// [`MIN_LIST_INTERVAL`] after the beginning of that request. The gateway slows down only for a
/// server that changes a list without pause for [`FLOOD_TIME`], or that fails to return it. The
/// server's other lists keep their pace.
///
/// Some servers announce a list other than the changed one. So each request includes all lists that
/// could have been requested at that time.
///
/// An operator's request starts [`OPERATOR_PAUSE`] after the last one, and leaves the pace
/// unchanged, because the server did not cause it.
pub(crate) struct RelistPace {
    kinds: ByKind<KindPace>,
    /// Lists that are being requested.
    requested: ByKind<bool>,
    /// Lists that failed, with the times at which they became due again.
    owed: ByKind<Option<Instant>>,
    /// Time at which the last request ended.
    last_end: Option<Instant>,
    /// True if an operator made the request that is due.
    is_operators: bool,
}

/// Pace of the requests for one list.
#[derive(Debug, Clone)]
struct KindPace {
    /// Time at which the last request began.
    begun: Option<Instant>,
    /// Time at which the last request for an announced change of this list began.
    followed: Option<Instant>,
    /// Time at which that request ended.
    ended: Option<Instant>,
    /// Time from which the list has changed without pause.
    busy_since: Option<Instant>,
    not_before: Option<Instant>,
    backoff: Backoff,
}

impl Default for KindPace {
    fn default() -> Self {
        let backoff = Backoff::new(MIN_LIST_INTERVAL, LAST_PAUSE);
        Self {
            begun: None,
            followed: None,
            ended: None,
            busy_since: None,
            not_before: None,
            backoff,
        }
    }
}

impl KindPace {
    /// Returns the time to follow a change that is known since `since`.
    fn due_at(&self, since: Instant) -> Instant {
        let spaced = self.begun.map_or(since, |begun| begun + MIN_LIST_INTERVAL);
        since.max(spaced).max(self.not_before.unwrap_or(since))
    }

    /// Records the beginning of a request for a change that is known since `since`.
    fn begin(&mut self, since: Instant, now: Instant) {
        if self.ended.is_none_or(|ended| since >= ended + MIN_LIST_INTERVAL) {
            self.busy_since = None;
            self.backoff.reset();
        }
        self.busy_since.get_or_insert(now);
        (self.begun, self.followed) = (Some(now), Some(now));
    }

    /// Records the beginning of a request together with those for other lists, if one is allowed
    /// now.
    fn accompany(&mut self, now: Instant) -> bool {
        let may = self.due_at(now) <= now;
        self.begun = if may { Some(now) } else { self.begun };
        may
    }

    /// Records the end of a request.
    fn end(&mut self, has_failed: bool, now: Instant) {
        let is_followed = self.followed == self.begun;
        self.ended = if is_followed { Some(now) } else { self.ended };
        let is_flooded =
            is_followed && self.busy_since.is_some_and(|since| now - since >= FLOOD_TIME);
        self.not_before = (has_failed || is_flooded).then(|| now + self.backoff.next_wait());
        if self.not_before.is_none() {
            self.backoff.reset();
        }
    }
}

/// Causes of list requests.
pub(crate) struct RelistCauses<'a> {
    /// The lists that may have changed.
    pub(crate) changes: &'a ChangedLists,
    /// Notified when an operator requests them.
    pub(crate) asked: &'a Notify,
}

impl RelistPace {
    pub(crate) fn new() -> Self {
        Self {
            kinds: ByKind::from_fn(|_| KindPace::default()),
            requested: ByKind::default(),
            owed: ByKind::default(),
            last_end: None,
            is_operators: false,
        }
    }

    /// Waits until a list request is due, and returns the lists to request.
    ///
    /// # Cancel safety
    /// Safe: a notification that was received is not lost.
    pub(crate) async fn due(&mut self, causes: RelistCauses<'_>) -> ByKind<bool> {
        loop {
            if self.is_operators {
                let earliest = self.last_end.map(|end| end + OPERATOR_PAUSE);
                sleep_until(earliest.unwrap_or_else(clock::now)).await;
                return self.request(ByKind::from_fn(|_| true), causes.changes);
            }
            let pending = self.pending(causes.changes);
            let now = clock::now();
            let due = ByKind::from_fn(|kind| {
                pending.get(kind).is_some_and(|since| self.kinds.get(kind).due_at(since) <= now)
            });
            if due != ByKind::default() {
                let requested = ByKind::from_fn(|kind| {
                    let pace = self.kinds.get_mut(kind);
                    match pending.get(kind).filter(|_| *due.get(kind)) {
                        Some(since) => {
                            pace.begin(since, now);
                            true
                        }
                        None => pace.accompany(now),
                    }
                });
                return self.request(requested, causes.changes);
            }
            let next = Kind::ALL.into_iter().filter_map(|kind| {
                pending.get(kind).map(|since| self.kinds.get(kind).due_at(since))
            });
            let next = next.min();
            tokio::select! {
                biased;
                () = causes.asked.notified() => self.is_operators = true,
                () = causes.changes.notified() => {}
                () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
            }
        }
    }

    /// Returns the lists to request, with the times at which they became due.
    fn pending(&self, changes: &ChangedLists) -> ByKind<Option<Instant>> {
        let since = changes.pending();
        ByKind::from_fn(|kind| since.get(kind).or(*self.owed.get(kind)))
    }

    fn request(&mut self, kinds: ByKind<bool>, changes: &ChangedLists) -> ByKind<bool> {
        changes.take(kinds);
        for kind in Kind::ALL.into_iter().filter(|kind| *kinds.get(*kind)) {
            *self.owed.get_mut(kind) = None;
        }
        self.requested = kinds;
        kinds
    }

    /// Records a list request. `None` stands for a failure.
    pub(crate) fn listed(&mut self, outcome: Option<&ListingOutcome>) {
        let now = clock::now();
        self.last_end = Some(now);
        let has_failed = |kind| match outcome.map(|outcome| outcome.part) {
            None => true,
            Some(ListingPart::Whole) => false,
            Some(ListingPart::Without(failed)) => *failed.get(kind),
        };
        let is_operators = std::mem::take(&mut self.is_operators);
        for kind in Kind::ALL.into_iter().filter(|kind| *self.requested.get(*kind)) {
            if has_failed(kind) {
                *self.owed.get_mut(kind) = Some(now);
            }
            if !is_operators {
                self.kinds.get_mut(kind).end(has_failed(kind), now);
            }
        }
    }
}

/// Minimum time between the beginnings of two requests for one list.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between a request and one of an operator.
const OPERATOR_PAUSE: Duration = Duration::from_millis(50);
/// Maximum pause between two requests.
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// A list that has changed without pause for this time is requested less often.
const FLOOD_TIME: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: ListingOutcome = ListingOutcome { part: ListingPart::Whole, has_changed: false };
    const CHANGED: ListingOutcome = ListingOutcome { has_changed: true, ..SAME };

    /// Returns these changes without an operator's request.
    fn only(changes: &ChangedLists) -> RelistCauses<'_> {
        static NEVER: Notify = Notify::const_new();
        RelistCauses { changes, asked: &NEVER }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_an_operator_wait_no_longer_with_each() {
        let (changes, asked, mut pace) =
            (ChangedLists::default(), Notify::new(), RelistPace::new());
        // The server announces changes all the time, and its lists fail.
        for _ in 0..20 {
            changes.mark_all();
            pace.due(only(&changes)).await;
            pace.listed(None);
        }
        let pause = pace.kinds.tools.backoff.wait();
        assert_eq!(pause, LAST_PAUSE);
        for _ in 0..100 {
            asked.notify_one();
            let begun = clock::now();
            pace.due(RelistCauses { changes: &changes, asked: &asked }).await;
            assert!(begun.elapsed() <= OPERATOR_PAUSE, "{:?}", begun.elapsed());
            pace.listed(Some(&CHANGED));
        }
        assert_eq!(pace.kinds.tools.backoff.wait(), pause, "the pace of the server stays");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_followed_within_a_second_and_no_more_than_once_in_it() {
        let (changes, mut pace) = (ChangedLists::default(), RelistPace::new());
        let start = clock::now();
        let mut begun: Vec<Instant> = Vec::new();
        while start.elapsed() < Duration::from_secs(50) {
            tokio::time::sleep(Duration::from_millis(260)).await;
            changes.mark(&[Kind::Tools]);
            let said = clock::now();
            assert!(pace.due(only(&changes)).await.tools);
            assert!(said.elapsed() <= MIN_LIST_INTERVAL, "{:?}", said.elapsed());
            assert!(begun.last().is_none_or(|last| last.elapsed() >= MIN_LIST_INTERVAL));
            begun.push(clock::now());
            pace.listed(Some(&CHANGED));
        }
        assert!(begun.len() >= 48, "{} requests", begun.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_list_delays_that_list_alone_until_it_is_calm() {
        let (changes, mut pace) = (ChangedLists::default(), RelistPace::new());
        let start = clock::now();
        let mut requests = 0;
        while start.elapsed() < FLOOD_TIME * 4 {
            changes.mark(&[Kind::Tools]);
            pace.due(only(&changes)).await;
            requests += 1;
            pace.listed(Some(&SAME));
        }
        assert!((60..80).contains(&requests), "{requests} requests in four minutes");
        changes.mark(&[Kind::Tools, Kind::Prompts]);
        let said = clock::now();
        let requested = pace.due(only(&changes)).await;
        assert!(requested.prompts && requested.resources && !requested.tools, "{requested:?}");
        assert!(said.elapsed() <= MIN_LIST_INTERVAL, "{:?}", said.elapsed());
        pace.listed(Some(&SAME));
        assert!(pace.due(only(&changes)).await.tools);
        pace.listed(Some(&SAME));
        tokio::time::sleep(LAST_PAUSE * 2).await;
        for _ in 0..3 {
            changes.mark(&[Kind::Tools]);
            let said = clock::now();
            pace.due(only(&changes)).await;
            assert!(said.elapsed() <= MIN_LIST_INTERVAL, "a calm while starts it over");
            pace.listed(Some(&SAME));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn announcements_now_and_then_are_followed_at_once() {
        let (changes, mut pace) = (ChangedLists::default(), RelistPace::new());
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(1100)).await;
            changes.mark(&[Kind::Prompts]);
            let said = clock::now();
            pace.due(only(&changes)).await;
            assert_eq!(said.elapsed(), Duration::ZERO);
            tokio::time::sleep(Duration::from_millis(40)).await;
            pace.listed(Some(&SAME));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_during_a_pause_are_followed_by_one_request() {
        let (changes, mut pace) = (ChangedLists::default(), RelistPace::new());
        changes.mark_all();
        pace.due(only(&changes)).await;
        pace.listed(Some(&SAME));
        changes.mark(&[Kind::Tools]);
        let announced = async {
            tokio::time::sleep(MIN_LIST_INTERVAL / 2).await;
            changes.mark(&[Kind::Tools]);
        };
        tokio::join!(pace.due(only(&changes)), announced);
        pace.listed(Some(&SAME));
        let more = tokio::time::timeout(LAST_PAUSE * 2, pace.due(only(&changes))).await;
        assert!(more.is_err(), "nothing has changed since");
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_that_failed_is_made_up_for() {
        let (changes, mut pace) = (ChangedLists::default(), RelistPace::new());
        changes.mark(&[Kind::Tools]);
        pace.due(only(&changes)).await;
        pace.listed(None);
        let failed = clock::now();
        assert!(pace.due(only(&changes)).await.tools);
        assert!(failed.elapsed() >= MIN_LIST_INTERVAL);
        // A list that always fails delays no other one.
        let prompts = ByKind { prompts: true, ..ByKind::default() };
        let part = ListingPart::Without(prompts);
        for _ in 0..20 {
            pace.listed(Some(&ListingOutcome { part, has_changed: false }));
            changes.mark(&[Kind::Tools]);
            let said = clock::now();
            while !pace.due(only(&changes)).await.tools {
                pace.listed(Some(&ListingOutcome { part, has_changed: false }));
            }
            assert!(said.elapsed() <= MIN_LIST_INTERVAL, "{:?}", said.elapsed());
        }
    }
}
