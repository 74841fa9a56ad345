//! Health of the store, as this replica sees it.
//!
//! All users of limits and records share it: the first failed access makes the store degraded for each
//! of them, so that no further one waits for it. One task tries the store until it answers.
//! `cluster.degrade` decides about rates meanwhile; other accesses fail at once.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::{
    ClusterStore, ClusterStoreError, PermitDemand, PermitGrant, ValueFault, ValueFaultLog,
};
use crate::clock;
use crate::cluster::STORE_TIMEOUT;
use crate::config::{DegradeChoice, Rate};
use crate::telemetry::log::FaultLog;
use crate::telemetry::metrics::ClusterCounts;
use crate::text::error_chain;

/// The store with its health.
#[derive(Debug)]
pub struct StoreHealth {
    own: Weak<Self>,
    store: Arc<dyn ClusterStore>,
    degrade: DegradeChoice,
    counts: ClusterCounts,
    /// Drives the requests to the store.
    runtime: Handle,
    is_degraded: AtomicBool,
    record: Mutex<HealthRecord>,
    value_faults: ValueFaultLog,
}

#[derive(Debug, Default)]
struct HealthRecord {
    faults: FaultLog,
    /// Time of the first failure since the store answered.
    degraded_since: Option<SystemTime>,
    last_failure: Option<StoreFailure>,
}

/// A failed access to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFailure {
    /// Its time.
    pub at: SystemTime,
    /// The error.
    pub error: String,
}

impl StoreHealth {
    /// Needs a runtime, which will drive the requests to the store.
    pub fn new(
        store: Arc<dyn ClusterStore>,
        degrade: DegradeChoice,
        counts: ClusterCounts,
    ) -> Arc<Self> {
        let value_faults = ValueFaultLog::new(store.place());
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            store,
            degrade,
            counts,
            runtime: Handle::current(),
            is_degraded: AtomicBool::new(false),
            record: Mutex::default(),
            value_faults,
        })
    }

    /// Returns true while the store cannot be used for limits and records.
    pub fn is_degraded(&self) -> bool {
        self.is_degraded.load(Ordering::Relaxed)
    }

    /// Returns the time of the first failure while the store is degraded.
    pub fn degraded_since(&self) -> Option<SystemTime> {
        self.record.lock().degraded_since
    }

    /// Returns the last failure since the start, also after the store has answered again.
    pub fn last_failure(&self) -> Option<StoreFailure> {
        self.record.lock().last_failure.clone()
    }

    /// Returns the choice for rates while the store is degraded; `None` while it is not.
    pub fn degrade_choice(&self) -> Option<DegradeChoice> {
        self.is_degraded().then_some(self.degrade)
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn ClusterStore> {
        &self.store
    }

    /// Returns the runtime that drives requests to the store.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs an access to the store. Returns `None`, without running it, while the store is degraded;
    /// an access that fails degrades it.
    pub async fn access<T>(
        &self,
        access: impl Future<Output = Result<T, ClusterStoreError>>,
    ) -> Option<T> {
        if self.is_degraded() { None } else { self.try_access(access).await }
    }

    /// Runs an access to a record of a collection. A value that is refused is a fault of that record: the
    /// store may have others, and is not degraded.
    pub async fn access_record<T>(
        &self,
        collection: &str,
        access: impl Future<Output = Result<T, ClusterStoreError>>,
    ) -> Option<T> {
        let access = async {
            match access.await {
                Err(ClusterStoreError::Value(fault)) => {
                    self.note_value(collection, fault);
                    Ok(None)
                }
                reply => reply.map(Some),
            }
        };
        self.access(access).await.flatten()
    }

    /// Warns of a refused value in a collection.
    pub(crate) fn note_value(&self, collection: &str, fault: ValueFault) {
        self.value_faults.note(collection, fault);
    }

    async fn try_access<T>(
        &self,
        access: impl Future<Output = Result<T, ClusterStoreError>>,
    ) -> Option<T> {
        let reply = timeout(STORE_TIMEOUT, access).await;
        let reply = reply.unwrap_or(Err(ClusterStoreError::Timeout));
        reply.inspect_err(|error| self.note_failure(error)).ok()
    }

    /// Notes that the store cannot be used, and tries it until it can.
    fn note_failure(&self, error: &ClusterStoreError) {
        self.counts.count_rate_error();
        let (at, error) = (clock::wall_now(), error_chain(error));
        let mut record = self.record.lock();
        record.last_failure = Some(StoreFailure { at, error: error.clone() });
        if self.is_degraded.swap(true, Ordering::Relaxed) {
            return;
        }
        record.degraded_since = Some(at);
        self.counts.enter_degraded();
        let effect = match self.degrade {
            DegradeChoice::Local => "each replica counts rates for itself",
            DegradeChoice::Refuse => "requests with a shared rate are refused",
        };
        let place = self.store.place();
        let line = format!("{STORE_SUBJECT} cannot be used, {effect}: {place}: {error}");
        if let Some(line) = record.faults.note_about(STORE_SUBJECT, &line, clock::now()) {
            tracing::warn!("{line}");
        }
        drop(record);
        self.runtime.spawn(Self::try_until_answered(Weak::clone(&self.own)));
    }

    async fn try_until_answered(own: Weak<Self>) {
        loop {
            sleep(PROBE_INTERVAL).await;
            let Some(health) = own.upgrade() else { return };
            if health.probe().await {
                tracing::info!("{STORE_SUBJECT} can be used again");
                health.record.lock().degraded_since = None;
                health.counts.leave_degraded();
                health.is_degraded.store(false, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Returns true if the store can be used. Takes nothing.
    async fn probe(&self) -> bool {
        let rate = Rate { count: NonZeroU32::MIN, per: PROBE_INTERVAL };
        let demand = PermitDemand { rate, least: 0, most: 0 };
        self.try_access(self.take_permits(PROBE_NAME, &demand)).await.is_some()
    }

    /// Takes permits from the store.
    ///
    /// # Errors
    /// [`ClusterStoreError`], also for a reply that no store gives.
    pub async fn take_permits(
        &self,
        name: &str,
        demand: &PermitDemand,
    ) -> Result<PermitGrant, ClusterStoreError> {
        let reply = self.store.take_permits(name, demand).await?;
        PermitGrant::read(&reply, demand).ok_or(ClusterStoreError::Reply)
    }
}

#[cfg(test)]
impl StoreHealth {
    /// Creates the health of a replica's store.
    pub(crate) fn in_tests(store: Arc<dyn ClusterStore>, degrade: DegradeChoice) -> Arc<Self> {
        Self::new(store, degrade, ClusterCounts::default())
    }
}

/// Subject of the log lines about the store.
const STORE_SUBJECT: &str = "the store of shared limits and records";
/// The name of the rate that shows if the store answers.
const PROBE_NAME: &str = "probe";
/// The time between two attempts to use a store that failed.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::MemoryStore;

    /// Reads a list that is empty.
    async fn read(health: &StoreHealth) -> Option<usize> {
        health.access(async { Ok(health.store().list("values", 1).await?.len()) }).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_degrades_the_store_until_it_answers() {
        let store = Arc::new(MemoryStore::default());
        let health = StoreHealth::in_tests(Arc::clone(&store) as _, DegradeChoice::Refuse);
        assert_eq!(read(&health).await, Some(0));
        assert_eq!((health.degraded_since(), health.last_failure()), (None, None));
        store.fail(true);
        assert_eq!(read(&health).await, None);
        assert_eq!(health.degrade_choice(), Some(DegradeChoice::Refuse));
        let failure = health.last_failure().unwrap();
        assert_eq!(failure.error, "it did not answer in time");
        assert_eq!(health.degraded_since(), Some(failure.at));
        // No access waits for it, and the failures of probes move the last failure on, not the first.
        sleep(PROBE_INTERVAL * 3).await;
        assert_eq!(health.degraded_since(), Some(failure.at));
        store.fail(false);
        assert_eq!(read(&health).await, None, "it is not known yet that it answers");
        sleep(PROBE_INTERVAL * 2).await;
        assert_eq!(read(&health).await, Some(0));
        assert_eq!((health.degrade_choice(), health.degraded_since()), (None, None));
        assert!(health.last_failure().is_some(), "it stays known");
    }

    #[tokio::test(start_paused = true)]
    async fn an_access_without_an_answer_ends() {
        let health = StoreHealth::in_tests(Arc::new(MemoryStore::default()), DegradeChoice::Local);
        assert_eq!(health.access(std::future::pending::<Result<(), _>>()).await, None);
        assert!(health.is_degraded());
    }
}
