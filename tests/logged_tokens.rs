//! Tokens and keys, sent wherever clients send them, at the most verbose level of the log: no part of
//! one is in the log, a span, a metric, the status, an error or the audit log. A test crate of its
//! own, because a process has one log.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::pedantic,
    reason = "a test that cannot go on fails"
)]

#[path = "support/mod.rs"]
mod support;

use std::sync::Arc;

use serde_json::json;
use tempfile::NamedTempFile;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use support::client::{Ask, Client};
use support::collector::Collector;
use support::gateway::key_digest;
use support::issuer::{SigningKey, forge, now};
use support::{Gateway, Issuer, Upstream, client_table};

const KEY: &str = "key-of-ci-4f1c9a77d2";
const ENDED_KEY: &str = "key-of-old-0b8e5d31c6";

/// What this process logs at any level, of any crate, from now on.
fn capture_log() -> NamedTempFile {
    let log = NamedTempFile::new().unwrap();
    let writer = Arc::new(log.reopen().unwrap());
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
    tracing_subscriber::registry().with(layer.with_filter(LevelFilter::TRACE)).init();
    log
}

/// Credentials of every kind: accepted, and refused for each reason.
fn credentials(issuer: &Issuer, resource: &str) -> Vec<(&'static str, String)> {
    let token = |more| issuer.token(resource, more);
    let claims = issuer.claims(resource);
    let none = json!({ "alg": "none" });
    vec![
        ("good", token(json!({}))),
        ("expired", token(json!({ "exp": now() - 1000 }))),
        ("wrong audience", token(json!({ "aud": "https://elsewhere.example.com" }))),
        ("wrong issuer", token(json!({ "iss": "https://elsewhere.example.com" }))),
        ("too few scopes", token(json!({ "jti": "few", "sub": "bob" }))),
        ("unknown key", SigningKey::p256("unknown").sign(&claims)),
        ("wrong signature", SigningKey::p256("first").sign(&claims)),
        ("unsigned", forge(&none, &claims, &[91; 40])),
        ("malformed", format!("{}.only-two-parts-8c6d2e", "x".repeat(40))),
        ("opaque", "opaque-7d1f0be3a9c5-token".to_owned()),
        ("key", KEY.to_owned()),
        ("expired key", ENDED_KEY.to_owned()),
        ("wrong key", "key-of-nobody-93ab17ce".to_owned()),
    ]
}

/// The same call with a credential in each place where clients have been seen to put one.
fn in_every_place<'a>(client: &'a Client, secret: &str) -> Vec<(&'static str, Ask<'a>)> {
    let ask = || client.ask_call("s__echo", json!({}));
    let bearer = format!("Bearer {secret}");
    vec![
        ("bearer", ask().header("authorization", &bearer)),
        ("other scheme", ask().header("authorization", &format!("Token {secret}"))),
        ("no scheme", ask().header("authorization", secret)),
        ("key", ask().header("x-api-key", secret)),
        ("both", ask().header("x-api-key", KEY).header("authorization", &bearer)),
        ("twice", ask().header("authorization", &bearer).again("authorization", &bearer)),
        ("cookie", ask().header("cookie", &format!("access_token={secret}"))),
        ("query", ask().at(&format!("/mcp?access_token={secret}"))),
        ("other query", ask().at(&format!("/mcp?token={secret}")).header("x-api-key", KEY)),
        ("param", ask().param("access_token", json!(secret)).header("x-api-key", KEY)),
        ("meta", ask().meta("authorization", json!(bearer)).header("x-api-key", KEY)),
        ("body", ask().body(format!("access_token={secret}")).header("x-api-key", KEY)),
        ("body of a stranger", ask().body(format!("access_token={secret}"))),
    ]
}

/// The parts of a credential of which none may be seen: all of it, the parts of a token, and every
/// piece of its signature.
fn pieces(secret: &str) -> Vec<&str> {
    let parts = secret.split('.').filter(|part| part.len() >= 16);
    let signature = secret.rsplit('.').next().unwrap_or_default();
    let windows = signature.len().saturating_sub(PIECE) + 1;
    let windows = (0..windows).filter_map(|at| signature.get(at..at + PIECE));
    [secret].into_iter().chain(parts).chain(windows).collect()
}

const PIECE: usize = 16;

#[tokio::test]
async fn no_part_of_a_key_or_token_is_logged_traced_recorded_or_answered() {
    let log = capture_log();
    let collector = Collector::start().await;
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let lines = upstream.http() + "forward_headers = [\"Authorization\", \"Cookie\"]\n";
    let hash = key_digest(ENDED_KEY);
    let old = format!("[clients.old]\nkeys = [{{ hash = \"{hash}\", expires = 2020-01-01 }}]\n");
    let gateway = Gateway::with("s", lines)
        .toml(&client_table("ci", KEY, ""))
        .toml(&old)
        .toml(&issuer.table("idp", ""))
        .toml("[audit]\nfile = \"audit.jsonl\"\narguments = true\n")
        .toml(&format!(
            "[telemetry]\nendpoint = {:?}\nsample = 1.0\nheaders = {{ x-key = \"secret\" }}\n",
            collector.url
        ))
        .start()
        .await;
    let secrets = credentials(&issuer, &format!("http://{}/mcp", gateway.running.address));
    let mut shown = Vec::new();
    for client in [gateway.modern(), gateway.modern().h2()] {
        for (_, secret) in &secrets {
            for (place, ask) in in_every_place(&client, secret) {
                let reply = ask.send().await;
                let head = format!("{:?}", reply.headers());
                shown.push((place, format!("{head}\n{}", reply.said().await.body)));
            }
        }
    }
    // Legacy sessions and streams, with what is accepted.
    for secret in [&secrets[0].1, &secrets[10].1] {
        for (era, client) in gateway.both_as(secret, "/mcp").await {
            client.listen().await;
            shown.push((era, client.call("s__echo", json!({})).await.body));
        }
    }
    shown.push(("status", gateway.status().await.to_string()));
    shown.push(("readyz", gateway.admin("/readyz").await.body));
    shown.push(("metrics", gateway.metrics().await));
    let folder = gateway.stop().await;
    let records = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let (spans, metrics) = collector.rest().await;
    assert!(!spans.is_empty());
    shown.push(("spans", format!("{spans:?} {metrics:?}")));
    let log = std::fs::read_to_string(log.path()).unwrap();
    // All of it was there to be seen.
    for word in ["TRACE", "token_refused", "key_unknown", "idp:ann"] {
        assert!(log.contains(word), "{word}");
    }
    for word in ["idp:ann", "\"ci\"", "token_refused", "key_unknown", "key_expired"] {
        assert!(records.contains(word), "{word}");
    }
    shown.extend([("audit", records), ("log", log)]);
    for (kind, secret) in &secrets {
        for (place, text) in &shown {
            let leak = pieces(secret).into_iter().find_map(|piece| text.find(piece));
            if let Some(at) = leak {
                let near = text.get(at.saturating_sub(300)..text.len().min(at + 80));
                panic!("{kind} is in {place}: {near:?}");
            }
        }
    }
}
