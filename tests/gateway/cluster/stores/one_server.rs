//! The store in a Redis server.

use std::time::Duration;

use trunkline::cluster::{
    ClusterStore, ClusterStoreError, MAX_RECORD_BYTES, MemoryStore, PermitDemand, PermitStore as _,
    QuotaDemand, RecordChange, RecordKey, RecordStore as _, RedisStore, SessionWrite,
    SessionWritten, ValueFault,
};
use trunkline::config::{Rate, StoreUrl};

use crate::cluster::RedisServer;
use crate::support::until_async;

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_list_has_so_many_values_of_a_limited_size() {
    let redis = RedisServer::start().await;
    let store = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    let put = async |name: &str, bytes: usize| {
        store.put("values", name, vec![7; bytes], LEASE).await.unwrap();
    };
    let listed = async |most| {
        let values = store.list("values", most).await.unwrap();
        let mut values: Vec<_> = values.into_iter().map(|it| (it.name, it.bytes.len())).collect();
        values.sort();
        values
    };
    put("aa", 4096).await;
    put("bb", 4097).await;
    put("cc", 1).await;
    assert_eq!(listed(9).await, [("aa".to_owned(), 4096), ("cc".to_owned(), 1)]);
    store.remove("values", "bb").await.unwrap();
    put("dd", 1).await;
    assert_eq!(listed(2).await.len(), 2);
    // Names of other programs.
    for member in ["not-a-name", &"e".repeat(65)] {
        put(member, 1).await;
    }
    let names: Vec<_> = listed(9).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["aa", "cc", "dd"]);
}

#[tokio::test]
async fn a_record_is_replaced_only_over_the_expected_value() {
    const KEY: RecordKey<'static> = RecordKey::new("records", "aa");
    let redis = RedisServer::start().await;
    let store = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    let write = |bytes, lifetime| RecordChange::Write { bytes, lifetime };
    assert_eq!(store.read_record(KEY).await.unwrap(), None);
    let writers = [&b"1"[..], b"2", b"3", b"4"].map(|bytes| {
        let store = &store;
        async move { store.replace_record(KEY, None, write(bytes, Some(LEASE))).await.unwrap() }
    });
    let written = futures_util::future::join_all(writers).await;
    assert_eq!(written.iter().filter(|written| **written).count(), 1);
    let first = store.read_record(KEY).await.unwrap().unwrap();
    assert!(!store.replace_record(KEY, Some(b"other"), RecordChange::Remove).await.unwrap());
    let bytes = vec![0xff; MAX_RECORD_BYTES];
    assert!(store.replace_record(KEY, Some(&first), write(&bytes, None)).await.unwrap());
    assert_eq!(store.read_record(KEY).await.unwrap().as_ref(), Some(&bytes));
    assert!(store.replace_record(KEY, Some(&bytes), RecordChange::Remove).await.unwrap());
    let short = Some(Duration::from_millis(1));
    assert!(store.replace_record(KEY, None, write(b"expires", short)).await.unwrap());
    until_async(async || store.read_record(KEY).await.unwrap().is_none()).await;
    // Another program has written a value that is too long.
    let longer = vec![1; MAX_RECORD_BYTES + 1];
    assert!(store.replace_record(KEY, None, write(&longer, None)).await.unwrap());
    let fault = store.read_record(KEY).await;
    assert!(matches!(fault, Err(ClusterStoreError::Value(ValueFault::TooLong))));
    // A key with another limit.
    let large = RecordKey { max_bytes: MAX_RECORD_BYTES + 1, ..KEY };
    assert_eq!(store.read_record(large).await.unwrap().unwrap(), longer);
}

#[tokio::test]
async fn the_version_of_a_record_is_enough_to_compare_and_to_replace_it() {
    const KEY: RecordKey<'static> = RecordKey::new("records", "aa");
    let redis = RedisServer::start().await;
    let server = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    for store in [&server as &dyn ClusterStore, &MemoryStore::default()] {
        let write = |bytes| RecordChange::Write { bytes, lifetime: None };
        assert_eq!(store.read_version(KEY).await.unwrap(), None);
        assert!(store.replace_record(KEY, None, write(b"first nonce! one")).await.unwrap());
        let version = store.read_version(KEY).await.unwrap().unwrap();
        assert_eq!(&version, b"first nonce!");
        let second = write(b"other nonce! two");
        assert!(!store.replace_record(KEY, None, second).await.unwrap());
        assert!(store.replace_record(KEY, Some(&version), second).await.unwrap());
        assert!(!store.replace_record(KEY, Some(&version), RecordChange::Remove).await.unwrap());
        assert!(store.replace_record(KEY, Some(b"other"), RecordChange::Remove).await.unwrap());
    }
}

#[tokio::test]
async fn a_session_is_written_under_the_leases_of_both_replicas() {
    let redis = RedisServer::start().await;
    let server = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    for store in [&server as &dyn ClusterStore, &MemoryStore::default()] {
        let name = "5e";
        let key = RecordKey::new("sessions", name);
        let value = |version: u8| vec![version; 40];
        let write = |expected: u8, new: u8, lost: Option<&str>| SessionWrite {
            name: name.into(),
            expected: (expected > 0).then_some([expected; 12]),
            bytes: if new > 0 { value(new) } else { Vec::new() },
            lifetime: LEASE,
            writer: "aa".into(),
            lost: lost.map(str::to_owned),
        };
        let result = async |write: SessionWrite| store.write_sessions(&[write]).await.unwrap()[0];
        assert_eq!(result(write(0, 1, None)).await, SessionWritten::NoLease);
        store.put("replicas", "aa", vec![1], LEASE).await.unwrap();
        store.put("replicas", "bb", vec![1], LEASE).await.unwrap();
        assert_eq!(result(write(7, 1, None)).await, SessionWritten::Absent);
        assert_eq!(result(write(0, 1, None)).await, SessionWritten::Done);
        assert_eq!(result(write(0, 2, None)).await, SessionWritten::Changed);
        assert_eq!(result(write(7, 2, None)).await, SessionWritten::Changed);
        assert_eq!(result(write(1, 2, Some("bb"))).await, SessionWritten::OwnerLives);
        assert_eq!(store.read_record(key).await.unwrap(), Some(value(1)));
        store.remove("replicas", "bb").await.unwrap();
        assert_eq!(result(write(1, 2, Some("bb"))).await, SessionWritten::Done);
        // Each for itself.
        let both = [write(1, 3, None), write(2, 3, None)];
        let both = store.write_sessions(&both).await.unwrap();
        assert_eq!(both, [SessionWritten::Changed, SessionWritten::Done]);
        let names = [name.to_owned(), "none".to_owned()];
        let short = Duration::from_millis(1);
        let versions = store.prolong_sessions(&names, LEASE).await.unwrap();
        assert_eq!(versions, [Some([3; 12]), None]);
        // A removal needs no lease, but the version.
        store.remove("replicas", "aa").await.unwrap();
        assert_eq!(result(write(2, 0, None)).await, SessionWritten::Changed);
        assert_eq!(result(write(3, 4, None)).await, SessionWritten::NoLease);
        store.prolong_sessions(&names, short).await.unwrap();
        until_async(async || store.read_record(key).await.unwrap().is_none()).await;
        assert_eq!(result(write(3, 0, None)).await, SessionWritten::Absent);
    }
}

/// Ten permits an hour: the refill of one takes six minutes.
fn slow_rate() -> Rate {
    Rate { count: 10.try_into().unwrap(), per: Duration::from_secs(3600) }
}

#[tokio::test]
async fn permits_are_taken_up_to_the_burst_and_not_below_the_fewest() {
    let redis = RedisServer::start().await;
    let server = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    for store in [&server as &dyn ClusterStore, &MemoryStore::default()] {
        let take = async |least: u32, most: u32| {
            let demand = PermitDemand { rate: slow_rate(), least, most };
            let reply = store.take_permits("aa", &demand).await.unwrap();
            (reply[0], reply[1].div_euclid(60_000_000), reply[2])
        };
        assert_eq!(take(1, 4).await, (4, 0, 6));
        // The wait is rounded down to minutes: it is a little below six.
        assert!(matches!(take(7, 9).await, (0, 5..=6, 6)), "seven are not there");
        assert!(matches!(take(1, 9).await, (6, 5..=6, 0)));
        assert!(matches!(take(1, 1).await, (0, 5..=6, 0)));
    }
    // The clock of the store was set back: the bucket is empty, and not for longer than its period.
    redis.command("SET trunkline:rates:bb 99999999999999999").await;
    let demand = PermitDemand { rate: slow_rate(), least: 1, most: 1 };
    let reply = server.take_permits("bb", &demand).await.unwrap();
    assert_eq!((reply[0], reply[2]), (0, 0));
    assert!((1..=360_000_000).contains(&reply[1]), "{reply:?}");
}

#[tokio::test]
async fn calls_of_a_quota_are_leased_up_to_its_limit_and_not_below_the_fewest() {
    let redis = RedisServer::start().await;
    let server = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    for store in [&server as &dyn ClusterStore, &MemoryStore::default()] {
        let lease = async |least: u32, most: u32| {
            let demand = QuotaDemand { limit: 10, least, most, lifetime: LEASE };
            store.lease_quota("aa", &demand).await.unwrap()
        };
        assert_eq!(lease(1, 4).await, [4, 4]);
        assert_eq!(lease(7, 9).await, [0, 4], "seven are not left");
        assert_eq!(lease(1, 9).await, [6, 10]);
        assert_eq!(lease(1, 1).await, [0, 10]);
        store.return_quota("aa", 3).await.unwrap();
        assert_eq!(lease(1, 9).await, [3, 10]);
        // More than were leased.
        store.return_quota("aa", 99).await.unwrap();
        assert_eq!(lease(1, 99).await, [10, 10]);
    }
}
