//! Certificates and keys that end soon, or have ended, in a running gateway.

use std::path::Path;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::Gateway;
use crate::support::gateway::{Builder, key_digest};
use crate::support::issuer::SigningKey;

/// Returns the midnight before which more than this many whole days pass, and not another one.
fn midnight_in(days: i64) -> Date {
    let at = Timestamp::now() + SignedDuration::from_hours((days + 1) * 24);
    TimeZone::UTC.to_datetime(at).date()
}

/// Writes a certificate with this end, and its key.
fn write_pair(folder: &Path, end: Date) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "localhost");
    let (month, day) = (end.month().cast_unsigned(), end.day().cast_unsigned());
    params.not_after = date_time_ymd(end.year().into(), month, day);
    let key = KeyPair::generate().unwrap();
    std::fs::write(folder.join("leaf.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(folder.join("leaf.key"), key.serialize_pem()).unwrap();
}

fn secured(folder: &Path) -> Builder {
    let place = folder.display();
    Gateway::alone()
        .gateway(&format!("tls = {{ cert = '{place}/leaf.pem', key = '{place}/leaf.key' }}"))
}

fn expired() -> Date {
    "2024-02-01".parse().unwrap()
}

fn entry<'a>(status: &'a Value, name: &str) -> &'a Value {
    let expiries = status["expiries"].as_array().unwrap();
    expiries.iter().find(|expiry| expiry["name"] == name).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn certificates_of_issuers_keys_are_in_the_calendar() {
    let key = SigningKey::p256("k");
    let folder = tempfile::tempdir().unwrap();
    // The first one has ended, and is replaced by the others.
    let ends = [expired(), midnight_in(400), midnight_in(15)];
    let certificates = ends.map(|end| {
        write_pair(folder.path(), end);
        let pem = std::fs::read_to_string(folder.path().join("leaf.pem")).unwrap();
        pem.lines().filter(|line| !line.starts_with("---")).collect::<String>()
    });
    let keys = certificates.map(|certificate| {
        let mut key = key.public();
        key["x5c"] = json!([certificate]);
        key
    });
    std::fs::write(folder.path().join("keys.json"), json!({ "keys": keys }).to_string()).unwrap();
    let issuer = "[issuers.idp]\nissuer = \"https://idp.example.com\"\njwks_file = \"keys.json\"\n";
    let gateway = Gateway::alone()
        .gateway("public_url = \"https://gw.example.com\"")
        .toml(issuer)
        .in_folder(folder)
        .start()
        .await;
    let status = gateway.wait_for(|status| !entry(status, "issuers.idp").is_null()).await;
    let found = entry(&status, "issuers.idp");
    assert_eq!((&found["kind"], &found["state"]), (&json!("issuer_key"), &json!("soon")));
    let end: Timestamp = found["expires_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(TimeZone::UTC.to_datetime(end).date(), midnight_in(15));
}

const CERT: &str = "gateway.tls.cert";

#[tokio::test]
async fn an_expiry_is_in_status_readyz_and_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let end = midnight_in(20);
    write_pair(folder.path(), end);
    let key = key_digest("ci-key");
    let gateway = secured(folder.path())
        .toml(&format!("[clients.ci]\nkeys = [{{ hash = \"{key}\", expires = 2024-01-01 }}]"))
        .start()
        .await;
    let status = gateway.status().await;
    let found = entry(&status, CERT);
    assert_eq!(
        (&found["kind"], &found["state"], &found["line"]),
        (&json!("certificate"), &json!("soon"), &json!(5)),
        "{found}"
    );
    assert!(found["expires_at"].as_str().unwrap().starts_with(&end.to_string()), "{found}");
    let names: Vec<_> =
        status["expiries"].as_array().unwrap().iter().map(|expiry| &expiry["name"]).collect();
    assert_eq!(names, ["clients.ci.keys[0]", CERT], "the first to end comes first");
    assert_eq!(status["expiries"][0]["state"], "expired");

    let ready = gateway.admin("/readyz").await;
    assert_eq!(ready.status, 200);
    let reasons = ready.json()["reasons"].clone();
    assert_eq!(reasons, json!([format!("gateway.tls.cert expires in 20 days, on {end}")]));

    let metrics = gateway.metrics().await;
    let at = end.to_zoned(TimeZone::UTC).unwrap().timestamp().as_second();
    let series =
        "trunkline_expiry_timestamp_seconds{kind=\"certificate\",name=\"gateway.tls.cert\"}";
    assert!(metrics.contains(&format!("{series} {at}.0\n")), "{metrics}");
    assert!(metrics.contains("{kind=\"api_key\",name=\"clients.ci.keys[0]\"}"), "{metrics}");
}

#[tokio::test]
async fn a_renewed_certificate_ends_the_warning() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), midnight_in(20));
    let gateway = secured(folder.path()).start().await;
    assert_eq!(entry(&gateway.status().await, CERT)["state"], "soon");
    write_pair(folder.path(), midnight_in(300));
    assert_eq!(gateway.reload(secured(folder.path())).await, ReloadOutcome::Unchanged);
    assert_eq!(entry(&gateway.status().await, CERT)["state"], "valid");
    assert_eq!(gateway.admin("/readyz").await.json()["reasons"], json!([]));
    // Without TLS there is no certificate that could end.
    gateway.reload(Gateway::alone()).await;
    assert_eq!(gateway.status().await["expiries"], json!([]));
    assert!(!gateway.metrics().await.contains("trunkline_expiry_timestamp_seconds{"));
}

#[tokio::test]
async fn an_expired_certificate_in_use_blocks_no_reload() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), expired());
    let gateway = secured(folder.path()).start().await;
    assert_eq!(entry(&gateway.status().await, CERT)["state"], "expired");
    let reasons = gateway.admin("/readyz").await.json()["reasons"].clone();
    assert_eq!(reasons, json!(["gateway.tls.cert has expired on 2024-02-01"]));
    let changed = || secured(folder.path()).gateway("client_rate = \"7/s\"");
    assert_eq!(gateway.reload(changed()).await, ReloadOutcome::Applied);
    // Another one that has expired is no worse.
    write_pair(folder.path(), expired());
    assert_eq!(gateway.reload(changed()).await, ReloadOutcome::Unchanged);
}

#[tokio::test]
async fn a_certificate_that_clients_refuse_replaces_no_valid_one() {
    let folder = tempfile::tempdir().unwrap();
    let end = midnight_in(300);
    write_pair(folder.path(), end);
    let gateway = secured(folder.path()).start().await;
    write_pair(folder.path(), expired());
    assert_eq!(gateway.reload(secured(folder.path())).await, ReloadOutcome::Rejected);
    let status = gateway.status().await;
    let faults = status["configuration"]["last_reload"]["faults"].to_string();
    assert!(
        faults.contains("gateway.toml:5: gateway.tls.cert: the certificate has expired"),
        "{faults}"
    );
    let kept = &entry(&status, CERT)["expires_at"];
    assert!(kept.as_str().unwrap().starts_with(&end.to_string()), "{kept}");
}

#[tokio::test]
async fn an_expired_client_ca_lets_no_expired_certificate_replace_a_valid_one() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), expired());
    std::fs::rename(folder.path().join("leaf.pem"), folder.path().join("ca.pem")).unwrap();
    write_pair(folder.path(), midnight_in(300));
    let place = folder.path().display();
    let builder = || {
        Gateway::alone().gateway(&format!(
            "tls = {{ cert = '{place}/leaf.pem', key = '{place}/leaf.key', client_ca = '{place}/ca.pem' }}"
        ))
    };
    let gateway = builder().start().await;
    write_pair(folder.path(), midnight_in(200));
    assert_eq!(gateway.reload(builder()).await, ReloadOutcome::Unchanged);
    write_pair(folder.path(), expired());
    assert_eq!(gateway.reload(builder()).await, ReloadOutcome::Rejected);
}

#[tokio::test]
async fn a_ca_of_clients_is_in_the_calendar() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), midnight_in(20));
    std::fs::rename(folder.path().join("leaf.pem"), folder.path().join("ca.pem")).unwrap();
    write_pair(folder.path(), midnight_in(300));
    let place = folder.path().display();
    let tls = format!(
        "tls = {{ cert = '{place}/leaf.pem', key = '{place}/leaf.key', client_ca = '{place}/ca.pem' }}"
    );
    let gateway = Gateway::alone().gateway(&tls).start().await;
    let status = gateway.status().await;
    let found = entry(&status, "gateway.tls.client_ca");
    assert_eq!(
        (&found["kind"], &found["state"]),
        (&json!("client_ca"), &json!("soon")),
        "{}",
        status["expiries"]
    );
    let reasons = gateway.admin("/readyz").await.json()["reasons"].to_string();
    assert!(reasons.contains("gateway.tls.client_ca"), "{reasons}");
    let series = "trunkline_expiry_timestamp_seconds{kind=\"client_ca\"";
    assert!(gateway.metrics().await.contains(series));
}

#[tokio::test]
async fn a_setting_that_moves_to_another_line_is_no_change() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), midnight_in(20));
    let gateway = secured(folder.path()).start().await;
    let text = format!("# A comment.\n\n{}", secured(folder.path()).text());
    assert_eq!(gateway.reload_text(&text).await, ReloadOutcome::Unchanged);
    assert_eq!(entry(&gateway.status().await, CERT)["line"], 7);
}

#[tokio::test]
async fn a_ca_of_a_server_is_in_the_calendar_and_a_missing_one_is_its_own_fault() {
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), expired());
    let ca = folder.path().join("leaf.pem");
    let lines = |ca: &Path| format!("url = 'https://127.0.0.1:9/'\nca = {ca:?}");
    let gateway = Gateway::with("a", lines(&ca)).start().await;
    let status = gateway.wait_for(|status| !entry(status, "servers.a.ca").is_null()).await;
    let found = entry(&status, "servers.a.ca");
    assert_eq!((&found["kind"], &found["state"]), (&json!("server_ca"), &json!("expired")));
    let missing = Gateway::with("a", lines(&folder.path().join("nope.pem")));
    assert_eq!(gateway.reload(missing).await, ReloadOutcome::Applied);
    gateway.wait_for(|status| entry(status, "servers.a.ca").is_null()).await;
}
