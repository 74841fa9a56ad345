//! Clients identified by a TLS certificate.

use std::path::Path;
use std::time::Duration;

use data_encoding::HEXLOWER;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::cli::cert;
use trunkline::crypto::sha256;

use crate::authorization::audited;
use crate::support::client::{Kind, Protocol, ShownCertificate, Trust, dial};
use crate::support::gateway::Builder;
use crate::support::issuer::now;
use crate::support::{Client, Gateway, Upstream, client_table, within};

/// A CA that signs client certificates, trusted by the gateway or not.
pub struct ClientCa(pub CertifiedIssuer<'static, KeyPair>);

impl ClientCa {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate with this common name.
    pub fn issue(&self, name: &str) -> ShownCertificate {
        self.issue_with(name, |_| {})
    }

    /// Issues a certificate with this common name and further changes.
    pub fn issue_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> ShownCertificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.der().clone(), key.serialize_der())
    }
}

/// Starts a gateway that requests certificates of this CA. `ci` has one, `desk` has a key.
pub fn gateway_of(upstream: &Upstream, ca: &ClientCa, folder: &Path, choice: &str) -> Builder {
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

pub fn trust(folder: &Path) -> Trust {
    Trust::ca(&folder.join("ca.pem"))
}

pub fn server_certificates(folder: &Path) {
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
        // The client is `ci`, which may use one profile.
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
    // A key takes precedence over any certificate of the connection.
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

#[tokio::test]
async fn each_kind_of_name_in_a_certificate_identifies_its_client_and_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::legacy().await, ClientCa::new());
    let clients = "[clients.host]\ncertificates = [\"dns:desk.example.com\"]\n\
                   [clients.bot]\ncertificates = [\"uri:spiffe://example.com/bot\"]\n\
                   [clients.box]\ncertificates = [\"ip:192.0.2.7\"]\n\
                   [clients.ann]\ncertificates = [\"email:ann@example.com\"]\n\
                   [audit]\nfile = \"audit.jsonl\"\n";
    let gateway = gateway_of(&upstream, &ca, folder.path(), "optional").toml(clients).start().await;
    let name = |text: &str| text.try_into().unwrap();
    let alternatives = [
        ("host", SanType::DnsName(name("desk.example.com"))),
        ("bot", SanType::URI(name("spiffe://example.com/bot"))),
        ("box", SanType::IpAddress("192.0.2.7".parse().unwrap())),
        ("ann", SanType::Rfc822Name(name("ann@example.com"))),
    ];
    for (seen, (client, alternative)) in alternatives.into_iter().enumerate() {
        // The common name equals the client's, but is not one of its configured names.
        let shown = ca.issue_with("x", |params| params.subject_alt_names = vec![alternative]);
        let digest = HEXLOWER.encode(&sha256(&shown.0))[..8].to_owned();
        let connected = Client::modern(gateway.running.address);
        let connected = connected.tls(trust(folder.path()).showing(shown));
        assert_eq!(connected.call("s__echo", json!({})).await.text(), "{}", "{client}");
        let record = audited(gateway.folder(), seen + 1).await.remove(seen);
        assert_eq!(record["principal"], client);
        assert_eq!(record["credential"], json!({ "kind": "certificate", "id": digest }));
    }
    // A certificate with the names of two clients identifies neither.
    let both = vec![
        SanType::DnsName(name("desk.example.com")),
        SanType::Rfc822Name(name("ann@example.com")),
    ];
    let shown = ca.issue_with("x", |params| params.subject_alt_names = both);
    let client = Client::modern(gateway.running.address).tls(trust(folder.path()).showing(shown));
    let said = client.ask_call("s__echo", json!({})).send().await.said().await;
    assert_eq!(said.status, 401, "{said:?}");
    let record = audited(gateway.folder(), 5).await.remove(4);
    assert_eq!(record["principal"], json!(null));
    assert_eq!(record["credential"], json!({ "kind": "none", "id": null }));
}

#[tokio::test]
async fn streams_end_with_the_certificate_and_its_connection_identifies_no_client() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::legacy().await, ClientCa::new());
    let gateway = gateway_of(&upstream, &ca, folder.path(), "optional").start().await;
    let ends = now() + 4;
    let shown = ca.issue_with("ci", |params| {
        let since = Duration::from_secs(ends.try_into().unwrap());
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since;
    });
    let client = Client::modern(gateway.running.address);
    let client = client.tls(trust(folder.path()).showing(shown)).at("/mcp/p");
    let mut stream = client.listen().await;
    let kept = client.keep();
    assert_eq!(kept.call("s__echo", json!({})).await.text(), "{}");
    within(async { while stream.message().await.is_some() {} }).await;
    assert!((ends..ends + 10).contains(&now()), "at once, not at the next sign of life");
    let said = kept.ask_call("s__echo", json!({})).send().await.said().await;
    assert_eq!(said.status, 401, "the connection is older: {said:?}");
}

#[tokio::test]
async fn a_certificate_has_the_groups_and_scopes_of_its_client() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let (upstream, ca) = (Upstream::modern().await, ClientCa::new());
    let lines = upstream.http() + "tools.count.scopes = [\"mcp:count\"]\n";
    let place = folder.path().display();
    std::fs::write(folder.path().join("clients.pem"), ca.0.pem()).unwrap();
    let tls = format!(
        "tls = {{ cert = '{place}/server.pem', key = '{place}/server.key', \
         client_ca = '{place}/clients.pem' }}"
    );
    let rules = "[clients.ci]\ncertificates = [\"CN=ci\"]\ngroups = [\"builders\"]\n\
                 scopes = [\"mcp:count\"]\n\
                 [clients.desk]\ncertificates = [\"CN=desk\"]\n\
                 [policy.rules.builders]\ngroups = [\"builders\"]\n\
                 [policy.rules.all]\ntools = [\"s__echo\", \"s__count\"]\n";
    let gateway = Gateway::with("s", lines).gateway(&tls).toml(rules).start().await;
    for (name, tools, counts) in [("ci", 4, 200), ("desk", 2, 403)] {
        let shown = trust(folder.path()).showing(ca.issue(name));
        let client = Client::modern(gateway.running.address).tls(shown);
        assert_eq!(client.tool_names().await.len(), tools, "{name}");
        let said = client.ask_call("s__count", json!({})).send().await.said().await;
        assert_eq!(said.status, counts, "{name}: {said:?}");
    }
}
