//! The last known lists of servers, which give all replicas the same names.

use crate::cluster::{RedisServer, StoreGate, free_port, replica_at};
use crate::support::gateway::Builder;
use crate::support::upstream::tool;
use crate::support::{Gateway, Upstream, until_async};

/// Configures two servers with a tool of the same name. The first one keeps the name.
fn with_same_tool(first: &Upstream, second: &Upstream) -> Builder {
    Gateway::with("x", first.http()).server("y", second.http()).gateway("naming = \"first\"")
}

pub async fn servers() -> [Upstream; 2] {
    let servers = Upstream::both().await;
    for server in &servers {
        server.set_tools([tool("same").to_string()]);
    }
    servers
}

/// Waits until the store has the lists of so many servers.
pub async fn has_lists(redis: &RedisServer, count: usize) {
    let names = async || redis.command("KEYS trunkline:lists:*").await;
    until_async(async || names().await.starts_with(&format!("*{count}\r\n"))).await;
}

const SHARED_NAMES: [&str; 2] = ["same", "y__same"];

#[tokio::test]
async fn replicas_have_the_same_names_in_every_order_of_starts_also_while_a_server_is_down() {
    let (redis, [x, y]) = (RedisServer::start().await, servers().await);
    let start = async || {
        replica_at(with_same_tool(&x, &y), &redis.url(), free_port(), "").start_at_once().await
    };
    let a = start().await;
    until_async(async || a.modern().tool_names().await == SHARED_NAMES).await;
    has_lists(&redis, 2).await;
    x.answers(Some((503, "")));
    // The second one, and the first one again, start without the server.
    let b = start().await;
    assert_eq!(b.modern().tool_names().await, SHARED_NAMES);
    drop(a.stop().await);
    let a = start().await;
    assert_eq!(a.modern().tool_names().await, SHARED_NAMES);
    // The store has neither names nor texts in clear.
    let names = redis.command("KEYS trunkline:lists:*").await;
    for name in names.lines().filter(|line| line.starts_with("trunkline:lists:")) {
        assert_eq!(name.trim().len(), "trunkline:lists:".len() + 64, "{names}");
        let record = redis.command(&format!("GET {}", name.trim())).await;
        assert!(!record.contains("same"), "{record}");
    }
    x.answers(None);
    y.answers(Some((503, "")));
    let c = start().await;
    for replica in [&a, &b, &c] {
        assert_eq!(replica.modern().tool_names().await, SHARED_NAMES);
    }
}

#[tokio::test]
async fn a_replica_that_started_without_the_lists_of_a_server_uses_those_of_the_others() {
    let (redis, [x, y]) = (RedisServer::start().await, servers().await);
    let a = replica_at(with_same_tool(&x, &y), &redis.url(), free_port(), "").start().await;
    has_lists(&redis, 2).await;
    x.answers(Some((503, "")));
    let gate = StoreGate::start(&redis).await;
    gate.close();
    let b = replica_at(with_same_tool(&x, &y), &gate.url(), free_port(), "").start_at_once().await;
    until_async(async || b.modern().tool_names().await == ["same"]).await;
    gate.open();
    until_async(async || b.modern().tool_names().await == SHARED_NAMES).await;
    assert_eq!(a.modern().tool_names().await, SHARED_NAMES);
}
