//! The cluster as operators see it: replicas, owners of sessions, the store, and differences.

use serde_json::{Value, json};

use crate::cluster::{RedisServer, start_replicas};
use crate::support::{Client, Gateway, Upstream, client_table, poll_for};

/// Returns the value of a series of a replica's metrics.
async fn sample(replica: &Gateway, series: &str) -> Option<f64> {
    let metrics = replica.metrics().await;
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map(|value| value.parse().unwrap())
}

async fn readiness(replica: &Gateway) -> Value {
    let ready = replica.admin("/readyz").await;
    assert_eq!(ready.status, 200);
    ready.json()
}

#[tokio::test]
async fn operators_see_replicas_owners_of_sessions_differences_and_the_store() {
    let (mut redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = || {
        Gateway::with("s", upstream.http())
            .gateway("client_rate = \"100/h\"")
            .toml(&client_table("one", "key-one", ""))
    };
    let [a, b] = start_replicas(&redis.url(), builder).await;
    let client = Client::sessionless(a.running.address, "2025-11-25").key("key-one");
    let client = client.initialized().await;
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    // The lease of `a` has the number of its sessions with the next renewal.
    b.wait_for(|status| status["cluster"]["replicas"][0]["sessions"] == 1).await;
    let cluster = &a.status().await["cluster"];
    assert_eq!(cluster["recorded_sessions"], 1);
    assert_eq!(cluster["replicas"][0]["sessions"], 0);
    assert_eq!(
        (&cluster["degraded_since"], &cluster["last_failure"]),
        (&json!(null), &json!(null))
    );
    let latency = &cluster["store_latency"];
    let micros = |key: &str| latency[key].as_u64().unwrap();
    assert!(latency["requests"].as_u64().unwrap() >= 2, "{latency}");
    assert!(0 < micros("median_micros") && micros("median_micros") <= micros("p99_micros"));
    assert!(micros("p99_micros") <= micros("slowest_micros"), "{latency}");
    // The replicas have different addresses, so their configurations differ.
    let ready = readiness(&b).await;
    let reason = json!(["cluster: 1 of 1 other replicas have another configuration"]);
    assert_eq!((&ready["ready"], &ready["reasons"]), (&json!(true), &reason));
    let mut numbers = ready["cluster"].clone();
    assert!(numbers["store_latency"].take()["requests"].as_u64().unwrap() >= 2, "{ready}");
    assert_eq!(
        numbers,
        json!({
            "replicas": 2, "other_configurations": 1, "sessions": 0, "all_sessions": 1,
            "degraded": false, "store_latency": null
        })
    );
    assert_eq!(sample(&a, "trunkline_owned_sessions").await, Some(1.0));
    for (configuration, count) in [("same", 0.0), ("other", 1.0), ("skewed", 0.0)] {
        let series = format!("trunkline_replicas{{configuration=\"{configuration}\"}}");
        assert_eq!(sample(&a, &series).await, Some(count), "{configuration}");
    }
    for operation in ["put", "list", "take_permits", "write_sessions"] {
        let labels = format!("operation=\"{operation}\",outcome=\"ok\"");
        let series = format!("trunkline_store_operation_duration_seconds_count{{{labels}}}");
        assert!(sample(&a, &series).await.unwrap_or(0.0) >= 1.0, "{operation}");
    }
    assert_eq!(sample(&a, "trunkline_store_degraded").await, Some(0.0));

    redis.kill();
    a.wait_for(|status| !status["cluster"]["store_error"].is_null()).await;
    // A call that needs a permit notices it.
    let status = poll_for(async || {
        assert_eq!(client_of(&a).call("s__echo", json!({})).await.text(), "{}");
        let status = a.status().await;
        (status["cluster"]["degraded"] == true).then_some(status)
    })
    .await;
    let cluster = &status["cluster"];
    assert!(cluster["degraded_since"].is_string(), "{cluster}");
    assert!(cluster["last_failure"]["error"].as_str().is_some_and(|error| !error.is_empty()));
    assert_eq!(readiness(&a).await["cluster"]["degraded"], true);
    assert_eq!(sample(&a, "trunkline_store_degraded").await, Some(1.0));
    let failed = "trunkline_store_operation_duration_seconds_count{operation=\"take_permits\",outcome=\"error\"}";
    assert!(sample(&a, failed).await.unwrap_or(0.0) >= 1.0);
}

fn client_of(replica: &Gateway) -> Client {
    replica.modern().key("key-one")
}
