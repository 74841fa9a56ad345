//! The wait before another attempt: a restart, a reconnect, another list request.
//!
//! A [`Backoff`] counts failures and returns the length of the next wait. The caller measures the
//! time, provides the random numbers, waits, and decides when to give up. Loops whose waits grow use
//! it.

use std::time::Duration;

/// Exponential backoff: the n-th wait in a row is `first × 2ⁿ⁻¹`, at most `cap`.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    stable: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits from `first` up to `cap`; a run of at least `cap` starts them over.
    #[inline]
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, stable: cap, failures: 0 }
    }

    /// Only a run of at least `stable` starts the waits over.
    #[must_use]
    #[inline]
    pub const fn with_stable(self, stable: Duration) -> Self {
        Self { stable, ..self }
    }

    /// The next wait. Does not advance the backoff.
    #[inline]
    pub fn wait(&self) -> Duration {
        let doubled = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.cap)
    }

    /// The wait after a failure; the next one is twice as long.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.wait();
        // No further than the cap, so that `ease` takes effect at once.
        if wait < self.cap {
            self.failures += 1;
        }
        wait
    }

    /// The wait after the failure of a run that lasted `ran`, which is zero if it never started.
    pub fn wait_after(&mut self, ran: Duration) -> Duration {
        if ran >= self.stable {
            self.reset();
        }
        self.next_wait()
    }

    /// Like [`wait_after`](Self::wait_after), with full jitter: drawn evenly from zero to that
    /// wait, so that many restarts after one outage do not coincide.
    pub fn jittered_wait_after(&mut self, ran: Duration, dice: &mut fastrand::Rng) -> Duration {
        self.wait_after(ran).mul_f64(dice.f64())
    }

    /// Halves the next wait.
    pub fn ease(&mut self) {
        self.failures = self.failures.saturating_sub(1);
    }

    /// Starts over, as after a success.
    #[inline]
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn failed(times: u32) -> Backoff {
        let mut backoff = Backoff::new(SECOND, 30 * SECOND).with_stable(60 * SECOND);
        for _ in 0..times {
            backoff.next_wait();
        }
        backoff
    }

    #[test]
    fn waits_double_up_to_the_cap_and_are_spread_over_all_of_it() {
        let mut dice = fastrand::Rng::with_seed(7);
        for (failures, most) in [(0, 1), (1, 2), (2, 4), (4, 16), (5, 30), (40, 30)] {
            let most = most * SECOND;
            assert_eq!(failed(failures).wait(), most, "{failures}");
            let mut draw = || failed(failures).jittered_wait_after(Duration::ZERO, &mut dice);
            let drawn: Vec<_> = (0..200).map(|_| draw()).collect();
            assert!(drawn.iter().all(|wait| *wait <= most), "{failures}");
            assert!(drawn.iter().any(|wait| *wait > most * 3 / 4), "{failures}");
            assert!(drawn.iter().any(|wait| *wait < most / 4), "{failures}");
        }
    }

    #[test]
    fn a_stable_run_starts_the_waits_over_and_a_shorter_one_does_not() {
        assert_eq!(failed(2).wait_after(59 * SECOND), 4 * SECOND);
        assert_eq!(failed(2).wait_after(60 * SECOND), SECOND);
    }

    #[test]
    fn an_eased_wait_is_shorter_at_once() {
        let mut backoff = failed(40);
        backoff.ease();
        assert_eq!(backoff.wait(), 16 * SECOND);
    }
}
