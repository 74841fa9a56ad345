//! Servers that an operator disables at one replica.

use serde_json::json;

use crate::cluster::{RedisServer, StoreGate, free_port, replica_at, start_replicas};
use crate::support::gateway::Builder;
use crate::support::{Gateway, Said, Upstream, until_async};

pub fn with_server(upstream: &Upstream) -> Builder {
    Gateway::with("s", upstream.http())
}

pub async fn act(replica: &Gateway, action: &str) -> Said {
    let path = format!("/api/v1/servers/s/{action}");
    let body = json!({}).to_string();
    let operator = replica.operator();
    let ask = operator.http("POST", &path).body(body);
    ask.header("content-type", "application/json").send().await.said().await
}

#[tokio::test]
async fn a_server_that_is_disabled_at_one_replica_is_disabled_at_all() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a, b] = start_replicas(&redis.url(), || with_server(&upstream)).await;
    let before = a.modern().tool_names().await;
    assert_eq!(act(&a, "disable").await.status, 200);
    for replica in [&a, &b] {
        replica.in_state("s", "disabled").await;
        assert_eq!(replica.modern().tool_names().await, Vec::<String>::new());
    }
    let entry = b.server("s").await["disabled"].clone();
    assert!(entry["by"].as_str().unwrap().starts_with("uid "), "{entry}");
    assert_eq!(entry["survives_restart"], true, "{entry}");
    // A replica that starts later, and a store that loses its data.
    let late = replica_at(with_server(&upstream), &redis.url(), free_port(), "").start().await;
    assert_eq!(late.server("s").await["state"], "disabled");
    let names = redis.command("KEYS trunkline:disabled:*").await;
    let name = names.lines().find(|line| line.starts_with("trunkline:disabled:")).unwrap();
    assert_eq!(redis.command(&format!("PTTL {}", name.trim())).await.trim(), ":-1");
    redis.command("FLUSHALL").await;
    let count = async || redis.command("KEYS trunkline:disabled:*").await;
    until_async(async || count().await.starts_with("*1")).await;
    assert_eq!(act(&b, "enable").await.status, 200);
    for replica in [&a, &b, &late] {
        until_async(async || replica.modern().tool_names().await == before).await;
    }
}

#[tokio::test]
async fn without_the_store_a_server_stays_disabled_and_no_other_is() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let gate = StoreGate::start(&redis).await;
    let replica = replica_at(with_server(&upstream), &gate.url(), free_port(), "").start().await;
    assert_eq!(act(&replica, "disable").await.status, 200);
    gate.close();
    let refused = act(&replica, "enable").await;
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("store_unavailable")));
    assert_eq!(replica.server("s").await["state"], "disabled");
    gate.open();
    until_async(async || act(&replica, "enable").await.status == 200).await;
    replica.ready("s").await;
}

#[tokio::test]
async fn entries_of_a_file_are_moved_to_the_store() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let with_files = || with_server(&upstream).gateway("state_dir = \"state\"");
    let alone = with_files().start().await;
    assert_eq!(act(&alone, "disable").await.status, 200);
    let folder = alone.stop().await;
    let a = replica_at(with_files().in_folder(folder), &redis.url(), free_port(), "").start().await;
    let b = replica_at(with_server(&upstream), &redis.url(), free_port(), "").start().await;
    for replica in [&a, &b] {
        assert_eq!(replica.server("s").await["state"], "disabled");
    }
    assert_eq!(act(&b, "enable").await.status, 200);
    a.ready("s").await;
    // The file does not bring the entry back.
    let a = replica_at(with_files().in_folder(a.stop().await), &redis.url(), free_port(), "");
    assert_eq!(a.start().await.server("s").await["state"], "ready");
}
