//! Backoff and restart budget.
//!
//! Pure: the clock and the random numbers come from outside, and nothing here
//! waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The decision after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartDecision {
    /// Try again after this long.
    After(Duration),
    /// The budget is spent: do not restart until the window is over.
    GiveUp,
}

/// Exponential backoff with full jitter: the n-th delay in a row is drawn
/// evenly from zero to `first × 2ⁿ⁻¹`, at most `cap`. Full jitter, so that the
/// servers that one outage stopped do not all restart at the same instant.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    stable: Duration,
    failures: u32,
}

impl Backoff {
    /// Delays from `first` up to `cap`; a run of at least `stable` resets them
    /// to `first`.
    pub fn new(first: Duration, cap: Duration, stable: Duration) -> Self {
        Self { first, cap, stable, failures: 0 }
    }

    /// The delay after a failure of an instance that ran for `ran`; zero if it
    /// never started.
    pub fn after_failure(&mut self, ran: Duration, dice: &mut fastrand::Rng) -> Duration {
        if ran >= self.stable {
            self.failures = 0;
        }
        let doubled = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let most = self.first.saturating_mul(doubled).min(self.cap);
        self.failures = self.failures.saturating_add(1);
        most.mul_f64(dice.f64())
    }

    /// Forgets all failures, as after a change of configuration.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
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
        RestartDecision::After(self.backoff.after_failure(ran, dice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn backoff() -> Backoff {
        Backoff::new(SECOND, 30 * SECOND, 60 * SECOND)
    }

    #[test]
    fn delays_double_up_to_the_cap_and_are_spread_over_all_of_it() {
        let mut dice = fastrand::Rng::with_seed(7);
        for (failure, most) in [(0, 1), (1, 2), (2, 4), (4, 16), (5, 30), (40, 30)] {
            let drawn: Vec<_> = (0..200)
                .map(|_| {
                    let mut backoff = Backoff { failures: failure, ..backoff() };
                    backoff.after_failure(Duration::ZERO, &mut dice)
                })
                .collect();
            let most = most * SECOND;
            assert!(drawn.iter().all(|delay| *delay <= most), "{failure}");
            assert!(drawn.iter().any(|delay| *delay > most * 3 / 4), "{failure}");
            assert!(drawn.iter().any(|delay| *delay < most / 4), "{failure}");
        }
    }

    #[test]
    fn a_stable_run_starts_the_delays_over() {
        let mut dice = fastrand::Rng::with_seed(7);
        let mut backoff = Backoff { failures: 9, ..backoff() };
        assert!(backoff.after_failure(60 * SECOND, &mut dice) <= SECOND);
        assert_eq!(backoff.failures, 1);
    }

    #[test]
    fn a_spent_budget_gives_up_until_the_window_has_moved_on() {
        let start = Instant::now();
        let mut dice = fastrand::Rng::with_seed(7);
        let budget = RestartBudget::new(2, 10 * SECOND);
        let mut policy = RestartPolicy { backoff: backoff(), budget };
        for (second, restarts) in [(0, true), (1, true), (2, false), (9, false), (10, true)] {
            let next = policy.after_failure(None, start + second * SECOND, &mut dice);
            assert_eq!(next != RestartDecision::GiveUp, restarts, "at {second} s");
        }
    }

    #[test]
    fn a_budget_of_none_restarts_nothing() {
        assert!(!RestartBudget::new(0, SECOND).spend(Instant::now()));
    }
}
