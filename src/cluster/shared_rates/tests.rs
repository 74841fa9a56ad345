//! Shared rates with a store in memory and paused time.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::advance;

use super::super::shared_quotas::{MAX_LEASES, QuotaRefusal, SharedQuota, SharedQuotas};
use super::super::store::{
    MemoryStore, PermitDemand, PermitStore, QuotaDemand, QuotaStore, RecordChange, RecordKey,
    RecordStore, RecordVersion, SessionStore, SessionWrite, SessionWritten, StoredValue,
};
use super::super::{ClusterStore, ClusterStoreError};
use super::*;
use crate::shares::QuotaWindow;

const ONE: NonZeroU32 = NonZeroU32::MIN;

fn rate(count: u32, seconds: u64) -> Rate {
    Rate { count: count.try_into().unwrap(), per: Duration::from_secs(seconds) }
}

fn replica(store: &Arc<dyn ClusterStore>, degrade: DegradeChoice) -> Arc<SharedRates> {
    SharedRates::in_tests(Arc::clone(store), degrade)
}

fn permits(rates: &SharedRates, rate: Rate) -> Arc<RatePermits> {
    rates.permits_of(&SharedRate { limit: "client:ci", holder: None, rate })
}

/// Makes one call, and returns true if it is admitted.
async fn call(permits: &RatePermits) -> bool {
    if let Some(wait) = permits.prepare(ONE) {
        wait.await;
    }
    permits.take(ONE) == PermitTaking::Taken
}

/// The calls that each replica makes in a step of 10 ms.
type LoadPattern = fn(step: u32, replica: u32) -> u32;

/// Patterns of load at a rate of 100/s, and true if each of them exceeds it.
const PATTERNS: [(&str, LoadPattern, bool); 5] = [
    ("steady below", |step, _| u32::from(step % 5 == 0), false),
    ("steady above", |_, _| 3, true),
    ("burst", |step, _| if step == 0 { 2000 } else { 2 }, true),
    ("on and off", |step, _| if step / 50 % 2 == 0 { 6 } else { 0 }, true),
    ("skewed", |step, replica| if replica == 0 { 3 } else { u32::from(step % 20 == 0) }, true),
];

#[tokio::test(start_paused = true)]
async fn replicas_admit_together_as_many_calls_as_one_would() {
    let rate = rate(100, 1);
    for (pattern, load, is_above) in PATTERNS {
        for count in 1..=3_u32 {
            let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
            let replicas: Vec<_> =
                (0..count).map(|_| replica(&store, DegradeChoice::Refuse)).collect();
            let all: Vec<_> = replicas.iter().map(|it| permits(it, rate)).collect();
            let (mut admitted, mut made) = (0, 0);
            for step in 0..1000 {
                for (number, permits) in (0..).zip(&all) {
                    for _ in 0..load(step, number) {
                        made += 1;
                        admitted += u32::from(call(permits).await);
                    }
                }
                advance(Duration::from_millis(10)).await;
            }
            // A burst, and ten seconds of refill; one batch more for each replica.
            let (single, most) = (1100, 1100 + count * 5);
            let case = format!("{pattern}, {count} replicas: {admitted} of {made}");
            assert!(admitted <= most, "{case}");
            if is_above {
                assert!(admitted >= single * 95 / 100, "{case}");
            } else {
                assert_eq!(admitted, made, "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn small_rates_are_exact() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let replicas = [(); 3].map(|()| replica(&store, DegradeChoice::Refuse));
    let all = replicas.each_ref().map(|it| permits(it, rate(3, 3600)));
    let mut admitted = Vec::new();
    for permits in all.iter().cycle().take(9) {
        admitted.push(call(permits).await);
    }
    assert_eq!(admitted, [true, true, true, false, false, false, false, false, false]);
    let PermitTaking::Over(wait) = all[1].look(ONE) else { panic!("it is used up") };
    assert!((1199..=1200).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(all[1].remaining(), Some(0));
    advance(Duration::from_secs(1201)).await;
    assert_eq!(all[2].remaining(), Some(1));
    assert!(call(&all[2]).await);
    assert!(!call(&all[0]).await);
}

#[tokio::test(start_paused = true)]
async fn permits_of_requests_that_take_none_are_free_again() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let replicas = [(); 2].map(|()| replica(&store, DegradeChoice::Refuse));
    let [one, two] = replicas.each_ref().map(|it| permits(it, rate(10, 3600)));
    for _ in 0..20 {
        // A notification.
        if let Some(wait) = one.prepare(ONE) {
            wait.await;
        }
        advance(Duration::from_secs(2)).await;
    }
    let mut admitted = 0;
    while call(&two).await {
        admitted += 1;
    }
    assert_eq!(admitted, 9);
    assert!(call(&one).await, "it has the tenth");
    assert!(!call(&one).await);
}

#[tokio::test(start_paused = true)]
async fn most_calls_of_a_busy_client_need_no_request() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let replica = replica(&store, DegradeChoice::Refuse);
    let (permits, mut waited) = (permits(&replica, rate(1000, 1)), 0);
    for _ in 0..1000 {
        if let Some(wait) = permits.prepare(ONE) {
            waited += 1;
            wait.await;
        }
        assert_eq!(permits.take(ONE), PermitTaking::Taken);
        advance(Duration::from_millis(10)).await;
    }
    let requests = replica.counts.rate_requests().get();
    println!("at 100 calls/s: {requests} requests, {waited} waits for 1000 calls");
    assert!(requests <= 150, "{requests} requests");
    assert!(waited <= 20, "{waited} waits");
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_together_wait_for_one_request_at_a_time() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let replica = replica(&store, DegradeChoice::Refuse);
    let permits = permits(&replica, rate(100, 3600));
    let calls = (0..150).map(|_| {
        let permits = Arc::clone(&permits);
        tokio::spawn(async move { call(&permits).await })
    });
    let mut admitted = 0;
    for call in calls.collect::<Vec<_>>() {
        admitted += u32::from(call.await.unwrap());
    }
    assert!((100..=101).contains(&admitted), "{admitted}");
    let requests = replica.counts.rate_requests().get();
    assert!(requests <= 30, "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_left_and_used_again_when_it_answers() {
    let memory = Arc::new(MemoryStore::default());
    let store: Arc<dyn ClusterStore> = Arc::clone(&memory) as _;
    for (degrade, expected) in [
        (DegradeChoice::Local, PermitTaking::Alone),
        (DegradeChoice::Refuse, PermitTaking::Unavailable),
    ] {
        let replica = replica(&store, degrade);
        let permits = permits(&replica, rate(3, 3600));
        memory.fail(true);
        assert!(!call(&permits).await);
        assert!(replica.is_degraded());
        assert_eq!([permits.take(ONE), permits.look(ONE)], [expected; 2]);
        assert!(permits.prepare(ONE).is_none(), "nothing waits");
        assert_eq!(permits.remaining(), None);
        memory.fail(false);
        while replica.is_degraded() {
            advance(PROBE_INTERVAL).await;
            tokio::task::yield_now().await;
        }
        memory.clear();
        assert!(call(&permits).await);
    }
}

/// A store that answers the same to everything, or never.
#[derive(Debug)]
struct NonsenseStore(Option<Vec<i64>>);

impl NonsenseStore {
    async fn answer(&self) -> Result<Vec<i64>, ClusterStoreError> {
        match &self.0 {
            Some(reply) => Ok(reply.clone()),
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl PermitStore for NonsenseStore {
    async fn take_permits(
        &self,
        _name: &str,
        _demand: &PermitDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        self.answer().await
    }
}

#[async_trait]
impl QuotaStore for NonsenseStore {
    async fn lease_quota(
        &self,
        _name: &str,
        _demand: &QuotaDemand,
    ) -> Result<Vec<i64>, ClusterStoreError> {
        self.answer().await
    }

    async fn return_quota(&self, _name: &str, _calls: u32) -> Result<(), ClusterStoreError> {
        Ok(())
    }
}

#[async_trait]
impl RecordStore for NonsenseStore {
    async fn read_record(&self, _key: RecordKey<'_>) -> Result<Option<Vec<u8>>, ClusterStoreError> {
        Ok(None)
    }

    async fn replace_record(
        &self,
        _key: RecordKey<'_>,
        _expected: Option<&[u8]>,
        _change: RecordChange<'_>,
    ) -> Result<bool, ClusterStoreError> {
        Ok(false)
    }
}

#[async_trait]
impl SessionStore for NonsenseStore {
    async fn write_sessions(
        &self,
        _writes: &[SessionWrite],
    ) -> Result<Vec<SessionWritten>, ClusterStoreError> {
        Ok(Vec::new())
    }

    async fn prolong_sessions(
        &self,
        _names: &[String],
        _lifetime: Duration,
    ) -> Result<Vec<Option<RecordVersion>>, ClusterStoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl ClusterStore for NonsenseStore {
    async fn put(
        &self,
        _collection: &str,
        _name: &str,
        _bytes: Vec<u8>,
        _lease: Duration,
    ) -> Result<(), ClusterStoreError> {
        Ok(())
    }

    async fn list(&self, _: &str, _: usize) -> Result<Vec<StoredValue>, ClusterStoreError> {
        Ok(Vec::new())
    }

    async fn remove(&self, _collection: &str, _name: &str) -> Result<(), ClusterStoreError> {
        Ok(())
    }

    fn place(&self) -> String {
        "nonsense".to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_nonsense_gives_nothing() {
    for reply in [
        vec![],
        vec![1],
        vec![1, 0],
        vec![1, 0, 0, 0],
        vec![-1, 0, 0],
        vec![1, -1, 0],
        vec![1, 0, -1],
        vec![2, 0, 0],
        vec![i64::MAX, 0, 0],
        vec![0, i64::MAX, 0],
        vec![0, 0, i64::MAX],
    ] {
        let store: Arc<dyn ClusterStore> = Arc::new(NonsenseStore(Some(reply.clone())));
        let replica = replica(&store, DegradeChoice::Refuse);
        let permits = permits(&replica, rate(3, 3600));
        assert!(!call(&permits).await, "{reply:?}");
        assert!(replica.is_degraded(), "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rates_and_holders_are_bounded_and_have_no_names_in_the_store() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let replica = replica(&store, DegradeChoice::Local);
    for number in 0..MAX_SHARED_RATES + 10 {
        let holder = format!("client {number}");
        let rate = SharedRate { limit: "each:tool:a", holder: Some(&holder), rate: rate(3, 60) };
        let _ = replica.permits_of(&rate);
    }
    let kept = replica.permits.lock().len();
    assert!(kept <= MAX_SHARED_RATES + 1, "{kept}");
    advance(Duration::from_secs(61)).await;
    let _ = replica.permits_of(&SharedRate { limit: "x", holder: None, rate: rate(3, 60) });
    assert_eq!(replica.permits.lock().len(), 1, "unused ones are dropped");
    let name = replica.name_of("client:ci");
    assert!(name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_ne!(name, replica.name_of("client:other"));
}

const QUOTA: SharedQuota<'static> =
    SharedQuota { limit: "quota:client:ci", holder: None, most: 100, window: window(86_400) };

/// Returns a window of this length.
const fn window(seconds: u64) -> QuotaWindow {
    QuotaWindow { seconds: NonZeroU64::new(seconds).unwrap(), number: 20_000 }
}

/// Returns the quota in the next window.
fn in_next_window(quota: SharedQuota<'static>) -> SharedQuota<'static> {
    let window = QuotaWindow { number: quota.window.number + 1, ..quota.window };
    SharedQuota { window, ..quota }
}

fn quotas_of(store: &Arc<dyn ClusterStore>) -> Arc<SharedQuotas> {
    Arc::new(SharedQuotas::new(replica(store, DegradeChoice::Local)))
}

/// Takes calls one by one until one is refused, and returns the number of those that were admitted.
async fn take_until_refused(quotas: &SharedQuotas, quota: SharedQuota<'_>) -> u32 {
    let mut taken = 0;
    while quotas.take(quota, 1).await.is_ok() {
        taken += 1;
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_used_whole_and_never_exceeded() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let replicas =
        [(); 3].map(|()| Arc::new(SharedQuotas::new(replica(&store, DegradeChoice::Local))));
    let calls = (0..200).map(|number| {
        let quotas = Arc::clone(&replicas[number % 3]);
        tokio::spawn(async move { quotas.take(QUOTA, 1).await.is_ok() })
    });
    let mut admitted = 0;
    for call in calls.collect::<Vec<_>>() {
        admitted += u32::from(call.await.unwrap());
    }
    assert_eq!(admitted, 100);
    assert_eq!(replicas[0].take(QUOTA, 1).await.unwrap_err(), QuotaRefusal::UsedUp);
    assert_eq!(replicas[1].remaining(QUOTA), Some(0));
    replicas[2].take(in_next_window(QUOTA), 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_window_and_each_length_has_a_count_of_its_own() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let [one, two] = [quotas_of(&store), quotas_of(&store)];
    for seconds in [1, 60, 3_600, 86_400] {
        let quota = SharedQuota { most: 7, window: window(seconds), ..QUOTA };
        one.take(quota, 3).await.unwrap();
        assert_eq!(take_until_refused(&two, quota).await, 4, "{seconds} s");
        assert_eq!([one.remaining(quota), two.remaining(quota)], [Some(4), Some(0)]);
        let next = in_next_window(quota);
        assert_eq!(two.remaining(next), None, "{seconds} s");
        assert_eq!(take_until_refused(&two, next).await, 7, "{seconds} s");
        assert_eq!(one.take(next, 1).await.unwrap_err(), QuotaRefusal::UsedUp);
    }
}

#[tokio::test(start_paused = true)]
async fn the_calls_that_a_replica_has_leased_end_with_their_window() {
    let memory = Arc::new(MemoryStore::default());
    let store: Arc<dyn ClusterStore> = Arc::clone(&memory) as _;
    for seconds in [1, 86_400] {
        let quota = SharedQuota { most: 640, window: window(seconds), ..QUOTA };
        let quotas = quotas_of(&store);
        quotas.take(quota, 1).await.unwrap();
        memory.fail(true);
        quotas.take(quota, 1).await.unwrap();
        let taken = quotas.take(in_next_window(quota), 1).await;
        assert_eq!(taken.unwrap_err(), QuotaRefusal::Unavailable, "{seconds} s");
        memory.fail(false);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_back_begins_no_earlier_window() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let quotas = quotas_of(&store);
    let later = in_next_window(QUOTA);
    assert_eq!(take_until_refused(&quotas, later).await, 100);
    assert_eq!(quotas.remaining(QUOTA), Some(0));
    assert_eq!(quotas.take(QUOTA, 1).await.unwrap_err(), QuotaRefusal::UsedUp);
}

#[tokio::test(start_paused = true)]
async fn a_counter_outlives_its_window_and_is_forgotten_after_it() {
    for seconds in [1, 60, 86_400] {
        let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
        let quota = SharedQuota { window: window(seconds), ..QUOTA };
        assert_eq!(take_until_refused(&quotas_of(&store), quota).await, 100);
        // A replica with a late clock is still in the window.
        advance(quota.window.length() + Duration::from_secs(55)).await;
        assert_eq!(take_until_refused(&quotas_of(&store), quota).await, 0, "{seconds} s");
        advance(quota.window.length() + Duration::from_secs(6)).await;
        assert_eq!(take_until_refused(&quotas_of(&store), quota).await, 100, "{seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn blocks_are_larger_in_short_windows() {
    for (seconds, most, block) in [
        (1, 1000, 125),
        (60, 80, 10),
        (1, 4, 1),
        (1, 1_000_000, 125_000),
        (3_600, 640, 10),
        (86_400, 640, 10),
        (86_400, 1_000_000, 1000),
    ] {
        let memory = Arc::new(MemoryStore::default());
        let store: Arc<dyn ClusterStore> = Arc::clone(&memory) as _;
        let (quotas, quota) = (quotas_of(&store), window(seconds));
        let quota = SharedQuota { most, window: quota, ..QUOTA };
        quotas.take(quota, 1).await.unwrap();
        memory.fail(true);
        assert_eq!(take_until_refused(&quotas, quota).await + 1, block, "{most} per {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_all_windows_are_bounded_together() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let quotas = quotas_of(&store);
    let find = |number: usize| {
        let seconds = if number.is_multiple_of(2) { 60 } else { 86_400 };
        let holder = number.to_string();
        quotas.find(SharedQuota { holder: Some(&holder), window: window(seconds), ..QUOTA })
    };
    for number in 0..MAX_LEASES {
        assert!(!Arc::ptr_eq(&find(number), &find(0)) || number == 0);
    }
    for number in MAX_LEASES..MAX_LEASES + 10 {
        assert!(Arc::ptr_eq(&find(number), &find(number + 2)), "{number} shares a lease");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_a_replica_uses_what_it_has_leased() {
    let memory = Arc::new(MemoryStore::default());
    let store: Arc<dyn ClusterStore> = Arc::clone(&memory) as _;
    let quota = SharedQuota { most: 640, ..QUOTA };
    let quotas = SharedQuotas::new(replica(&store, DegradeChoice::Local));
    quotas.take(quota, 1).await.unwrap();
    memory.fail(true);
    for _ in 0..9 {
        quotas.take(quota, 1).await.unwrap();
    }
    assert_eq!(quotas.take(quota, 1).await.unwrap_err(), QuotaRefusal::Unavailable);
    assert!(quotas.rates().is_degraded());
}

#[tokio::test(start_paused = true)]
async fn unused_calls_are_returned_when_a_replica_stops() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let quota = SharedQuota { most: 640, ..QUOTA };
    let [one, two] = [(); 2].map(|()| SharedQuotas::new(replica(&store, DegradeChoice::Local)));
    one.take(quota, 3).await.unwrap().give_back(1);
    one.return_unused().await;
    two.take(quota, 1).await.unwrap();
    assert_eq!(two.remaining(quota), Some(640 - 3));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_nonsense_leases_nothing() {
    for reply in [vec![], vec![1], vec![1, 1, 1], vec![-1, 0], vec![5, 5], vec![1, 101], vec![1, 0]]
    {
        let store: Arc<dyn ClusterStore> = Arc::new(NonsenseStore(Some(reply.clone())));
        let quotas = SharedQuotas::new(replica(&store, DegradeChoice::Local));
        let taken = quotas.take(QUOTA, 1).await;
        assert_eq!(taken.unwrap_err(), QuotaRefusal::Unavailable, "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_of_failed_logins_waits_for_the_store() {
    let store: Arc<dyn ClusterStore> = Arc::new(NonsenseStore(None));
    let replica = replica(&store, DegradeChoice::Local);
    let rate = SharedRate { limit: "failed_logins", holder: Some("192.0.2.1"), rate: rate(3, 60) };
    for _ in 0..MAX_CHARGES + 10 {
        replica.charge(&rate, Box::new(|_| {}));
    }
    for _ in 0..MAX_CHARGES {
        tokio::task::yield_now().await;
    }
    assert_eq!(replica.counts.rate_requests().get(), MAX_CHARGES as u64);
}

#[tokio::test(start_paused = true)]
async fn a_block_of_a_large_quota_is_bounded() {
    let memory = Arc::new(MemoryStore::default());
    let store: Arc<dyn ClusterStore> = Arc::clone(&memory) as _;
    let quotas = SharedQuotas::new(replica(&store, DegradeChoice::Local));
    quotas.take(SharedQuota { most: 1_000_000, ..QUOTA }, 1).await.unwrap();
    let leased: Vec<_> = memory.quotas().into_iter().collect();
    assert_eq!(leased, [1000]);
}

#[tokio::test(start_paused = true)]
async fn holders_of_quotas_are_bounded() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let quotas = SharedQuotas::new(replica(&store, DegradeChoice::Local));
    let most = super::super::shared_quotas::MAX_LEASES;
    for number in 0..most + 10 {
        let holder = number.to_string();
        let lease = quotas.take(SharedQuota { holder: Some(&holder), ..QUOTA }, 1).await.unwrap();
        drop(lease);
    }
    assert_eq!(quotas.leases(), most + 1, "the others share one");
}
