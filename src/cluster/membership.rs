//! The replicas of a cluster: each renews a lease in the store, and reads the others'.

mod replica_record;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::time::{Instant, Interval, timeout};

use replica_record::{CLOCK_SKEW, ReplicaRecord, from_unix_millis, unix_millis};

use super::lease::{LeaseClock, LeaseStart, LeaseStatus};
use super::peer_link::PeerTls;
use super::store::ValueFaultLog;
use super::{
    ClusterStore, ClusterStoreError, PeerLink, ReplicaId, STORE_TIMEOUT, StoredValue, ValueFault,
};
use crate::clock;
use crate::config::PeerHost;
use crate::crypto::Sealer;
use crate::telemetry::log::FaultLog;
use crate::telemetry::metrics::{ClusterCounts, ReplicaLevels};
use crate::text::error_chain;

/// The lease of this replica, and the other replicas.
#[derive(Debug)]
pub(super) struct Membership {
    id: ReplicaId,
    advertise: PeerHost,
    started_at: SystemTime,
    records: Sealer,
    store: Arc<dyn ClusterStore>,
    tls: PeerTls,
    counts: ClusterCounts,
    lease: LeaseClock,
    value_faults: ValueFaultLog,
    table: Mutex<ReplicaTable>,
    /// Held by one renewal at a time.
    renewing: AsyncMutex<()>,
    /// The last reading besides renewals. Held while there is one.
    reading: AsyncMutex<Option<LeaseReading>>,
    /// Asks for a renewal before its time.
    hurry: Notify,
    attempts: watch::Sender<RenewalAttempts>,
}

/// A reading of the leases of all replicas.
#[derive(Debug, Clone, Copy)]
struct LeaseReading {
    /// The moment before it was requested.
    began: Instant,
    succeeded: bool,
}

/// Numbers of attempts to renew the lease.
#[derive(Debug, Default)]
struct RenewalAttempts {
    begun: u64,
    ended: u64,
}

/// The keys of records, and the replica that they are for.
pub(super) struct MembershipKeys {
    pub(super) records: Sealer,
    pub(super) id: ReplicaId,
}

#[derive(Debug, Default)]
struct ReplicaTable {
    replicas: HashMap<ReplicaId, Replica>,
    store_error: Option<String>,
    failed_renewals: FailedRenewals,
    faults: FaultLog,
    renewed_at: Option<SystemTime>,
    renewals: u64,
    digest: String,
    /// Number of sessions that this replica owns.
    sessions: usize,
    /// Replicas with another time, as of the last reading.
    skewed: Vec<SkewedReplica>,
    skew_faults: FaultLog,
}

/// Attempts to renew the lease that failed one after the other, each in its time.
#[derive(Debug, Default)]
struct FailedRenewals {
    count: u32,
    /// The start of the last one.
    last: Option<LeaseStart>,
}

impl FailedRenewals {
    /// Returns true if the last attempt has failed, and the next one is not overdue.
    fn is_recent(&self) -> bool {
        self.last.is_some_and(|start| start.age() < RENEWAL_INTERVAL + STORE_TIMEOUT)
    }

    fn note(&mut self, start: LeaseStart) {
        self.count = if self.is_recent() { self.count + 1 } else { 1 };
        self.last = Some(start);
    }
}

/// Another replica.
#[derive(Debug)]
struct Replica {
    record: ReplicaRecord,
    link: Arc<PeerLink>,
    /// Number of readings since the last one that had it.
    missed: u32,
}

/// Another replica, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaView {
    /// Its id.
    pub id: ReplicaId,
    /// The address where it is reached.
    pub address: String,
    /// Its start.
    pub started_at: SystemTime,
    /// The last renewal of its lease, by its own clock.
    pub renewed_at: SystemTime,
    /// True if its configuration is the same as that of this replica.
    pub same_configuration: bool,
    /// Number of sessions that it owned at that renewal; `None` if it does not say so.
    pub sessions: Option<usize>,
}

/// Another replica whose clock differs too much: its records are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkewedReplica {
    /// Its id.
    pub id: ReplicaId,
    /// The address where it is reached.
    pub address: String,
    /// Seconds that its clock is ahead of this replica's; negative if it is behind.
    pub ahead: i64,
}

impl Membership {
    pub(super) fn new(
        advertise: PeerHost,
        keys: MembershipKeys,
        store: Arc<dyn ClusterStore>,
        tls: PeerTls,
    ) -> Self {
        let value_faults = ValueFaultLog::new(store.place());
        Self {
            id: keys.id,
            advertise,
            started_at: clock::wall_now(),
            records: keys.records,
            store,
            tls,
            counts: ClusterCounts::default(),
            lease: LeaseClock::default(),
            value_faults,
            table: Mutex::new(ReplicaTable {
                skew_faults: FaultLog::holding(MAX_REPLICAS),
                ..ReplicaTable::default()
            }),
            renewing: AsyncMutex::default(),
            reading: AsyncMutex::default(),
            hurry: Notify::new(),
            attempts: watch::Sender::default(),
        }
    }

    /// Counts faults of the store in `counts`.
    pub(super) fn counting(self, counts: ClusterCounts) -> Self {
        Self { counts, ..self }
    }

    /// Waits until the next renewal is due, or needed.
    pub(super) async fn renewal_due(&self, every: &mut Interval) {
        tokio::select! {
            _ = every.tick() => {}
            () = self.hurry.notified() => {}
        }
    }

    /// Renews the lease and reads the others' once. Returns the start of the new lease, which the
    /// caller confirms. Without the store, the known replicas stay: their connections show if they are
    /// gone.
    pub(super) async fn renew(&self, digest: String) -> Option<LeaseStart> {
        let _renewing = self.renewing.lock().await;
        if self.lease.state() == LeaseStatus::Left {
            return None;
        }
        self.table.lock().digest.clone_from(&digest);
        let start = LeaseStart::now();
        let renewed = timeout(STORE_TIMEOUT, self.access_store(digest)).await;
        let renewed = renewed.unwrap_or(Err(ClusterStoreError::Timeout));
        match renewed {
            Ok(values) => {
                let mut table = self.table.lock();
                table.count_reading();
                self.update(&mut table, &values);
                table.replicas.retain(|_, replica| replica.missed <= MAX_MISSED);
                if table.store_error.take().is_some() {
                    tracing::info!("the store of the replicas can be reached again");
                }
                table.failed_renewals = FailedRenewals::default();
                table.faults.clear();
                if table.skewed.is_empty() {
                    table.skew_faults.clear();
                }
                self.counts.set_replicas(table.levels());
                Some(start)
            }
            Err(error) => {
                self.note_fault(&error);
                self.table.lock().failed_renewals.note(start);
                None
            }
        }
    }

    /// Notes that the lease is valid from `start` on.
    pub(super) fn confirm(&self, start: LeaseStart) {
        self.lease.extend(start);
    }

    /// Notes the beginning of an attempt to renew the lease.
    pub(super) fn begin_attempt(&self) {
        self.attempts.send_modify(|attempts| attempts.begun += 1);
    }

    /// Writes this number of own sessions with the next renewals.
    pub(super) fn note_sessions(&self, count: usize) {
        self.table.lock().sessions = count;
    }

    /// Notes the end of an attempt to renew the lease.
    pub(super) fn end_attempt(&self) {
        self.attempts.send_modify(|attempts| attempts.ended = attempts.begun);
    }

    /// Returns the state of the lease.
    pub(super) fn lease(&self) -> LeaseStatus {
        self.lease.state()
    }

    /// Returns true if the last access to the store failed.
    pub(super) fn is_store_failing(&self) -> bool {
        self.table.lock().store_error.is_some()
    }

    /// Returns true if the last attempts to renew the lease have failed, and the next one is not overdue.
    /// A single one shows nothing about the store: the replica may have been suspended during it.
    pub(super) fn has_just_failed(&self) -> bool {
        let table = self.table.lock();
        table.failed_renewals.count > 1 && table.failed_renewals.is_recent()
    }

    /// Renews the lease at once, and waits for the end of an attempt that begins from now on. The lease
    /// of an earlier one may be over: this replica may have been suspended meanwhile.
    pub(super) async fn hurry_renewal(&self) {
        let mut attempts = self.attempts.subscribe();
        let begun = attempts.borrow().begun;
        self.hurry.notify_one();
        let renewed = attempts.wait_for(|attempts| attempts.ended > begun);
        let _ = timeout(STORE_TIMEOUT + STORE_TIMEOUT, renewed).await;
    }

    /// Reads the leases of the others. Requests share one reading, and one of the last second.
    pub(super) async fn refresh(&self) -> Result<(), ClusterStoreError> {
        let now = clock::now();
        self.refresh_since(now.checked_sub(REFRESH_INTERVAL).unwrap_or(now)).await
    }

    /// Reads the leases of the others, unless a reading has begun since then, which requests share.
    pub(super) async fn refresh_since(&self, since: Instant) -> Result<(), ClusterStoreError> {
        let mut last = self.reading.lock().await;
        if let Some(reading) = last.filter(|reading| reading.began >= since) {
            return if reading.succeeded { Ok(()) } else { Err(ClusterStoreError::Timeout) };
        }
        let began = clock::now();
        let listing = self.store.list(REPLICA_COLLECTION, MAX_REPLICAS);
        let listed = timeout(STORE_TIMEOUT, listing).await;
        let listed = listed.unwrap_or(Err(ClusterStoreError::Timeout));
        *last = Some(LeaseReading { began, succeeded: listed.is_ok() });
        let values = listed.inspect_err(|error| self.note_fault(error))?;
        self.update(&mut self.table.lock(), &values);
        Ok(())
    }

    async fn access_store(&self, digest: String) -> Result<Vec<StoredValue>, ClusterStoreError> {
        let now = clock::wall_now();
        let renewals = self.count_renewal();
        let record = ReplicaRecord {
            advertise: self.advertise.to_string(),
            started: unix_millis(self.started_at),
            renewed: unix_millis(now),
            renewals,
            digest,
            sessions: Some(self.table.lock().sessions),
        };
        let name = self.id.to_string();
        let sealed = record.seal(&self.records, &name)?;
        self.store.put(REPLICA_COLLECTION, &name, sealed, LEASE_TIME).await?;
        self.table.lock().renewed_at = Some(now);
        self.store.list(REPLICA_COLLECTION, MAX_REPLICAS).await
    }

    fn count_renewal(&self) -> u64 {
        let mut table = self.table.lock();
        table.renewals += 1;
        table.renewals
    }

    /// Takes over the records that were read. A replica that is missing stays for as long as its lease
    /// would: a store that was emptied knows nothing, and its replicas are alive.
    fn update(&self, table: &mut ReplicaTable, values: &[StoredValue]) {
        table.skewed.clear();
        let now = clock::wall_now();
        for value in values {
            let Some(id) = ReplicaId::parse(&value.name).filter(|id| *id != self.id) else {
                continue;
            };
            let Some(record) = ReplicaRecord::open(&self.records, value) else {
                self.value_faults.note(REPLICA_COLLECTION, ValueFault::Unsealed);
                continue;
            };
            if table.is_outdated(id, &record) {
                self.value_faults.note(REPLICA_COLLECTION, ValueFault::Outdated);
                continue;
            }
            let drift = record.drift(value.lease_left, now);
            if drift.unsigned_abs() > CLOCK_SKEW {
                table.note_skew(id, &record, drift);
                continue;
            }
            match table.replicas.get_mut(&id) {
                Some(known) if known.record.advertise == record.advertise => {
                    // The store may return an older value.
                    if record.renewals > known.record.renewals {
                        known.record = record;
                        known.missed = 0;
                    }
                }
                _ => {
                    let Some(address) = PeerHost::parse(&record.advertise) else { continue };
                    let link = Arc::new(PeerLink::new(id, address, Arc::clone(&self.tls)));
                    table.replicas.insert(id, Replica { record, link, missed: 0 });
                }
            }
        }
    }

    fn note_fault(&self, error: &ClusterStoreError) {
        self.counts.count_store_error();
        let text = error_chain(error);
        let mut table = self.table.lock();
        let subject = "the store of the replicas";
        let line = format!("{subject} cannot be used: {}: {text}", self.store.place());
        if let Some(line) = table.faults.note_about(subject, &line, clock::now()) {
            tracing::warn!("{line}");
        }
        table.store_error = Some(text);
    }

    /// Ends the renewals, for good. The lease is still in the store.
    pub(super) async fn begin_leaving(&self) {
        self.lease.leave();
        drop(self.renewing.lock().await);
    }

    /// Removes the lease from the store.
    pub(super) async fn remove_lease(&self) {
        let name = self.id.to_string();
        let removal = self.store.remove(REPLICA_COLLECTION, &name);
        let removed =
            timeout(STORE_TIMEOUT, removal).await.unwrap_or(Err(ClusterStoreError::Timeout));
        if let Err(error) = removed {
            self.note_fault(&error);
        }
    }

    /// Returns the connection to a replica that may take the requests for a session over from this one:
    /// the same one for each of them, and not `except`; `None` if there is no other replica.
    pub(super) fn choose_heir(&self, id: &str, except: Option<ReplicaId>) -> Option<Arc<PeerLink>> {
        let table = self.table.lock();
        let others = table.replicas.iter().filter(|(replica, _)| Some(**replica) != except);
        let chosen = others.max_by_key(|(replica, _)| {
            let mut hasher = DefaultHasher::new();
            (id, replica.to_string()).hash(&mut hasher);
            hasher.finish()
        });
        chosen.map(|(_, replica)| Arc::clone(&replica.link))
    }

    /// Returns the connection to another replica; `None` if it is gone.
    pub(super) fn link(&self, id: ReplicaId) -> Option<Arc<PeerLink>> {
        self.table.lock().replicas.get(&id).map(|replica| Arc::clone(&replica.link))
    }

    /// Returns the cluster as operators see it, replicas in the order of their ids.
    pub(super) fn view(&self) -> super::ClusterView {
        let table = self.table.lock();
        let view = |(id, replica): (&ReplicaId, &Replica)| ReplicaView {
            id: *id,
            address: replica.record.advertise.clone(),
            started_at: from_unix_millis(replica.record.started),
            renewed_at: from_unix_millis(replica.record.renewed),
            same_configuration: replica.record.digest == table.digest,
            sessions: replica.record.sessions,
        };
        let mut replicas: Vec<_> = table.replicas.iter().map(view).collect();
        replicas.sort_by_key(|replica| replica.id);
        super::ClusterView {
            id: self.id,
            address: self.advertise.to_string(),
            store_error: table.store_error.clone(),
            renewed_at: table.renewed_at,
            degraded_since: None,
            last_failure: None,
            store_latency: None,
            sessions: 0,
            replicas,
            skewed: table.skewed.clone(),
        }
    }
}

impl ReplicaTable {
    fn levels(&self) -> ReplicaLevels {
        let has_same = |replica: &&Replica| replica.record.digest == self.digest;
        let same = self.replicas.values().filter(has_same).count();
        ReplicaLevels { same, other: self.replicas.len() - same, skewed: self.skewed.len() }
    }

    fn count_reading(&mut self) {
        for replica in self.replicas.values_mut() {
            replica.missed += 1;
        }
    }

    /// Returns true if the store has restored a record. Two readings at once may differ by a renewal.
    fn is_outdated(&self, id: ReplicaId, record: &ReplicaRecord) -> bool {
        let known = self.replicas.get(&id).map(|replica| replica.record.renewals);
        known.is_some_and(|known| record.renewals.saturating_add(1) < known)
    }

    /// Notes a replica whose record is ignored for its time.
    fn note_skew(&mut self, id: ReplicaId, record: &ReplicaRecord, drift: SignedDuration) {
        let (seconds, ahead) = (drift.unsigned_abs().as_secs(), drift.as_secs());
        let side = if drift.is_negative() { "behind" } else { "ahead of" };
        let address = record.advertise.clone();
        let line = format!(
            "the clock of the replica {address} ({id}) is {seconds} s {side} this one: it is \
             ignored, and its sessions are not found here"
        );
        if let Some(line) = self.skew_faults.note_about(&id.to_string(), &line, clock::now()) {
            tracing::warn!("{line}");
        }
        self.skewed.push(SkewedReplica { id, address, ahead });
    }
}

/// Validity of a lease.
pub const LEASE_TIME: Duration = Duration::from_secs(10);
/// Interval of its renewals.
pub const RENEWAL_INTERVAL: Duration = Duration::from_secs(3);
/// Time in which the leases are read at most once besides renewals.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Readings without a replica after which it is gone: together as long as a lease.
const MAX_MISSED: u32 = 3;
/// The most replicas that are read.
const MAX_REPLICAS: usize = 256;
/// The name of the collection in the store.
pub(super) const REPLICA_COLLECTION: &str = "replicas";
#[cfg(test)]
mod tests;
