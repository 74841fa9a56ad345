//! Both eras and both versions of HTTP on one address, in clear and over TLS.

use std::path::Path;
use std::time::{Duration, Instant};

use http::Version;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::cli::cert;
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::client::{Kind, Trust};
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Upstream, within};

#[tokio::test]
async fn both_eras_share_one_connection() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for http2 in [false, true] {
        let client = gateway.modern();
        let mut client = if http2 { client.h2() } else { client.keep() };
        client.call("s__echo", json!({})).await.text();
        client = client.becomes(Kind::Legacy { session: None, version: "2025-06-18".into() });
        client = client.initialized().await;
        let legacy = client.kind();
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        client = client.becomes(Kind::Modern);
        let said = client.call("s__echo", json!({})).await;
        assert_eq!(said.result()["resultType"], "complete");
        client = client.becomes(legacy);
        let said = client.call("s__echo", json!({})).await;
        assert!(said.result().get("resultType").is_none(), "{said:?}");
        assert_eq!(gateway.status().await["connections"], 1, "HTTP/2: {http2}");
        assert!(gateway.metrics().await.contains("\ntrunkline_connections 1\n"), "HTTP/2: {http2}");
        client.disconnect().await;
        gateway.wait_for(|status| status["connections"] == 0).await;
    }
}

#[tokio::test]
async fn calls_on_one_http_2_connection_go_side_by_side() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.modern().h2();
    let held = futures_util::future::join_all((0..20).map(|_| client.call("s__hold", json!({}))));
    let release = async {
        upstream.heard("tools/call", 20).await;
        upstream.release(20);
    };
    let (held, ()) = tokio::join!(held, release);
    assert!(held.iter().all(|said| said.text() == "held"));
    assert_eq!(client.ask("ping", json!({})).send().await.version(), Version::HTTP_2);
}

#[tokio::test]
async fn strange_hosts_and_origins_are_turned_away() {
    let gateway = Gateway::alone()
        .gateway("allowed_hosts = [\"tools.example\"]\nallowed_origins = [\"https://app.example\"]")
        .start()
        .await;
    let client = gateway.modern();
    let ask = || client.ask("tools/list", json!({}));
    for (ask, status) in [
        (ask().header("host", "tools.example"), 200),
        (ask().header("origin", "https://app.example"), 200),
        (ask().header("origin", "http://localhost:3000"), 200),
        (ask().header("host", "evil.example"), 403),
        (ask().header("origin", "https://evil.example"), 403),
        (ask().header("origin", "null"), 403),
    ] {
        let said = ask.send().await.said().await;
        assert_eq!(said.status, status, "{said:?}");
    }
}

/// Returns the bytes that a client receives until the gateway closes the connection, and the time
/// until then.
async fn read_to_close(gateway: &Gateway, sent: &str) -> (String, Duration) {
    let began = Instant::now();
    let mut socket = TcpStream::connect(gateway.running.address).await.unwrap();
    socket.write_all(sent.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    let _ = within(socket.read_to_end(&mut received)).await;
    (String::from_utf8(received).unwrap(), began.elapsed())
}

const REQUEST: &str = "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn the_configuration_bounds_the_number_of_connections() {
    let gateway = Gateway::alone().gateway("limits.connections = 4").start().await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let client = gateway.modern().keep();
        client.request("tools/list", json!({})).await.result();
        held.push(client);
    }
    let (answer, _) = read_to_close(&gateway, REQUEST).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("limits.connections"), "{answer}");
}

#[tokio::test]
async fn the_configuration_bounds_the_time_of_a_connection_without_a_request() {
    let soon = Duration::from_secs(8);
    let gateway = Gateway::alone().gateway("limits.idle = \"300ms\"").start().await;
    let (answer, took) = read_to_close(&gateway, REQUEST).await;
    assert!(answer.starts_with("HTTP/1.1 ") && took < soon, "{took:?}: {answer}");
    let gateway = Gateway::alone().gateway("limits.handshake = \"300ms\"").start().await;
    for beginning in ["", "P", "GET /mcp HT"] {
        let (answer, took) = read_to_close(&gateway, beginning).await;
        assert!(took < soon, "{beginning:?} {took:?}: {answer}");
    }
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_refused() {
    let gateway = Gateway::alone().gateway("limits.idle = \"300ms\"").start().await;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let sent = format!("{head}Connection: close\r\nContent-Length: 100\r\n\r\n{{");
    let (answer, took) = read_to_close(&gateway, &sent).await;
    assert!(
        answer.starts_with("HTTP/1.1 400")
            && answer.contains("timed out while reading the request body"),
        "{answer}"
    );
    assert!(took < Duration::from_secs(8), "{took:?}");
}

fn issue(folder: &Path) {
    let args = cert::CertArgs { dir: folder.to_owned(), force: true, ..cert::CertArgs::default() };
    cert::write_certificates(&args, &mut std::io::sink()).unwrap();
}

fn secured(upstream: &Upstream, folder: &Path) -> Builder {
    let folder = folder.display();
    let tls = format!("tls = {{ cert = '{folder}/server.pem', key = '{folder}/server.key' }}");
    Gateway::with("s", upstream.http()).gateway(&tls)
}

#[tokio::test]
async fn the_development_certificates_secure_both_eras_over_both_versions_of_http() {
    let folder = tempfile::tempdir().unwrap();
    issue(folder.path());
    let upstream = Upstream::legacy().await;
    let gateway = secured(&upstream, folder.path()).start().await;
    let trust = Trust::ca(&folder.path().join("ca.pem"));
    for (http2, version) in [(false, Version::HTTP_11), (true, Version::HTTP_2)] {
        let client = Client::modern(gateway.running.address).tls(trust.clone());
        let mut client = if http2 { client.h2() } else { client };
        for kind in [Kind::Modern, Kind::Legacy { session: None, version: "2025-11-25".into() }] {
            client = client.becomes(kind).initialized().await;
            let reply = client.ask_call("s__echo", json!({})).send().await;
            assert_eq!(reply.version(), version);
            assert_eq!(reply.said().await.text(), "{}");
        }
    }
}

#[tokio::test]
async fn a_reload_shows_the_renewed_certificate_and_keeps_open_connections() {
    let folder = tempfile::tempdir().unwrap();
    issue(folder.path());
    let upstream = Upstream::legacy().await;
    let gateway = secured(&upstream, folder.path()).start().await;
    let address = gateway.running.address;
    let ca = folder.path().join("ca.pem");
    let old = Client::modern(address).tls(Trust::ca(&ca)).keep();
    old.call("s__echo", json!({})).await.text();
    issue(folder.path());
    let outcome = gateway.reload(secured(&upstream, folder.path())).await;
    assert_eq!(outcome, ReloadOutcome::Unchanged, "the text is the same");
    let new = Client::modern(address).tls(Trust::ca(&ca));
    assert_eq!(new.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(old.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_broken_certificate_is_a_fault_of_the_reload_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    issue(folder.path());
    let upstream = Upstream::legacy().await;
    let gateway = secured(&upstream, folder.path()).start().await;
    std::fs::write(folder.path().join("server.pem"), "no certificate").unwrap();
    let outcome = gateway.reload(secured(&upstream, folder.path())).await;
    assert_eq!(outcome, ReloadOutcome::Rejected);
    let faults = gateway.status().await["configuration"]["last_reload"]["faults"].to_string();
    assert!(faults.contains("gateway.tls"), "{faults}");
    let trust = Trust::ca(&folder.path().join("ca.pem"));
    let client = Client::modern(gateway.running.address).tls(trust);
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_gateway_stands_behind_another_over_one_encrypted_http_2_connection() {
    let folder = tempfile::tempdir().unwrap();
    issue(folder.path());
    let ca = folder.path().join("ca.pem");
    let upstream = Upstream::legacy().await;
    let near = secured(&upstream, folder.path()).start().await;
    let port = near.running.address.port();
    let far = Gateway::with("far", format!("url = 'https://localhost:{port}/mcp'\nca = {ca:?}"));
    let far = far.start().await;
    let client = far.modern();
    let held = (0..20).map(|_| client.call("far__s__hold", json!({})));
    let held = futures_util::future::join_all(held);
    let release = async {
        upstream.heard("tools/call", 20).await;
        // HTTP/1.1 would need one for each call.
        let open = near.status().await["connections"].as_u64().unwrap();
        assert!(open <= 3, "{open} connections");
        upstream.release(20);
    };
    let (held, ()) = tokio::join!(held, release);
    assert!(held.iter().all(|said| said.text() == "held"), "{held:?}");
    // Without the authority the certificate is untrusted.
    let lines = format!("url = 'https://localhost:{port}/mcp'");
    let doubting = Gateway::with("far", lines).start().await;
    let server = doubting.server("far").await;
    let reason = format!("https://localhost:{port}: its certificate is issued by an unknown CA");
    let message = server["last_error"]["message"].to_string();
    assert!(message.contains(&reason) && message.contains("`ca`"), "{message}");
    // Without TLS there is no answer in HTTP.
    let lines = format!("url = 'http://localhost:{port}/mcp'");
    let plain = Gateway::with("far", lines).start().await;
    let message = plain.server("far").await["last_error"]["message"].to_string();
    let reason = format!("http://localhost:{port} did not answer in HTTP");
    assert!(message.contains(&reason) && message.contains("write https://"), "{message}");
}
