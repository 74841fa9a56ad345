//! Records of sessions.

use serde_json::json;

use super::{Lie, expect_line_about, keys_besides, next_key, warnings};
use crate::cluster::sessions::any_replica::{legacy, with_clients};
use crate::cluster::{RedisServer, start_replicas, through};
use crate::support::{Upstream, until_async};

#[tokio::test]
async fn a_wrong_record_revives_no_session_and_the_others_go_on() {
    warnings();
    let upstream = Upstream::legacy().await;
    for lie in Lie::ALL {
        let redis = RedisServer::start().await;
        let [a, b] = start_replicas(&redis.url(), || with_clients(&upstream)).await;
        let one = legacy(&a, "key-one").await;
        let of_one = next_key(&redis, "sessions", &[]).await;
        let two = legacy(&a, "key-two").await;
        let of_two = next_key(&redis, "sessions", &[&of_one]).await;
        a.stop().await;
        lie.tell(&redis, &of_one, &of_two).await;
        for (client, key) in [(&one, "key-one"), (&one, "key-two"), (&two, "key-one")] {
            let said = through(&b, client, Some(key)).request("ping", json!({})).await;
            assert_eq!(said.status, 404, "{lie:?} {key}: {said:?}");
        }
        lie.expect_line(&redis, "sessions").await;
        let two = through(&b, &two, Some("key-two"));
        assert_eq!(two.call("s__echo", json!({})).await.text(), "{}", "{lie:?}");
        assert_eq!(b.status().await["sessions"], 1, "{lie:?}");
    }
}

#[tokio::test]
async fn an_owner_keeps_a_session_whose_record_was_replaced() {
    warnings();
    let upstream = Upstream::legacy().await;
    upstream.logs();
    for lie in Lie::ALL {
        let redis = RedisServer::start().await;
        let [a, b] = start_replicas(&redis.url(), || with_clients(&upstream)).await;
        let one = legacy(&a, "key-one").await;
        let of_one = next_key(&redis, "sessions", &[]).await;
        let two = legacy(&a, "key-two").await;
        let of_two = next_key(&redis, "sessions", &[&of_one]).await;
        redis.command("CONFIG RESETSTAT").await;
        lie.tell(&redis, &of_one, &of_two).await;
        for client in [&one, &two] {
            client.request("logging/setLevel", json!({ "level": "alert" })).await.result();
        }
        // Bytes after a record do not change its version: the owner writes over it without reading it.
        if lie != Lie::TooLong {
            lie.expect_line(&redis, "sessions").await;
        }
        assert_eq!(one.call("s__echo", json!({})).await.text(), "{}", "{lie:?}");
        // The record is written over if that is possible, and never again and again.
        let is_repaired = matches!(lie, Lie::Garbage | Lie::Moved | Lie::TooLong);
        a.stop().await;
        let writes = redis.command("INFO commandstats").await;
        let writes = writes.split("cmdstat_eval:calls=").nth(1).unwrap();
        let writes: u32 = writes.split(',').next().unwrap().parse().unwrap();
        assert!(writes < 30, "{lie:?}: {writes} writes");
        let said = through(&b, &one, Some("key-one")).request("ping", json!({})).await;
        assert_eq!(said.status, if is_repaired { 200 } else { 404 }, "{lie:?}");
        let two = through(&b, &two, Some("key-two"));
        assert_eq!(two.request("ping", json!({})).await.status, 200, "{lie:?}");
    }
}

#[tokio::test]
async fn a_record_of_an_earlier_owner_is_refused_by_its_owner_and_by_others() {
    warnings();
    let upstream = Upstream::legacy().await;
    upstream.logs();
    let redis = RedisServer::start().await;
    let [a, b, c] = start_replicas(&redis.url(), || with_clients(&upstream)).await;
    let client = legacy(&a, "key-one").await;
    let record = next_key(&redis, "sessions", &[]).await;
    redis.command(&format!("COPY {record} old")).await;
    a.stop().await;
    let [at_b, at_c] = [&b, &c].map(|replica| through(replica, &client, Some("key-one")));
    assert_eq!(at_b.request("ping", json!({})).await.status, 200);
    redis.command(&format!("COPY old {record} REPLACE")).await;
    at_b.request("logging/setLevel", json!({ "level": "alert" })).await.result();
    expect_line_about(&redis, "(sessions) is refused: it is older").await;
    let old = redis.command("GET old").await;
    until_async(async || redis.command(&format!("GET {record}")).await != old).await;
    // The record of the owner is found by the other one.
    assert_eq!(at_c.request("ping", json!({})).await.status, 200);
    assert_eq!(b.status().await["sessions"], 1);
    assert_eq!(c.status().await["sessions"], 0);
    assert!(keys_besides(&redis, "sessions", &[&record]).await.is_empty());
}
