//! Stores of several servers: sentinels with a primary and its replica, and Redis Cluster.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use trunkline::cluster::{ClusterStore as _, RedisStore};
use trunkline::config::StoreUrl;
use trunkline::text::error_chain;

use crate::cluster::{free_port, knows, replica_at, say, start_replicas, through};
use crate::support::gateway::Builder;
use crate::support::redis::RedisProcesses;
use crate::support::{Gateway, Upstream, client_table, poll_for};

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn limited(upstream: &Upstream) -> Builder {
    Gateway::with("s", upstream.http())
        .gateway("client_rate = \"8/h\"")
        .toml(&client_table("one", "key-one", ""))
}

/// Asserts that two replicas share a session and a rate.
async fn share_all(a: &Gateway, b: &Gateway) {
    let client = crate::support::Client::sessionless(a.running.address, "2025-11-25");
    let client = client.key("key-one").initialized().await;
    let at_b = through(b, &client, Some("key-one"));
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    let mut admitted = 0;
    for replica in [a, b] {
        let modern = replica.modern().key("key-one");
        // Each replica leaves something to the other.
        for _ in 0..5 {
            let said = modern.call("s__echo", json!({})).await;
            admitted += usize::from(said.answer()["error"].is_null());
        }
    }
    assert!((4..=6).contains(&admitted), "{admitted} of 8 calls, besides the session's");
}

/// Waits until a replica uses the store after a failover, and another one joins.
async fn goes_on(a: &Gateway, joining: Builder, store: &str) {
    let before = a.status().await["cluster"]["renewed_at"].clone();
    a.wait_for(|status| {
        let cluster = &status["cluster"];
        cluster["store_error"].is_null()
            && cluster["degraded"] == false
            && cluster["renewed_at"] != before
    })
    .await;
    let joined = replica_at(joining, store, free_port(), "").start().await;
    knows(&joined, 2).await;
    knows(a, 2).await;
}

async fn use_store(url: &str) {
    let store = RedisStore::new(&StoreUrl::parse(url).unwrap()).unwrap();
    poll_for(async || store.probe().await.ok()).await;
    let lease = std::time::Duration::from_secs(60);
    for name in ["aa", "bb"] {
        store.put("values", name, vec![7; 9], lease).await.unwrap();
    }
    store.remove("values", "bb").await.unwrap();
    let listed = store.list("values", 9).await.unwrap();
    let [value] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&*value.name, value.bytes.len()), ("aa", 9));
    assert!(value.lease_left <= lease && value.lease_left > lease / 2, "{value:?}");
}

#[tokio::test]
async fn replicas_go_on_with_the_primary_that_sentinels_name_after_a_failover() {
    let (mut servers, upstream) = (RedisProcesses::new(), Upstream::legacy().await);
    let primary = servers.start(&[]).await;
    let of_primary = primary.to_string();
    let replica = servers.start(&["--replicaof", "127.0.0.1", &of_primary]).await;
    poll_for(async || {
        say(replica, "INFO replication").await?.contains("link_status:up").then_some(())
    })
    .await;
    let sentinel = servers.start_sentinel(local(primary), "").await;
    let known = format!("127.0.0.1:{replica}");
    poll_for(async || {
        say(sentinel, "SENTINEL replicas main").await?.contains(&known).then_some(())
    })
    .await;
    // One of the sentinels is gone.
    let gone = free_port();
    let url = format!("redis+sentinel://127.0.0.1:{gone},127.0.0.1:{sentinel}/main");
    use_store(&url).await;
    let [a, b] = start_replicas(&url, || limited(&upstream)).await;
    share_all(&a, &b).await;
    servers.kill(primary);
    goes_on(&a, limited(&upstream), &url).await;
    b.wait_for(|status| status["cluster"]["store_error"].is_null()).await;
    let role = say(replica, "ROLE").await.unwrap();
    assert!(role.contains("master"), "{role}");
    use_store(&url).await;
}

/// Starts a sentinel that names this host, and returns its address.
async fn fake_sentinel(host: String) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let host = host.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 4096];
                while let Ok(read @ 1..) = socket.read(&mut buffer).await {
                    let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
                    let mut reply = "+OK\r\n".repeat(text.matches("CLIENT").count());
                    if text.contains("SENTINEL") {
                        let length = host.len();
                        reply.push_str(&format!("*2\r\n${length}\r\n{host}\r\n$4\r\n6379\r\n"));
                    }
                    socket.write_all(reply.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address.to_string()
}

/// Returns the reason that a store at a sentinel cannot be used.
async fn refusal_of(sentinel: &str) -> String {
    let url = StoreUrl::parse(&format!("redis+sentinel://:secret@{sentinel}/main")).unwrap();
    let error = RedisStore::new(&url).unwrap().list("values", 1).await.unwrap_err();
    error_chain(&error)
}

#[tokio::test]
async fn a_sentinel_that_answers_nonsense_names_no_primary() {
    for host in ["h".repeat(254), String::new(), "127.0.0.1@192.0.2.1".to_owned()] {
        let sentinel = fake_sentinel(host.clone()).await;
        let refusal = refusal_of(&sentinel).await;
        assert!(refusal.contains("the sentinels name no primary"), "{host}: {refusal}");
    }
}

#[tokio::test]
async fn a_cluster_without_a_slot_fails_in_time() {
    let mut servers = RedisProcesses::new();
    let bus = free_port().to_string();
    let port = servers.start(&["--cluster-enabled", "yes", "--cluster-port", &bus]).await;
    let url = StoreUrl::parse(&format!("redis+cluster://127.0.0.1:{port}")).unwrap();
    let store = RedisStore::new(&url).unwrap();
    for _ in 0..2 {
        let begun = std::time::Instant::now();
        assert!(store.list("values", 1).await.is_err());
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    // It gets its slots later.
    let added = say(port, "CLUSTER ADDSLOTSRANGE 0 16383").await.unwrap();
    assert!(added.starts_with("+OK"), "{added}");
    use_store(&format!("redis+cluster://127.0.0.1:{port}")).await;
    poll_for(async || store.probe().await.ok()).await;
}

#[tokio::test]
async fn a_plain_connection_does_not_follow_a_sentinel_to_another_machine() {
    let sentinel = fake_sentinel("192.0.2.1".to_owned()).await;
    let refusal = refusal_of(&sentinel).await;
    assert!(refusal.contains("this machine needs TLS"), "{refusal}");
}

#[tokio::test]
async fn sentinels_with_a_password_get_that_of_the_servers() {
    let mut servers = RedisProcesses::new();
    let primary = servers.start(&["--requirepass", "secret"]).await;
    let password = "requirepass secret\nsentinel auth-pass main secret\n";
    let sentinel = servers.start_sentinel(local(primary), password).await;
    let place = format!("127.0.0.1:{sentinel}/main");
    use_store(&format!("redis+sentinel://:secret@{place}")).await;
    for wrong in ["", ":wrong@"] {
        let url = StoreUrl::parse(&format!("redis+sentinel://{wrong}{place}")).unwrap();
        let store = RedisStore::new(&url).unwrap();
        assert!(store.probe().await.is_err(), "{wrong}");
    }
}

/// Starts a cluster of three primaries with a replica each.
async fn start_cluster(servers: &mut RedisProcesses) -> Vec<u16> {
    let mut ports = Vec::new();
    for _ in 0..6 {
        let bus = free_port().to_string();
        let args =
            ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port", &bus];
        ports.push(servers.start(&args).await);
    }
    let created = tokio::process::Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(ports.iter().map(|port| format!("127.0.0.1:{port}")))
        .args(["--cluster-replicas", "1", "--cluster-yes"])
        .output()
        .await
        .unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
    for port in &ports {
        poll_for(async || {
            let is_ok = say(*port, "CLUSTER INFO").await?.contains("cluster_state:ok");
            let nodes = say(*port, "CLUSTER NODES").await?;
            let replicas = nodes.matches("slave ").count();
            let replication = say(*port, "INFO replication").await?;
            let is_synced =
                replication.contains("role:master") || replication.contains("link_status:up");
            (is_ok && replicas == 3 && is_synced).then_some(())
        })
        .await;
    }
    ports
}

#[tokio::test]
async fn replicas_share_a_redis_cluster_and_go_on_after_a_node_is_lost() {
    let (mut servers, upstream) = (RedisProcesses::new(), Upstream::legacy().await);
    let ports = start_cluster(&mut servers).await;
    // Not all of the nodes are named.
    let url = format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", ports[0], ports[4]);
    use_store(&url).await;
    let [a, b] = start_replicas(&url, || limited(&upstream)).await;
    share_all(&a, &b).await;
    let mut owner = None;
    for port in &ports {
        if say(*port, "EXISTS trunkline:{replicas}").await.unwrap() == ":1\r\n" {
            owner = Some(*port);
        }
    }
    servers.kill(owner.expect("a node with the list of replicas"));
    goes_on(&a, limited(&upstream), &url).await;
    b.wait_for(|status| status["cluster"]["store_error"].is_null()).await;
    use_store(&url).await;
}
