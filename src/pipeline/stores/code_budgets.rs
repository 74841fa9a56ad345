//! The processor time that the runs of each client take in a minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::Failure;
use crate::shares::Holder;

/// Time used by each client.
#[derive(Debug, Default)]
pub(crate) struct CodeBudgets(Mutex<HashMap<Holder, SpentTime>>);

#[derive(Debug)]
struct SpentTime {
    minute_began: Instant,
    spent: Duration,
}

impl CodeBudgets {
    /// Opens a run for a client that has not spent all of `bound`.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] with the rest of the minute.
    pub(crate) fn open(
        self: &Arc<Self>,
        holder: Holder,
        bound: Duration,
        now: Instant,
    ) -> Result<CodeBudget, Failure> {
        let mut budgets = self.0.lock();
        if !budgets.contains_key(&holder) && budgets.len() >= MAX_HOLDERS {
            budgets.retain(|_, time| !time.is_over(now));
            if budgets.len() >= MAX_HOLDERS {
                return Err(over_limit(ONE_MINUTE));
            }
        }
        let time = budgets.entry(holder.clone()).or_insert_with(|| SpentTime::new(now));
        if time.is_over(now) {
            *time = SpentTime::new(now);
        }
        if time.spent >= bound {
            return Err(over_limit(ONE_MINUTE.saturating_sub(now - time.minute_began)));
        }
        drop(budgets);
        Ok(CodeBudget { of: Arc::clone(self), holder, bound, charged: Duration::ZERO })
    }
}

impl SpentTime {
    fn new(minute_began: Instant) -> Self {
        Self { minute_began, spent: Duration::ZERO }
    }

    fn is_over(&self, now: Instant) -> bool {
        now - self.minute_began >= ONE_MINUTE
    }
}

fn over_limit(retry_after: Duration) -> Failure {
    Failure::OverLimit { limit: "code_cpu_time_each".into(), retry_after }
}

/// The budget of one run's client, and the run's share so far.
#[derive(Debug)]
pub(crate) struct CodeBudget {
    of: Arc<CodeBudgets>,
    holder: Holder,
    bound: Duration,
    charged: Duration,
}

impl CodeBudget {
    /// Returns the bound of all the client's runs together.
    pub(crate) fn bound(&self) -> Duration {
        self.bound
    }

    /// Charges the time that the run has used since the last charge. Returns false if the client
    /// has used up its bound.
    pub(crate) fn charge(&mut self, used: Duration, now: Instant) -> bool {
        let fresh = used.saturating_sub(self.charged);
        self.charged += fresh;
        let mut budgets = self.of.0.lock();
        let time = budgets.entry(self.holder.clone()).or_insert_with(|| SpentTime::new(now));
        if time.is_over(now) {
            *time = SpentTime::new(now);
        }
        time.spent += fresh;
        time.spent < self.bound
    }
}

const ONE_MINUTE: Duration = Duration::from_mins(1);
/// Limit of remembered clients. Each has had a run within the minute.
const MAX_HOLDERS: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn holder(last: u8) -> Holder {
        Holder::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    }

    #[test]
    fn the_runs_of_one_client_share_a_budget_until_its_minute_is_over() {
        let budgets = Arc::new(CodeBudgets::default());
        let (bound, began) = (Duration::from_secs(5), crate::clock::now());
        let open = |client, after| budgets.open(holder(client), bound, began + after);
        let mut one = open(1, Duration::ZERO).unwrap();
        let mut two = open(1, Duration::ZERO).unwrap();
        assert!(one.charge(Duration::from_secs(2), began));
        assert!(two.charge(Duration::from_secs(2), began));
        // The run's total is charged once.
        assert!(one.charge(Duration::from_secs(2), began));
        assert!(!one.charge(Duration::from_secs(3), began));
        let refused = open(1, Duration::from_secs(20)).unwrap_err();
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(40)));
        assert!(open(2, Duration::from_secs(20)).is_ok());
        assert!(open(1, Duration::from_mins(1)).is_ok());
        assert!(two.charge(Duration::from_secs(3), began + Duration::from_secs(61)));
    }

    #[test]
    fn clients_without_a_run_in_the_minute_are_forgotten_when_there_are_many() {
        let budgets = Arc::new(CodeBudgets::default());
        let began = crate::clock::now();
        let open = |number: u32, after| {
            let address = IpAddr::V4(Ipv4Addr::from_bits(number));
            budgets.open(Holder::Address(address), Duration::from_secs(1), began + after)
        };
        for number in 0..10_000 {
            assert!(open(number, Duration::ZERO).is_ok());
        }
        assert!(open(10_000, Duration::from_secs(59)).is_err());
        assert!(open(10_000, Duration::from_mins(1)).is_ok());
        assert_eq!(budgets.0.lock().len(), 1);
    }
}
