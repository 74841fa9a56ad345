//! Daily quotas: counts of calls since midnight UTC.
//!
//! The counts outlive snapshots and, in a file of `gateway.state_dir`, the process
//! ([`quota_file`]).

pub(super) mod quota_file;
pub(super) mod set_quotas;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::call::Failure;
use crate::cluster::{QuotaLease, QuotaRefusal, SharedQuota, SharedQuotas};
use crate::policy::limits::taking::LimitLevel;

/// Counts of all quotas.
#[derive(Debug, Default)]
pub struct QuotaLedger {
    counts: Mutex<QuotaCounts>,
    /// The quotas that replicas share, which are counted there; empty if the gateway is alone.
    shared: OnceLock<Arc<SharedQuotas>>,
}

/// Counts of one day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QuotaCounts {
    /// The day, in days since 1970.
    pub(super) day: u64,
    /// Calls by charged quota and holder.
    pub(super) used: BTreeMap<String, u64>,
    /// True if they differ from those in the file.
    pub(super) is_changed: bool,
}

/// A quota that a call is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChargedQuota {
    /// Its name in errors and metrics.
    pub(super) limit: String,
    /// The holder of the count; `None` if all callers share it.
    pub(super) holder: Option<String>,
    /// Limit of the calls of a day.
    pub(super) most: u32,
}

impl QuotaLedger {
    /// Creates a ledger that continues earlier counts.
    pub(super) fn with_counts(counts: QuotaCounts) -> Self {
        Self { counts: Mutex::new(counts), shared: OnceLock::new() }
    }

    /// Counts all quotas together with other replicas. Called once, at the start.
    pub fn share(&self, quotas: Arc<SharedQuotas>) {
        // A second source would split the counts.
        let _ = self.shared.set(quotas);
    }

    /// Takes the calls of a call from the quotas that replicas share, all or none; `None` if the
    /// gateway is alone.
    ///
    /// # Errors
    /// [`Failure::OverLimit`], and [`Failure::StoreUnavailable`] if nothing is leased and the store
    /// cannot be reached.
    ///
    /// # Cancel safety
    /// Safe: dropping the future gives back the calls.
    pub(super) async fn lease(
        &self,
        quotas: &[ChargedQuota],
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Result<Option<LeasedCalls>, Failure> {
        let Some(shared) = self.shared.get() else { return Ok(None) };
        let mut leased = LeasedCalls { leases: Vec::new(), cost: cost.get() };
        for quota in quotas {
            let taken = shared.take(quota.shared(since_1970), cost.get()).await;
            leased.leases.push(taken.map_err(|refusal| match refusal {
                QuotaRefusal::UsedUp => quota.used_up(since_1970),
                QuotaRefusal::Unavailable => Failure::StoreUnavailable,
            })?);
        }
        Ok(Some(leased))
    }

    /// Returns the first quota that is known to have no room, among those that replicas share.
    fn check_shared(
        shared: &SharedQuotas,
        quotas: &[ChargedQuota],
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Result<(), Failure> {
        let has_room = |quota: &ChargedQuota| {
            let remaining = shared.remaining(quota.shared(since_1970));
            remaining.unwrap_or(quota.most.into()) >= cost.get().into()
        };
        let refusing = quotas.iter().find(|quota| !has_room(quota));
        refusing.map_or(Ok(()), |quota| Err(quota.used_up(since_1970)))
    }

    /// Checks that a call has room in all of these quotas, and charges nothing.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the first that is used up, and the time until midnight.
    pub(super) fn check(
        &self,
        quotas: &[ChargedQuota],
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Result<(), Failure> {
        if let Some(shared) = self.shared.get() {
            return Self::check_shared(shared, quotas, cost, since_1970);
        }
        self.counts.lock().find_keys(quotas, cost, since_1970).map(drop)
    }

    /// Returns the calls that each of these quotas still admits, and charges nothing.
    pub(super) fn levels(
        &self,
        quotas: &[ChargedQuota],
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Vec<LimitLevel> {
        let mut counts = self.counts.lock();
        counts.begin_day(since_1970.as_secs() / DAY_SECONDS);
        let level = |quota: &ChargedQuota| {
            let shared = self.shared.get();
            let shared = shared.map(|shared| shared.remaining(quota.shared(since_1970)));
            let remaining = match shared {
                Some(known) => known.unwrap_or(quota.most.into()),
                None => u64::from(quota.most).saturating_sub(counts.used_of(quota)),
            };
            LimitLevel {
                limit: quota.limit.clone(),
                remaining,
                setting: format!("{}/day", quota.most),
                is_exceeded: remaining < u64::from(cost.get()),
            }
        };
        quotas.iter().map(level).collect()
    }

    /// Charges a call to all of these quotas, or to none of them.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub(super) fn charge(
        &self,
        quotas: &[ChargedQuota],
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Result<(), Failure> {
        let mut counts = self.counts.lock();
        let keys = counts.find_keys(quotas, cost, since_1970)?;
        counts.is_changed |= !keys.is_empty();
        for key in keys {
            *counts.used.entry(key).or_default() += u64::from(cost.get());
        }
        Ok(())
    }

    /// Returns the counts, if they have changed since they were last taken.
    pub(super) fn take_changed(&self) -> Option<QuotaCounts> {
        let mut counts = self.counts.lock();
        std::mem::take(&mut counts.is_changed).then(|| counts.clone())
    }

    /// Marks the counts as changed again after a failed write.
    pub(crate) fn mark_changed(&self) {
        self.counts.lock().is_changed = true;
    }
}

/// Calls that were taken from quotas that replicas share. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct LeasedCalls {
    leases: Vec<Arc<QuotaLease>>,
    cost: u32,
}

impl LeasedCalls {
    /// Charges the calls.
    pub(super) fn keep(mut self) {
        self.leases.clear();
    }
}

impl Drop for LeasedCalls {
    fn drop(&mut self) {
        for lease in &self.leases {
            lease.give_back(self.cost);
        }
    }
}

impl ChargedQuota {
    fn shared(&self, since_1970: Duration) -> SharedQuota<'_> {
        SharedQuota {
            limit: &self.limit,
            holder: self.holder.as_deref(),
            most: self.most,
            day: since_1970.as_secs() / DAY_SECONDS,
        }
    }

    fn used_up(&self, since_1970: Duration) -> Failure {
        let rest = DAY_SECONDS - since_1970.as_secs() % DAY_SECONDS;
        Failure::OverLimit { limit: self.limit.clone(), retry_after: Duration::from_secs(rest) }
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

    /// Returns the keys of the counts that a call is charged to, all of which have room for it.
    fn find_keys(
        &mut self,
        quotas: &[ChargedQuota],
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Result<Vec<String>, Failure> {
        self.begin_day(since_1970.as_secs() / DAY_SECONDS);
        let find_key = |quota: &ChargedQuota| {
            let key = self.key(quota);
            let used = self.used.get(&key).copied().unwrap_or(0);
            if used.saturating_add(u64::from(cost.get())) <= u64::from(quota.most) {
                return Ok(key);
            }
            let midnight = Duration::from_secs((self.day + 1) * DAY_SECONDS);
            let retry_after = midnight.saturating_sub(since_1970);
            Err(Failure::OverLimit { limit: quota.limit.clone(), retry_after })
        };
        quotas.iter().map(find_key).collect()
    }

    /// Returns the calls that were charged to a quota today.
    fn used_of(&self, quota: &ChargedQuota) -> u64 {
        self.used.get(&self.key(quota)).copied().unwrap_or(0)
    }

    /// Returns the key of a quota's count. Callers beyond the limit of known ones share a count.
    fn key(&self, quota: &ChargedQuota) -> String {
        let ChargedQuota { limit, holder, .. } = quota;
        let Some(holder) = holder else { return limit.clone() };
        let key = format!("{limit} {holder}");
        if self.used.len() < MAX_QUOTA_COUNTS || self.used.contains_key(&key) {
            return key;
        }
        format!("{limit} {OTHER_HOLDERS}")
    }
}

/// The seconds of a day.
const DAY_SECONDS: u64 = 86_400;
/// Limit of the counts.
const MAX_QUOTA_COUNTS: usize = 100_000;
/// Holder of the calls of all callers beyond that limit.
const OTHER_HOLDERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(20_000 * DAY_SECONDS + DAY_SECONDS / 2);

    fn quota(limit: &str, holder: Option<&str>, most: u32) -> ChargedQuota {
        ChargedQuota { limit: limit.into(), holder: holder.map(str::to_owned), most }
    }

    fn cost(cost: u32) -> NonZeroU32 {
        NonZeroU32::new(cost).unwrap()
    }

    #[test]
    fn a_quota_is_refilled_at_midnight_and_not_before() {
        let ledger = QuotaLedger::default();
        let quotas = [quota("quota:client:ci", None, 3)];
        ledger.charge(&quotas, cost(2), NOON).unwrap();
        ledger.charge(&quotas, cost(1), NOON).unwrap();
        let late = NOON + Duration::from_secs(DAY_SECONDS / 2 - 1);
        let Err(Failure::OverLimit { limit, retry_after }) = ledger.charge(&quotas, cost(1), late)
        else {
            panic!("it is used up");
        };
        assert_eq!((limit.as_str(), retry_after), ("quota:client:ci", Duration::from_secs(1)));
        ledger.charge(&quotas, cost(3), late + retry_after).unwrap();
        // The clock is set back to the day before.
        assert!(ledger.charge(&quotas, cost(1), late).is_err());
    }

    #[test]
    fn a_call_that_one_quota_refuses_is_charged_to_none() {
        let ledger = QuotaLedger::default();
        let (wide, narrow) = (quota("wide", None, 3), quota("narrow", None, 1));
        ledger.charge(&[wide.clone(), narrow.clone()], cost(1), NOON).unwrap();
        assert!(ledger.charge(&[wide.clone(), narrow], cost(1), NOON).is_err());
        ledger.charge(std::slice::from_ref(&wide), cost(2), NOON).unwrap();
        assert!(ledger.charge(&[wide], cost(1), NOON).is_err());
    }

    #[test]
    fn a_check_charges_nothing() {
        let ledger = QuotaLedger::default();
        let quotas = [quota("q", None, 1)];
        for _ in 0..3 {
            ledger.check(&quotas, cost(1), NOON).unwrap();
        }
        assert!(ledger.check(&quotas, cost(2), NOON).is_err());
        ledger.charge(&quotas, cost(1), NOON).unwrap();
        assert!(ledger.charge(&quotas, cost(1), NOON).is_err());
        // Another day has begun, and the check is the first to see it.
        let next_day = NOON + Duration::from_secs(DAY_SECONDS);
        ledger.check(&quotas, cost(1), next_day).unwrap();
    }

    #[test]
    fn callers_beyond_so_many_share_one_count() {
        let ledger = QuotaLedger::default();
        let of = |number: usize| [quota("q", Some(&number.to_string()), 1)];
        for number in 0..MAX_QUOTA_COUNTS {
            ledger.charge(&of(number), cost(1), NOON).unwrap();
        }
        ledger.charge(&of(MAX_QUOTA_COUNTS), cost(1), NOON).unwrap();
        assert!(ledger.charge(&of(MAX_QUOTA_COUNTS + 1), cost(1), NOON).is_err());
        assert!(ledger.counts.lock().used.len() <= MAX_QUOTA_COUNTS + 1);
    }
}
