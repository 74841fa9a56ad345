//! Refused logins are counted by their reason, and logged without their keys.

use std::sync::{Arc, OnceLock};

use serde_json::json;
use tempfile::NamedTempFile;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::support::gateway::key_digest;
use crate::support::issuer::{SigningKey, now, with};
use crate::support::{Gateway, Issuer, Upstream, client_table};

const KEY: &str = "key-of-ci";
const ENDED_KEY: &str = "key-of-old";

/// Captures the warnings about refused logins of all gateways in this process, from now on.
fn warnings() -> &'static NamedTempFile {
    static LOG: OnceLock<NamedTempFile> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        let target = "trunkline::pipeline::stores::refused_logins";
        let only = Targets::new().with_target(target, LevelFilter::WARN);
        tracing_subscriber::registry().with(layer.with_filter(only)).init();
        log
    })
}

/// Returns the captured line that contains a text.
fn line_with(text: &str) -> Option<String> {
    let log = std::fs::read_to_string(warnings().path()).unwrap();
    log.lines().find(|line| line.contains(text)).map(ToOwned::to_owned)
}

/// Asserts the number of requests that were refused for each reason.
async fn assert_counts(gateway: &Gateway, expected: &[(&str, usize)]) {
    let metrics = gateway.metrics().await;
    let prefix = "trunkline_errors_total{outcome=\"refused\",reason=\"";
    let mut counted: Vec<_> = metrics.lines().filter_map(|it| it.strip_prefix(prefix)).collect();
    counted.sort_unstable();
    let mut expected: Vec<_> =
        expected.iter().map(|(reason, count)| format!("{reason}\"}} {count}")).collect();
    expected.sort_unstable();
    assert_eq!(counted, expected);
}

#[tokio::test]
async fn each_refused_login_counts_by_its_reason() {
    let upstream = Upstream::modern().await;
    let old = key_digest(ENDED_KEY);
    let old = format!("[clients.old]\nkeys = [{{ hash = \"{old}\", expires = 2020-01-01 }}]\n");
    let gateway = Gateway::with("s", upstream.http())
        .gateway("failed_logins = \"2/h\"")
        .toml(&client_table("ci", KEY, ""))
        .toml(&old)
        .start()
        .await;
    assert_eq!(gateway.modern().call("s__echo", json!({})).await.status, 401);
    for key in [ENDED_KEY, "guess", "guess", "guess"] {
        gateway.modern().key(key).call("s__echo", json!({})).await;
    }
    assert_eq!(gateway.modern().key(KEY).call("s__echo", json!({})).await.text(), "{}");
    let counts = [("key_missing", 1), ("key_expired", 1), ("key_unknown", 2), ("over_limit", 1)];
    assert_counts(&gateway, &counts).await;

    let issuer = Issuer::start().await;
    let gateway = Gateway::with("s", upstream.http()).toml(&issuer.table("idp", "")).start().await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    let claims = issuer.claims(&resource);
    assert_eq!(gateway.modern().call("s__echo", json!({})).await.status, 401);
    let expired = issuer.token(&resource, json!({ "exp": now() - 1000 }));
    let forged = SigningKey::p256("first").sign(&claims);
    for token in [&expired, &forged, "opaque"] {
        assert_eq!(gateway.modern().key(token).call("s__echo", json!({})).await.status, 401);
    }
    let counts = [("token_missing", 1), ("token_expired", 1), ("token_refused", 2)];
    assert_counts(&gateway, &counts).await;

    let issuer = Issuer::silent().await;
    let gateway = Gateway::with("s", upstream.http()).toml(&issuer.table("idp", "")).start().await;
    gateway.wait_for(|status| status["issuers"][0]["error"].is_string()).await;
    let token = issuer.token(&format!("http://{}/mcp", gateway.running.address), json!({}));
    assert_eq!(gateway.modern().key(&token).call("s__echo", json!({})).await.status, 503);
    assert_counts(&gateway, &[("issuer_unavailable", 1)]).await;
}

#[tokio::test]
async fn a_line_has_eight_digits_of_a_key_and_never_the_key() {
    warnings();
    let upstream = Upstream::modern().await;
    let builder = || Gateway::with("s", upstream.http()).toml(&client_table("ci", KEY, ""));
    let gateway = builder().start().await;
    let keys = ["key-of-a-stranger-6e02", "key-of-a-stranger-91bd"];
    for key in keys {
        assert_eq!(gateway.modern().key(key).call("s__echo", json!({})).await.status, 401);
    }
    let [digits, later] = keys.map(|key| key_digest(key).trim_start_matches("sha256:").to_owned());
    let line = line_with(&format!("unverified_sha256=\"{}\"", &digits[..8])).expect("a line");
    for part in
        ["WARN", "login refused: unknown key", "127.0.0.1", "reason=\"key_unknown\"", "count=1"]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains(&digits[..9]), "{line}");
    assert_eq!(line_with(&later[..8]), None, "counted, and logged a minute later");
    assert_eq!(line_with("key-of-a-stranger"), None);
}

#[tokio::test]
async fn a_line_has_the_claimed_subject_of_a_token_and_none_is_written_without_a_token() {
    warnings();
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let gateway = Gateway::with("s", upstream.http()).toml(&issuer.table("idp", "")).start().await;
    assert_eq!(gateway.modern().call("s__echo", json!({})).await.status, 401);
    let claims = issuer.claims(&format!("http://{}/mcp", gateway.running.address));
    let subject = format!("mallory\u{202e}\n@corp {}", "x".repeat(100));
    let forged = SigningKey::p256("first").sign(&with(claims, json!({ "sub": subject })));
    assert_eq!(gateway.modern().key(&forged).call("s__echo", json!({})).await.status, 401);
    let shown = format!("unverified_subject=\"mallory @corp {}\"", "x".repeat(50));
    let line = line_with(&shown).expect("a line");
    assert!(line.contains("reason=\"token_refused\""), "{line}");
    assert_eq!(line_with("token_missing"), None, "each login begins without a token");
}
