//! Clients that a TLS certificate identifies.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::cli::cert;

use crate::support::client::{Kind, Protocol, ShownCertificate, Trust, dial};
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Upstream, client_table};

/// A CA whose client certificates the gateway accepts, or another one.
struct ClientCa(CertifiedIssuer<'static, KeyPair>);

impl ClientCa {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate with this common name.
    fn issue(&self, name: &str) -> ShownCertificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.der().clone(), key.serialize_der())
    }
}

/// A gateway that asks for certificates of this CA. `ci` has one, `desk` has a key.
fn gateway_of(upstream: &Upstream, ca: &ClientCa, folder: &Path, choice: &str) -> Builder {
    std::fs::write(folder.join("clients.pem"), ca.0.pem()).unwrap();
    let place = folder.display();
    let tls = format!(
        "tls = {{ cert = '{place}/server.pem', key = '{place}/server.key', \
         client_ca = '{place}/clients.pem', client_certificates = '{choice}' }}"
    );
    Gateway::with("s", upstream.http())
        .gateway(&tls)
        .toml("[profiles.p]\n[clients.ci]\ncertificates = [\"CN=ci\"]\nprofiles = [\"p\"]\n")
        .toml(&client_table("desk", "desk-key", ""))
}

fn trust(folder: &Path) -> Trust {
    Trust::ca(&folder.join("ca.pem"))
}

fn server_certificates(folder: &Path) {
    let args = cert::CertArgs { dir: folder.to_owned(), force: true, ..cert::CertArgs::default() };
    cert::write_certificates(&args, &mut std::io::sink()).unwrap();
}

#[tokio::test]
async fn a_certificate_identifies_its_client_in_both_eras() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::legacy().await, ClientCa::new());
    let gateway = gateway_of(&upstream, &ca, folder.path(), "optional").start().await;
    let address = gateway.running.address;
    for http2 in [false, true] {
        let client = Client::modern(address).tls(trust(folder.path()).showing(ca.issue("ci")));
        let mut client = if http2 { client.h2() } else { client };
        for kind in [Kind::Modern, Kind::Legacy { session: None, version: "2025-11-25".into() }] {
            client = client.becomes(kind).at("/mcp/p").initialized().await;
            assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        }
        // It is `ci`, which may use one profile.
        client = client.becomes(Kind::Modern).at("/mcp");
        let said = client.ask_call("s__echo", json!({})).send().await.said().await;
        assert_eq!(said.status, 404, "{said:?}");
    }
}

#[tokio::test]
async fn who_shows_no_known_certificate_needs_a_key() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::legacy().await, ClientCa::new());
    let gateway = gateway_of(&upstream, &ca, folder.path(), "optional").start().await;
    let none = trust(folder.path());
    for shown in [none.clone(), none.clone().showing(ca.issue("stranger"))] {
        let client = Client::modern(gateway.running.address).tls(shown);
        let call = || client.ask_call("s__echo", json!({}));
        assert_eq!(call().send().await.said().await.status, 401);
        let said = call().header("x-api-key", "desk-key").send().await.said().await;
        assert_eq!(said.text(), "{}");
    }
    // A key decides, whatever certificate the connection shows.
    let client = Client::modern(gateway.running.address).tls(none.showing(ca.issue("ci")));
    let call = client.ask_call("s__echo", json!({})).header("x-api-key", "desk-key");
    assert_eq!(call.send().await.said().await.text(), "{}");
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_refused_and_so_is_none_where_one_is_required() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::legacy().await, ClientCa::new());
    let gateway = gateway_of(&upstream, &ca, folder.path(), "required").start().await;
    let known = trust(folder.path());
    let foreign = known.clone().showing(ClientCa::new().issue("ci"));
    for (shown, is_served) in
        [(known.clone(), false), (foreign, false), (known.showing(ca.issue("ci")), true)]
    {
        let socket = TcpStream::connect(gateway.running.address).await.unwrap();
        let answered = async {
            let mut stream = dial(socket, Protocol::Http1, shown).await.ok()?;
            let head = "POST /mcp/p HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(head.as_bytes()).await.ok()?;
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.ok()?;
            Some(answer)
        };
        assert_eq!(answered.await.is_some(), is_served);
    }
}

#[tokio::test]
async fn a_reload_that_takes_a_name_away_takes_effect_on_open_connections() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::legacy().await, ClientCa::new());
    let gateway = gateway_of(&upstream, &ca, folder.path(), "optional").start().await;
    let shown = trust(folder.path()).showing(ca.issue("ci"));
    let client = Client::modern(gateway.running.address).tls(shown).at("/mcp/p").keep();
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    let tls = "tls = { cert = 'FOLDER/server.pem', key = 'FOLDER/server.key' }";
    let without = Gateway::with("s", upstream.http())
        .gateway(&tls.replace("FOLDER", folder.path().to_str().unwrap()))
        .toml(&client_table("ci", "ci-key", ""))
        .toml("[profiles.p]\n");
    gateway.reload(without).await;
    let said = client.ask_call("s__echo", json!({})).send().await.said().await;
    assert_eq!(said.status, 401, "{said:?}");
}
