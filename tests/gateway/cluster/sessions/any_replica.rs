//! Legacy sessions that are used through replicas other than their own.

use serde_json::json;

use crate::cluster::{RedisServer, forwarded, peer_address, replica_at, start_replicas, through};
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Step, Upstream, client_table};

const NEW: &str = r#"{"name":"new","inputSchema":{"type":"object"}}"#;

fn gateway_of(upstream: &Upstream) -> Builder {
    Gateway::with("s", upstream.http())
}

pub fn with_clients(upstream: &Upstream) -> Builder {
    gateway_of(upstream)
        .toml("[profiles.p]\n")
        .toml(&client_table("one", "key-one", ""))
        .toml(&client_table("two", "key-two", ""))
}

pub async fn legacy(gateway: &Gateway, key: &str) -> Client {
    let client = Client::sessionless(gateway.running.address, "2025-11-25");
    client.key(key).initialized().await
}

#[tokio::test]
async fn a_session_is_used_through_any_replica() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    upstream.does("counts", |_| {
        vec![Step::Progress(1), Step::Hold, Step::Progress(2), Step::text("counted")]
    });
    let [a, b, c] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let at_a = a.legacy().await;
    for other in [&b, &c] {
        let client = through(other, &at_a, None);
        assert_eq!(client.call("s__echo", json!({ "x": 1 })).await.text(), r#"{"x":1}"#);
        assert!(client.tool_names().await.contains(&"s__counts".to_owned()));
        // Progress is forwarded as it comes: the second one is sent after the first was read.
        let mut call = client.ask_call("s__counts", json!({})).token(json!("t")).send().await;
        let first = call.message().await.expect("progress");
        assert_eq!(first["params"], json!({ "progressToken": "t", "progress": 1, "total": 10 }));
        upstream.release(1);
        let said = call.said().await;
        assert_eq!((said.notices().len(), said.text()), (1, "counted"));
    }
    for replica in [&b, &c] {
        assert_eq!(forwarded(replica, "answered").await, 3);
    }
    assert_eq!(forwarded(&a, "answered").await, 0, "the owner forwards nothing");
    let sessions = async |replica: &Gateway| replica.status().await["sessions"].clone();
    assert_eq!([sessions(&a).await, sessions(&b).await, sessions(&c).await], [1, 0, 0]);
}

#[tokio::test]
async fn the_stream_of_a_session_and_its_end_are_those_of_its_owner() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let at_a = a.legacy().await;
    let at_b = through(&b, &at_a, None);
    let mut stream = at_b.listen().await;
    a.wait_for(|status| status["streams"] == 1).await;
    upstream.set_tools([NEW]).announce().await;
    let change = stream.message().await.expect("a change");
    assert_eq!(change["method"], "notifications/tools/list_changed");
    // The client leaves.
    drop(stream);
    a.wait_for(|status| status["streams"] == 0).await;
    let deleted = at_b.http("DELETE", "/mcp").of_session().send().await;
    assert_eq!(deleted.status(), 204);
    assert_eq!(a.status().await["sessions"], 0);
    for client in [&at_a, &at_b] {
        assert_eq!(client.request("ping", json!({})).await.status, 404);
    }
}

#[tokio::test]
async fn a_call_is_cancelled_through_another_replica_than_the_one_that_it_was_made_through() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    upstream.does("begin", |_| vec![Step::Progress(1), Step::Never]);
    let [a, b, c] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let at_a = a.legacy().await;
    let (at_b, at_c) = (through(&b, &at_a, None), through(&c, &at_a, None));
    let ask = at_b.ask_call("s__begin", json!({})).id(json!(77)).token(json!(1));
    let mut call = ask.send().await;
    call.message().await.expect("progress");
    let cancel = at_c.ask("notifications/cancelled", json!({ "requestId": 77 })).notification();
    assert_eq!(cancel.send().await.status(), 202);
    upstream.heard("notifications/cancelled", 1).await;
}

#[tokio::test]
async fn a_session_id_is_worthless_to_another_principal_and_at_another_endpoint() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b] = start_replicas(&redis.url(), || with_clients(&upstream)).await;
    let one = legacy(&a, "key-one").await;
    let own = through(&b, &one, Some("key-one"));
    assert_eq!(own.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(forwarded(&b, "answered").await, 1);
    let other = through(&b, &one, Some("key-two"));
    assert_eq!(other.request("ping", json!({})).await.status, 404);
    let elsewhere = through(&b, &one, Some("key-one")).at("/mcp/p");
    assert_eq!(elsewhere.request("ping", json!({})).await.status, 404);
    let wrong = through(&b, &one, Some("key-wrong"));
    assert_eq!(wrong.request("ping", json!({})).await.status, 401);
    assert_eq!(forwarded(&b, "answered").await, 1, "nothing more was forwarded");
    // A Modern request has no session.
    let modern = b.modern().key("key-one");
    let modern = modern.ask_call("s__echo", json!({})).header("mcp-session-id", one.session());
    assert_eq!(modern.send().await.said().await.text(), "{}");
    assert_eq!(forwarded(&b, "answered").await, 1);
}

#[tokio::test]
async fn the_owner_authenticates_the_client_and_counts_its_requests() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let limited = || {
        let rate = "client_rate = \"3/h\"";
        gateway_of(&upstream).gateway(rate).toml(&client_table("one", "key-one", ""))
    };
    let [a, b] = start_replicas(&redis.url(), limited).await;
    let one = legacy(&a, "key-one").await;
    let at_b = through(&b, &one, Some("key-one"));
    // A body in several pieces is counted before it is read.
    let large = json!({ "x": "y".repeat(300_000) });
    assert!(!at_b.call("s__echo", large).await.is_error());
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    let refused = at_b.call("s__echo", json!({})).await;
    assert!(refused.error()["message"].as_str().unwrap().contains("over the limit"), "{refused:?}");
    // It is the same rate at each replica.
    let modern = b.modern().key("key-one");
    let refused = modern.call("s__echo", json!({})).await;
    assert!(refused.error()["message"].as_str().unwrap().contains("over the limit"), "{refused:?}");
    // A key that the owner does not accept any more is refused, whatever the other replica knows.
    let key = client_table("one", "key-new", "");
    let port = peer_address(&a).await.port();
    let renewed = replica_at(gateway_of(&upstream).toml(&key), &redis.url(), port, "");
    a.reload(renewed).await;
    assert_eq!(at_b.request("ping", json!({})).await.status, 401);
}

#[tokio::test]
async fn a_list_is_read_page_by_page_at_any_replica() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let paged = || gateway_of(&upstream).gateway("page_size = 3");
    let [a, b] = start_replicas(&redis.url(), paged).await;
    for replica in [&a, &b] {
        replica.ready("s").await;
    }
    let first = a.modern().request("tools/list", json!({})).await.result().clone();
    let cursor = json!({ "cursor": first["nextCursor"] });
    let last = b.modern().request("tools/list", cursor).await.result().clone();
    let names = |page: &serde_json::Value| page["tools"].as_array().unwrap().len();
    assert_eq!((names(&first), names(&last), last.get("nextCursor")), (3, 1, None));
}

#[tokio::test]
async fn without_a_cluster_ids_are_random_digits() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.legacy().await;
    assert_eq!(client.session().len(), 32);
    assert!(client.session().bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert!(gateway.status().await["cluster"].is_null());
}
