//! Quotas in the store: counters that never exceed their limit.

use std::time::Duration;

use async_trait::async_trait;
use redis::Pipeline;
use tokio::time::Instant;

use super::ClusterStoreError;
use super::memory::MemoryStore;
use super::redis::{KEY_PREFIX, RedisStore};
use crate::clock;
use crate::telemetry::metrics::StoreOperation;

/// Calls of a quota that a replica leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaDemand {
    /// The limit of the quota.
    pub limit: u32,
    /// Fewer calls than these are not leased.
    pub least: u32,
    /// Maximum number of calls.
    pub most: u32,
    /// Lifetime of the counter after this lease. It exceeds the window of the quota.
    pub lifetime: Duration,
}

/// Calls of a quota that the store has leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaGrant {
    /// The leased calls.
    pub leased: u32,
    /// The calls that all replicas have leased.
    pub sum: u64,
}

/// A counter of leased calls in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredCounter {
    pub(super) sum: i64,
    until: Instant,
}

/// A store of quotas.
#[async_trait]
pub trait QuotaStore: Send + Sync {
    /// Leases calls of the quota with this name. Returns the numbers of [`QuotaGrant`] as the store
    /// sent them: [`QuotaGrant::read`] checks them.
    async fn lease_quota(
        &self,
        name: &str,
        demand: &QuotaDemand,
    ) -> Result<Vec<i64>, ClusterStoreError>;

    /// Returns leased calls that were not used.
    async fn return_quota(&self, name: &str, calls: u32) -> Result<(), ClusterStoreError>;
}

impl QuotaGrant {
    /// Reads the reply of the store. `None` if it is none: other than two numbers, negative ones, more
    /// calls than were asked for, or a sum beyond the limit.
    pub fn read(reply: &[i64], demand: &QuotaDemand) -> Option<Self> {
        let [leased, sum] = *reply else { return None };
        let (leased, sum) = (u32::try_from(leased).ok()?, u64::try_from(sum).ok()?);
        let is_possible = leased == 0
            || (demand.least..=demand.most).contains(&leased)
                && (u64::from(leased)..=u64::from(demand.limit)).contains(&sum);
        is_possible.then_some(Self { leased, sum })
    }
}

#[async_trait]
impl QuotaStore for RedisStore {
    async fn lease_quota(
        &self,
        name: &str,
        demand: &QuotaDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        let mut commands = Pipeline::new();
        commands
            .cmd("EVAL")
            .arg(LEASE_SCRIPT)
            .arg(1)
            .arg(quota_key(name))
            .arg(demand.limit)
            .arg(demand.least)
            .arg(demand.most)
            .arg(u64::try_from(demand.lifetime.as_millis()).unwrap_or(u64::MAX));
        let (reply,): (Vec<i64>,) = self.run(StoreOperation::LeaseQuota, &commands).await?;
        Ok(reply)
    }

    async fn return_quota(&self, name: &str, calls: u32) -> Result<(), ClusterStoreError> {
        let mut commands = Pipeline::new();
        commands.cmd("EVAL").arg(RETURN_SCRIPT).arg(1).arg(quota_key(name)).arg(calls).ignore();
        self.run(StoreOperation::ReturnQuota, &commands).await
    }
}

#[async_trait]
impl QuotaStore for MemoryStore {
    async fn lease_quota(
        &self,
        name: &str,
        demand: &QuotaDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        self.access()?;
        let (now, mut quotas) = (clock::now(), self.quotas.lock());
        let current = quotas.get(name).filter(|counter| counter.until > now);
        let sum = current.map_or(0, |counter| counter.sum);
        let room = i64::from(demand.limit).saturating_sub(sum).max(0);
        let leased = room.min(demand.most.into());
        if leased == 0 || leased < i64::from(demand.least) {
            return Ok(vec![0, sum]);
        }
        let counter = StoredCounter { sum: sum + leased, until: now + demand.lifetime };
        quotas.insert(name.to_owned(), counter);
        Ok(vec![leased, counter.sum])
    }

    async fn return_quota(&self, name: &str, calls: u32) -> Result<(), ClusterStoreError> {
        self.access()?;
        if let Some(counter) = self.quotas.lock().get_mut(name) {
            counter.sum = counter.sum.saturating_sub(calls.into()).max(0);
        }
        Ok(())
    }
}

fn quota_key(name: &str) -> String {
    format!("{KEY_PREFIX}:{QUOTA_COLLECTION}:{name}")
}

/// The scripts.
const LEASE_SCRIPT: &str = include_str!("scripts/lease_quota.lua");
const RETURN_SCRIPT: &str = include_str!("scripts/return_quota.lua");
/// The collection of quotas.
const QUOTA_COLLECTION: &str = "quotas";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_possible_reply_is_a_grant() {
        let lifetime = Duration::from_mins(1);
        let demand = QuotaDemand { limit: 100, least: 3, most: 5, lifetime };
        for reply in [[0, 0], [0, 7_000], [3, 3], [5, 100]] {
            let grant = QuotaGrant::read(&reply, &demand).unwrap();
            assert_eq!(i64::from(grant.leased), reply[0]);
        }
        let impossible: [&[i64]; 9] =
            [&[], &[3], &[3, 3, 3], &[2, 3], &[6, 6], &[3, 2], &[5, 101], &[-3, 3], &[3, -3]];
        for reply in impossible {
            assert_eq!(QuotaGrant::read(reply, &demand), None, "{reply:?}");
        }
    }
}
