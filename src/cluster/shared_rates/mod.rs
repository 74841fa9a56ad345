//! Rates that all replicas enforce together.
//!
//! The store has one bucket for each rate and holder. A replica takes permits from it in batches
//! ([`RatePermits`]), so that most calls use permits that are here already. Others wait for a batch before
//! they are admitted, in a burst for several in turn, up to a time limit. Taking permits never waits.
//!
//! The names of buckets are digests under a key of `gateway.state_keys`: the store learns neither
//! limits nor holders. While the store cannot be used, `cluster.degrade` decides.

mod permits;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

#[cfg(test)]
use super::ClusterStore;
use super::store::{PermitDemand, PermitGrant, StoreHealth};
use crate::clock;
use crate::config::DegradeChoice;
use crate::crypto::derive_key;
use crate::shares::{LearnRefillTime, PermitSource, PermitTaking, SharedPermits, SharedRate};
use crate::telemetry::metrics::ClusterCounts;

use permits::RatePermits;

/// The rates that this replica shares with others.
#[derive(Debug)]
pub struct SharedRates {
    own: Weak<Self>,
    health: Arc<StoreHealth>,
    /// Key of the names in the store.
    key: [u8; 32],
    counts: ClusterCounts,
    /// Permits by limit, rate and holder.
    permits: Mutex<HashMap<String, Arc<RatePermits>>>,
    /// One for each charge after the fact that is under way.
    charges: Arc<Semaphore>,
}

impl SharedRates {
    /// Names buckets with the first of `gateway.state_keys`.
    pub(super) fn new(health: Arc<StoreHealth>, secret: &[u8], counts: ClusterCounts) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            health,
            key: derive_key(RATE_PURPOSE, secret),
            counts,
            permits: Mutex::default(),
            charges: Arc::new(Semaphore::new(MAX_CHARGES)),
        })
    }

    /// Returns the store with its health.
    pub(super) fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }

    /// Returns the result of taking permits while the store cannot be used; `None` if it can.
    fn decide_degraded(&self) -> Option<PermitTaking> {
        self.health.degrade_choice().map(|choice| match choice {
            DegradeChoice::Local => PermitTaking::Alone,
            DegradeChoice::Refuse => PermitTaking::Unavailable,
        })
    }

    /// Takes permits from the store. `None` if it cannot be used: then the rates are degraded.
    async fn request(&self, name: &str, demand: &PermitDemand) -> Option<PermitGrant> {
        self.counts.count_rate_request();
        self.health.access(self.health.take_permits(name, demand)).await
    }

    /// Returns the name of a bucket in the store.
    pub(super) fn name_of(&self, text: &str) -> String {
        HEXLOWER.encode(&derive_key(&self.key, text.as_bytes()))
    }

    /// Returns the permits of a rate. Beyond the bound, unused ones are dropped; if all are in use,
    /// new holders share one bucket.
    fn permits_of(&self, rate: &SharedRate<'_>) -> Arc<RatePermits> {
        let text = describe(rate);
        let mut permits = self.permits.lock();
        if let Some(known) = permits.get(&text) {
            return Arc::clone(known);
        }
        if permits.len() >= MAX_SHARED_RATES {
            let now = clock::now();
            permits.retain(|_, it| Arc::strong_count(it) > 1 || !it.is_stale(now));
        }
        let is_full = permits.len() >= MAX_SHARED_RATES;
        let text = match rate.holder {
            Some(_) if is_full => describe(&SharedRate { holder: Some(OTHER_HOLDERS), ..*rate }),
            _ => text,
        };
        let new = || {
            let name = self.name_of(&text);
            Arc::new_cyclic(|own| RatePermits::new(own, Weak::clone(&self.own), name, rate.rate))
        };
        Arc::clone(permits.entry(text.clone()).or_insert_with(new))
    }
}

#[cfg(test)]
impl SharedRates {
    /// Creates the rates of a replica.
    pub(super) fn in_tests(store: Arc<dyn ClusterStore>, degrade: DegradeChoice) -> Arc<Self> {
        Self::sharing(StoreHealth::in_tests(store, degrade))
    }

    /// Creates the rates of a replica with this store.
    pub(super) fn sharing(health: Arc<StoreHealth>) -> Arc<Self> {
        Self::new(health, b"shared", ClusterCounts::default())
    }
}

impl PermitSource for SharedRates {
    fn find(&self, rate: &SharedRate<'_>) -> Arc<dyn SharedPermits> {
        self.permits_of(rate)
    }

    fn peek(&self, rate: &SharedRate<'_>) -> Option<Arc<dyn SharedPermits>> {
        let known = self.permits.lock().get(&describe(rate)).map(Arc::clone);
        known.map(|known| known as Arc<dyn SharedPermits>)
    }

    fn charge(&self, rate: &SharedRate<'_>, learn: LearnRefillTime) {
        let Some(own) = self.own.upgrade().filter(|own| !own.health.is_degraded()) else { return };
        let Ok(under_way) = Arc::clone(&self.charges).try_acquire_owned() else { return };
        let (name, rate) = (self.name_of(&describe(rate)), rate.rate);
        self.health.runtime().spawn(async move {
            let demand = PermitDemand { rate, least: 1, most: 1 };
            if let Some(grant) = own.request(&name, &demand).await {
                learn(grant.refill_time(rate));
            }
            drop(under_way);
        });
    }
}

/// Returns a unique text for a rate: a changed rate is another bucket.
fn describe(rate: &SharedRate<'_>) -> String {
    let SharedRate { limit, holder, rate } = rate;
    format!("{limit} {rate} {}", holder.unwrap_or_default())
}

/// Purpose of the key of names in the store.
const RATE_PURPOSE: &[u8] = b"trunkline shared rate";
/// Limit of the rates and holders with permits here.
const MAX_SHARED_RATES: usize = 100_000;
/// Limit of the charges after the fact that are under way.
const MAX_CHARGES: usize = 256;
/// Holder of the permits of all others beyond it.
const OTHER_HOLDERS: &str = "others";

#[cfg(test)]
mod tests;
