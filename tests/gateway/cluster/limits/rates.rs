//! Rates that replicas enforce together.

use serde_json::json;
use trunkline::call::Principal;
use trunkline::clock::unix_now;

use crate::cluster::sessions::failures::{session_of, silent_replica};
use crate::cluster::{RedisServer, free_port, knows, replica_at, start_replicas, through};
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Upstream, client_table, poll_for};

/// One client, and a rate.
fn limited(upstream: &Upstream, rate: &str) -> Builder {
    Gateway::with("s", upstream.http())
        .gateway(&format!("client_rate = \"{rate}\""))
        .toml(&client_table("one", "key-one", ""))
}

fn client_of(replica: &Gateway) -> Client {
    replica.modern().key("key-one")
}

/// Makes calls until one is refused, and returns the number of those that were admitted.
async fn calls_until_refused(client: &Client, most: usize) -> usize {
    for admitted in 0..most {
        let called = client.call("s__echo", json!({})).await;
        if called.status == 429 {
            let message = called.error()["message"].as_str().unwrap().to_owned();
            assert!(message.contains("over the limit client:one"), "{message}");
            return admitted;
        }
        assert_eq!(called.text(), "{}");
    }
    most
}

/// Returns a counter of a replica; 0 if it has none yet.
async fn counter(replica: &Gateway, name: &str) -> u64 {
    let metrics = replica.metrics().await;
    let count = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_client_has_one_rate_at_all_replicas() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a, b, c] = start_replicas(&redis.url(), || limited(&upstream, "5/h")).await;
    for (replica, calls) in [(&a, 2), (&b, 2), (&c, 1)] {
        assert_eq!(calls_until_refused(&client_of(replica), calls).await, calls);
    }
    for replica in [&a, &b, &c] {
        assert_eq!(calls_until_refused(&client_of(replica), 1).await, 0);
    }
    // The store has neither names nor keys in clear, and forgets the rate.
    let names = redis.command("KEYS trunkline:rates:*").await;
    let name = names.lines().find(|line| line.starts_with("trunkline:rates:")).expect("a rate");
    assert!(!names.contains("one") && name.len() == "trunkline:rates:".len() + 64, "{names}");
    let expiry = redis.command(&format!("PTTL {}", name.trim())).await;
    let expiry: u64 = expiry.trim().trim_start_matches(':').parse().unwrap();
    assert!((3_000_000..=3_600_100).contains(&expiry), "{expiry}");
}

/// Sends as many pings at once, and returns their statuses, and true for those without an error. A
/// refusal within a session has the status 200.
async fn ping_at_once(client: &Client, count: usize) -> Vec<(u16, bool)> {
    let ping = async |_| {
        let said = client.request("ping", json!({})).await;
        (said.status, said.answer()["error"].is_null())
    };
    futures_util::future::join_all((0..count).map(ping)).await
}

#[tokio::test]
async fn a_forwarded_request_waits_for_permits_like_any_other() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b] = start_replicas(&redis.url(), || limited(&upstream, "20/h")).await;
    let client = Client::sessionless(a.running.address, "2025-11-25").key("key-one");
    let at_b = through(&b, &client.initialized().await, Some("key-one"));
    // The store is late: nothing is held ahead, and one permit may be used in advance.
    redis.command("CLIENT PAUSE 300 ALL").await;
    assert_eq!(ping_at_once(&at_b, 4).await, [(200, true); 4]);
}

#[tokio::test]
async fn a_request_of_a_lost_owner_waits_for_permits_like_any_other() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let a = replica_at(limited(&upstream, "20/h"), &redis.url(), free_port(), "").start().await;
    let killed = silent_replica(&redis, free_port());
    knows(&a, 1).await;
    let kind = session_of(&killed, &Principal::Client("one".into()));
    let client = a.plain().becomes(kind).key("key-one");
    redis.command("CLIENT PAUSE 300 ALL").await;
    assert_eq!(ping_at_once(&client, 4).await, [(404, false); 4]);
}

#[tokio::test]
async fn the_rate_of_a_server_is_one_for_all_clients_and_replicas() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let builder = || {
        let lines = format!("{}rate = \"4/h\"\nrate_each = \"3/h\"", upstream.http());
        Gateway::with("s", lines)
            .toml(&client_table("one", "key-one", ""))
            .toml(&client_table("two", "key-two", ""))
    };
    let [a, b] = start_replicas(&redis.url(), builder).await;
    let call = async |replica: &Gateway, key: &str| {
        let called = replica.modern().key(key).call("s__echo", json!({})).await;
        match called.answer()["error"]["message"].as_str() {
            Some(message) => message.to_owned(),
            None => called.text().to_owned(),
        }
    };
    for replica in [&a, &b, &a] {
        assert_eq!(call(replica, "key-one").await, "{}");
    }
    let over = call(&b, "key-one").await;
    assert!(over.contains("over the limit each:server:s"), "{over}");
    assert_eq!(call(&b, "key-two").await, "{}");
    let over = call(&a, "key-two").await;
    assert!(over.contains("over the limit server:s"), "{over}");
}

#[tokio::test]
async fn most_calls_of_a_busy_client_need_no_request_to_the_store() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a, b] = start_replicas(&redis.url(), || limited(&upstream, "100000/h")).await;
    for replica in [&a, &b] {
        let client = client_of(replica);
        for _ in 0..300 {
            assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        }
        let requests = counter(replica, "trunkline_store_rate_requests_total").await;
        assert!((1..=60).contains(&requests), "{requests} requests for 300 calls");
    }
}

#[tokio::test]
async fn without_the_store_each_replica_counts_for_itself_until_it_is_back() {
    let (mut redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a, b] = start_replicas(&redis.url(), || limited(&upstream, "3/h")).await;
    assert_eq!(calls_until_refused(&client_of(&a), 1).await, 1);
    redis.kill();
    // The call that finds out is decided like the others.
    for replica in [&a, &b] {
        assert_eq!(calls_until_refused(&client_of(replica), 9).await, 3);
        let status = replica.wait_for(|status| status["cluster"]["degraded"] == true).await;
        let mut findings = status["findings"].as_array().unwrap().iter();
        let degraded = findings.find(|finding| finding["subject"] == "cluster.degraded").unwrap();
        assert!(
            degraded["text"].as_str().unwrap().contains("counts them for itself"),
            "{degraded}"
        );
        let ready = replica.admin("/readyz").await;
        assert_eq!(ready.status, 200);
        assert!(ready.json()["reasons"].to_string().contains("cluster: the store"));
        assert!(counter(replica, "trunkline_store_errors_total{store=\"rates\"}").await >= 1);
    }
    let folder = tempfile::tempdir().unwrap();
    let port = redis.port;
    let again = RedisServer::try_start(port, folder.path()).await.expect("the port is free");
    let _redis = again.map_folder(folder);
    for replica in [&a, &b] {
        replica.wait_for(|status| status["cluster"]["degraded"] == false).await;
    }
    // The rate is shared again.
    assert_eq!(calls_until_refused(&client_of(&a), 2).await, 2);
    assert_eq!(calls_until_refused(&client_of(&b), 9).await, 1);
}

#[tokio::test]
async fn without_the_store_requests_with_a_rate_are_refused_if_configured() {
    let (mut redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let builder = limited(&upstream, "100/h");
    let a = replica_at(builder, &redis.url(), free_port(), "degrade = \"refuse\"").start().await;
    knows(&a, 0).await;
    let client = client_of(&a);
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    redis.kill();
    // Permits that were taken before may be used.
    let refused = poll_for(async || {
        let called = client.ask_call("s__echo", json!({})).send().await;
        (called.status() == 503).then_some(called)
    })
    .await;
    assert_eq!(refused.headers()["retry-after"], "1");
    let refused = refused.said().await;
    let message = refused.error()["message"].as_str().unwrap();
    assert!(message.contains("the store that the gateway's replicas share"), "{message}");
    assert!(a.metrics().await.contains("store_unavailable"));
    a.wait_for(|status| status["cluster"]["degraded"] == true).await;
}

#[tokio::test]
async fn an_address_that_is_locked_out_has_one_attempt_at_each_other_replica() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let builder = || limited(&upstream, "1000/h").gateway("failed_logins = \"6/h\"");
    let [a, b] = start_replicas(&redis.url(), builder).await;
    let attempt = async |replica: &Gateway| {
        let client = replica.modern().key("key-wrong");
        client.ask_call("s__echo", json!({})).send().await.status()
    };
    for _ in 0..6 {
        assert_eq!(attempt(&a).await, 401);
    }
    assert_eq!(attempt(&a).await, 429);
    // It learns with its first failure. The store's answer may be later than another attempt.
    let mut failed = 0;
    while attempt(&b).await == 401 {
        failed += 1;
    }
    assert!((1..6).contains(&failed), "{failed} failures");
    // A valid key is not affected.
    for replica in [&a, &b] {
        assert_eq!(calls_until_refused(&client_of(replica), 1).await, 1);
    }
}

/// A client with a quota.
fn with_quota(upstream: &Upstream, quota: &str) -> Builder {
    let lines = format!("quota = \"{quota}\"");
    Gateway::with("s", upstream.http()).toml(&client_table("one", "key-one", &lines))
}

/// Makes calls in turn at all replicas until one is refused, and returns the number before it.
async fn calls_within_quota(replicas: &[&Gateway]) -> usize {
    for (admitted, replica) in replicas.iter().cycle().enumerate() {
        let called = client_of(replica).call("s__echo", json!({})).await;
        if called.status == 429 {
            let message = called.error()["message"].as_str().unwrap();
            assert!(message.contains("over the limit quota:client:one"), "{message}");
            return admitted;
        }
    }
    0
}

#[tokio::test]
async fn the_counter_of_a_quota_has_its_window_in_its_name_and_outlives_it() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a, b] = start_replicas(&redis.url(), || with_quota(&upstream, "5/day")).await;
    assert_eq!(calls_within_quota(&[&a, &b]).await, 5);
    let names = async || {
        let names = redis.command("KEYS trunkline:quotas:*").await;
        let names = names.lines().filter(|line| line.starts_with("trunkline:quotas:"));
        names.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let of_day = names().await;
    assert!(of_day.len() == 1 && of_day[0].len() == "trunkline:quotas:".len() + 64, "{of_day:?}");
    // A quota with another unit has a counter of its own.
    for replica in [&a, &b] {
        replica.reload(with_quota(&upstream, "100000/h")).await;
    }
    assert_eq!(client_of(&a).call("s__echo", json!({})).await.text(), "{}");
    let both = names().await;
    let of_hour: Vec<_> = both.iter().filter(|name| !of_day.contains(name)).collect();
    assert!(both.len() == 2 && of_hour.len() == 1, "{both:?}");
    for (name, hours) in [(&of_day[0], 48), (of_hour[0], 2)] {
        let expiry = redis.command(&format!("PTTL {name}")).await;
        let expiry: u64 = expiry.trim().trim_start_matches(':').parse().unwrap();
        let longest = hours * 3_600_000 + 60_000;
        assert!((longest - 60_000..=longest).contains(&expiry), "{hours} h: {expiry}");
    }
}

#[tokio::test]
async fn a_quota_per_second_is_shared_and_refilled_with_the_next_second() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a, b] = start_replicas(&redis.url(), || with_quota(&upstream, "4/s")).await;
    let call =
        async |replica: &Gateway| client_of(replica).call("s__echo", json!({})).await.status == 200;
    let (start, mut admitted, mut refused) = (unix_now().as_secs(), 0, 0);
    while unix_now().as_secs() < start + 3 {
        let (at_a, at_b) = tokio::join!(call(&a), call(&b));
        for is_admitted in [at_a, at_b] {
            admitted += u64::from(is_admitted);
            refused += u64::from(!is_admitted);
        }
    }
    let seconds = unix_now().as_secs() - start + 1;
    let case = format!("{admitted} admitted and {refused} refused in {seconds} seconds");
    assert!(admitted <= 4 * seconds && refused > 0, "{case}");
    assert!(admitted > 4, "it is refilled: {case}");
}

#[tokio::test]
async fn a_quota_is_never_exceeded_by_parallel_calls_at_three_replicas() {
    let (mut redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let builder = || with_quota(&upstream, "20/day");
    let [a, b, c] = start_replicas(&redis.url(), builder).await;
    let used = async |replica: &Gateway| {
        let client = client_of(replica);
        let call = async || client.call("s__echo", json!({})).await.answer()["error"].is_null();
        let mut admitted = 0;
        for _ in 0..5 {
            let (first, second, third) = tokio::join!(call(), call(), call());
            admitted += [first, second, third].into_iter().filter(|it| *it).count();
        }
        admitted
    };
    let (at_a, at_b, at_c) = tokio::join!(used(&a), used(&b), used(&c));
    assert_eq!(at_a + at_b + at_c, 20, "{at_a} {at_b} {at_c}");
    let over = client_of(&a).call("s__echo", json!({})).await;
    let message = over.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("over the limit quota:client:one"), "{message}");
    // Without the store nothing more is admitted, though `degrade` is "local".
    redis.kill();
    let over = client_of(&b).call("s__echo", json!({})).await;
    assert!(!over.answer()["error"].is_null(), "{over:?}");
}
