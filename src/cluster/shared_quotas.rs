//! Daily quotas that all replicas count together.
//!
//! A replica leases calls in blocks from a counter in the store that never exceeds the quota, and
//! counts its calls towards them. Without the store it uses what it has leased, and then refuses calls:
//! a quota is never exceeded, whatever `cluster.degrade` says. What a replica has leased and not used
//! is returned when it stops; that of a killed one is lost for the day.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::shared_rates::SharedRates;
use super::store::{QuotaDemand, QuotaGrant};
use super::{ClusterStoreError, STORE_TIMEOUT};

/// The quotas that this replica shares with others.
#[derive(Debug)]
pub struct SharedQuotas {
    rates: Arc<SharedRates>,
    leases: Mutex<DayLeases>,
}

/// The leases of one day, by quota and holder.
#[derive(Debug, Default)]
struct DayLeases {
    day: u64,
    leases: HashMap<String, Arc<QuotaLease>>,
}

/// A quota of one day that a call is charged to.
#[derive(Debug, Clone, Copy)]
pub struct SharedQuota<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The holder of the count; `None` if all callers share it.
    pub holder: Option<&'a str>,
    /// Limit of the calls of a day.
    pub most: u32,
    /// The day, in days since 1970.
    pub day: u64,
}

/// Calls of one quota that this replica has leased.
#[derive(Debug)]
pub struct QuotaLease {
    name: String,
    state: Mutex<LeaseState>,
    /// Held during a request to the store.
    requesting: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct LeaseState {
    /// Leased calls that are not used yet.
    unused: u32,
    /// The calls that all replicas had leased at the last reply; `None` before the first.
    sum: Option<u64>,
}

/// Reasons that a quota refuses a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaRefusal {
    /// It is used up.
    UsedUp,
    /// Nothing is leased, and the store cannot be reached.
    Unavailable,
}

impl SharedQuotas {
    pub(super) fn new(rates: Arc<SharedRates>) -> Self {
        Self { rates, leases: Mutex::default() }
    }

    /// Returns the shared rates, which note failures of the store.
    #[cfg(test)]
    pub(super) fn rates(&self) -> &SharedRates {
        &self.rates
    }

    /// Takes the calls of a quota.
    ///
    /// # Errors
    /// [`QuotaRefusal`].
    pub async fn take(
        &self,
        quota: SharedQuota<'_>,
        cost: u32,
    ) -> Result<Arc<QuotaLease>, QuotaRefusal> {
        let lease = self.find(quota);
        if lease.take(cost) {
            return Ok(lease);
        }
        let requesting = lease.requesting.lock().await;
        // The request before this one may have been enough.
        if !lease.take(cost) {
            self.extend(&lease, quota.most, cost).await?;
        }
        drop(requesting);
        Ok(lease)
    }

    /// Leases a block, and takes the calls from it.
    async fn extend(&self, lease: &QuotaLease, limit: u32, cost: u32) -> Result<(), QuotaRefusal> {
        let (unused, sum) = {
            let state = lease.state.lock();
            (state.unused, state.sum.unwrap_or(0))
        };
        let rest = u32::try_from(u64::from(limit).saturating_sub(sum)).unwrap_or(u32::MAX);
        let needed = cost.saturating_sub(unused).max(1);
        let block = needed.max((rest / BLOCKS_PER_QUOTA).min(MAX_BLOCK));
        let demand = QuotaDemand { limit, least: needed, most: block };
        let grant = self.request(&lease.name, &demand).await.ok_or(QuotaRefusal::Unavailable)?;
        let mut state = lease.state.lock();
        state.sum = Some(grant.sum);
        state.unused += grant.leased;
        match state.unused.checked_sub(cost) {
            Some(unused) => {
                state.unused = unused;
                Ok(())
            }
            None => Err(QuotaRefusal::UsedUp),
        }
    }

    async fn request(&self, name: &str, demand: &QuotaDemand) -> Option<QuotaGrant> {
        if self.rates.is_degraded() {
            return None;
        }
        let leasing = self.rates.store().lease_quota(name, demand);
        let reply = timeout(STORE_TIMEOUT, leasing).await;
        let reply = reply.unwrap_or(Err(ClusterStoreError::Timeout));
        let granted = reply
            .and_then(|reply| QuotaGrant::read(&reply, demand).ok_or(ClusterStoreError::Reply));
        granted.inspect_err(|error| self.rates.degrade(error)).ok()
    }

    /// Returns the calls that a quota still admits, as far as it is known.
    pub fn remaining(&self, quota: SharedQuota<'_>) -> Option<u64> {
        let lease = {
            let leases = self.leases.lock();
            let known = leases.leases.get(&describe(quota)).filter(|_| leases.day == quota.day);
            Arc::clone(known?)
        };
        let state = lease.state.lock();
        let left = u64::from(quota.most).saturating_sub(state.sum?);
        Some(left + u64::from(state.unused))
    }

    /// Returns all unused calls to the store, when the replica stops.
    pub(super) async fn return_unused(&self) {
        let leases = std::mem::take(&mut self.leases.lock().leases);
        for lease in leases.into_values() {
            let unused = std::mem::take(&mut lease.state.lock().unused);
            if unused == 0 || self.rates.is_degraded() {
                continue;
            }
            let returning = self.rates.store().return_quota(&lease.name, unused);
            let returned = timeout(STORE_TIMEOUT, returning).await;
            if let Err(error) = returned.unwrap_or(Err(ClusterStoreError::Timeout)) {
                self.rates.degrade(&error);
            }
        }
    }

    /// Returns the lease of a quota. A new day begins without any. Holders beyond the bound share one.
    fn find(&self, quota: SharedQuota<'_>) -> Arc<QuotaLease> {
        let mut leases = self.leases.lock();
        if quota.day > leases.day {
            *leases = DayLeases { day: quota.day, leases: HashMap::new() };
        }
        let mut text = describe(quota);
        if leases.leases.len() >= MAX_LEASES && !leases.leases.contains_key(&text) {
            text = describe(SharedQuota { holder: Some(OTHER_HOLDERS), ..quota });
        }
        let new = || {
            let name = self.rates.name_of(&format!("quota {} {text}", quota.day));
            let (state, requesting) = (Mutex::default(), AsyncMutex::default());
            Arc::new(QuotaLease { name, state, requesting })
        };
        if let Some(known) = leases.leases.get(&text) {
            return Arc::clone(known);
        }
        let lease = new();
        leases.leases.insert(text, Arc::clone(&lease));
        lease
    }
}

impl QuotaLease {
    fn take(&self, cost: u32) -> bool {
        let mut state = self.state.lock();
        let left = state.unused.checked_sub(cost);
        state.unused = left.unwrap_or(state.unused);
        left.is_some()
    }

    /// Gives back the calls of a call that was not made.
    pub fn give_back(&self, cost: u32) {
        self.state.lock().unused += cost;
    }
}

fn describe(quota: SharedQuota<'_>) -> String {
    format!("{} {}", quota.limit, quota.holder.unwrap_or_default())
}

/// A block is this part of the rest of a quota.
const BLOCKS_PER_QUOTA: u32 = 64;
/// Limit of a block.
const MAX_BLOCK: u32 = 1000;
/// Limit of the leases of a day.
const MAX_LEASES: usize = 100_000;
/// Holder of the calls of all callers beyond that limit.
const OTHER_HOLDERS: &str = "others";
