//! Budget for retries of one server's calls. It is small enough that retries cannot overload a
//! server that is busy or has just recovered.

use std::sync::atomic::{AtomicU32, Ordering};

/// A balance that calls pay into and retries take from.
#[derive(Debug)]
pub struct RetryBudget {
    /// In fractions of a retry.
    balance: AtomicU32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { balance: AtomicU32::new(MAX_RETRIES * CALLS_PER_RETRY) }
    }
}

impl RetryBudget {
    /// Counts a call that may be tried again.
    pub fn deposit(&self) {
        let add = |balance: u32| Some((balance + 1).min(MAX_RETRIES * CALLS_PER_RETRY));
        let _ = self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Takes one retry. Returns false if there is none left.
    pub fn withdraw(&self) -> bool {
        let take = |balance: u32| balance.checked_sub(CALLS_PER_RETRY);
        self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Limit of retries in a row.
const MAX_RETRIES: u32 = 10;
/// Number of calls that pay for one retry.
const CALLS_PER_RETRY: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fifth_call_allows_one_retry_and_a_few_are_kept() {
        let budget = RetryBudget::default();
        let left = || (0..100).filter(|_| budget.withdraw()).count();
        assert_eq!(left(), 10);
        (0..9).for_each(|_| budget.deposit());
        assert_eq!(left(), 1);
        budget.deposit();
        assert_eq!(left(), 1);
        (0..1000).for_each(|_| budget.deposit());
        assert_eq!(left(), 10);
    }
}
