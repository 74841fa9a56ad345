//! Shared quotas with a store in memory and paused time.

use std::num::NonZeroU64;

use tokio::time::advance;

use super::*;
use crate::cluster::ClusterStore;
use crate::cluster::store::{MemoryStore, NonsenseStore};
use crate::config::DegradeChoice;

fn replica(store: &Arc<dyn ClusterStore>, degrade: DegradeChoice) -> Arc<SharedRates> {
    SharedRates::in_tests(Arc::clone(store), degrade)
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
    assert!(quotas.rates.health().is_degraded());
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
    let most = MAX_LEASES;
    for number in 0..most + 10 {
        let holder = number.to_string();
        let lease = quotas.take(SharedQuota { holder: Some(&holder), ..QUOTA }, 1).await.unwrap();
        drop(lease);
    }
    assert_eq!(quotas.leases(), most + 1, "the others share one");
}
