//! Leases of servers whose child runs at one replica.
//!
//! The record of a server names the replica that runs its child. It is written if absent, for
//! [`LEASE_TIME`], and written over every [`RENEWAL_INTERVAL`] by its holder. The holder ends the child
//! [`LEASE_MARGIN`] before the store forgets the record, whatever `cluster.degrade` says. The other replicas
//! read the record every second, and place the server again when its holder has changed.

mod holder;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use holder::LeaseHolder;

use super::lease::{LEASE_MARGIN, LeaseStart};
use super::{Cluster, LEASE_TIME, PeerLink, RENEWAL_INTERVAL, ReplicaId};
use crate::call::ServerName;
use crate::crypto::random_bytes;
use crate::shared_records::{
    NewRecord, RecordPlace, SharedRecord, SharedRecordKind, SharedRecords, SharingFault,
};

/// Digest of the settings of a server's child.
pub type ServerDigest = [u8; 32];

/// The lease of one server's child, as this replica sees it.
#[derive(Debug)]
pub struct ServerLease {
    cluster: Arc<Cluster>,
    server: ServerName,
    own: LeaseHolder,
    state: watch::Sender<LeaseState>,
    /// Renews or watches the record.
    task: Mutex<Option<AbortHandle>>,
    /// Held while a program is being started.
    starting: Arc<AsyncMutex<()>>,
}

/// The state of a lease at this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeaseState {
    stage: LeaseStage,
    /// The number of attempts to place the server. A task ends the place of its own attempt only.
    attempt: u64,
}

/// Stages of a lease at this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseStage {
    /// The server is not placed.
    Free,
    /// This replica has the lease.
    Held,
    /// Another replica has it.
    Followed(ReplicaId),
    /// The place is no longer valid.
    Over(LeaseEnd),
}

/// Reasons to place a server again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// This replica has lost the lease.
    Lost,
    /// Another replica had the lease, and has it no longer, or takes no requests.
    Moved,
}

/// The place of a server's child.
#[derive(Debug)]
pub enum ServerPlace {
    /// This replica, which has the lease.
    Here,
    /// Another replica.
    Replica(Arc<PeerLink>),
}

/// Reasons that a server has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerLeaseFault {
    /// The store cannot be used.
    #[error(
        "the store of the replicas cannot be reached, and its child may run at another replica"
    )]
    StoreUnavailable,
    /// The store could not be reached for too long.
    #[error("its child was stopped, because the store of the replicas cannot be reached")]
    Lost,
    /// The record cannot be opened.
    #[error("the record of its replica is not sealed with a key of `gateway.state_keys`")]
    Unsealed,
    /// Another replica runs it and cannot be reached.
    #[error("the replica with its child cannot be reached")]
    Unreachable,
    /// The other replica does not run it.
    #[error("its child has left the other replica")]
    NotThere,
    /// Another replica runs it with other settings.
    #[error("its child runs at another replica with other settings, until the rollout is over")]
    OtherSettings,
    /// An earlier start of the server at this replica has not ended.
    #[error("its earlier child at this replica has not ended yet")]
    EarlierStart,
    /// This replica is about to stop.
    #[error("this replica is stopping")]
    Leaving,
}

impl ServerLeaseFault {
    /// Returns true if it ends by itself within the time of a lease.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Unreachable | Self::NotThere)
    }
}

impl Cluster {
    /// Returns the lease of a server's child with these settings.
    pub fn server_lease(
        self: &Arc<Self>,
        server: &ServerName,
        digest: ServerDigest,
    ) -> Arc<ServerLease> {
        // Without random bytes, two starts of this replica are not distinguished.
        let token = random_bytes().unwrap_or_default();
        Arc::new(ServerLease {
            own: LeaseHolder { replica: self.id(), token, digest },
            cluster: Arc::clone(self),
            server: server.clone(),
            state: watch::Sender::new(LeaseState { stage: LeaseStage::Free, attempt: 0 }),
            task: Mutex::default(),
            starting: Arc::default(),
        })
    }
}

impl ServerLease {
    /// Returns the digest of the child's settings.
    pub fn digest(&self) -> &ServerDigest {
        &self.own.digest
    }

    /// Returns the cluster.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Returns true if this replica has the lease.
    pub fn is_held(&self) -> bool {
        self.stage() == LeaseStage::Held
    }

    /// Returns the replica that has the lease; `None` while it is not known.
    pub fn holder(&self) -> Option<ReplicaId> {
        match self.stage() {
            LeaseStage::Held => Some(self.own.replica),
            LeaseStage::Followed(replica) => Some(replica),
            LeaseStage::Free | LeaseStage::Over(_) => None,
        }
    }

    /// Waits until the place of the server is no longer valid.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ended(&self) -> LeaseEnd {
        let mut state = self.state.subscribe();
        loop {
            if let LeaseStage::Over(end) = state.borrow_and_update().stage {
                return end;
            }
            // The sender is part of the lease.
            let _ = state.changed().await;
        }
    }

    /// Notes that the other replica has not taken a request: the server is placed again.
    pub fn leave(&self) {
        self.state.send_if_modified(|state| {
            let is_followed = matches!(state.stage, LeaseStage::Followed(_));
            if is_followed {
                state.stage = LeaseStage::Over(LeaseEnd::Moved);
            }
            is_followed
        });
    }

    /// Marks that a program is being started, until the guard is dropped. The lease is not released
    /// before.
    pub async fn note_start(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.starting).lock_owned().await
    }

    /// Takes the lease, or returns the replica that has it. From then on the place is watched.
    ///
    /// # Errors
    /// [`ServerLeaseFault`].
    pub async fn place(self: &Arc<Self>) -> Result<ServerPlace, ServerLeaseFault> {
        self.free();
        for _ in 0..MAX_PLACE_ATTEMPTS {
            let found = self.read().await?;
            let holder = match &found {
                None => None,
                Some(record) => Some(LeaseHolder::read(record).ok_or(ServerLeaseFault::Unsealed)?),
            };
            if let Some(holder) = holder.filter(|holder| *holder != self.own) {
                return self.follow(holder).await;
            }
            if self.cluster.has_left() {
                return Err(ServerLeaseFault::Leaving);
            }
            let start = LeaseStart::now();
            if let Some(record) = self.write(found.as_ref()).await? {
                let lease = Arc::clone(self);
                let keeping = async move { lease.keep(record, start).await };
                self.enter(LeaseStage::Held, keeping);
                return Ok(ServerPlace::Here);
            }
        }
        Err(ServerLeaseFault::NotThere)
    }

    async fn follow(
        self: &Arc<Self>,
        holder: LeaseHolder,
    ) -> Result<ServerPlace, ServerLeaseFault> {
        if holder.replica == self.own.replica {
            return Err(ServerLeaseFault::EarlierStart);
        }
        if holder.digest != self.own.digest {
            return Err(ServerLeaseFault::OtherSettings);
        }
        let mut link = self.cluster.find_replica(holder.replica);
        if link.is_none() {
            // It may have started a moment ago.
            let _ = self.cluster.membership.refresh().await;
            link = self.cluster.find_replica(holder.replica);
        }
        let link = link.ok_or(ServerLeaseFault::Unreachable)?;
        let lease = Arc::clone(self);
        let watching = async move { lease.watch(holder).await };
        self.enter(LeaseStage::Followed(holder.replica), watching);
        Ok(ServerPlace::Replica(link))
    }

    /// Gives the lease up, if this replica has it. The child has ended.
    pub async fn release(&self) {
        if !matches!(self.free(), LeaseStage::Held | LeaseStage::Over(LeaseEnd::Lost)) {
            return;
        }
        // A program that is being started while its server ends is killed when it runs.
        let _started = self.starting.lock().await;
        // The last renewal may have been written without an answer.
        if let Ok(Some(record)) = self.read().await
            && LeaseHolder::read(&record) == Some(self.own)
        {
            // Without the store, the record expires.
            let _ = self.records().remove(self.record_place(), &record).await;
        }
    }

    /// Renews the record until this replica has lost it.
    async fn keep(&self, mut record: SharedRecord, mut start: LeaseStart) -> LeaseEnd {
        loop {
            // In steps: the system's time goes on while the machine sleeps.
            while start.age() < RENEWAL_INTERVAL {
                sleep(CLOCK_STEP).await;
            }
            let Some(left) = time_left(start) else { return LeaseEnd::Lost };
            let next = LeaseStart::now();
            match timeout(left, self.renew(&record)).await {
                Ok(Ok(Some(renewed))) if time_left(start).is_some() => {
                    (record, start) = (renewed, next);
                }
                Ok(Err(_)) => sleep(CLOCK_STEP.min(time_left(start).unwrap_or_default())).await,
                Ok(Ok(_)) | Err(_) => return LeaseEnd::Lost,
            }
        }
    }

    /// Writes the record over the last one. Returns `None` if another replica has written it.
    async fn renew(&self, last: &SharedRecord) -> Result<Option<SharedRecord>, ServerLeaseFault> {
        if let Some(renewed) = self.write(Some(last)).await? {
            return Ok(Some(renewed));
        }
        // An earlier renewal may have been written without an answer.
        match self.read().await? {
            Some(record) if LeaseHolder::read(&record) == Some(self.own) => {
                self.write(Some(&record)).await
            }
            _ => Ok(None),
        }
    }

    /// Reads the record until it has another holder.
    async fn watch(&self, holder: LeaseHolder) -> LeaseEnd {
        loop {
            sleep(WATCH_INTERVAL).await;
            // Without the store, the other replica may still have the lease.
            match self.read().await {
                Ok(Some(record)) if LeaseHolder::read(&record) == Some(holder) => {}
                Ok(_) => return LeaseEnd::Moved,
                Err(_) => {}
            }
        }
    }

    async fn read(&self) -> Result<Option<SharedRecord>, ServerLeaseFault> {
        let reading = self.records().read(self.record_place()).await;
        reading.map_err(|_: SharingFault| ServerLeaseFault::StoreUnavailable)
    }

    async fn write(
        &self,
        expected: Option<&SharedRecord>,
    ) -> Result<Option<SharedRecord>, ServerLeaseFault> {
        let value = self.own.write();
        let new = NewRecord { value: &value, lifetime: Some(LEASE_TIME) };
        let writing = self.records().write(self.record_place(), expected, new).await;
        writing.map_err(|_: SharingFault| ServerLeaseFault::StoreUnavailable)
    }

    fn records(&self) -> &dyn SharedRecords {
        &*self.cluster.records
    }

    fn record_place(&self) -> RecordPlace<'_> {
        RecordPlace { kind: SharedRecordKind::ServerLease, name: self.server.as_str() }
    }

    fn stage(&self) -> LeaseStage {
        self.state.borrow().stage
    }

    /// Enters a stage, and runs the task that ends with it.
    fn enter(
        self: &Arc<Self>,
        stage: LeaseStage,
        task: impl Future<Output = LeaseEnd> + Send + 'static,
    ) {
        self.state.send_modify(|state| state.stage = stage);
        let (lease, attempt) = (Arc::clone(self), self.state.borrow().attempt);
        let running = tokio::spawn(async move {
            let end = task.await;
            lease.state.send_if_modified(|state| {
                let is_current = state.attempt == attempt;
                if is_current {
                    state.stage = LeaseStage::Over(end);
                }
                is_current
            });
        });
        *self.task.lock() = Some(running.abort_handle());
    }

    /// Ends the task of the last stage, and returns that stage.
    fn free(&self) -> LeaseStage {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        let before = self.stage();
        self.state.send_modify(|state| {
            let attempt = state.attempt + 1;
            *state = LeaseState { stage: LeaseStage::Free, attempt };
        });
        before
    }
}

/// Returns the time until the child has to be ended; `None` if that is now.
fn time_left(start: LeaseStart) -> Option<Duration> {
    let left = LEASE_TIME.saturating_sub(LEASE_MARGIN).saturating_sub(start.age());
    Some(left).filter(|left| !left.is_zero())
}

/// Time between two readings of the record of another replica.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks at the clock, and between two attempts to renew a lease.
const CLOCK_STEP: Duration = Duration::from_millis(250);
/// Attempts to write the record before another replica is assumed to be faster each time.
const MAX_PLACE_ATTEMPTS: usize = 3;

#[cfg(test)]
mod tests;
