//! Roles of clients that are identified by a TLS certificate (`admin.tls`).

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{STATUS, code, send};
use crate::certificates::{ClientCa, server_certificates, trust};
use crate::support::client::{Protocol, Trust, dial};
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Upstream, client_table, within};

/// A gateway with an admin listener over HTTPS, which requests certificates of this CA.
fn secured(ca: &ClientCa, folder: &Path, choice: &str) -> Builder {
    std::fs::write(folder.join("clients.pem"), ca.0.pem()).unwrap();
    let place = folder.display();
    let tls = format!(
        "tls = {{ cert = '{place}/server.pem', key = '{place}/server.key', \
         client_ca = '{place}/clients.pem', client_certificates = '{choice}' }}"
    );
    let client = |name: &str, role: &str| {
        format!("[clients.{name}]\ncertificates = [\"CN={name}\"]\n{role}\n")
    };
    Gateway::alone()
        .gateway(&tls)
        .admin("tls = true")
        .toml(&client("plain", ""))
        .toml(&client("looks", "role = \"viewer\""))
        .toml(&client("acts", "role = \"operator\""))
        .toml(&client("rules", "role = \"admin\""))
        .toml(&client_table("desk", "desk-key", "role = \"operator\""))
}

#[tokio::test]
async fn a_certificate_has_the_role_of_its_client_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::modern().await, ClientCa::new());
    let gateway = secured(&ca, folder.path(), "optional").server("s", upstream.http());
    let gateway = gateway.start().await;
    let connect = |name: Option<&str>| {
        let trust = trust(folder.path());
        let trust = match name {
            Some(name) => trust.showing(ca.issue(name)),
            None => trust,
        };
        gateway.remote_operator().tls(trust)
    };
    for (name, role) in [("plain", 0), ("looks", 1), ("acts", 2), ("rules", 3)] {
        for client in [connect(Some(name)), connect(Some(name)).h2()] {
            for (method, path, least) in [
                ("GET", STATUS, 1),
                ("GET", "/status", 1),
                ("POST", "/servers/s/refresh", 2),
                ("POST", "/api/v1/servers/s/refresh", 2),
                ("POST", "/api/v1/servers/s/definitions/approve", 3),
            ] {
                let said = send(&client, method, path).await;
                if role < least {
                    assert_eq!(code(&said, 403), "role_needed", "{name} {path}");
                } else {
                    assert!(![401, 403].contains(&said.status), "{name} {path}: {said:?}");
                }
            }
        }
    }
    // A browser adds a certificate by itself, so pages of other sites are refused.
    let page = connect(Some("acts"));
    let page = page.http("POST", "/api/v1/servers/s/refresh");
    let page = page.header("sec-fetch-site", "cross-site").send().await.said().await;
    assert_eq!(code(&page, 403), "foreign_page");
    // No certificate, or one of a name that no client has, is no credential. A key is.
    for client in [connect(None), connect(Some("stranger"))] {
        assert_eq!(code(&send(&client, "GET", STATUS).await, 401), "unauthenticated");
        assert_eq!(send(&client, "GET", "/readyz").await.status, 200);
        let with_key = client.key("desk-key");
        assert_eq!(send(&with_key, "GET", STATUS).await.status, 200);
    }
    // `X-API-Key` decides, not the certificate of its connection.
    let ruling = connect(Some("rules"));
    for (key, status, expected) in
        [("desk-key", 403, "role_needed"), ("wrong-key", 401, "unauthenticated")]
    {
        let asked = ruling.http("POST", APPROVE).header("x-api-key", key);
        assert_eq!(code(&asked.send().await.said().await, status), expected, "{key}");
    }
}

const APPROVE: &str = "/api/v1/servers/s/definitions/approve";

/// Sends a request over TLS; returns true if it is answered.
async fn is_answered(gateway: &Gateway, trust: Trust) -> bool {
    let socket = TcpStream::connect(gateway.running.admin.unwrap()).await.unwrap();
    let exchange = async {
        let mut stream = dial(socket, Protocol::Http1, trust).await.ok()?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.ok()?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.ok()?;
        Some(answer)
    };
    within(exchange).await.is_some_and(|answer| answer == *b"HTTP/1.1 200")
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_refused_by_the_admin_listener() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let ca = ClientCa::new();
    for choice in ["optional", "required"] {
        let gateway = secured(&ca, folder.path(), choice).start().await;
        let known = trust(folder.path());
        let foreign = known.clone().showing(ClientCa::new().issue("rules"));
        assert!(!is_answered(&gateway, foreign).await, "{choice}");
        assert!(is_answered(&gateway, known.clone().showing(ca.issue("rules"))).await, "{choice}");
        assert_eq!(is_answered(&gateway, known).await, choice == "optional", "{choice}");
    }
}

#[tokio::test]
async fn a_certificate_whose_client_is_gone_has_no_rights_on_its_open_connection() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let ca = ClientCa::new();
    let gateway = secured(&ca, folder.path(), "optional").start().await;
    let shown = trust(folder.path()).showing(ca.issue("rules"));
    let client: Client = gateway.remote_operator().tls(shown).keep();
    assert_eq!(send(&client, "GET", STATUS).await.status, 200);
    let text = secured(&ca, folder.path(), "optional").text();
    let text = text.replace("CN=rules", "CN=other");
    gateway.reload_text(&text).await;
    assert_eq!(code(&send(&client, "GET", STATUS).await, 401), "unauthenticated");
}
