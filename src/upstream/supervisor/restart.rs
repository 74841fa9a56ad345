//! Restarts: the decision after each failure of a server.
//!
//! Pure: the clock and the random numbers come from outside, and nothing here
//! waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// The decision after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// Try again after this long.
    After(Duration),
    /// The budget is spent: do not restart until the window is over.
    GiveUp,
}

/// At most `max` restarts within any `window`.
#[derive(Debug, Clone)]
pub struct RestartBudget {
    max: usize,
    window: Duration,
    /// The restarts within the last window, oldest first; never more than `max`.
    spent: VecDeque<Instant>,
}

impl RestartBudget {
    /// A budget of `max` restarts a `window`; `max` of zero allows none.
    pub fn new(max: usize, window: Duration) -> Self {
        Self { max, window, spent: VecDeque::new() }
    }

    /// Takes one restart out of the budget; false when it is spent.
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
    /// How long to wait before the next start.
    pub backoff: Backoff,
    /// The budget of restarts.
    pub budget: RestartBudget,
}

impl RestartPolicy {
    /// The decision for a server that was ready at `started` and failed at
    /// `now`; `started` is `None` if it was never ready.
    pub fn after_failure(
        &mut self,
        started: Option<Instant>,
        now: Instant,
        dice: &mut fastrand::Rng,
    ) -> RestartDecision {
        if !self.budget.spend(now) {
            return RestartDecision::GiveUp;
        }
        let ran = started.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        RestartDecision::After(self.backoff.jittered_wait_after(ran, dice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_spent_budget_gives_up_until_the_window_has_moved_on() {
        let start = clock::real_now();
        let mut dice = fastrand::Rng::with_seed(7);
        let budget = RestartBudget::new(2, 10 * SECOND);
        let backoff = Backoff::new(SECOND, 30 * SECOND);
        let mut policy = RestartPolicy { backoff, budget };
        for (second, restarts) in [(0, true), (1, true), (2, false), (9, false), (10, true)] {
            let next = policy.after_failure(None, start + second * SECOND, &mut dice);
            assert_eq!(next != RestartDecision::GiveUp, restarts, "at {second} s");
        }
    }

    #[test]
    fn a_budget_of_none_restarts_nothing() {
        assert!(!RestartBudget::new(0, SECOND).spend(clock::real_now()));
    }
}
