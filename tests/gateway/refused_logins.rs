//! Refused logins are counted by their reason, and logged without their keys.

use std::sync::{Arc, OnceLock};

use data_encoding::HEXLOWER;
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use trunkline::crypto::sha256;

use crate::certificates::{ClientCa, gateway_of, server_certificates, trust};
use crate::support::client::{Protocol, dial};
use crate::support::gateway::key_digest;
use crate::support::issuer::{SigningKey, now, with};
use crate::support::{Client, Gateway, Issuer, Upstream, client_table, poll_for, within};

const KEY: &str = "key-of-ci";
const ENDED_KEY: &str = "key-of-old";

/// Captures the warnings about refused logins, about refused requests between replicas, and about the store
/// of replicas, of all gateways in this process, from now on.
pub fn warnings() -> &'static NamedTempFile {
    static LOG: OnceLock<NamedTempFile> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
        let logins = "trunkline::pipeline::stores::refused_logins";
        let (replicas, store) = ("trunkline::downstream::forwarding", "trunkline::cluster");
        let only = Targets::new()
            .with_target(logins, LevelFilter::WARN)
            .with_target(replicas, LevelFilter::WARN)
            .with_target(store, LevelFilter::WARN)
            .with_target("trunkline::listener", LevelFilter::WARN);
        tracing_subscriber::registry().with(layer.with_filter(only)).init();
        log
    })
}

/// Returns the captured line that contains a text.
pub fn line_with(text: &str) -> Option<String> {
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
    // Each login begins without a token. A line about a certificate is that of another test.
    let log = std::fs::read_to_string(warnings().path()).unwrap();
    let is_bare = |line: &&str| line.contains("token_missing") && !line.contains("certificate_");
    assert_eq!(log.lines().filter(is_bare).count(), 0, "{log}");
}

/// Returns the number of requests or connections that were refused for a reason.
async fn refused_for(gateway: &Gateway, reason: &str) -> usize {
    let series = format!("trunkline_errors_total{{outcome=\"refused\",reason=\"{reason}\"}} ");
    let metrics = gateway.metrics().await;
    let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_handshake_that_fails_for_its_certificate_is_a_refused_login() {
    warnings();
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::modern().await, ClientCa::new());
    let known = trust(folder.path());
    let expired = ca.issue_with("ci", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    for (shown, reason) in [
        (known.clone(), "the client presented no certificate"),
        (known.clone().showing(ClientCa::new().issue("ci")), "no CA of `gateway.tls.client_ca`"),
        (known.clone().showing(expired), "the client's certificate has expired"),
    ] {
        // Each gateway logs its first refusal.
        let gateway = gateway_of(&upstream, &ca, folder.path(), "required").start().await;
        let socket = TcpStream::connect(gateway.running.address).await.unwrap();
        let exchange = async {
            let mut stream = dial(socket, Protocol::Http1, shown).await.ok()?;
            stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.ok()?;
            stream.read_u8().await.ok()
        };
        assert_eq!(within(exchange).await, None, "{reason}");
        poll_for(async || (refused_for(&gateway, "certificate_refused").await == 1).then_some(()))
            .await;
        let line = line_with(reason).expect(reason);
        for part in ["WARN", "login refused: ", "127.0.0.1", "reason=\"certificate_refused\""] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    // Another failure of a handshake is no login.
    let gateway = gateway_of(&upstream, &ca, folder.path(), "required").start().await;
    let mut socket = TcpStream::connect(gateway.running.address).await.unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    within(async { while socket.read_u8().await.is_ok() {} }).await;
    assert_eq!(refused_for(&gateway, "certificate_refused").await, 0);
}

#[tokio::test]
async fn a_certificate_that_identifies_no_client_is_a_refused_login_with_its_digits() {
    warnings();
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca, issuer) = (Upstream::modern().await, ClientCa::new(), Issuer::start().await);
    for (more, reason) in [("", "key_missing"), (&*issuer.table("idp", ""), "token_missing")] {
        let gateway = gateway_of(&upstream, &ca, folder.path(), "optional").toml(more);
        let gateway = gateway.start().await;
        let shown = ca.issue("stranger");
        let digits = HEXLOWER.encode(&sha256(&shown.0))[..8].to_owned();
        let client = Client::modern(gateway.running.address);
        let client = client.tls(trust(folder.path()).showing(shown));
        let said = client.ask_call("s__echo", json!({})).send().await.said().await;
        assert_eq!(said.status, 401, "{reason}: {said:?}");
        let line = line_with(&format!("certificate_sha256=\"{digits}\"")).expect(reason);
        for part in [
            "login refused: the certificate identifies no client, and a ",
            &format!("reason=\"{reason}\""),
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

#[tokio::test]
async fn a_login_to_the_admin_listener_of_an_open_gateway_is_refused_with_a_line() {
    warnings();
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let key = "key-of-an-operator-5d20";
    let client = gateway.remote_operator().key(key);
    for _ in 0..2 {
        let said = client.http("GET", "/api/v1/status").send().await.said().await;
        assert_eq!(said.status, 401, "{said:?}");
    }
    let digits = key_digest(key).trim_start_matches("sha256:")[..8].to_owned();
    let line = line_with(&format!("unverified_sha256=\"{digits}\"")).expect("a line");
    assert!(line.contains("reason=\"key_missing\"") && line.contains("count=1"), "{line}");
    assert_eq!(refused_for(&gateway, "key_missing").await, 2);
}
