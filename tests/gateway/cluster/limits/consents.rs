//! Consents to calls, which all replicas together use once.

use serde_json::{Value, json};

use crate::cluster::{RedisServer, start_replicas};
use crate::confirm::{CONFIRM, Question, form, retry};
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Said, Upstream, client_table};

/// One client, and a server with calls that need consent.
fn asking(upstream: &Upstream) -> Builder {
    Gateway::with("s", upstream.http() + CONFIRM)
        .server("free", upstream.http())
        .toml(&client_table("one", "key-one", ""))
}

async fn client_of(replica: &Gateway) -> Client {
    replica.modern().key("key-one").offering(form()).await
}

async fn accept(replica: &Gateway, arguments: &Value, state: &str) -> Said {
    retry(&client_of(replica).await, ("s__echo", arguments), state, "accept").await
}

fn message_of(said: &Said) -> String {
    said.answer()["error"]["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn one_consent_that_is_used_at_three_replicas_at_once_allows_one_call() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a, b, c] = start_replicas(&redis.url(), || asking(&upstream)).await;
    for round in 0..4 {
        let arguments = json!({ "round": round });
        let question = Question::about(&client_of(&a).await, "s__echo", &arguments).await;
        let state = question.state();
        let (at_a, at_b, at_c) = tokio::join!(
            accept(&a, &arguments, state),
            accept(&b, &arguments, state),
            accept(&c, &arguments, state)
        );
        let said = [at_a, at_b, at_c];
        let refused: Vec<_> = said.iter().map(message_of).filter(|it| !it.is_empty()).collect();
        assert_eq!(refused.len(), 2, "{said:?}");
        assert!(refused.iter().all(|it| it.contains("was already made")), "{refused:?}");
        assert_eq!(upstream.calls().len(), round + 1);
    }
    // The store has no state in clear, and forgets it.
    let names = redis.command("KEYS trunkline:used:*").await;
    let name = names.lines().find(|line| line.starts_with("trunkline:used:")).expect("a consent");
    assert_eq!(name.trim().len(), "trunkline:used:".len() + 64, "{names}");
    let expiry = redis.command(&format!("PTTL {}", name.trim())).await;
    let expiry: i64 = expiry.trim().trim_start_matches(':').parse().unwrap();
    assert!((1..3_600_000).contains(&expiry), "{expiry}");
}

#[tokio::test]
async fn no_consent_is_used_without_the_store_and_calls_that_need_none_are_made() {
    let (mut redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    let [a, b] = start_replicas(&redis.url(), || asking(&upstream)).await;
    let arguments = json!({});
    let used = Question::about(&client_of(&a).await, "s__echo", &arguments).await;
    let unused = Question::about(&client_of(&a).await, "s__echo", &arguments).await;
    assert_eq!(accept(&b, &arguments, used.state()).await.text(), "{}");
    redis.kill();
    for _ in 0..2 {
        let refused = accept(&b, &arguments, unused.state()).await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(message_of(&refused).contains("the store"), "{refused:?}");
    }
    assert!(b.metrics().await.contains("store_unavailable"));
    // The replica knows this one.
    assert!(message_of(&accept(&b, &arguments, used.state()).await).contains("was already made"));
    assert_eq!(client_of(&b).await.call("free__echo", json!({})).await.text(), "{}");
    assert_eq!(upstream.calls().len(), 2);
}
