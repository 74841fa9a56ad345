//! Connections between replicas with certificates.

use std::path::Path;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType, date_time_ymd};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::certificates::{ClientCa, gateway_of as client_gateway, server_certificates, trust};
use crate::cluster::peers::envelopes::Owner;
use crate::cluster::{
    RedisServer, STATE_KEY, forwarded, free_port, knows, peer_address, replica_at, through,
};
use crate::refused_logins::{line_with, warnings};
use crate::support::client::{Protocol, Trust, dial};
use crate::support::gateway::{Builder, key_digest};
use crate::support::{Client, Gateway, Step, Upstream, client_table};

/// Writes the certificates of replicas into a folder.
pub fn peer_certificates(folder: &Path) -> ClientCa {
    let ca = ClientCa::new();
    std::fs::write(folder.join("peer-ca.pem"), ca.0.pem()).unwrap();
    write_peer(folder, &ca, &|_| {});
    ca
}

/// Writes a certificate of a replica, with changes.
fn write_peer(folder: &Path, ca: &ClientCa, change: &dyn Fn(&mut CertificateParams)) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    let local = SanType::DnsName("localhost".try_into().unwrap());
    params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into()), local];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &ca.0).unwrap();
    std::fs::write(folder.join("peer.pem"), certificate.pem()).unwrap();
    std::fs::write(folder.join("peer.key"), key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn replicas_show_each_other_certificates_and_clients_keep_theirs() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let peers = peer_certificates(folder.path());
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let clients = ClientCa::new();
    std::fs::write(folder.path().join("clients.pem"), clients.0.pem()).unwrap();
    let place = folder.path().display();
    let files = format!(
        "cert = '{place}/peer.pem'\nkey = '{place}/peer.key'\nca = '{place}/peer-ca.pem'\n"
    );
    let builder = || {
        Gateway::with("s", upstream.http())
            .gateway(&format!(
                "tls = {{ cert = '{place}/server.pem', key = '{place}/server.key', \
                 client_ca = '{place}/clients.pem' }}"
            ))
            .toml("[clients.ci]\ncertificates = [\"CN=ci\"]\n[clients.desk]\ncertificates = [\"CN=desk\"]\n")
            .toml("[clients.replica]\ncertificates = [\"CN=rcgen self signed cert\"]\n")
            .toml(&client_table("key", "a-key", ""))
    };
    let a = replica_at(builder(), &redis.url(), free_port(), &files).start().await;
    let b = replica_at(builder(), &redis.url(), free_port(), &files).start().await;
    knows(&a, 1).await;
    knows(&b, 1).await;
    let known = trust(folder.path());
    let client = Client::sessionless(a.running.address, "2025-11-25");
    let client = client.tls(known.clone().showing(clients.issue("ci"))).initialized().await;
    let at_b = through(&b, &client, None).tls(known.clone().showing(clients.issue("ci")));
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(forwarded(&b, "answered").await, 1);
    let other = through(&b, &client, None).tls(known.showing(clients.issue("desk")));
    assert_eq!(other.request("ping", json!({})).await.status, 404);
    // The certificate of the replica is not that of its client.
    let keyed = Client::sessionless(a.running.address, "2025-11-25").key("a-key");
    let keyed = keyed.tls(trust(folder.path())).initialized().await;
    let keyed = through(&b, &keyed, Some("a-key")).tls(trust(folder.path()));
    assert_eq!(keyed.request("ping", json!({})).await.status, 200);
    // The address for replicas.
    let address = peer_address(&a).await;
    let peer_ca = Trust::ca(&folder.path().join("peer-ca.pem"));
    for (name, shown) in [
        ("no certificate", peer_ca.clone()),
        ("a client's", peer_ca.clone().showing(clients.issue("127.0.0.1"))),
    ] {
        assert!(!is_answered(address, shown).await, "{name}");
    }
    let known = peer_ca.showing(peers.issue("a replica"));
    assert!(is_answered(address, known.clone()).await, "with a certificate of the CA");
    // A certificate of a replica alone is not enough.
    assert_eq!(forwarded(&a, "refused").await, 1);
}

/// Returns a replica with certificates for clients and for replicas in this folder, and the CAs for
/// certificates of clients in a file of it.
fn secured_replica(folder: &Path, upstream: &Upstream, store: &str, clients: &str) -> Builder {
    let place = folder.display();
    let builder = Gateway::with("s", upstream.http())
        .gateway(&format!(
            "tls = {{ cert = '{place}/server.pem', key = '{place}/server.key', \
             client_ca = '{place}/{clients}' }}"
        ))
        .toml("[clients.ci]\ncertificates = [\"CN=ci\"]\n");
    replica_at(builder, store, free_port(), &peer_files(folder))
}

pub fn peer_files(folder: &Path) -> String {
    let place = folder.display();
    format!("cert = '{place}/peer.pem'\nkey = '{place}/peer.key'\nca = '{place}/peer-ca.pem'\n")
}

#[tokio::test]
async fn a_client_certificate_of_a_ca_that_the_owner_does_not_trust_identifies_no_client() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    peer_certificates(folder.path());
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let (common, removed) = (ClientCa::new(), ClientCa::new());
    std::fs::write(folder.path().join("common.pem"), common.0.pem()).unwrap();
    let both = format!("{}{}", common.0.pem(), removed.0.pem());
    std::fs::write(folder.path().join("both.pem"), both).unwrap();
    let replica = |clients| secured_replica(folder.path(), &upstream, &redis.url(), clients);
    let a = replica("common.pem").start().await;
    let b = replica("both.pem").start().await;
    for replica in [&a, &b] {
        knows(replica, 1).await;
    }
    let trusted = trust(folder.path());
    let client = Client::sessionless(a.running.address, "2025-11-25");
    let client = client.tls(trusted.clone().showing(common.issue("ci"))).initialized().await;
    for (ca, status) in [(&common, 200), (&removed, 403), (&common, 200)] {
        let at_b = through(&b, &client, None).tls(trusted.clone().showing(ca.issue("ci")));
        assert_eq!(at_b.request("ping", json!({})).await.status, status);
    }
    // Refusals of single clients are no reason to close the connection, which others share.
    let at_b = || through(&b, &client, None).tls(trusted.clone().showing(removed.issue("ci")));
    for _ in 0..5 {
        assert_eq!(at_b().request("ping", json!({})).await.status, 403);
    }
    assert_eq!(forwarded(&a, "refused").await, 6);
}

#[tokio::test]
async fn an_owner_that_requires_certificates_serves_no_forwarded_request_without_one() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    peer_certificates(folder.path());
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let clients = ClientCa::new();
    let replica = |choice| {
        let digest = key_digest("key-ci");
        let builder = client_gateway(&upstream, &clients, folder.path(), choice);
        let ci = format!("[clients.both]\ncertificates = [\"CN=both\"]\nkey = \"{digest}\"\n");
        replica_at(builder.toml(&ci), &redis.url(), free_port(), &peer_files(folder.path()))
    };
    let a = replica("required").start().await;
    let b = replica("optional").start().await;
    for replica in [&a, &b] {
        knows(replica, 1).await;
    }
    let shown = trust(folder.path()).showing(clients.issue("both"));
    let client = Client::sessionless(a.running.address, "2025-11-25").tls(shown.clone());
    let client = client.initialized().await;
    for (trust, status) in [(shown, 200), (trust(folder.path()), 403)] {
        let at_b = through(&b, &client, Some("key-ci")).tls(trust);
        assert_eq!(at_b.request("ping", json!({})).await.status, status);
    }
}

#[tokio::test]
async fn a_reload_refuses_certificates_of_replicas_that_others_would_not_accept() {
    let folder = tempfile::tempdir().unwrap();
    let old = peer_certificates(folder.path());
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = Gateway::with("s", upstream.http());
    let files = peer_files(folder.path());
    let a = replica_at(builder, &redis.url(), free_port(), &files).start().await;
    let ca_file = folder.path().join("peer-ca.pem");
    let known = Trust::ca(&ca_file).showing(old.issue("a replica"));
    let address = peer_address(&a).await;
    let ended = |params: &mut CertificateParams| params.not_after = date_time_ymd(2024, 2, 1);
    let later = |params: &mut CertificateParams| params.not_before = date_time_ymd(2090, 2, 1);
    for (change, fault) in [
        (&ended as &dyn Fn(&mut CertificateParams), "cluster.cert: the certificate has expired"),
        (&later, "cluster.cert: the certificate is not yet valid"),
    ] {
        write_peer(folder.path(), &old, change);
        assert_eq!(a.reloader.reload().await, ReloadOutcome::Rejected, "{fault}");
        let status = a.status().await["configuration"]["last_reload"].to_string();
        assert!(status.contains(fault), "{status}");
        assert!(is_answered(address, known.clone()).await, "the earlier one is in use");
        // A change of the file is noticed.
        assert!(a.reloader.watched_files().contains(&folder.path().join("peer.pem")));
    }
    write_peer(folder.path(), &old, &|_| {});
    assert_eq!(a.reloader.reload().await, ReloadOutcome::Unchanged);
}

#[tokio::test]
async fn renewed_certificates_of_replicas_are_used_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    server_certificates(folder.path());
    let old = peer_certificates(folder.path());
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    upstream.does("wait", |_| vec![Step::Progress(1), Step::Hold, Step::text("waited")]);
    let start = async || {
        let builder = Gateway::with("s", upstream.http()).toml(&client_table("one", "key-one", ""));
        let files = peer_files(folder.path());
        replica_at(builder, &redis.url(), free_port(), &files).start().await
    };
    warnings();
    let (a, b) = (start().await, start().await);
    for replica in [&a, &b] {
        knows(replica, 1).await;
    }
    let status = a.status().await;
    for (name, kind) in [("cluster.cert", "replica_certificate"), ("cluster.ca", "replica_ca")] {
        let expiries = status["expiries"].as_array().unwrap();
        let found = expiries.iter().find(|expiry| expiry["name"] == name);
        assert_eq!(found.expect(name)["kind"], kind);
    }
    assert!(a.metrics().await.contains("kind=\"replica_certificate\""));
    let address = peer_address(&a).await;
    let showing = |ca: &ClientCa| {
        Trust::ca(&folder.path().join("peer-ca.pem")).showing(ca.issue("a replica"))
    };
    assert!(is_answered(address, showing(&old)).await);
    // Connections that are open at the reload, in both directions.
    let owner = Owner::of(&a).await;
    let held = owner.sender().tls(showing(&old)).keep();
    assert_eq!(owner.ping_by(&held).await, 200);
    let client = Client::sessionless(a.running.address, "2025-11-25").key("key-one");
    let client = client.initialized().await;
    let at_b = through(&b, &client, Some("key-one"));
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    let mut waiting = at_b.ask_call("s__wait", json!({})).token(json!("t")).send().await;
    waiting.message().await.expect("progress");
    // A reload of the same files ends none of them.
    assert_eq!(a.reloader.reload().await, ReloadOutcome::Unchanged);
    assert_eq!(owner.ping_by(&held).await, 200);
    // Another CA, so that none of the old files is of use.
    let new = peer_certificates(folder.path());
    assert!(!is_answered(address, showing(&new)).await);
    let file = |name: &str| folder.path().join(name);
    let files = a.reloader.watched_files();
    for name in ["peer.pem", "peer.key", "peer-ca.pem"] {
        assert!(files.contains(&file(name)), "{name} is watched");
    }
    for replica in [&a, &b] {
        assert_eq!(replica.reloader.reload().await, ReloadOutcome::Unchanged);
    }
    assert!(is_answered(address, showing(&new)).await);
    assert!(!is_answered(address, showing(&old)).await);
    assert_eq!(owner.ping_by(&held).await, 403);
    let line =
        line_with("the certificate of its replica is no longer accepted").expect("a warning");
    assert!(line.contains("a request from 127.0.0.1 to cluster.listen is refused"), "{line}");
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(forwarded(&b, "answered").await, 3);
    // The call in progress ends on the earlier connection.
    upstream.release(1);
    assert_eq!(waiting.said().await.text(), "waited");
    // Files that do not fit each other are not used.
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    std::fs::write(file("peer.key"), key).unwrap();
    assert_eq!(a.reloader.reload().await, ReloadOutcome::Rejected);
    assert!(is_answered(address, showing(&new)).await);
}

/// Returns true if a request gets any answer.
async fn is_answered(address: std::net::SocketAddr, trust: Trust) -> bool {
    let socket = TcpStream::connect(address).await.unwrap();
    let Ok(mut stream) = dial(socket, Protocol::Http1, trust).await else { return false };
    let request = b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    if stream.write_all(request).await.is_err() {
        return false;
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer.starts_with(b"HTTP/1.1 403 ")
}

#[tokio::test]
async fn a_peer_file_that_cannot_be_used_is_named_by_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    peer_certificates(folder.path());
    std::fs::write(folder.path().join("peer-ca.pem"), "nothing").unwrap();
    let place = folder.path().display();
    let text = format!(
        "[gateway]\nlisten = '127.0.0.1:0'\nstate_keys = ['{}']\n[cluster]\nstore = 'rediss://h'\n\
         listen = '127.0.0.1:{}'\nadvertise = '127.0.0.1:7070'\ncert = '{place}/peer.pem'\n\
         key = '{place}/peer.key'\nca = '{place}/peer-ca.pem'\n",
        STATE_KEY,
        free_port()
    );
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, text).unwrap();
    let config = trunkline::config::Config::read(
        &trunkline::config::ConfigSource::open(&path).unwrap(),
        &trunkline::config::SystemEnvironment,
    );
    let faults = trunkline::cli::serve::settings::of(&config.unwrap()).err().unwrap();
    assert_eq!(faults[0].key, "cluster.ca", "{faults:?}");
}
