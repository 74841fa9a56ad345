//! Daily quotas: counts of calls since midnight UTC.
//!
//! The counts outlive snapshots and, in a file of `gateway.state_dir`, the process
//! ([`quota_file`](super::quota_file)).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::call::Failure;

/// Counts of all quotas.
#[derive(Debug, Default)]
pub struct QuotaLedger(Mutex<QuotaCounts>);

/// Counts of one day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct QuotaCounts {
    /// The day, in days since 1970.
    pub(super) day: u64,
    /// Calls by charged quota and holder.
    pub(super) used: BTreeMap<String, u64>,
    /// True if they differ from those in the file.
    pub(super) is_changed: bool,
}

/// A quota that a call is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChargedQuota {
    /// Its name in errors and metrics.
    pub(super) limit: String,
    /// The holder of the count; `None` if all callers share it.
    pub(super) holder: Option<String>,
    /// Limit of the calls of a day.
    pub(super) most: u32,
}

/// The charge for a call, refunded if it is dropped before it is kept.
#[derive(Debug)]
pub(super) struct QuotaCharge {
    ledger: Arc<QuotaLedger>,
    keys: Vec<String>,
    cost: u64,
    day: u64,
}

impl QuotaLedger {
    /// Creates a ledger that continues earlier counts.
    pub(super) fn with_counts(counts: QuotaCounts) -> Self {
        Self(Mutex::new(counts))
    }

    /// Charges a call to all of these quotas, or to none of them.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the first that is used up, and the time until midnight.
    pub(super) fn charge(
        self: &Arc<Self>,
        quotas: &[ChargedQuota],
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Result<QuotaCharge, Failure> {
        let cost = u64::from(cost.get());
        let mut counts = self.0.lock();
        counts.begin_day(since_1970.as_secs() / DAY);
        let mut keys = Vec::with_capacity(quotas.len());
        for quota in quotas {
            let key = counts.key(quota);
            let used = counts.used.get(&key).copied().unwrap_or(0);
            if used.saturating_add(cost) > u64::from(quota.most) {
                let midnight = Duration::from_secs((counts.day + 1) * DAY);
                let retry_after = midnight.saturating_sub(since_1970);
                return Err(Failure::OverLimit { limit: quota.limit.clone(), retry_after });
            }
            keys.push(key);
        }
        for key in &keys {
            *counts.used.entry(key.clone()).or_default() += cost;
        }
        counts.is_changed |= !keys.is_empty();
        Ok(QuotaCharge { ledger: Arc::clone(self), keys, cost, day: counts.day })
    }

    /// Returns the counts, if they have changed since they were last taken.
    pub(super) fn take_changed(&self) -> Option<QuotaCounts> {
        let mut counts = self.0.lock();
        std::mem::take(&mut counts.is_changed).then(|| counts.clone())
    }

    /// Marks the counts as changed again after a failed write.
    pub(super) fn mark_changed(&self) {
        self.0.lock().is_changed = true;
    }
}

impl QuotaCounts {
    /// Begins another day. A clock that is set back does not begin one.
    fn begin_day(&mut self, day: u64) {
        if day > self.day {
            (self.day, self.is_changed) = (day, true);
            self.used.clear();
        }
    }

    /// Returns the key of a quota's count. Callers beyond the limit of known ones share a count.
    fn key(&self, quota: &ChargedQuota) -> String {
        let ChargedQuota { limit, holder, .. } = quota;
        let Some(holder) = holder else { return limit.clone() };
        let key = format!("{limit} {holder}");
        if self.used.len() < MOST_COUNTS || self.used.contains_key(&key) {
            return key;
        }
        format!("{limit} {OTHERS}")
    }
}

impl QuotaCharge {
    /// Keeps the charge: the call is sent.
    pub(super) fn keep(mut self) {
        self.keys.clear();
    }
}

impl Drop for QuotaCharge {
    fn drop(&mut self) {
        let mut counts = self.ledger.0.lock();
        if counts.day != self.day {
            return;
        }
        for key in &self.keys {
            if let Some(used) = counts.used.get_mut(key) {
                *used = used.saturating_sub(self.cost);
            }
        }
    }
}

/// The seconds of a day.
const DAY: u64 = 86_400;
/// Limit of the counts.
const MOST_COUNTS: usize = 100_000;
/// Holder of the calls of all callers beyond that limit.
const OTHERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(20_000 * DAY + DAY / 2);

    fn quota(limit: &str, holder: Option<&str>, most: u32) -> ChargedQuota {
        ChargedQuota { limit: limit.into(), holder: holder.map(str::to_owned), most }
    }

    fn cost(cost: u32) -> NonZeroU32 {
        NonZeroU32::new(cost).unwrap()
    }

    #[test]
    fn a_quota_is_refilled_at_midnight_and_not_before() {
        let ledger: Arc<QuotaLedger> = Arc::default();
        let quotas = [quota("quota:client:ci", None, 3)];
        ledger.charge(&quotas, cost(2), NOON).unwrap().keep();
        ledger.charge(&quotas, cost(1), NOON).unwrap().keep();
        let late = NOON + Duration::from_secs(DAY / 2 - 1);
        let Err(Failure::OverLimit { limit, retry_after }) = ledger.charge(&quotas, cost(1), late)
        else {
            panic!("it is used up");
        };
        assert_eq!((limit.as_str(), retry_after), ("quota:client:ci", Duration::from_secs(1)));
        ledger.charge(&quotas, cost(3), late + retry_after).unwrap().keep();
        // The clock is set back to the day before.
        assert!(ledger.charge(&quotas, cost(1), late).is_err());
    }

    #[test]
    fn a_call_that_one_quota_refuses_is_charged_to_none() {
        let ledger: Arc<QuotaLedger> = Arc::default();
        let (wide, narrow) = (quota("wide", None, 3), quota("narrow", None, 1));
        ledger.charge(&[wide.clone(), narrow.clone()], cost(1), NOON).unwrap().keep();
        assert!(ledger.charge(&[wide.clone(), narrow], cost(1), NOON).is_err());
        ledger.charge(std::slice::from_ref(&wide), cost(2), NOON).unwrap().keep();
        assert!(ledger.charge(&[wide], cost(1), NOON).is_err());
    }

    #[test]
    fn a_call_that_was_not_sent_is_not_charged() {
        let ledger: Arc<QuotaLedger> = Arc::default();
        let quotas = [quota("q", None, 1)];
        for _ in 0..3 {
            drop(ledger.charge(&quotas, cost(1), NOON).unwrap());
        }
        ledger.charge(&quotas, cost(1), NOON).unwrap().keep();
        assert!(ledger.charge(&quotas, cost(1), NOON).is_err());
    }

    #[test]
    fn callers_beyond_so_many_share_one_count() {
        let ledger: Arc<QuotaLedger> = Arc::default();
        let of = |number: usize| [quota("q", Some(&number.to_string()), 1)];
        for number in 0..MOST_COUNTS {
            ledger.charge(&of(number), cost(1), NOON).unwrap().keep();
        }
        ledger.charge(&of(MOST_COUNTS), cost(1), NOON).unwrap().keep();
        assert!(ledger.charge(&of(MOST_COUNTS + 1), cost(1), NOON).is_err());
        assert!(ledger.0.lock().used.len() <= MOST_COUNTS + 1);
    }
}
