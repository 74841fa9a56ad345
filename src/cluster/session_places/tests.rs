//! A model of replicas that lose each other and the store: a session never has two owners that both
//! answer.

mod moves;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::advance;

use super::*;
use crate::call::{Endpoint, Principal};
use crate::cluster::store::{
    PermitDemand, PermitStore, QuotaDemand, QuotaStore, RecordChange, RecordKey, RecordStore,
    RecordVersion, SessionStore, SessionWrite, SessionWritten,
};
use crate::cluster::{
    ClusterParts, ClusterStore, LEASE_TIME, MemoryStore, RecordedSessions, StoredValue,
};
use crate::config::{ClusterConfig, PeerHost, Secret, StoreUrl};
use crate::telemetry::metrics::ClusterCounts;

/// The way of one replica to the store.
#[derive(Debug, Default)]
pub(crate) struct StoreWay {
    store: Arc<MemoryStore>,
    pub(crate) state: AtomicU8,
    /// Lets the replies go on that are held.
    released: Notify,
}

/// States of a way.
pub(crate) const OPEN: u8 = 0;
pub(crate) const CUT: u8 = 1;
/// Requests arrive, and replies do not.
pub(crate) const DEAF: u8 = 2;
/// Leases are renewed, and records are neither read nor written.
const LEASES_ALONE: u8 = 3;
/// The list of the replicas arrives when it is released.
const HELD: u8 = 4;

impl StoreWay {
    fn enter(&self) -> Result<(), ClusterStoreError> {
        match self.state.load(Ordering::Relaxed) {
            CUT => Err(ClusterStoreError::Timeout),
            _ => Ok(()),
        }
    }

    fn enter_records(&self) -> Result<(), ClusterStoreError> {
        match self.state.load(Ordering::Relaxed) {
            LEASES_ALONE => Err(ClusterStoreError::Timeout),
            _ => self.enter(),
        }
    }

    fn leave<T>(&self, reply: T) -> Result<T, ClusterStoreError> {
        match self.state.load(Ordering::Relaxed) {
            CUT | DEAF => Err(ClusterStoreError::Timeout),
            _ => Ok(reply),
        }
    }
}

#[async_trait]
impl ClusterStore for StoreWay {
    async fn put(
        &self,
        collection: &str,
        name: &str,
        bytes: Vec<u8>,
        lease: Duration,
    ) -> Result<(), ClusterStoreError> {
        self.enter()?;
        self.leave(self.store.put(collection, name, bytes, lease).await?)
    }

    async fn list(
        &self,
        collection: &str,
        most: usize,
    ) -> Result<Vec<StoredValue>, ClusterStoreError> {
        self.enter()?;
        let listed = self.store.list(collection, most).await?;
        if self.state.load(Ordering::Relaxed) == HELD {
            self.released.notified().await;
        }
        self.leave(listed)
    }

    async fn remove(&self, collection: &str, name: &str) -> Result<(), ClusterStoreError> {
        self.enter()?;
        self.leave(self.store.remove(collection, name).await?)
    }

    fn place(&self) -> String {
        self.store.place()
    }
}

#[async_trait]
impl PermitStore for StoreWay {
    async fn take_permits(
        &self,
        name: &str,
        demand: &PermitDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        self.store.take_permits(name, demand).await
    }
}

#[async_trait]
impl QuotaStore for StoreWay {
    async fn lease_quota(
        &self,
        name: &str,
        demand: &QuotaDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        self.store.lease_quota(name, demand).await
    }

    async fn return_quota(&self, name: &str, calls: u32) -> Result<(), ClusterStoreError> {
        self.store.return_quota(name, calls).await
    }
}

#[async_trait]
impl RecordStore for StoreWay {
    async fn read_record(&self, key: RecordKey<'_>) -> Result<Option<Vec<u8>>, ClusterStoreError> {
        self.enter_records()?;
        self.leave(self.store.read_record(key).await?)
    }

    async fn replace_record(
        &self,
        key: RecordKey<'_>,
        expected: Option<&[u8]>,
        change: RecordChange<'_>,
    ) -> Result<bool, ClusterStoreError> {
        self.enter_records()?;
        self.leave(self.store.replace_record(key, expected, change).await?)
    }
}

#[async_trait]
impl SessionStore for StoreWay {
    async fn write_sessions(
        &self,
        writes: &[SessionWrite],
    ) -> Result<Vec<SessionWritten>, ClusterStoreError> {
        self.enter_records()?;
        self.leave(self.store.write_sessions(writes).await?)
    }

    async fn prolong_sessions(
        &self,
        names: &[String],
        lifetime: Duration,
    ) -> Result<Vec<Option<RecordVersion>>, ClusterStoreError> {
        self.enter_records()?;
        self.leave(self.store.prolong_sessions(names, lifetime).await?)
    }
}

/// The sessions that a replica has.
#[derive(Debug, Default)]
struct OpenIds(Mutex<HashSet<String>>);

impl RecordedSessions for OpenIds {
    fn describe(&self, id: &str) -> Option<Vec<u8>> {
        self.0.lock().contains(id).then(|| b"state".to_vec())
    }

    fn end_moved(&self, id: &str) {
        self.0.lock().remove(id);
    }

    fn lifetime(&self) -> Duration {
        Duration::from_mins(30)
    }
}

/// A replica of the model.
pub(crate) struct ModelReplica {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) way: Arc<StoreWay>,
    open: Arc<OpenIds>,
    /// A session that it has read from the store, and not claimed yet.
    found: Option<(String, FoundSession)>,
}

impl ModelReplica {
    pub(crate) fn new(number: u16, store: &Arc<MemoryStore>) -> Self {
        let port = 7000 + number;
        let settings = ClusterConfig {
            store: StoreUrl::parse("redis://127.0.0.1:1").unwrap(),
            listen: ([127, 0, 0, 1], port).into(),
            advertise: PeerHost::parse(&format!("127.0.0.1:{port}")).unwrap(),
            cert: None,
            key: None,
            ca: None,
            degrade: DegradeChoice::Refuse,
        };
        let way = Arc::new(StoreWay { store: Arc::clone(store), ..StoreWay::default() });
        let parts = ClusterParts {
            keys: &[Secret::new("a key that the replicas of the model share".into())],
            store: Arc::clone(&way) as _,
            tls: None,
            counts: ClusterCounts::default(),
        };
        let cluster = Cluster::new(&settings, parts).unwrap();
        let open = Arc::new(OpenIds::default());
        let recorded = Arc::downgrade(&open);
        cluster.session_records().describe_by(recorded);
        Self { cluster, way, open, found: None }
    }

    fn has(&self, id: &str) -> bool {
        self.open.0.lock().contains(id)
    }

    /// Returns true if it would answer a request for this session.
    fn answers(&self, id: &str) -> bool {
        let records = self.cluster.session_records();
        self.has(id) && (self.cluster.holds_lease() || !records.is_recorded(id))
    }

    async fn renew(&self) {
        self.cluster.renew_lease(String::new()).await;
        let _ = self.cluster.session_records().write_changes().await;
    }

    async fn open_session(&self) -> String {
        let endpoint = Endpoint::default();
        let id = self.cluster.new_session_id(&Principal::Anonymous, &endpoint).unwrap();
        self.open.0.lock().insert(id.to_string());
        let key = SessionKey { id: &id, principal: &Principal::Anonymous, endpoint: &endpoint };
        drop(self.cluster.session_records().keep_session(key));
        let _ = self.cluster.session_records().write_changes().await;
        id.to_string()
    }

    fn keep(&self, id: &str, claimed: &ClaimedSession) {
        self.cluster.session_records().keep_claimed(&id.into(), claimed);
        self.open.0.lock().insert(id.to_owned());
    }

    /// Serves a request for a session, as far as a replica does alone.
    async fn request(&self, id: &str, unreached: Option<ReplicaId>) {
        if self.has(id) {
            return;
        }
        if let Ok(SessionPlace::Claimed(claimed)) = self.find(id, unreached).await {
            self.keep(id, &claimed);
        }
    }

    async fn find(
        &self,
        id: &str,
        unreached: Option<ReplicaId>,
    ) -> Result<SessionPlace, ClusterStoreError> {
        let endpoint = Endpoint::default();
        let key = SessionKey { id, principal: &Principal::Anonymous, endpoint: &endpoint };
        let mut turn = self.cluster.take_turn(id).await;
        self.cluster.find_place(&mut turn, key, unreached).await
    }

    async fn read(&mut self, id: &str) {
        let endpoint = Endpoint::default();
        let key = SessionKey { id, principal: &Principal::Anonymous, endpoint: &endpoint };
        let found = self.cluster.session_records().find(key).await.ok().flatten();
        self.found = found.map(|found| (id.to_owned(), found));
    }

    async fn claim(&mut self) {
        let Some((id, found)) = self.found.take() else { return };
        if self.has(&id) || self.cluster.membership.lease() != LeaseStatus::Held {
            return;
        }
        let outcome = self.cluster.session_records().claim(found).await;
        if let Ok(ClaimOutcome::Claimed(claimed)) = outcome {
            self.keep(&id, &claimed);
        }
    }
}

/// A step of the model, at one of the replicas and for one of the sessions.
#[derive(Debug, Clone, Copy)]
enum ModelStep {
    Renew(usize),
    Way(usize, u8),
    Pass(u16),
    Open(usize),
    Request(usize, usize, usize),
    Read(usize, usize),
    Claim(usize),
    Change(usize, usize),
    Close(usize, usize),
}

const REPLICAS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let replica = 0..REPLICAS;
    let session = 0..3_usize;
    let step = prop_oneof![
        6 => replica.clone().prop_map(ModelStep::Renew),
        2 => (replica.clone(), OPEN..=LEASES_ALONE).prop_map(|(at, state)| ModelStep::Way(at, state)),
        4 => (100..4000_u16).prop_map(ModelStep::Pass),
        1 => (9000..12_000_u16).prop_map(ModelStep::Pass),
        1 => replica.clone().prop_map(ModelStep::Open),
        5 => (replica.clone(), session.clone(), 0..=REPLICAS)
            .prop_map(|(at, session, unreached)| ModelStep::Request(at, session, unreached)),
        2 => (replica.clone(), session.clone()).prop_map(|(at, session)| ModelStep::Read(at, session)),
        2 => replica.clone().prop_map(ModelStep::Claim),
        2 => (replica.clone(), session.clone()).prop_map(|(at, session)| ModelStep::Change(at, session)),
        1 => (replica, session).prop_map(|(at, session)| ModelStep::Close(at, session)),
    ];
    prop::collection::vec(step, 1..120)
}

async fn take(replicas: &mut [ModelReplica], ids: &mut Vec<String>, step: ModelStep) {
    let pick = |session: usize, ids: &Vec<String>| ids.get(session % ids.len().max(1)).cloned();
    match step {
        ModelStep::Renew(at) => replicas[at].renew().await,
        ModelStep::Way(at, state) => replicas[at].way.state.store(state, Ordering::Relaxed),
        ModelStep::Pass(millis) => advance(Duration::from_millis(millis.into())).await,
        ModelStep::Open(at) => {
            if ids.len() < 3 && replicas[at].cluster.holds_lease() {
                ids.push(replicas[at].open_session().await);
            }
        }
        ModelStep::Request(at, session, unreached) => {
            let unreached = replicas.get(unreached).map(|replica| replica.cluster.id());
            if let Some(id) = pick(session, ids) {
                replicas[at].request(&id, unreached).await;
            }
        }
        ModelStep::Read(at, session) => {
            if let Some(id) = pick(session, ids) {
                replicas[at].read(&id).await;
            }
        }
        ModelStep::Claim(at) => replicas[at].claim().await,
        ModelStep::Change(at, session) => {
            if let Some(id) = pick(session, ids) {
                replicas[at].cluster.session_records().note_change(&id);
                let _ = replicas[at].cluster.session_records().write_changes().await;
            }
        }
        ModelStep::Close(at, session) => {
            if let Some(id) = pick(session, ids).filter(|id| replicas[at].answers(id)) {
                replicas[at].open.0.lock().remove(&id);
                replicas[at].cluster.session_records().remove_session(&id);
            }
        }
    }
}

fn check(replicas: &[ModelReplica], ids: &[String]) -> Result<(), TestCaseError> {
    for id in ids {
        let owners = replicas.iter().filter(|replica| replica.answers(id)).count();
        prop_assert!(owners <= 1, "{owners} replicas answer for one session");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_session_never_has_two_owners_that_both_answer(steps in steps()) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let store = Arc::new(MemoryStore::default());
            let mut replicas: Vec<_> =
                (0..3).map(|number| ModelReplica::new(number, &store)).collect();
            let mut ids = Vec::new();
            for replica in &replicas {
                replica.renew().await;
            }
            ids.push(replicas[0].open_session().await);
            for step in steps {
                take(&mut replicas, &mut ids, step).await;
                check(&replicas, &ids)?;
            }
            Ok::<_, TestCaseError>(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_lost_replica_is_claimed_when_its_lease_is_over() {
    let store = Arc::new(MemoryStore::default());
    let [lost, other, third] = [0, 1, 2].map(|number| ModelReplica::new(number, &store));
    for replica in [&lost, &other, &third] {
        replica.renew().await;
    }
    let id = lost.open_session().await;
    lost.way.state.store(CUT, Ordering::Relaxed);
    let unreached = Some(lost.cluster.id());
    other.request(&id, unreached).await;
    assert!(lost.answers(&id) && !other.has(&id));
    for _ in 0..4 {
        advance(LEASE_TIME / 4).await;
        other.renew().await;
        third.renew().await;
    }
    assert!(!lost.answers(&id), "it knows that its lease is over");
    third.request(&id, unreached).await;
    other.request(&id, unreached).await;
    assert!(third.answers(&id) && !other.has(&id));
    lost.way.state.store(OPEN, Ordering::Relaxed);
    lost.renew().await;
    assert!(!lost.has(&id), "it has ended before its lease counts");
    // A record that was removed is not found again.
    third.cluster.session_records().remove_session(&id);
    third.open.end_moved(&id);
    let endpoint = Endpoint::default();
    let key = SessionKey { id: &id, principal: &Principal::Anonymous, endpoint: &endpoint };
    let gone = third.cluster.session_records().find(key).await.unwrap();
    assert!(gone.is_none(), "not even before the store has removed it");
    third.renew().await;
    assert!(other.cluster.session_records().find(key).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_ended_here_is_not_claimed_and_its_removal_removes_no_later_record() {
    let store = Arc::new(MemoryStore::default());
    let [mut a, b] = [0, 1].map(|number| ModelReplica::new(number, &store));
    a.renew().await;
    let end = |replica: &ModelReplica, id: &str| {
        replica.open.end_moved(id);
        replica.cluster.session_records().remove_session(id);
    };
    let id = a.open_session().await;
    a.read(&id).await;
    end(&a, &id);
    a.claim().await;
    assert!(!a.has(&id), "it has ended after its record was read");
    // A removal waits while others have the session.
    let id = a.open_session().await;
    a.renew().await;
    assert_eq!(store.session_names().len(), 1);
    a.way.state.store(CUT, Ordering::Relaxed);
    end(&a, &id);
    a.renew().await;
    advance(LEASE_TIME).await;
    b.renew().await;
    b.request(&id, Some(a.cluster.id())).await;
    assert!(b.answers(&id));
    advance(LEASE_TIME).await;
    a.way.state.store(OPEN, Ordering::Relaxed);
    a.cluster.renew_lease(String::new()).await;
    a.request(&id, Some(b.cluster.id())).await;
    assert!(a.answers(&id));
    a.renew().await;
    assert_eq!(store.session_names().len(), 1, "the record of the session is there");
}

#[tokio::test(start_paused = true)]
async fn an_older_record_than_the_one_that_was_seen_is_no_reason_to_claim_a_session() {
    let store = Arc::new(MemoryStore::default());
    let [lost, other, third] = [0, 1, 2].map(|number| ModelReplica::new(number, &store));
    lost.renew().await;
    let id = lost.open_session().await;
    let read = async || {
        let name = store.session_names().pop().unwrap();
        let key = RecordKey::new("sessions", &name);
        (name.clone(), store.read_record(key).await.unwrap().unwrap())
    };
    let (name, old) = read().await;
    advance(LEASE_TIME).await;
    for replica in [&other, &third] {
        replica.renew().await;
    }
    other.request(&id, None).await;
    assert!(other.answers(&id));
    // The third replica learns it from the record, and cannot reach it.
    let unreached = Some(other.cluster.id());
    let place = third.find(&id, unreached).await.unwrap();
    assert!(matches!(place, SessionPlace::Unreachable), "{place:?}");
    let (_, new) = read().await;
    let record = RecordKey::new("sessions", &name);
    let lifetime = Some(LEASE_TIME);
    let change = RecordChange::Write { bytes: &old, lifetime };
    assert!(store.replace_record(record, Some(&new), change).await.unwrap());
    let place = third.find(&id, unreached).await;
    assert!(matches!(place, Ok(SessionPlace::Unreachable)), "shared for a moment: {place:?}");
    advance(MISSED_TIME).await;
    let place = third.find(&id, unreached).await;
    assert!(matches!(place, Err(ClusterStoreError::Reply)), "{place:?}");
}
