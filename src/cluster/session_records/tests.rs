//! Tests of the records of own sessions.

use std::collections::HashMap;

use super::*;
use crate::call::{Endpoint, Principal};
use crate::cluster::membership::REPLICA_COLLECTION;
use crate::cluster::store::session_key;
use crate::cluster::{ClusterStoreError, LEASE_TIME, MemoryStore, RecordStore as _};

/// Sessions with their states.
#[derive(Default)]
struct States(Mutex<HashMap<String, Vec<u8>>>);

impl RecordedSessions for States {
    fn describe(&self, id: &str) -> Option<Vec<u8>> {
        self.0.lock().get(id).cloned()
    }

    fn end_moved(&self, id: &str) {
        self.0.lock().remove(id);
    }

    fn lifetime(&self) -> Duration {
        Duration::from_mins(30)
    }
}

struct RecordingReplica {
    records: SessionRecords,
    states: Arc<States>,
    store: Arc<MemoryStore>,
}

const ANYWHERE: Endpoint = Endpoint { profile: None, narrowing: None };

fn key(id: &str) -> SessionKey<'_> {
    SessionKey { id, principal: &Principal::Anonymous, endpoint: &ANYWHERE }
}

impl RecordingReplica {
    fn new(number: u8, store: &Arc<MemoryStore>) -> Self {
        let records = SessionRecords::new(SessionRecordParts {
            own: ReplicaId::new([number; 8]),
            sealer: Sealer::new(b"test", [&b"shared"[..]]).unwrap(),
            store: Arc::clone(store) as _,
            counts: ClusterCounts::default(),
        });
        let states = Arc::new(States::default());
        let described = Arc::downgrade(&states);
        records.describe_by(described);
        Self { records, states, store: Arc::clone(store) }
    }

    async fn lease(&self) {
        let name = self.records.own.to_string();
        self.store.put(REPLICA_COLLECTION, &name, vec![1], LEASE_TIME).await.unwrap();
    }

    fn open(&self, id: &str, state: &[u8]) -> oneshot::Receiver<()> {
        self.states.0.lock().insert(id.to_owned(), state.to_vec());
        self.records.keep_session(key(id)).unwrap()
    }

    /// Returns the state of a session in the store.
    async fn stored(&self, id: &str) -> Option<Vec<u8>> {
        let place = RecordPlace::of(key(id));
        let sealed = self.store.read_record(session_key(&place.name)).await.unwrap()?;
        Some(SessionRecord::open(&self.records.sealer, &place, &sealed).unwrap().state)
    }
}

#[tokio::test]
async fn a_record_is_written_under_a_lease_alone_and_with_the_last_change() {
    let member = RecordingReplica::new(1, &Arc::default());
    let first = member.open("id", b"one");
    let refused = member.records.write_changes().await;
    assert!(matches!(refused, Err(ClusterStoreError::NoLease)));
    assert!(first.await.is_err(), "initialize does not wait any longer");
    assert!(!member.records.is_recorded("id"), "no other replica can know it");
    assert_eq!(member.stored("id").await, None);
    member.lease().await;
    member.records.write_changes().await.unwrap();
    assert_eq!(member.stored("id").await.unwrap(), b"one");
    for state in [b"two", b"six"] {
        member.states.0.lock().insert("id".into(), state.to_vec());
        member.records.note_change("id");
    }
    assert_eq!(member.records.table().changed.len(), 1, "one write for both");
    member.records.write_changes().await.unwrap();
    assert_eq!(member.stored("id").await.unwrap(), b"six");
    // A store that fails.
    member.store.fail(true);
    member.records.note_change("id");
    assert!(member.records.write_changes().await.is_err());
    member.states.0.lock().insert("new".into(), b"x".to_vec());
    assert!(member.records.keep_session(key("new")).is_none(), "nothing to wait for");
    member.store.fail(false);
    member.records.write_changes().await.unwrap();
    assert_eq!(member.stored("new").await.unwrap(), b"x");
}

#[tokio::test]
async fn a_state_that_is_too_large_is_not_recorded_any_more() {
    let member = RecordingReplica::new(1, &Arc::default());
    member.lease().await;
    drop(member.open("id", b"one"));
    member.records.write_changes().await.unwrap();
    member.states.0.lock().insert("id".into(), vec![0; MAX_SESSION_STATE + 1]);
    member.records.note_change("id");
    member.records.write_changes().await.unwrap();
    assert_eq!(member.stored("id").await, None);
    assert!(!member.records.is_recorded("id"));
}

#[tokio::test]
async fn the_record_of_an_ended_session_is_removed_even_if_a_write_had_no_reply() {
    let member = RecordingReplica::new(1, &Arc::default());
    member.lease().await;
    drop(member.open("id", b"one"));
    member.records.write_changes().await.unwrap();
    // As if the reply to the only write had been lost.
    member.records.table().held.get_mut("id").unwrap().version = None;
    assert!(member.records.is_recorded("id"), "others may know it");
    member.records.remove_session("id");
    assert!(member.records.find(key("id")).await.unwrap().is_none(), "it is not found again");
    member.records.write_changes().await.unwrap();
    assert_eq!(member.stored("id").await, None);
    assert!(member.records.table().removed.is_empty());
    // That of another owner stays.
    let other = RecordingReplica::new(2, &member.store);
    other.lease().await;
    drop(other.open("id", b"two"));
    other.records.write_changes().await.unwrap();
    member.records.table().remove_later(RecordPlace::of(key("id")), Some([0; 12]));
    member.records.write_changes().await.unwrap();
    assert_eq!(member.stored("id").await.unwrap(), b"two");
}

#[tokio::test(start_paused = true)]
async fn records_are_prolonged_and_written_again_if_the_store_has_lost_them() {
    let member = RecordingReplica::new(1, &Arc::default());
    member.lease().await;
    drop(member.open("id", b"one"));
    member.records.write_changes().await.unwrap();
    for _ in 0..4 {
        tokio::time::advance(Duration::from_mins(20)).await;
        member.records.verify().await.unwrap();
        assert!(member.stored("id").await.is_some());
    }
    tokio::time::advance(Duration::from_mins(31)).await;
    assert_eq!(member.stored("id").await, None, "it expires");
    member.lease().await;
    member.records.verify().await.unwrap();
    member.records.write_changes().await.unwrap();
    assert_eq!(member.stored("id").await.unwrap(), b"one");
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_claims_and_the_earlier_owner_ends_its_session() {
    let store = Arc::default();
    let [lost, one, two] = [1, 2, 3].map(|number| RecordingReplica::new(number, &store));
    for member in [&lost, &one, &two] {
        member.lease().await;
    }
    drop(lost.open("id", b"state"));
    lost.records.write_changes().await.unwrap();
    let found = one.records.find(key("id")).await.unwrap().unwrap();
    let lives = one.records.claim(found.clone()).await.unwrap();
    assert!(matches!(lives, ClaimOutcome::OwnerLives), "{lives:?}");
    tokio::time::advance(LEASE_TIME).await;
    let without = one.records.claim(found.clone()).await.unwrap();
    assert!(matches!(without, ClaimOutcome::NoLease), "{without:?}");
    for member in [&one, &two] {
        member.lease().await;
    }
    let claimed = two.records.claim(found.clone()).await.unwrap();
    let ClaimOutcome::Claimed(claimed) = claimed else { panic!("{claimed:?}") };
    assert_eq!((claimed.generation, &*claimed.state), (2, &b"state"[..]));
    let late = one.records.claim(found).await.unwrap();
    assert!(matches!(late, ClaimOutcome::Changed), "{late:?}");
    assert!(one.records.find(key("id")).await.unwrap().unwrap().owner() == two.records.own);
    lost.lease().await;
    lost.records.verify().await.unwrap();
    assert!(lost.states.0.lock().is_empty() && lost.records.is_empty());
    assert_eq!(lost.stored("id").await.unwrap(), b"state", "the record is that of the other");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_ended_without_a_lease_is_found_at_the_replica_that_has_revived_it() {
    let store = Arc::default();
    let [lost, other] = [1, 2].map(|number| RecordingReplica::new(number, &store));
    lost.lease().await;
    drop(lost.open("id", b"state"));
    lost.records.write_changes().await.unwrap();
    tokio::time::advance(LEASE_TIME).await;
    other.lease().await;
    let found = other.records.find(key("id")).await.unwrap().unwrap();
    assert!(matches!(other.records.claim(found).await.unwrap(), ClaimOutcome::Claimed(_)));
    // It was idle here: its client uses the other replica.
    lost.records.remove_session("id");
    let found = lost.records.find(key("id")).await.unwrap().expect("it is alive");
    assert_eq!(found.owner(), other.records.own);
}

/// A session that notes at its end that other replicas may know it.
#[derive(Default)]
struct MovingSession {
    records: Mutex<Weak<SessionRecords>>,
    was_recorded: AtomicBool,
}

impl RecordedSessions for MovingSession {
    fn describe(&self, _: &str) -> Option<Vec<u8>> {
        Some(b"state".to_vec())
    }

    fn end_moved(&self, id: &str) {
        let records = self.records.lock().upgrade().unwrap();
        self.was_recorded.store(records.is_recorded(id), Ordering::Relaxed);
        records.remove_session(id);
    }

    fn lifetime(&self) -> Duration {
        Duration::from_mins(30)
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_moved_ends_before_its_record_is_forgotten() {
    let store = Arc::default();
    let [lost, other] = [1, 2].map(|number| RecordingReplica::new(number, &store));
    let (records, session) = (Arc::new(lost.records), Arc::new(MovingSession::default()));
    *session.records.lock() = Arc::downgrade(&records);
    let described = Arc::downgrade(&session);
    records.describe_by(described);
    store.put(REPLICA_COLLECTION, &records.own.to_string(), vec![1], LEASE_TIME).await.unwrap();
    drop(records.keep_session(key("id")));
    records.write_changes().await.unwrap();
    tokio::time::advance(LEASE_TIME).await;
    other.lease().await;
    let found = other.records.find(key("id")).await.unwrap().unwrap();
    other.records.claim(found).await.unwrap();
    records.verify().await.unwrap();
    assert!(session.was_recorded.load(Ordering::Relaxed));
    assert!(records.is_empty() && records.table().removed.is_empty());
}
