//! A model of replicas that lose the store: no two of them have the lease of a server at once.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tokio::time::advance;

use super::*;
use crate::clock;
use crate::cluster::MemoryStore;
use crate::cluster::session_places::tests::{CUT, DEAF, ModelReplica, OPEN};

const REPLICAS: usize = 3;

/// A step of the model.
#[derive(Debug, Clone, Copy)]
enum ModelStep {
    /// Changes the way of a replica to the store.
    Way(usize, u8),
    /// Lets this time pass, in milliseconds.
    Pass(u16),
    /// Ends the child of a replica, which gives up its lease.
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let replica = 0..REPLICAS;
    let step = prop_oneof![
        3 => (replica.clone(), OPEN..=DEAF).prop_map(|(at, state)| ModelStep::Way(at, state)),
        4 => (100..4000_u16).prop_map(ModelStep::Pass),
        1 => (9000..12_000_u16).prop_map(ModelStep::Pass),
        2 => replica.prop_map(ModelStep::End),
    ];
    prop::collection::vec(step, 1..40)
}

/// Places the server again and again, as the life of a server does.
async fn live(lease: Arc<ServerLease>, ends: Arc<Notify>) {
    loop {
        if lease.place().await.is_ok() {
            tokio::select! {
                _ = lease.ended() => {}
                () = ends.notified() => {}
            }
        }
        lease.release().await;
        sleep(Duration::from_millis(250)).await;
    }
}

fn holders(leases: &[Arc<ServerLease>]) -> usize {
    leases.iter().filter(|lease| lease.is_held()).count()
}

/// Lets time pass in small steps, and checks the leases after each of them.
async fn pass(leases: &[Arc<ServerLease>], millis: u16) {
    for _ in 0..millis.div_ceil(100) {
        advance(Duration::from_millis(100)).await;
        for _ in 0..20 {
            yield_now().await;
            assert!(holders(leases) <= 1, "two replicas run the child");
        }
    }
}

async fn run(steps: Vec<ModelStep>) {
    let store = Arc::new(MemoryStore::default());
    let (mut replicas, mut leases, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let mut lives = JoinSet::new();
    for number in 0..REPLICAS {
        let replica = ModelReplica::new(u16::try_from(number).unwrap(), &store);
        let lease = replica.cluster.server_lease(&ServerName::new("files").unwrap(), [7; 32]);
        let end = Arc::new(Notify::new());
        lives.spawn(live(Arc::clone(&lease), Arc::clone(&end)));
        replicas.push(replica);
        leases.push(lease);
        ends.push(end);
    }
    for step in steps {
        match step {
            ModelStep::Way(at, state) => replicas[at].way.state.store(state, Ordering::Relaxed),
            ModelStep::Pass(millis) => pass(&leases, millis).await,
            ModelStep::End(at) => ends[at].notify_one(),
        }
    }
    for replica in &replicas {
        replica.way.state.store(OPEN, Ordering::Relaxed);
    }
    pass(&leases, 20_000).await;
    assert_eq!(holders(&leases), 1, "one replica runs it in the end");
}

fn block_on(future: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_two_replicas_have_the_lease_of_a_server(steps in steps()) {
        block_on(run(steps));
    }
}

#[test]
fn a_lease_that_cannot_be_renewed_is_lost_before_the_store_removes_it() {
    for way in [CUT, DEAF] {
        block_on(async {
            let store = Arc::new(MemoryStore::default());
            let [a, b] = [1, 2].map(|number| ModelReplica::new(number, &store));
            let name = ServerName::new("files").unwrap();
            let [a_lease, b_lease] =
                [&a, &b].map(|replica| replica.cluster.server_lease(&name, [7; 32]));
            assert!(matches!(a_lease.place().await, Ok(ServerPlace::Here)));
            assert_eq!(b_lease.place().await.unwrap_err(), ServerLeaseFault::Unreachable);
            a.way.state.store(way, Ordering::Relaxed);
            let start = clock::now();
            assert_eq!(a_lease.ended().await, LeaseEnd::Lost);
            let ended = start.elapsed();
            assert!((8..=9).contains(&ended.as_secs()), "{way}: {ended:?}");
            assert!(b_lease.place().await.is_err(), "the store has it for a second more");
            while b_lease.place().await.is_err() {
                sleep(Duration::from_millis(100)).await;
            }
            assert!(start.elapsed() + Duration::from_secs(1) > LEASE_TIME);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_other_settings_or_of_an_earlier_start_is_not_taken() {
    let store = Arc::new(MemoryStore::default());
    let [a, b] = [1, 2].map(|number| ModelReplica::new(number, &store));
    let name = ServerName::new("files").unwrap();
    let lease = a.cluster.server_lease(&name, [7; 32]);
    assert!(matches!(lease.place().await, Ok(ServerPlace::Here)));
    let again = a.cluster.server_lease(&name, [7; 32]);
    assert_eq!(again.place().await.unwrap_err(), ServerLeaseFault::EarlierStart);
    let other = b.cluster.server_lease(&name, [8; 32]);
    assert_eq!(other.place().await.unwrap_err(), ServerLeaseFault::OtherSettings);
    lease.release().await;
    assert!(matches!(other.place().await, Ok(ServerPlace::Here)));
    assert_eq!(again.place().await.unwrap_err(), ServerLeaseFault::OtherSettings);
}
