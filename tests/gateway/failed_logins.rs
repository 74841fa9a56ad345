//! Wrong keys and tokens are limited by address, without effect on known clients.

use serde_json::json;

use crate::support::issuer::{forge, now};
use crate::support::{Gateway, Issuer, Said, Upstream, client_table, within};

const KEY: &str = "key-of-ci";

#[track_caller]
fn is_limited(said: &Said) {
    assert_eq!((said.status, said.code()), (429, 42_900), "{said:?}");
    assert_eq!(said.error()["data"]["limit"], "failed_logins", "{said:?}");
    let wait: u64 = said.header("retry-after").expect("a wait").parse().unwrap();
    assert!((1..=1200).contains(&wait), "{wait}");
    assert!(said.answer()["id"].is_null(), "nothing of the body was looked at");
}

fn with_key(upstream: &Upstream, rate: &str) -> crate::support::gateway::Builder {
    Gateway::with("s", upstream.http())
        .gateway(&format!("failed_logins = \"{rate}\""))
        .toml(&client_table("ci", KEY, ""))
        .toml("[audit]\nfile = \"audit.jsonl\"\n")
}

#[tokio::test]
async fn wrong_keys_are_limited_and_the_right_one_is_not() {
    let upstream = Upstream::modern().await;
    let gateway = with_key(&upstream, "3/h").start().await;
    let call = async |key: &str| gateway.modern().key(key).call("s__echo", json!({})).await;
    for _ in 0..5 {
        assert_eq!(gateway.modern().call("s__echo", json!({})).await.status, 401, "no attempt");
        assert_eq!(call(KEY).await.text(), "{}");
    }
    for number in 0..3 {
        assert_eq!(call(&format!("guess-{number}")).await.status, 401);
    }
    for number in 3..6 {
        is_limited(&call(&format!("guess-{number}")).await);
    }
    for header in ["x-api-key", "authorization"] {
        let value = if header == "x-api-key" { KEY.to_owned() } else { format!("Bearer {KEY}") };
        let client = gateway.modern();
        let ask = client.ask_call("s__echo", json!({})).header(header, &value);
        assert_eq!(ask.send().await.said().await.text(), "{}", "{header}: it is known");
        let ask = client.ask_call("s__echo", json!({})).header(header, &format!("{value}x"));
        is_limited(&ask.send().await.said().await);
    }
    assert_eq!(gateway.modern().call("s__echo", json!({})).await.status, 401);
    gateway.reload(with_key(&upstream, "3/h").toml("[profiles.p]\n")).await;
    is_limited(&call("guess-7").await);
    let limited = within(async {
        let mut least = 6;
        loop {
            let records = crate::authorization::audited(gateway.folder(), least).await;
            least = records.len() + 1;
            let limited = records.into_iter().filter(|it| it["rule"] == "failed_logins");
            let limited: Vec<_> = limited.collect();
            if limited.len() >= 6 {
                break limited;
            }
        }
    });
    let limited = limited.await;
    assert_eq!(limited.len(), 6);
    assert!(limited.iter().all(|it| it["check"] == "limit" && it["principal"].is_null()));
    gateway.reload(with_key(&upstream, "off")).await;
    for number in 0..5 {
        assert_eq!(call(&format!("again-{number}")).await.status, 401);
    }
}

#[tokio::test]
async fn wrong_tokens_are_limited_before_a_signature_is_verified() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let gateway = with_key(&upstream, "3/h")
        .toml(&issuer.table("idp", ""))
        .toml("[profiles.other]\n")
        .start()
        .await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    let call = async |token: &str| gateway.modern().key(token).call("s__echo", json!({})).await;
    let known = issuer.token(&resource, json!({}));
    assert_eq!(call(&known).await.text(), "{}");
    // A verified token is not a guess, at any profile.
    for _ in 0..5 {
        let client = gateway.modern().key(&known).at("/mcp/other");
        assert_eq!(client.call("s__echo", json!({})).await.status, 401);
    }
    let fresh = |number: i64| issuer.token(&resource, json!({ "jti": number }));
    let second = fresh(0);
    assert_eq!(call(&second).await.text(), "{}");
    let forged = |number: i64| {
        let claims = json!({ "iss": issuer.url(), "aud": resource, "sub": "x", "exp": now() + 9,
            "jti": number });
        forge(&json!({ "alg": "ES256", "kid": "first" }), &claims, &[7; 64])
    };
    for number in 0..3 {
        assert_eq!(call(&forged(number)).await.status, 401);
    }
    is_limited(&call(&forged(3)).await);
    is_limited(&call(&fresh(1)).await);
    // A known client continues: with either token, and with a key.
    for credential in [&known[..], &second, KEY] {
        assert_eq!(call(credential).await.text(), "{}");
    }
    is_limited(&call("guess").await);
}
