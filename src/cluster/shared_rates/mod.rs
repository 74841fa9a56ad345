//! Rates that all replicas enforce together.
//!
//! The store has one bucket for each rate and holder. A replica takes permits from it in batches
//! ([`RatePermits`]), so that most calls use permits that are here already. A call waits at most for
//! one request to the store before it is admitted; taking permits never waits.
//!
//! The names of buckets are digests under a key of `gateway.state_keys`: the store learns neither
//! limits nor holders. While the store cannot be used, `cluster.degrade` decides.

mod permits;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::store::{PermitDemand, PermitGrant};
use super::{ClusterStore, ClusterStoreError, STORE_TIMEOUT};
use crate::clock;
use crate::config::{DegradeChoice, Rate};
use crate::crypto::derive_key;
use crate::shares::{LearnRefillTime, PermitSource, PermitTaking, SharedPermits, SharedRate};
use crate::telemetry::log::FaultLog;
use crate::telemetry::metrics::ClusterCounts;
use crate::text::error_chain;

use permits::RatePermits;

/// The rates that this replica shares with others.
#[derive(Debug)]
pub struct SharedRates {
    own: Weak<Self>,
    store: Arc<dyn ClusterStore>,
    /// Key of the names in the store.
    key: [u8; 32],
    degrade: DegradeChoice,
    counts: ClusterCounts,
    /// Drives the requests to the store.
    runtime: Handle,
    is_degraded: AtomicBool,
    faults: Mutex<FaultLog>,
    /// Permits by limit, rate and holder.
    permits: Mutex<HashMap<String, Arc<RatePermits>>>,
    /// One for each charge after the fact that is under way.
    charges: Arc<Semaphore>,
}

/// The parts of [`SharedRates`].
pub(super) struct SharedRateParts<'a> {
    pub(super) store: Arc<dyn ClusterStore>,
    /// The first of `gateway.state_keys`.
    pub(super) secret: &'a [u8],
    pub(super) degrade: DegradeChoice,
    pub(super) counts: ClusterCounts,
}

impl SharedRates {
    /// Needs a runtime, which will drive the requests to the store.
    pub(super) fn new(parts: SharedRateParts<'_>) -> Arc<Self> {
        let SharedRateParts { store, secret, degrade, counts } = parts;
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            store,
            key: derive_key(RATE_PURPOSE, secret),
            degrade,
            counts,
            runtime: Handle::current(),
            is_degraded: AtomicBool::new(false),
            faults: Mutex::default(),
            permits: Mutex::default(),
            charges: Arc::new(Semaphore::new(MAX_CHARGES)),
        })
    }

    /// Returns true while the store cannot be used for rates.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded.load(Ordering::Relaxed)
    }

    /// Returns the runtime that drives requests to the store.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the store.
    pub(super) fn store(&self) -> &Arc<dyn ClusterStore> {
        &self.store
    }

    /// Returns the result of taking permits while the store cannot be used; `None` if it can.
    fn decide_degraded(&self) -> Option<PermitTaking> {
        self.is_degraded().then_some(match self.degrade {
            DegradeChoice::Local => PermitTaking::Alone,
            DegradeChoice::Refuse => PermitTaking::Unavailable,
        })
    }

    /// Takes permits from the store. `None` if it cannot be used: then the rates are degraded.
    async fn request(&self, name: &str, demand: &PermitDemand) -> Option<PermitGrant> {
        self.counts.count_rate_request();
        let reply = timeout(STORE_TIMEOUT, self.store.take_permits(name, demand)).await;
        let reply = reply.unwrap_or(Err(ClusterStoreError::Timeout));
        let granted = reply
            .and_then(|reply| PermitGrant::read(&reply, demand).ok_or(ClusterStoreError::Reply));
        match granted {
            Ok(grant) => Some(grant),
            Err(error) => {
                self.degrade(&error);
                None
            }
        }
    }

    /// Notes that the store cannot be used, and tries it until it can.
    pub(super) fn degrade(&self, error: &ClusterStoreError) {
        self.counts.count_rate_error();
        if self.is_degraded.swap(true, Ordering::Relaxed) {
            return;
        }
        let effect = match self.degrade {
            DegradeChoice::Local => "each replica counts rates for itself",
            DegradeChoice::Refuse => "requests with a shared rate are refused",
        };
        let (place, text) = (self.store.place(), error_chain(error));
        let line = format!("the store of shared rates cannot be used, {effect}: {place}: {text}");
        if let Some(line) = self.faults.lock().note_about(STORE_SUBJECT, &line, clock::now()) {
            tracing::warn!("{line}");
        }
        let own = Weak::clone(&self.own);
        self.runtime.spawn(async move {
            loop {
                sleep(PROBE_INTERVAL).await;
                let Some(rates) = own.upgrade() else { return };
                if rates.probe().await {
                    tracing::info!("the store of shared rates can be used again");
                    rates.is_degraded.store(false, Ordering::Relaxed);
                    return;
                }
            }
        });
    }

    /// Returns true if the store can be used. Takes nothing.
    async fn probe(&self) -> bool {
        let rate = Rate { count: std::num::NonZeroU32::MIN, per: PROBE_INTERVAL };
        let demand = PermitDemand { rate, least: 0, most: 0 };
        self.request(&self.name_of("probe"), &demand).await.is_some()
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
        let counts = ClusterCounts::default();
        Self::new(SharedRateParts { store, secret: b"shared", degrade, counts })
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
        let Some(own) = self.own.upgrade().filter(|own| !own.is_degraded()) else { return };
        let Ok(under_way) = Arc::clone(&self.charges).try_acquire_owned() else { return };
        let (name, rate) = (self.name_of(&describe(rate)), rate.rate);
        self.runtime.spawn(async move {
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
/// Subject of the log lines about the store.
const STORE_SUBJECT: &str = "the store of shared rates";
/// The time between two attempts to use a store that failed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of the rates and holders with permits here.
const MAX_SHARED_RATES: usize = 100_000;
/// Limit of the charges after the fact that are under way.
const MAX_CHARGES: usize = 256;
/// Holder of the permits of all others beyond it.
const OTHER_HOLDERS: &str = "others";

#[cfg(test)]
mod tests;
