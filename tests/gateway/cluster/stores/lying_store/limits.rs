//! Rates, quotas, failed logins and used consents.

use serde_json::json;

use super::{expect_line_about, next_key, warnings};
use crate::cluster::{RedisServer, free_port, replica_at, start_replicas};
use crate::confirm::{CONFIRM, Question, form, retry};
use crate::support::{Gateway, Upstream, client_table, poll_for};

const DEGRADED_LINE: &str = "the store of shared limits and records cannot be used";

async fn status_of_call(gateway: &Gateway) -> u16 {
    gateway.modern().key("key-one").call("s__echo", json!({})).await.status
}

#[tokio::test]
async fn a_bucket_of_a_rate_that_is_no_time_is_removed() {
    warnings();
    let upstream = Upstream::modern().await;
    let builder = || {
        let rate = "client_rate = \"2/h\"";
        Gateway::with("s", upstream.http()).gateway(rate).toml(&client_table("one", "key-one", ""))
    };
    for lie in ["SET KEY x", "SET KEY nan", "SET KEY -nan", "LPUSH KEY x"] {
        let redis = RedisServer::start().await;
        let [a] = start_replicas(&redis.url(), builder).await;
        for status in [200, 200, 429] {
            assert_eq!(status_of_call(&a).await, status, "{lie}");
        }
        let bucket = next_key(&redis, "rates", &[]).await;
        redis.command(&format!("DEL {bucket}")).await;
        redis.command(&lie.replace("KEY", &bucket)).await;
        // The replica knows that the bucket is empty: another one asks the store.
        let b = replica_at(builder(), &redis.url(), free_port(), "").start().await;
        assert_eq!(status_of_call(&b).await, 200, "{lie}: it counts for itself");
        expect_line_about(&redis, DEGRADED_LINE).await;
        b.wait_for(|status| status["cluster"]["degraded"] == false).await;
        for status in [200, 200, 429] {
            assert_eq!(status_of_call(&b).await, status, "{lie}: the rate begins again");
        }
    }
}

#[tokio::test]
async fn a_changed_bucket_of_a_rate_refuses_or_admits_calls_and_nothing_else() {
    let upstream = Upstream::modern().await;
    for (time, statuses) in [("9e18", [429, 429, 429]), ("inf", [429; 3]), ("1", [200, 200, 429])] {
        let redis = RedisServer::start().await;
        let [a, b] = start_replicas(&redis.url(), || {
            let rate = "client_rate = \"2/h\"";
            Gateway::with("s", upstream.http())
                .gateway(rate)
                .toml(&client_table("one", "key-one", ""))
        })
        .await;
        assert_eq!(status_of_call(&a).await, 200);
        let bucket = next_key(&redis, "rates", &[]).await;
        redis.command(&format!("SET {bucket} {time}")).await;
        for status in statuses {
            let called = b.modern().key("key-one").call("s__echo", json!({})).await;
            assert_eq!(called.status, status, "{time}");
            let wait = called.header("retry-after").map_or(0, |wait| wait.parse::<u64>().unwrap());
            assert!(wait <= 3600, "{time}: {wait}");
        }
        assert_eq!(b.status().await["cluster"]["degraded"], false, "{time}");
    }
}

#[tokio::test]
async fn a_count_of_a_quota_that_is_no_number_admits_no_call() {
    warnings();
    let upstream = Upstream::modern().await;
    for lie in ["SET KEY x", "SET KEY -9", "SET KEY 1.5", "LPUSH KEY x"] {
        let redis = RedisServer::start().await;
        let quota = "quota = \"64/day\"";
        let [a, b] = start_replicas(&redis.url(), || {
            Gateway::with("s", upstream.http()).toml(&client_table("one", "key-one", quota))
        })
        .await;
        assert_eq!(status_of_call(&a).await, 200);
        let count = next_key(&redis, "quotas", &[]).await;
        redis.command(&format!("DEL {count}")).await;
        redis.command(&lie.replace("KEY", &count)).await;
        let made = upstream.calls().len();
        let refused = b.modern().key("key-one").call("s__echo", json!({})).await;
        assert_eq!(refused.status, 503, "{lie}: {refused:?}");
        assert_eq!(upstream.calls().len(), made, "{lie}");
        expect_line_about(&redis, DEGRADED_LINE).await;
    }
}

#[tokio::test]
async fn a_changed_count_of_failed_logins_locks_out_no_valid_key() {
    warnings();
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a] = start_replicas(&redis.url(), || {
        Gateway::with("s", upstream.http())
            .gateway("failed_logins = \"3/h\"")
            .toml(&client_table("one", "key-one", ""))
    })
    .await;
    let guess = async || a.modern().key("guess").call("s__echo", json!({})).await.status;
    assert_eq!(guess().await, 401);
    let count = next_key(&redis, "rates", &[]).await;
    redis.command(&format!("SET {count} x")).await;
    assert_eq!(guess().await, 401);
    expect_line_about(&redis, DEGRADED_LINE).await;
    assert_eq!(status_of_call(&a).await, 200);
    redis.command(&format!("SET {count} 9e18")).await;
    a.wait_for(|status| status["cluster"]["degraded"] == false).await;
    poll_for(async || (guess().await == 429).then_some(())).await;
    assert_eq!(status_of_call(&a).await, 200);
}

#[tokio::test]
async fn a_changed_record_of_a_used_consent_allows_no_call() {
    let upstream = Upstream::modern().await;
    // The last one is that of a store that has lost the record.
    for (lie, is_refused) in [
        ("SET KEY garbage", true),
        ("SETRANGE KEY 20000 x", true),
        ("LPUSH KEY x", true),
        ("DEL KEY", false),
    ] {
        let redis = RedisServer::start().await;
        let [a, b] = start_replicas(&redis.url(), || {
            Gateway::with("s", upstream.http() + CONFIRM).toml(&client_table("one", "key-one", ""))
        })
        .await;
        let client =
            async |gateway: &Gateway| gateway.modern().key("key-one").offering(form()).await;
        let arguments = json!({});
        let question = Question::about(&client(&a).await, "s__echo", &arguments).await;
        let call = ("s__echo", &arguments);
        let accept = async |gateway: &Gateway| {
            retry(&client(gateway).await, call, question.state(), "accept").await
        };
        assert_eq!(accept(&a).await.text(), "{}");
        let consent = next_key(&redis, "used", &[]).await;
        if lie.starts_with("LPUSH") {
            redis.command(&format!("DEL {consent}")).await;
        }
        redis.command(&lie.replace("KEY", &consent)).await;
        let made = upstream.calls().len();
        let said = accept(&b).await;
        if is_refused {
            let message = said.answer()["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains("was already made"), "{lie}: {said:?}");
            assert_eq!(upstream.calls().len(), made, "{lie}");
        } else {
            assert_eq!(said.text(), "{}", "{lie}");
        }
        // The replica where it was used knows it, whatever the store says.
        let said = accept(&a).await;
        let message = said.answer()["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("was already made"), "{lie}: {said:?}");
    }
}
