//! Leases of replicas in a store in memory.

use super::super::MemoryStore;
use super::*;
use crate::captured_log::CapturedLog;

fn member(number: u8, key: &str, store: &Arc<MemoryStore>) -> Membership {
    let records = Sealer::new(b"test", [key.as_bytes()]).unwrap();
    let keys = MembershipKeys { records, id: ReplicaId::new([number; 8]) };
    let advertise = PeerHost::parse(&format!("127.0.0.1:{}", 7000 + u16::from(number)));
    Membership::new(advertise.unwrap(), keys, Arc::clone(store) as _, Arc::default())
}

fn known(member: &Membership) -> Vec<String> {
    member.view().replicas.iter().map(|replica| replica.address.clone()).collect()
}

#[tokio::test]
async fn replicas_with_the_same_keys_see_each_other_until_one_leaves() {
    let store = Arc::new(MemoryStore::default());
    let [one, two] = [1, 2].map(|number| member(number, "shared", &store));
    let stranger = member(3, "other", &store);
    for member in [&one, &two, &stranger, &one] {
        member.renew("digest".into()).await;
    }
    assert_eq!([known(&one), known(&two)], [["127.0.0.1:7002"], ["127.0.0.1:7001"]]);
    assert!(known(&stranger).is_empty(), "its keys open no record");
    assert!(one.view().replicas[0].same_configuration);
    two.renew("digest".into()).await;
    one.renew("changed".into()).await;
    assert!(!one.view().replicas[0].same_configuration);
    two.begin_leaving().await;
    two.remove_lease().await;
    for reading in 0..=MAX_MISSED {
        assert_eq!(known(&one).len(), 1, "reading {reading}");
        one.renew("changed".into()).await;
    }
    assert!(known(&one).is_empty());
    assert!(one.link(two.id).is_none());
}

#[tokio::test]
async fn an_old_record_and_that_of_another_name_are_ignored() {
    let store = Arc::new(MemoryStore::default());
    let [one, two] = [1, 2].map(|number| member(number, "shared", &store));
    two.renew(String::new()).await;
    let sealed = store.list(REPLICA_COLLECTION, 9).await.unwrap().remove(0).bytes;
    // A store that returns the record of one replica for another.
    store
        .put(REPLICA_COLLECTION, &ReplicaId::new([5; 8]).to_string(), sealed, LEASE_TIME)
        .await
        .unwrap();
    // One that a store returns after its lease.
    let old = |seconds| ReplicaRecord {
        advertise: "127.0.0.1:7009".into(),
        started: 0,
        renewed: unix_millis(clock::wall_now() - Duration::from_secs(seconds)),
        renewals: 1,
        digest: String::new(),
        sessions: None,
    };
    for (number, seconds) in [(6, 14), (7, 20)] {
        let name = ReplicaId::new([number; 8]).to_string();
        let sealed = old(seconds).seal(&two.records, &name).unwrap();
        store.put(REPLICA_COLLECTION, &name, sealed, Duration::from_millis(500)).await.unwrap();
    }
    one.renew(String::new()).await;
    assert_eq!(known(&one), ["127.0.0.1:7002", "127.0.0.1:7009"]);
    let ids: Vec<_> = one.view().replicas.iter().map(|replica| replica.id).collect();
    assert_eq!(ids, [ReplicaId::new([2; 8]), ReplicaId::new([6; 8])]);
}

#[tokio::test]
async fn a_lease_that_the_store_has_restored_is_refused_and_logged() {
    let log = CapturedLog::start();
    let store = Arc::new(MemoryStore::default());
    let [one, two] = [1, 2].map(|number| member(number, "shared", &store));
    two.renew(String::new()).await;
    let old = store.list(REPLICA_COLLECTION, 9).await.unwrap().remove(0);
    for _ in 0..2 {
        two.renew(String::new()).await;
    }
    one.renew(String::new()).await;
    let renewed = one.view().replicas[0].renewed_at;
    for reading in 0..=MAX_MISSED {
        assert_eq!(known(&one).len(), 1, "reading {reading}");
        store.put(REPLICA_COLLECTION, &old.name, old.bytes.clone(), LEASE_TIME).await.unwrap();
        one.renew(String::new()).await;
        assert!(one.view().replicas.iter().all(|replica| replica.renewed_at == renewed));
    }
    // It does not prolong the lease of a replica that is gone.
    assert!(known(&one).is_empty());
    let lines = log.text();
    let refused: Vec<_> = lines.lines().filter(|line| line.contains("is refused")).collect();
    assert_eq!(refused.len(), 1, "{lines}");
    assert!(refused[0].contains("(replicas) is refused: it is older than"), "{lines}");
}

#[tokio::test]
async fn a_replica_with_another_time_is_ignored_and_reported() {
    let store = Arc::new(MemoryStore::default());
    let [one, two] = [1, 2].map(|number| member(number, "shared", &store));
    let now = clock::wall_now();
    let put = async |number: u8, renewed: SystemTime| {
        let record = ReplicaRecord {
            advertise: format!("127.0.0.1:700{number}"),
            started: 0,
            renewed: unix_millis(renewed),
            renewals: 1,
            digest: String::new(),
            sessions: None,
        };
        let name = ReplicaId::new([number; 8]).to_string();
        let sealed = record.seal(&two.records, &name).unwrap();
        store.put(REPLICA_COLLECTION, &name, sealed, LEASE_TIME).await.unwrap();
    };
    let seconds = Duration::from_secs;
    put(5, now + seconds(60)).await;
    put(6, now - seconds(60)).await;
    put(7, now + CLOCK_SKEW / 2).await;
    // Its lease is as fresh as the others': not its age, but its clock is behind.
    put(8, now - seconds(8)).await;
    put(9, now - CLOCK_SKEW / 2).await;
    one.renew(String::new()).await;
    assert_eq!(known(&one), ["127.0.0.1:7007", "127.0.0.1:7009"]);
    let skewed = one.view().skewed;
    let found: Vec<_> = skewed.iter().map(|it| (&*it.address, it.ahead)).collect();
    let [(fast, ahead), (slow, behind), (late, slightly)] = found[..] else { panic!("{found:?}") };
    assert_eq!([fast, slow, late], ["127.0.0.1:7005", "127.0.0.1:7006", "127.0.0.1:7008"]);
    assert!((55..=60).contains(&ahead) && (-65..=-60).contains(&behind), "{found:?}");
    assert!((-12..=-8).contains(&slightly), "{found:?}");
    let repeated = |number: u8| {
        let subject = ReplicaId::new([number; 8]).to_string();
        one.table.lock().skew_faults.note_about(&subject, "", clock::now())
    };
    assert_eq!([5, 6, 8].map(repeated), [None, None, None], "each of them was logged");
    // Its clock was set.
    for number in [5, 6, 8] {
        put(number, clock::wall_now()).await;
    }
    one.renew(String::new()).await;
    assert!(one.view().skewed.is_empty() && repeated(5).is_some());
    assert_eq!(known(&one).len(), 5);
}

#[tokio::test]
async fn an_older_record_of_a_known_replica_is_ignored() {
    let store = Arc::new(MemoryStore::default());
    let [one, two] = [1, 2].map(|number| member(number, "shared", &store));
    two.renew("old".into()).await;
    let older = store.list(REPLICA_COLLECTION, 9).await.unwrap().remove(0);
    two.renew("new".into()).await;
    one.renew("new".into()).await;
    store.put(REPLICA_COLLECTION, &older.name, older.bytes, LEASE_TIME).await.unwrap();
    one.renew("new".into()).await;
    assert!(one.view().replicas[0].same_configuration);
}

#[tokio::test]
async fn a_limited_number_of_replicas_is_read() {
    let store = Arc::new(MemoryStore::default());
    let one = member(1, "shared", &store);
    for number in 0..MAX_REPLICAS as u64 + 9 {
        let record = ReplicaRecord {
            advertise: "127.0.0.1:7009".into(),
            started: 0,
            renewed: unix_millis(clock::wall_now()),
            renewals: 1,
            digest: String::new(),
            sessions: None,
        };
        let name = ReplicaId::new((number << 8).to_be_bytes()).to_string();
        let sealed = record.seal(&one.records, &name).unwrap();
        store.put(REPLICA_COLLECTION, &name, sealed, LEASE_TIME).await.unwrap();
    }
    one.renew(String::new()).await;
    assert_eq!(known(&one).len(), MAX_REPLICAS);
}

#[tokio::test]
async fn a_replica_is_kept_while_the_store_fails_or_forgets() {
    let store = Arc::new(MemoryStore::default());
    let [one, two] = [1, 2].map(|number| member(number, "shared", &store));
    two.renew(String::new()).await;
    one.renew(String::new()).await;
    store.fail(true);
    for _ in 0..10 {
        one.renew(String::new()).await;
    }
    assert_eq!(known(&one), ["127.0.0.1:7002"]);
    assert!(one.view().store_error.is_some());
    store.fail(false);
    store.clear();
    one.renew(String::new()).await;
    assert_eq!((known(&one).len(), one.view().store_error), (1, None));
    two.renew(String::new()).await;
    for _ in 0..3 {
        one.renew(String::new()).await;
    }
    assert_eq!(known(&one), ["127.0.0.1:7002"]);
}
