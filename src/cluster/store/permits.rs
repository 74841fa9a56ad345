//! Permits of rates in the store: one script with the generic cell rate algorithm (GCRA).

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use redis::Pipeline;
use tokio::time::Instant;

use super::ClusterStoreError;
use super::memory::MemoryStore;
use super::redis::{KEY_PREFIX, RedisStore};
use crate::clock;
use crate::config::Rate;
use crate::telemetry::metrics::StoreOperation;

/// Permits that a replica takes from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitDemand {
    /// The rate: a full bucket has `count` permits, and is refilled within `per`.
    pub rate: Rate,
    /// Fewer permits than these are not taken.
    pub least: u32,
    /// Maximum number of permits.
    pub most: u32,
}

/// Permits that the store has given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitGrant {
    /// The taken permits.
    pub taken: u32,
    /// The wait until the fewest that were asked for are there.
    pub wait: Duration,
    /// The permits that are left.
    pub left: u32,
}

/// A store of rates.
#[async_trait]
pub trait PermitStore: Send + Sync + std::fmt::Debug {
    /// Takes permits of the rate with this name. Returns the numbers of [`PermitGrant`], the wait in
    /// microseconds, as the store sent them: [`PermitGrant::read`] checks them.
    async fn take_permits(
        &self,
        name: &str,
        demand: &PermitDemand,
    ) -> Result<Vec<i64>, ClusterStoreError>;
}

impl PermitGrant {
    /// Returns the time in which the bucket is full again, to within the refill of one permit. Exact
    /// if the bucket is empty. For a demand of one permit.
    pub fn refill_time(&self, rate: Rate) -> Duration {
        let each = rate.per / rate.count.get();
        match self.left {
            0 => rate.per.saturating_sub(each) + self.wait,
            left => each * rate.count.get().saturating_sub(left),
        }
    }

    /// Reads the reply of the store. `None` if it is none: other than three numbers, negative ones,
    /// or more permits than were asked for or than a bucket has.
    pub fn read(reply: &[i64], demand: &PermitDemand) -> Option<Self> {
        let [taken, wait, left] = *reply else { return None };
        let (taken, left) = (u32::try_from(taken).ok()?, u32::try_from(left).ok()?);
        let wait = Duration::from_micros(u64::try_from(wait).ok()?);
        let is_possible = taken <= demand.most
            && (taken == 0 || taken >= demand.least)
            && left <= demand.rate.count.get()
            && wait <= demand.rate.per + Duration::from_secs(1);
        is_possible.then_some(Self { taken, wait, left })
    }
}

#[async_trait]
impl PermitStore for RedisStore {
    async fn take_permits(
        &self,
        name: &str,
        demand: &PermitDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        let mut commands = Pipeline::new();
        // The server compiles a script once, whether its text or its digest is sent. The text is
        // shorter than a packet, and needs no second request if the server has forgotten it.
        commands
            .cmd("EVAL")
            .arg(TAKE_SCRIPT)
            .arg(1)
            .arg(format!("{KEY_PREFIX}:{RATE_COLLECTION}:{name}"))
            .arg(micros(demand.rate.per))
            .arg(demand.rate.count.get())
            .arg(demand.least)
            .arg(demand.most);
        let (reply,): (Vec<i64>,) = self.run(StoreOperation::TakePermits, &commands).await?;
        Ok(reply)
    }
}

#[async_trait]
impl PermitStore for MemoryStore {
    async fn take_permits(
        &self,
        name: &str,
        demand: &PermitDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        self.access()?;
        Ok(self.rates.lock().take(name, demand, clock::now()))
    }
}

/// The model of the script, with exact times.
#[derive(Debug, Default)]
pub(super) struct MemoryRates {
    /// The times at which buckets are full again.
    full: HashMap<String, Instant>,
}

impl MemoryRates {
    pub(super) fn clear(&mut self) {
        self.full.clear();
    }

    fn take(&mut self, name: &str, demand: &PermitDemand, now: Instant) -> Vec<i64> {
        let PermitDemand { rate, least, most } = *demand;
        let each = rate.per / rate.count.get();
        let full = self.full.get(name).map_or(now, |full| (*full).clamp(now, now + rate.per));
        let missing = full.saturating_duration_since(now);
        let room = rate.per.saturating_sub(missing).as_nanos();
        let left = room / each.as_nanos().max(1);
        let left = u32::try_from(left).unwrap_or(u32::MAX).min(rate.count.get());
        let taken = if left < least { 0 } else { most.min(left) };
        let missing = missing + each * taken;
        if taken > 0 {
            self.full.insert(name.to_owned(), now + missing);
        }
        let wait = (missing + each * least).saturating_sub(rate.per);
        let wait = i64::try_from(wait.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX);
        vec![i64::from(taken), wait, i64::from(left - taken)]
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The script that takes permits.
const TAKE_SCRIPT: &str = include_str!("scripts/take_permits.lua");
/// The collection of rates. Their keys expire when the bucket is full.
const RATE_COLLECTION: &str = "rates";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_possible_reply_is_a_grant() {
        let rate = Rate { count: 10.try_into().unwrap(), per: Duration::from_secs(1) };
        let demand = PermitDemand { rate, least: 3, most: 5 };
        for reply in [[0, 0, 10], [0, 2_000_000, 0], [3, 0, 0], [5, 0, 5]] {
            let grant = PermitGrant::read(&reply, &demand).unwrap();
            assert_eq!([i64::from(grant.taken), i64::from(grant.left)], [reply[0], reply[2]]);
        }
        let impossible: [&[i64]; 11] = [
            &[],
            &[3, 0],
            &[3, 0, 0, 0],
            &[2, 0, 0],
            &[6, 0, 0],
            &[-3, 0, 0],
            &[3, -1, 0],
            &[3, 0, -1],
            &[0, 0, 11],
            &[0, 2_000_001, 0],
            &[i64::MAX, 0, 0],
        ];
        for reply in impossible {
            assert_eq!(PermitGrant::read(reply, &demand), None, "{reply:?}");
        }
    }
}
