//! Ids, states and URIs that another principal presents are refused at each replica, and logged. Those of
//! sessions and parked calls are valid at one endpoint; a kept result wherever its owner sees the tool.

use serde_json::{Value, json};

use crate::authorization::audited;
use crate::cluster::peers::port::lines;
use crate::cluster::sessions::continuations::{asking_server, park, retry_parked};
use crate::cluster::{RedisServer, forwarded, start_replicas, through};
use crate::refused_logins::warnings;
use crate::support::client::Piece;
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Step, Upstream, client_table, poll_for, until};

fn with_mallory(upstream: &Upstream, name: &str) -> Builder {
    Gateway::with("s", upstream.http())
        .gateway("sse = true")
        .toml("[profiles.p]\n[audit]\nfile = \"audit.jsonl\"\n")
        .toml(&client_table("one", "key-one", ""))
        .toml(&client_table(name, "key-mallory", ""))
}

/// Waits for the audit record of a refused request of a client.
async fn refused_request(gateway: &Gateway, client: &str, reason: &str) -> Value {
    poll_for(async || {
        let records = audited(gateway.folder(), 1).await;
        records.into_iter().find(|record| {
            record["principal"] == client
                && record["reason"] == reason
                && record["decision"] == "deny"
                && record["address"] == "127.0.0.1"
        })
    })
    .await
}

#[tokio::test]
async fn the_id_of_a_session_is_refused_at_each_replica_and_logged() {
    warnings();
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let name = "mallory-of-sessions";
    let [a, b] = start_replicas(&redis.url(), || with_mallory(&upstream, name)).await;
    let one = Client::sessionless(a.running.address, "2025-11-25").key("key-one");
    let one = one.initialized().await;
    for replica in [&a, &b] {
        let mallory = through(replica, &one, Some("key-mallory"));
        for _ in 0..10 {
            assert_eq!(mallory.request("ping", json!({})).await.status, 404);
        }
        assert_eq!(mallory.http("DELETE", "/mcp").of_session().send().await.status(), 404);
        assert_eq!(mallory.http("GET", "/mcp").of_session().send().await.status(), 404);
        refused_request(replica, name, "session_lost").await;
        let elsewhere = through(replica, &one, Some("key-one")).at("/mcp/p");
        assert_eq!(elsewhere.request("ping", json!({})).await.status, 404);
        refused_request(replica, "one", "session_lost").await;
    }
    // A line for each replica, whatever the number of requests.
    let line =
        format!("a request from 127.0.0.1 has the id of a session that \"{name}\" has not opened");
    until(|| lines(&line).len() == 2).await;
    assert!(lines(&line).iter().all(|line| !line.contains(one.session())));
    assert_eq!(forwarded(&b, "answered").await, 0);
    let own = through(&b, &one, Some("key-one"));
    assert_eq!(own.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(lines(&line).len(), 2, "a valid one is not logged");
}

#[tokio::test]
async fn the_state_of_a_parked_call_is_refused_at_each_replica_and_recorded() {
    let (redis, upstream) = (RedisServer::start().await, asking_server().await);
    let name = "mallory-of-states";
    let [a, b] = start_replicas(&redis.url(), || with_mallory(&upstream, name)).await;
    let waiting = park(&a.modern().key("key-one")).await;
    for replica in [&a, &b] {
        let mallory = replica.modern().key("key-mallory");
        let elsewhere = replica.modern().key("key-one").at("/mcp/p");
        for (client, principal) in [(mallory, name), (elsewhere, "one")] {
            let said = retry_parked(&client, &waiting).send().await.said().await;
            assert_eq!(said.code(), -32602, "{said:?}");
            let record = poll_for(async || {
                let records = audited(replica.folder(), 1).await;
                records.into_iter().find(|it| {
                    it["principal"] == principal
                        && it["method"] == "tools/call"
                        && it["reason"].is_string()
                })
            })
            .await;
            assert_eq!(record["address"], "127.0.0.1", "{record}");
        }
    }
    assert_eq!(forwarded(&b, "answered").await, 0);
    let said = retry_parked(&b.modern().key("key-one"), &waiting).send().await.said().await;
    assert!(said.text().contains("accept"), "{said:?}");
}

#[tokio::test]
async fn the_uri_of_a_kept_result_is_refused_at_each_replica_and_recorded_at_its_owner() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let text = "0123456789".repeat(2000);
    upstream.does("large", move |_| vec![Step::text(&text)]);
    let name = "mallory-of-results";
    let lines = "result = { max_size = \"4KiB\", when_larger = \"resource\" }\n";
    let [a, b] = start_replicas(&redis.url(), || {
        Gateway::with("s", format!("{}\n{lines}", upstream.http()))
            .toml("[profiles.p]\n[profiles.few]\ntools = []\n")
            .toml("[audit]\nfile = \"audit.jsonl\"\n")
            .toml(&client_table("one", "key-one", ""))
            .toml(&client_table(name, "key-mallory", ""))
    })
    .await;
    let said = a.modern().key("key-one").call("s__large", json!({})).await;
    let link = said.answer().to_string();
    let start = link.find("trunkline://results/").unwrap_or_else(|| panic!("{link}"));
    let uri: String = link[start..].chars().take("trunkline://results/".len() + 48).collect();
    let uri = format!("{uri}?range=0-3");
    for replica in [&a, &b] {
        let mallory = replica.modern().key("key-mallory");
        // An endpoint without the tool.
        let elsewhere = replica.modern().key("key-one").at("/mcp/few");
        for client in [mallory, elsewhere] {
            let said = client.read_resource(&uri).await;
            assert!(said.answer()["error"].is_object(), "{said:?}");
            assert!(!said.answer().to_string().contains("0123"), "{said:?}");
        }
        let at_other_profile = replica.modern().key("key-one").at("/mcp/p");
        let said = at_other_profile.read_resource(&uri).await;
        assert_eq!(said.answer()["result"]["contents"][0]["text"], "0123", "{said:?}");
    }
    let record = poll_for(async || {
        let records = audited(a.folder(), 1).await;
        let of_mallory = records.into_iter().filter(|it| it["principal"] == name);
        let of_mallory: Vec<_> = of_mallory.collect();
        (of_mallory.len() >= 2).then(|| of_mallory[1].clone())
    })
    .await;
    assert_eq!([&record["decision"], &record["address"]], ["deny", "127.0.0.1"], "{record}");
    let own = b.modern().key("key-one").read_resource(&uri).await;
    assert_eq!(own.answer()["result"]["contents"][0]["text"], "0123", "{own:?}");
}

#[tokio::test]
async fn the_address_of_an_event_stream_is_refused_to_others_and_recorded() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let name = "mallory-of-streams";
    let [a, b] = start_replicas(&redis.url(), || with_mallory(&upstream, name)).await;
    let one = a.plain().key("key-one");
    let mut stream = one.http("GET", "/sse").accept("text/event-stream").send().await;
    let Some(Piece::Endpoint(messages)) = stream.piece().await else { panic!("no endpoint") };
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for replica in [&a, &b] {
        let mallory = replica.plain().key("key-mallory");
        let post = mallory.http("POST", &messages).body(ping.clone());
        let said = post.header("content-type", "application/json").send().await;
        assert_eq!(said.status(), 404);
        refused_request(replica, name, "session_lost").await;
    }
    let post = one.http("POST", &messages).body(ping);
    assert_eq!(post.header("content-type", "application/json").send().await.status(), 202);
    assert_eq!(stream.message().await.expect("an answer")["id"], 1);
}
