//! Shared rates with a store in memory and paused time.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::advance;

use super::super::store::{MemoryStore, NonsenseStore, PROBE_INTERVAL};
use super::*;
use crate::config::Rate;

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
async fn a_fifth_of_a_batch_is_used_in_advance() {
    let store: Arc<dyn ClusterStore> = Arc::new(MemoryStore::default());
    let replica = replica(&store, DegradeChoice::Refuse);
    // A batch has 20 permits. The calls have waited for none, and the request is not sent yet.
    let permits = permits(&replica, rate(400, 3600));
    let taken = (0..50).filter(|_| permits.take(ONE) == PermitTaking::Taken).count();
    assert_eq!(taken, 4);
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
        assert!(replica.health.is_degraded());
        assert_eq!([permits.take(ONE), permits.look(ONE)], [expected; 2]);
        assert!(permits.prepare(ONE).is_none(), "nothing waits");
        assert_eq!(permits.remaining(), None);
        memory.fail(false);
        while replica.health.is_degraded() {
            advance(PROBE_INTERVAL).await;
            tokio::task::yield_now().await;
        }
        memory.clear();
        assert!(call(&permits).await);
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
        assert!(replica.health.is_degraded(), "{reply:?}");
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
    let health = StoreHealth::in_tests(store, DegradeChoice::Local);
    let stranger = SharedRates::new(health, b"another key", ClusterCounts::default());
    assert_ne!(name, stranger.name_of("client:ci"), "a name cannot be guessed without the key");
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
