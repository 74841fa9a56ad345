//! One client that takes all it can get of what every client needs.

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Gateway, Upstream, until};
use crate::{ATTACKER, BYSTANDER, two_clients};

#[tokio::test]
async fn calls_of_one_client_leave_slots_and_a_queue_to_the_others() {
    let upstream = Upstream::modern().await;
    let lines = upstream.http() + "in_flight = 4\nqueue = 4\nqueue_timeout = \"1h\"\n";
    let gateway = Gateway::with("s", lines).gateway("limits.share = \"75%\"");
    let gateway = two_clients(gateway).start().await;
    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let attacker = gateway.modern().key(ATTACKER);
        calls.spawn(async move { attacker.call("s__hold", json!({})).await });
    }
    // Three are in flight, three wait, and six are refused.
    for _ in 0..6 {
        let refused = calls.join_next().await.unwrap().unwrap();
        assert_eq!(refused.error()["data"]["limit"], "in_flight:s", "{refused:?}");
    }
    until(|| upstream.calls().len() == 3).await;
    let bystander = gateway.modern().key(BYSTANDER);
    assert_eq!(bystander.call("s__echo", json!({})).await.text(), "{}");
    // They stay in the queue behind the attacker's own slots.
    assert_eq!(upstream.calls().len(), 4);
    for _ in 0..6 {
        upstream.release(1);
        assert_eq!(calls.join_next().await.unwrap().unwrap().text(), "held");
    }
}
