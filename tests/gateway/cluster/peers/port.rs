//! Strangers at the port for replicas: each is refused and logged, and calls between replicas go on.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::authorization::audited;
use crate::certificates::ClientCa;
use crate::cluster::peers::certificates::{peer_certificates, peer_files};
use crate::cluster::{RedisServer, forwarded, free_port, knows, peer_address, replica_at, through};
use crate::refused_logins::warnings;
use crate::support::client::{Protocol, Trust, dial};
use crate::support::gateway::Builder;
use crate::support::{Gateway, Upstream, poll_for, within};

/// Connects from an address of this machine that no other test has.
pub async fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::from(source), 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Waits for the line about a stranger at this address.
pub async fn line_about(source: [u8; 4], reason: &str) {
    let address = Ipv4Addr::from(source);
    let end = format!(" from {address} to cluster.listen is refused: {reason}");
    let found = poll_for(async || lines(&end).into_iter().next()).await;
    assert!(found.contains("WARN"), "{found}");
}

/// Returns the captured lines that contain a text.
pub fn lines(text: &str) -> Vec<String> {
    let log = std::fs::read_to_string(warnings().path()).unwrap();
    log.lines().filter(|line| line.contains(text)).map(ToOwned::to_owned).collect()
}

/// Sends bytes, and returns everything that comes until the end.
pub async fn exchange(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    sent: &[u8],
) -> Vec<u8> {
    // A connection that is refused already may be closed.
    let _ = stream.write_all(sent).await;
    let mut answer = Vec::new();
    let _ = within(stream.read_to_end(&mut answer)).await;
    answer
}

const BARE_REQUEST: &[u8] = b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The way of a stranger to the port for replicas.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// In clear.
    Clear(&'a [u8]),
    /// Over TLS, with a certificate of this CA.
    Tls(Option<&'a ClientCa>, &'a [u8]),
}

async fn answer_to(way: Way<'_>, source: [u8; 4], address: SocketAddr, folder: &Path) -> Vec<u8> {
    let socket = connect_from(source, address).await;
    match way {
        Way::Clear(sent) => exchange(socket, sent).await,
        Way::Tls(ca, sent) => {
            let trust = Trust::ca(&folder.join("peer-ca.pem"));
            let trust = match ca {
                Some(ca) => trust.showing(ca.issue("127.0.0.1")),
                None => trust,
            };
            match dial(socket, Protocol::Http1, trust).await {
                Ok(stream) => exchange(stream, sent).await,
                Err(_) => Vec::new(),
            }
        }
    }
}

fn secured(folder: &Path, upstream: &Upstream, store: &str) -> Builder {
    let builder = Gateway::with("s", upstream.http())
        .gateway("limits = { handshake = \"1s\" }")
        .toml("[audit]\nfile = \"audit.jsonl\"\n");
    replica_at(builder, store, free_port(), &peer_files(folder))
}

#[tokio::test]
async fn strangers_at_the_port_for_replicas_are_refused_and_logged_by_address_and_reason() {
    warnings();
    let folder = tempfile::tempdir().unwrap();
    let peers = peer_certificates(folder.path());
    let other = ClientCa::new();
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let a = secured(folder.path(), &upstream, &redis.url()).start().await;
    let b = secured(folder.path(), &upstream, &redis.url()).start().await;
    for replica in [&a, &b] {
        knows(replica, 1).await;
    }
    let client = a.legacy().await;
    let at_b = through(&b, &client, None);
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    let address = peer_address(&a).await;
    let garbage = b"no request\r\n\r\n";
    let cases = [
        (Way::Tls(None, BARE_REQUEST), "it presented no certificate"),
        (Way::Tls(Some(&other), BARE_REQUEST), "no accepted CA has issued its certificate"),
        (Way::Clear(BARE_REQUEST), "it does not use TLS"),
        (Way::Clear(HTTP2_PREFACE), "it does not use TLS"),
        // The beginning of a handshake.
        (Way::Clear(&[0x16, 0x03, 0x01]), "it sent no request in time"),
        (Way::Tls(Some(&peers), b""), "it sent no request in time"),
        (Way::Tls(Some(&peers), garbage), "its first bytes are not an HTTP request"),
        (Way::Tls(Some(&peers), BARE_REQUEST), "it has no envelope of a replica"),
    ];
    for (number, (way, reason)) in (1_u8..).zip(cases) {
        let source = [127, 34, 1, number];
        let answer = answer_to(way, source, address, folder.path()).await;
        let answer = String::from_utf8_lossy(&answer);
        let is_served = answer.contains(" 200 ") || answer.contains("jsonrpc\":\"2.0\",\"result");
        assert!(!is_served, "{reason}: {answer}");
        let has_certificate = matches!(way, Way::Tls(Some(ca), _) if std::ptr::eq(ca, &peers));
        assert!(has_certificate || !answer.contains("HTTP/1.1"), "{reason}: {answer}");
        line_about(source, reason).await;
        let record = poll_for(async || {
            let records = audited(a.folder(), 1).await;
            let shown = Ipv4Addr::from(source).to_string();
            records.into_iter().find(|record| record["address"] == shown.as_str())
        })
        .await;
        assert_eq!(record["reason"], "invalid_request", "{reason}");
        assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}", "{reason}");
    }
    // One line a minute for each address and reason.
    let source = [127, 34, 1, 1];
    for _ in 0..20 {
        answer_to(Way::Tls(None, BARE_REQUEST), source, address, folder.path()).await;
    }
    answer_to(Way::Clear(BARE_REQUEST), source, address, folder.path()).await;
    line_about(source, "it does not use TLS").await;
    assert_eq!(lines(" from 127.34.1.1 to cluster.listen is refused").len(), 2);
    assert_eq!(forwarded(&b, "broken").await, 0);
    assert_eq!(forwarded(&a, "refused").await, 1, "of requests");
}
