//! Quotas: counts of calls in windows of time, which are the seconds, minutes, hours or days of UTC.
//!
//! Quotas with windows of different lengths have different counts, even with the same name: a reload
//! that changes the unit of a quota carries no count over.
//! The counts outlive snapshots and, in a file of `gateway.state_dir`, the process
//! ([`quota_file`]).

pub(super) mod quota_file;
pub(super) mod set_quotas;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::call::Failure;
use crate::cluster::{QuotaLease, QuotaRefusal, SharedQuota, SharedQuotas};
use crate::config::Quota;
use crate::policy::limits::taking::LimitLevel;
use crate::shares::QuotaWindow;

/// Counts of all quotas.
#[derive(Debug, Default)]
pub struct QuotaLedger {
    counts: Mutex<QuotaCounts>,
    /// The quotas that replicas share, which are counted there; empty if the gateway is alone.
    shared: OnceLock<Arc<SharedQuotas>>,
}

/// Counts of the current windows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QuotaCounts {
    /// The window of each length, in seconds.
    pub(super) windows: BTreeMap<NonZeroU64, WindowCounts>,
    /// True if they differ from those in the file.
    pub(super) is_changed: bool,
}

/// Counts of one window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WindowCounts {
    /// Its number since 1970.
    pub(super) number: u64,
    /// Calls by charged quota and holder.
    pub(super) used: BTreeMap<String, u64>,
}

/// Place of a count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CountKey {
    seconds: NonZeroU64,
    /// The quota and its holder.
    name: String,
}

/// A quota that a call is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChargedQuota {
    /// Its name in errors and metrics.
    pub(super) limit: String,
    /// The holder of the count; `None` if all callers share it.
    pub(super) holder: Option<String>,
    /// The limit of the calls of a window.
    pub(super) setting: Quota,
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
                QuotaRefusal::UsedUp => quota.used_up(quota.window_at(since_1970), since_1970),
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
            remaining.unwrap_or(quota.setting.calls().into()) >= cost.get().into()
        };
        let refusing = quotas.iter().find(|quota| !has_room(quota));
        refusing.map_or(Ok(()), |quota| Err(quota.used_up(quota.window_at(since_1970), since_1970)))
    }

    /// Checks that a call has room in all of these quotas, and charges nothing.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] names the first that is used up, and the time until its window ends.
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
        counts.begin_windows(since_1970);
        let level = |quota: &ChargedQuota| {
            let shared = self.shared.get();
            let shared = shared.map(|shared| shared.remaining(quota.shared(since_1970)));
            let most = u64::from(quota.setting.calls());
            let remaining = match shared {
                Some(known) => known.unwrap_or(most),
                None => most.saturating_sub(counts.used_of(quota)),
            };
            LimitLevel {
                limit: quota.limit.clone(),
                remaining,
                setting: quota.setting.to_string(),
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
        for CountKey { seconds, name } in keys {
            let window = counts.windows.entry(seconds).or_default();
            *window.used.entry(name).or_default() += u64::from(cost.get());
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
            most: self.setting.calls(),
            window: self.window_at(since_1970),
        }
    }

    fn window_at(&self, since_1970: Duration) -> QuotaWindow {
        QuotaWindow::at(self.setting.unit, since_1970)
    }

    /// Returns the refusal of a call in a window that has no room.
    fn used_up(&self, window: QuotaWindow, since_1970: Duration) -> Failure {
        Failure::OverLimit { limit: self.limit.clone(), retry_after: window.rest(since_1970) }
    }
}

impl QuotaCounts {
    /// Ends the windows that are over, and begins others of their length.
    fn begin_windows(&mut self, since_1970: Duration) {
        for (seconds, counts) in &mut self.windows {
            let current = QuotaWindow::of_length(*seconds, since_1970);
            if current.replaces(QuotaWindow { number: counts.number, ..current }) {
                counts.number = current.number;
                self.is_changed |= !counts.used.is_empty();
                counts.used.clear();
            }
        }
    }

    /// Returns the window that a quota counts in. The clock may have been set back before it.
    fn window_of(&mut self, quota: &ChargedQuota, since_1970: Duration) -> QuotaWindow {
        let QuotaWindow { seconds, number } = quota.window_at(since_1970);
        let new = || WindowCounts { number, used: BTreeMap::new() };
        QuotaWindow { seconds, number: self.windows.entry(seconds).or_insert_with(new).number }
    }

    /// Returns the keys of the counts that a call is charged to, all of which have room for it.
    fn find_keys(
        &mut self,
        quotas: &[ChargedQuota],
        cost: NonZeroU32,
        since_1970: Duration,
    ) -> Result<Vec<CountKey>, Failure> {
        self.begin_windows(since_1970);
        let find_key = |quota: &ChargedQuota| {
            let window = self.window_of(quota, since_1970);
            let used = self.used_of(quota).saturating_add(cost.get().into());
            if used > quota.setting.calls().into() {
                return Err(quota.used_up(window, since_1970));
            }
            Ok(self.key(quota))
        };
        quotas.iter().map(find_key).collect()
    }

    /// Returns the calls that were charged to a quota in its current window.
    fn used_of(&self, quota: &ChargedQuota) -> u64 {
        let CountKey { seconds, name } = self.key(quota);
        let window = self.windows.get(&seconds);
        window.and_then(|window| window.used.get(&name)).copied().unwrap_or(0)
    }

    /// Returns the key of a quota's count. Callers beyond the limit of known ones share a count.
    fn key(&self, quota: &ChargedQuota) -> CountKey {
        let seconds = quota.window_at(Duration::ZERO).seconds;
        let ChargedQuota { limit, holder, .. } = quota;
        let Some(holder) = holder else { return CountKey { seconds, name: limit.clone() } };
        let name = format!("{limit} {holder}");
        let is_known = self.windows.get(&seconds).is_some_and(|it| it.used.contains_key(&name));
        let known: usize = self.windows.values().map(|window| window.used.len()).sum();
        if is_known || known < MAX_QUOTA_COUNTS {
            return CountKey { seconds, name };
        }
        CountKey { seconds, name: format!("{limit} {OTHER_HOLDERS}") }
    }
}

/// Limit of the counts of all windows.
const MAX_QUOTA_COUNTS: usize = 100_000;
/// Holder of the calls of all callers beyond that limit.
const OTHER_HOLDERS: &str = "others";

#[cfg(test)]
mod tests;
