//! Restarts: the decision after each failure of a server.
//!
//! Pure: the clock and the random numbers come from outside, and nothing here
//! waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// Decision after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// Try again after this long.
    After(Duration),
    /// It has failed too often. Do not restart it until the window is over.
    GiveUp,
}

/// At most `max` restarts within any `window`.
#[derive(Debug, Clone)]
pub struct RestartBudget {
    max: usize,
    window: Duration,
    /// Restarts within the last window, oldest first. Never more than `max`.
    spent: VecDeque<Instant>,
}

impl RestartBudget {
    /// Creates a budget of `max` restarts per `window`. A `max` of zero allows none.
    pub fn new(max: usize, window: Duration) -> Self {
        Self { max, window, spent: VecDeque::new() }
    }

    /// Takes one restart out of the budget. Returns false when it is spent.
    pub fn spend(&mut self, now: Instant) -> bool {
        while self
            .spent
            .front()
            .is_some_and(|then| now.saturating_duration_since(*then) >= self.window)
        {
            self.spent.pop_front();
        }
        let allowed = self.spent.len() < self.max;
        if allowed {
            self.spent.push_back(now);
        }
        allowed
    }
}

/// Backoff and budget together: the decision after each failure of a server.
#[derive(Debug, Clone)]
pub struct RestartPolicy {
    backoff: Backoff,
    /// Delays in the first minute of a server that has never been ready, because it may be starting
    /// at the same time as the gateway.
    early_backoff: Backoff,
    /// Delays after faults that no further attempt can mend.
    permanent_backoff: Backoff,
    budget: RestartBudget,
    /// Time of the first failed start.
    first_failure: Option<Instant>,
    was_ready: bool,
    /// Number of failed starts in a row.
    failed_starts: usize,
    /// True if the server has failed too often, and has not been ready since.
    has_given_up: bool,
}

impl RestartPolicy {
    /// Creates a policy of at most `max` restarts per `window`, and at most `max` failed starts in
    /// a row.
    pub fn new(max: usize, window: Duration) -> Self {
        Self {
            backoff: Backoff::new(FIRST_DELAY, LAST_DELAY).with_stable(window),
            early_backoff: Backoff::new(FIRST_DELAY, LAST_EARLY_DELAY),
            permanent_backoff: Backoff::new(FIRST_PERMANENT_DELAY, LAST_PERMANENT_DELAY),
            budget: RestartBudget::new(max, window),
            first_failure: None,
            was_ready: false,
            failed_starts: 0,
            has_given_up: false,
        }
    }

    /// Returns the decision for a server that was ready at `started` and failed at `now`. `started`
    /// is `None` if it was never ready.
    pub fn after_failure(
        &mut self,
        started: Option<Instant>,
        now: Instant,
        dice: &mut fastrand::Rng,
    ) -> RestartDecision {
        let first_failure = *self.first_failure.get_or_insert(now);
        if started.is_some() {
            self.note_ready();
        } else {
            self.failed_starts = self.failed_starts.saturating_add(1);
        }
        let is_affordable = self.budget.spend(now) && self.failed_starts <= self.budget.max;
        self.has_given_up |= !is_affordable;
        if self.has_given_up {
            return RestartDecision::GiveUp;
        }
        if !self.was_ready && now.saturating_duration_since(first_failure) < EARLY_TIME {
            return RestartDecision::After(
                self.early_backoff.jittered_wait_after(Duration::ZERO, dice),
            );
        }
        let ran = started.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        RestartDecision::After(self.backoff.jittered_wait_after(ran, dice))
    }

    /// Returns the wait after a fault that no further attempt can mend, of a server that was ready
    /// at `started`. It takes nothing out of the budget.
    pub fn after_permanent_failure(&mut self, started: Option<Instant>) -> Duration {
        if started.is_some() {
            self.note_ready();
        }
        self.permanent_backoff.next_wait()
    }

    /// Restores the whole budget and the first delays, because an operator may have mended the
    /// server.
    pub fn restore(&mut self) {
        *self = Self::new(self.budget.max, self.budget.window);
    }

    fn note_ready(&mut self) {
        self.was_ready = true;
        self.failed_starts = 0;
        self.has_given_up = false;
        self.permanent_backoff.reset();
    }
}

/// Delays between restarts.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LAST_DELAY: Duration = Duration::from_secs(30);
/// Delays between restarts of a server that an operator has to mend.
const FIRST_PERMANENT_DELAY: Duration = Duration::from_mins(2);
const LAST_PERMANENT_DELAY: Duration = Duration::from_mins(10);
/// Time for which a server that has never been ready is tried more often, and the maximum delay in
/// that time.
const EARLY_TIME: Duration = Duration::from_mins(1);
const LAST_EARLY_DELAY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_spent_budget_gives_up_until_the_window_has_moved_on() {
        let start = clock::real_now();
        let mut dice = fastrand::Rng::with_seed(7);
        let mut policy = RestartPolicy::new(2, 10 * SECOND);
        for (second, restarts) in [(0, true), (1, true), (2, false), (9, false), (10, true)] {
            let now = start + second * SECOND;
            let next = policy.after_failure(Some(now), now, &mut dice);
            assert_eq!(next != RestartDecision::GiveUp, restarts, "at {second} s");
        }
    }

    #[test]
    fn a_server_that_cannot_start_is_given_up_until_it_is_ready() {
        let start = clock::real_now();
        let mut dice = fastrand::Rng::with_seed(7);
        let mut policy = RestartPolicy::new(2, 60 * SECOND);
        // Each start takes so long that the budget of a window is never spent.
        let mut after = |seconds: u32, ready: Option<u32>| {
            let at = |seconds| start + seconds * SECOND;
            policy.after_failure(ready.map(at), at(seconds), &mut dice) != RestartDecision::GiveUp
        };
        assert!(after(40, None) && after(80, None));
        for tries in 3..10 {
            assert!(!after(40 * tries, None), "{tries}");
        }
        assert!(after(400, Some(390)), "it was ready");
        assert!(after(440, None) && after(480, None) && !after(520, None));
    }

    #[test]
    fn a_server_that_was_never_ready_is_tried_often_for_a_minute() {
        let start = clock::real_now();
        let mut dice = fastrand::Rng::with_seed(7);
        let mut longest = |policy: &mut RestartPolicy, ready: Option<u32>, seconds: u32| {
            let now = start + seconds * SECOND;
            let waits = (0..30).map(|_| {
                let ready = ready.map(|then| start + then * SECOND);
                match policy.after_failure(ready, now, &mut dice) {
                    RestartDecision::After(wait) => wait,
                    RestartDecision::GiveUp => panic!("it is never given up"),
                }
            });
            waits.max().unwrap()
        };
        let mut policy = RestartPolicy::new(usize::MAX, 60 * SECOND);
        assert!(longest(&mut policy, None, 0) <= 2 * SECOND);
        assert!(longest(&mut policy, None, 59) <= 2 * SECOND);
        assert!(longest(&mut policy, None, 60) > 10 * SECOND);
        let mut policy = RestartPolicy::new(usize::MAX, 60 * SECOND);
        assert!(longest(&mut policy, Some(0), 1) > 10 * SECOND, "it was ready");
    }

    #[test]
    fn a_server_that_an_operator_has_to_mend_is_tried_after_minutes() {
        let mut policy = RestartPolicy::new(0, 60 * SECOND);
        let ready = Some(clock::real_now());
        for (started, minutes) in
            [(None, 2), (None, 4), (None, 8), (None, 10), (None, 10), (ready, 2), (None, 4)]
        {
            assert_eq!(policy.after_permanent_failure(started), minutes * 60 * SECOND);
        }
        policy.restore();
        assert_eq!(policy.after_permanent_failure(None), 120 * SECOND);
    }

    #[test]
    fn a_restored_budget_allows_restarts_again() {
        let (start, mut dice) = (clock::real_now(), fastrand::Rng::with_seed(7));
        let mut policy = RestartPolicy::new(1, 60 * SECOND);
        let mut gives_up = |policy: &mut RestartPolicy| {
            policy.after_failure(None, start, &mut dice) == RestartDecision::GiveUp
        };
        assert!(!gives_up(&mut policy) && gives_up(&mut policy));
        policy.restore();
        assert!(!gives_up(&mut policy) && gives_up(&mut policy));
    }

    #[test]
    fn a_budget_of_none_restarts_nothing() {
        assert!(!RestartBudget::new(0, SECOND).spend(clock::real_now()));
    }
}
