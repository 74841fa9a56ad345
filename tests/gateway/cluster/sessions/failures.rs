//! Replicas and stores that are gone.

use std::sync::Arc;

use serde_json::json;
use tokio::net::TcpListener;
use trunkline::call::{Endpoint, Principal};
use trunkline::cluster::{Cluster, ClusterParts, ClusterStore, RedisStore};
use trunkline::config::{ClusterConfig, DegradeChoice, PeerHost, Secret, StoreUrl};
use trunkline::telemetry::metrics::ClusterCounts;

use crate::cluster::{
    RedisServer, STATE_KEY, forwarded, free_port, knows, replica_at, start_replicas, through,
};
use crate::support::client::Kind;
use crate::support::{Gateway, Upstream, poll_for, within};

fn gateway_of(upstream: &Upstream) -> crate::support::gateway::Builder {
    Gateway::with("s", upstream.http())
}

/// Joins a replica that has a lease, but no listener.
pub fn silent_replica(redis: &RedisServer, port: u16) -> Arc<Cluster> {
    let store = RedisStore::new(&StoreUrl::parse(&redis.url()).unwrap()).unwrap();
    let cluster = replica_of(Arc::new(store), DegradeChoice::Local, port);
    tokio::spawn(Arc::clone(&cluster).keep_lease(String::new));
    cluster
}

/// Creates a replica without a lease and without a listener.
pub fn cluster_with(store: Arc<dyn ClusterStore>, degrade: DegradeChoice) -> Arc<Cluster> {
    replica_of(store, degrade, 1)
}

fn replica_of(store: Arc<dyn ClusterStore>, degrade: DegradeChoice, port: u16) -> Arc<Cluster> {
    let settings = ClusterConfig {
        // Another one is given below.
        store: StoreUrl::parse("redis://127.0.0.1").unwrap(),
        listen: ([127, 0, 0, 1], port).into(),
        advertise: PeerHost::parse(&format!("127.0.0.1:{port}")).unwrap(),
        cert: None,
        key: None,
        ca: None,
        degrade,
    };
    let parts = ClusterParts {
        keys: &[Secret::new(STATE_KEY.into())],
        store,
        tls: None,
        counts: ClusterCounts::default(),
    };
    Cluster::new(&settings, parts).unwrap()
}

/// Returns the kind of a client with a session of this replica.
pub fn session_of(cluster: &Cluster, principal: &Principal) -> Kind {
    let id = cluster.new_session_id(principal, &Endpoint::default()).unwrap();
    Kind::Legacy { session: Some(id.to_string()), version: "2025-11-25".into() }
}

#[tokio::test]
async fn the_session_of_a_replica_that_stopped_goes_on_and_another_can_be_opened() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let client = a.legacy().await;
    let at_b = through(&b, &client, None);
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    let id = a.status().await["cluster"]["id"].as_str().unwrap().to_owned();
    a.stop().await;
    let exists = redis.command(&format!("EXISTS trunkline:replicas:{id}")).await;
    assert_eq!(exists, ":0\r\n", "it has removed its lease");
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    // Some clients initialize again, with the earlier id.
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} });
    let again = at_b.ask("initialize", params).send().await;
    assert_eq!(again.status(), 200);
    let again = at_b.initialized().await;
    assert_eq!(again.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(forwarded(&b, "owner_gone").await, 1);
    knows(&b, 0).await;
}

#[tokio::test]
async fn a_session_without_a_record_ends_with_its_owner() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let killed = silent_replica(&redis, free_port());
    knows(&a, 1).await;
    let client = a.plain().becomes(session_of(&killed, &Principal::Anonymous));
    assert_eq!(client.request("ping", json!({})).await.status, 404);
    assert_eq!(forwarded(&a, "owner_gone").await, 1);
    let client = client.initialized().await;
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn an_owner_that_hangs_ends_its_calls_with_an_error() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    // It accepts connections, and never answers.
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let owner = silent_replica(&redis, hanging.local_addr().unwrap().port());
    knows(&a, 1).await;
    let client = a.plain().becomes(session_of(&owner, &Principal::Anonymous));
    let ask = client.ask("ping", json!({}));
    let (said, accepted) = within(async { tokio::join!(ask.send(), hanging.accept()) }).await;
    assert_eq!(said.status(), 502);
    let said = said.said().await;
    assert!(said.error()["message"].as_str().unwrap().contains("replica"), "{said:?}");
    assert_eq!(forwarded(&a, "broken").await, 1);
    drop(accepted);
}

#[tokio::test]
async fn without_the_store_replicas_serve_their_own_sessions_and_those_that_they_know() {
    let (mut redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let client = a.legacy().await;
    let at_b = through(&b, &client, None);
    redis.kill();
    let status = a.wait_for(|status| !status["cluster"]["store_error"].is_null()).await;
    let finding = status["findings"].as_array().unwrap().iter();
    let finding = finding.filter(|finding| finding["subject"] == "cluster.store");
    assert_eq!(finding.count(), 1, "{status}");
    let ready = a.admin("/readyz").await;
    assert_eq!(ready.status, 200, "it is no reason to leave the gateway");
    let reasons = ready.json()["reasons"].to_string();
    assert!(reasons.contains("cluster: the store cannot be used"), "{reasons}");
    assert!(a.metrics().await.contains("trunkline_store_errors_total{store=\"replicas\"} "));
    for client in [&client, &at_b, &a.legacy().await] {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    }
}

#[tokio::test]
async fn a_replica_starts_without_the_store_and_joins_when_it_comes() {
    let upstream = Upstream::legacy().await;
    let port = free_port();
    let store = format!("redis://127.0.0.1:{port}");
    let a = replica_at(gateway_of(&upstream), &store, free_port(), "").start().await;
    let client = a.legacy().await;
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    a.wait_for(|status| !status["cluster"]["store_error"].is_null()).await;
    let folder = tempfile::tempdir().unwrap();
    let redis = RedisServer::try_start(port, folder.path()).await.expect("the port is free");
    let redis = redis.map_folder(folder);
    a.wait_for(|status| status["cluster"]["store_error"].is_null()).await;
    // The store learns neither names nor keys in clear.
    let names = redis.command("KEYS *").await;
    assert!(names.contains("trunkline:replicas"), "{names}");
    let id = a.status().await["cluster"]["id"].as_str().unwrap().to_owned();
    let value = redis.command(&format!("GET trunkline:replicas:{id}")).await;
    assert!(value.starts_with('$') && !value.contains("127.0.0.1"), "{value}");
    let expiry = redis.command(&format!("PTTL trunkline:replicas:{id}")).await;
    let expiry: u64 = expiry.trim().trim_start_matches(':').parse().unwrap();
    assert!((1..=10_000).contains(&expiry), "{expiry}");
}

#[tokio::test]
async fn a_replica_that_stops_ends_the_streams_that_it_forwards() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let client = a.legacy().await;
    let mut stream = through(&b, &client, None).listen().await;
    let (_folder, end) = tokio::join!(b.stop(), stream.message());
    assert_eq!(end, None, "it ends properly");
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn foreign_values_in_the_store_are_ignored() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let (foreign, large) = ("00000000000000aa", "00000000000000bb");
    for name in [foreign, large, "not-a-name"] {
        redis.command(&format!("SADD trunkline:replicas {name}")).await;
        let value = if name == large { "x".repeat(6000) } else { "{}".to_owned() };
        redis.command(&format!("SET trunkline:replicas:{name} {value}")).await;
    }
    redis.command("SADD trunkline:replicas 00000000000000cc").await;
    // No text, much too long, and a value of another kind.
    redis.command("SADD trunkline:replicas \"\\xff\\xfe\"").await;
    redis.command(&format!("SADD trunkline:replicas {}", "e".repeat(5000))).await;
    redis.command("SADD trunkline:replicas 00000000000000dd").await;
    redis.command("LPUSH trunkline:replicas:00000000000000dd x").await;
    let [a, _b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    assert!(a.status().await["cluster"]["store_error"].is_null());
    // Names without a value are removed, and members that are no names.
    poll_for(async || {
        let names = redis.command("SMEMBERS trunkline:replicas").await;
        let removed = ["00000000000000cc", "not-a-name", "\u{fffd}", "eeeee"];
        removed.iter().all(|member| !names.contains(member)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_answered_here_for_its_lost_owner_counts_once() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let limited = || {
        gateway_of(&upstream)
            .gateway("client_rate = \"3/h\"")
            .toml(&crate::support::client_table("one", "key-one", ""))
    };
    let [a] = start_replicas(&redis.url(), limited).await;
    let lost = silent_replica(&redis, free_port());
    knows(&a, 1).await;
    lost.leave().await;
    let kind = session_of(&lost, &Principal::Client("one".into()));
    let client = a.plain().becomes(kind).key("key-one");
    // A body in several pieces would be counted before it is read.
    let large = json!({ "x": "y".repeat(300_000) });
    for params in [large.clone(), json!({}), large.clone()] {
        assert_eq!(client.request("ping", params).await.status, 404);
    }
    for params in [json!({}), large] {
        let refused = client.request("ping", params).await;
        let message = refused.error()["message"].as_str().unwrap();
        assert!(message.contains("over the limit"), "{refused:?}");
    }
    assert_eq!(forwarded(&a, "owner_gone").await, 5);
}
