//! Quotas that all replicas count together.
//!
//! A replica leases calls in blocks from a counter in the store that never exceeds the quota, and
//! counts its calls towards them. Without the store it uses what it has leased, and then refuses calls:
//! a quota is never exceeded, whatever `cluster.degrade` says. What a replica has leased and not used
//! is returned when it stops; that of a killed one is lost until the window ends.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::ClusterStoreError;
use super::shared_rates::SharedRates;
use super::store::{QuotaDemand, QuotaGrant};
use crate::shares::QuotaWindow;

/// The quotas that this replica shares with others.
#[derive(Debug)]
pub struct SharedQuotas {
    rates: Arc<SharedRates>,
    /// The leases of the current window of each length, in seconds.
    leases: Mutex<BTreeMap<NonZeroU64, WindowLeases>>,
}

/// The leases of one window, by quota and holder.
#[derive(Debug)]
struct WindowLeases {
    window: QuotaWindow,
    leases: HashMap<String, Arc<QuotaLease>>,
}

/// A quota in one window that a call is charged to.
#[derive(Debug, Clone, Copy)]
pub struct SharedQuota<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The holder of the count; `None` if all callers share it.
    pub holder: Option<&'a str>,
    /// Limit of the calls of the window.
    pub most: u32,
    /// The window, by the clock of this replica.
    pub window: QuotaWindow,
}

/// Calls of one quota that this replica has leased.
#[derive(Debug)]
pub struct QuotaLease {
    name: String,
    /// The window of the calls.
    window: QuotaWindow,
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

    /// Returns the number of leases of all windows.
    #[cfg(test)]
    pub(super) fn leases(&self) -> usize {
        self.leases.lock().values().map(|window| window.leases.len()).sum()
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
        let block = needed.max(largest_block(lease.window, rest));
        let lifetime = lease.window.length() * LIFETIME_WINDOWS + CLOCK_DIFFERENCE;
        let demand = QuotaDemand { limit, least: needed, most: block, lifetime };
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
        let health = self.rates.health();
        let leasing = async {
            let reply = health.store().lease_quota(name, demand).await?;
            QuotaGrant::read(&reply, demand).ok_or(ClusterStoreError::Reply)
        };
        health.access(leasing).await
    }

    /// Returns the calls that a quota still admits, as far as it is known.
    pub fn remaining(&self, quota: SharedQuota<'_>) -> Option<u64> {
        let lease = {
            let leases = self.leases.lock();
            let known = leases.get(&quota.window.seconds)?;
            let is_over = quota.window.replaces(known.window);
            Arc::clone(known.leases.get(&describe(quota)).filter(|_| !is_over)?)
        };
        let state = lease.state.lock();
        let left = u64::from(quota.most).saturating_sub(state.sum?);
        Some(left + u64::from(state.unused))
    }

    /// Returns all unused calls to the store, when the replica stops.
    pub(super) async fn return_unused(&self) {
        let leases = std::mem::take(&mut *self.leases.lock());
        for lease in leases.into_values().flat_map(|leases| leases.leases.into_values()) {
            let unused = std::mem::take(&mut lease.state.lock().unused);
            if unused > 0 {
                let health = self.rates.health();
                // Without the store, they are lost until the window ends.
                let _ = health.access(health.store().return_quota(&lease.name, unused)).await;
            }
        }
    }

    /// Returns the lease of a quota. A new window begins without any. Holders beyond the bound share
    /// one.
    pub(super) fn find(&self, quota: SharedQuota<'_>) -> Arc<QuotaLease> {
        let mut all = self.leases.lock();
        let others = all.iter().filter(|(seconds, _)| **seconds != quota.window.seconds);
        let others: usize = others.map(|(_, leases)| leases.leases.len()).sum();
        let new = || WindowLeases { window: quota.window, leases: HashMap::new() };
        let current = all.entry(quota.window.seconds).or_insert_with(new);
        if quota.window.replaces(current.window) {
            *current = new();
        }
        let WindowLeases { window, leases } = current;
        let mut text = describe(quota);
        if others + leases.len() >= MAX_LEASES && !leases.contains_key(&text) {
            text = describe(SharedQuota { holder: Some(OTHER_HOLDERS), ..quota });
        }
        if let Some(known) = leases.get(&text) {
            return Arc::clone(known);
        }
        let QuotaWindow { seconds, number } = *window;
        let name = self.rates.name_of(&format!("quota {seconds} {number} {text}"));
        let (state, requesting) = (Mutex::default(), AsyncMutex::default());
        let lease = Arc::new(QuotaLease { name, window: *window, state, requesting });
        leases.insert(text, Arc::clone(&lease));
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

/// Returns the largest block of a quota with this rest. Short windows have larger blocks, since they need
/// new ones so often, and calls that a replica does not use are soon replaced.
fn largest_block(window: QuotaWindow, rest: u32) -> u32 {
    if window.length() < SHORT_WINDOW {
        rest / BLOCKS_PER_SHORT_QUOTA
    } else {
        (rest / BLOCKS_PER_QUOTA).min(MAX_BLOCK)
    }
}

/// A block is this part of the rest of a quota.
const BLOCKS_PER_QUOTA: u32 = 64;
/// Limit of a block.
const MAX_BLOCK: u32 = 1000;
/// Windows below this length are short.
const SHORT_WINDOW: Duration = Duration::from_hours(1);
/// A block is this part of the rest of a quota with a short window.
const BLOCKS_PER_SHORT_QUOTA: u32 = 8;
/// Lifetime of a counter after its last lease, in windows: it outlives its own one.
const LIFETIME_WINDOWS: u32 = 2;
/// Added to the lifetime, for replicas with a late clock.
const CLOCK_DIFFERENCE: Duration = Duration::from_mins(1);
/// Limit of the leases of all windows.
const MAX_LEASES: usize = 100_000;
/// Holder of the calls of all callers beyond that limit.
const OTHER_HOLDERS: &str = "others";

#[cfg(test)]
mod tests;
