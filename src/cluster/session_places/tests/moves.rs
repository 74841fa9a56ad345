//! Sessions and replicas that move while a request looks for them.

use std::pin::pin;

use futures_util::poll;

use super::*;

fn replicas_of<const N: usize>(store: &Arc<MemoryStore>) -> [ModelReplica; N] {
    std::array::from_fn(|number| ModelReplica::new(u16::try_from(number).unwrap(), store))
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_started_after_the_last_reading_is_found_with_and_without_a_record() {
    for is_recorded in [true, false] {
        let [other, new] = replicas_of(&Arc::default());
        other.renew().await;
        other.cluster.membership.refresh().await.unwrap();
        advance(Duration::from_millis(1)).await;
        new.renew().await;
        let id = if is_recorded {
            new.open_session().await
        } else {
            let endpoint = Endpoint::default();
            new.cluster.new_session_id(&Principal::Anonymous, &endpoint).unwrap().to_string()
        };
        let place = other.find(&id, None).await.unwrap();
        assert!(matches!(place, SessionPlace::Replica(link) if link.id() == new.cluster.id()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leaves_has_its_sessions_claimed_and_names_their_new_owner() {
    let [leaving, one, two] = replicas_of(&Arc::default());
    for replica in [&leaving, &one, &two, &leaving] {
        replica.renew().await;
    }
    let id = leaving.open_session().await;
    let unreached = Some(leaving.cluster.id());
    let place = one.find(&id, unreached).await.unwrap();
    assert!(matches!(place, SessionPlace::Unreachable), "{place:?}");
    leaving.cluster.hand_over().await;
    assert!(leaving.cluster.has_left() && !leaving.answers(&id));
    advance(MISSED_TIME).await;
    one.request(&id, unreached).await;
    assert!(one.answers(&id));
    let endpoint = Endpoint::default();
    let key = SessionKey { id: &id, principal: &Principal::Anonymous, endpoint: &endpoint };
    let first = leaving.cluster.find_heir(key, None).await.unwrap();
    assert_eq!(leaving.cluster.find_heir(key, None).await.unwrap().id(), first.id());
    // The owner that the record names, after any other one was asked.
    let heir = leaving.cluster.find_heir(key, Some(two.cluster.id())).await.unwrap();
    assert_eq!(heir.id(), one.cluster.id());
    assert!(leaving.cluster.find_successor().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_requested_before_a_suspension_is_not_taken_for_a_new_one() {
    let [suspended, other] = replicas_of(&Arc::default());
    for replica in [&suspended, &other] {
        replica.renew().await;
    }
    let id = suspended.open_session().await;
    // It is suspended while it waits for the last reply of a renewal.
    suspended.way.state.store(HELD, Ordering::Relaxed);
    let mut renewal = pin!(suspended.cluster.renew_lease(String::new()));
    assert!(poll!(renewal.as_mut()).is_pending());
    advance(LEASE_TIME).await;
    other.renew().await;
    other.request(&id, Some(suspended.cluster.id())).await;
    assert!(other.answers(&id));
    // The reply and the next request arrive together.
    suspended.way.state.store(OPEN, Ordering::Relaxed);
    suspended.way.released.notify_one();
    let mut confirmed = pin!(suspended.cluster.confirm_lease());
    assert!(poll!(confirmed.as_mut()).is_pending());
    renewal.await;
    assert!(!suspended.has(&id), "the other replica has it");
    assert_eq!(suspended.cluster.membership.lease(), LeaseStatus::Lapsed);
    assert!(poll!(confirmed.as_mut()).is_pending(), "it waits for the next renewal");
    suspended.renew().await;
    assert_eq!(confirmed.await, LeaseStatus::Held);
    let place = suspended.find(&id, None).await.unwrap();
    assert!(matches!(place, SessionPlace::Replica(link) if link.id() == other.cluster.id()));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_failed_before_a_suspension_does_not_show_that_the_store_fails() {
    let [suspended] = replicas_of(&Arc::default());
    suspended.renew().await;
    suspended.way.state.store(CUT, Ordering::Relaxed);
    advance(LEASE_TIME).await;
    suspended.renew().await;
    suspended.renew().await;
    assert_eq!(suspended.cluster.confirm_lease().await, LeaseStatus::Lapsed, "it fails now");
    suspended.way.state.store(OPEN, Ordering::Relaxed);
    advance(LEASE_TIME).await;
    suspended.way.state.store(CUT, Ordering::Relaxed);
    let mut confirmed = pin!(suspended.cluster.confirm_lease());
    assert!(poll!(confirmed.as_mut()).is_pending());
    suspended.renew().await;
    assert!(poll!(confirmed.as_mut()).is_pending(), "a connection may have to be opened again");
    suspended.way.state.store(OPEN, Ordering::Relaxed);
    suspended.renew().await;
    assert_eq!(confirmed.await, LeaseStatus::Held);
}
