//! Heads and envelopes at the port for replicas that no replica sends.

use std::net::SocketAddr;

use http::{HeaderMap, Uri};
use serde_json::json;
use trunkline::call::PeerAddress;
use trunkline::clock::unix_now;
use trunkline::cluster::{
    ENVELOPE_HEADER, ENVELOPE_PURPOSE, Envelope, ReplicaId, RequestLine, ShownCredentials,
};
use trunkline::crypto::Sealer;

use crate::cluster::peers::port::{connect_from, exchange, line_about, lines};
use crate::cluster::{RedisServer, STATE_KEY, free_port, peer_address, start_replicas};
use crate::refused_logins::warnings;
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Upstream, client_table};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn gateway_of(upstream: &Upstream) -> Builder {
    Gateway::with("s", upstream.http()).toml(&client_table("one", "key-one", ""))
}

/// Builds the head of a ping, with these header lines.
fn head(lines: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {}\r\n{lines}\r\n",
        PING.len()
    )
}

#[tokio::test]
async fn a_head_beyond_the_limits_is_refused_and_logged() {
    warnings();
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [gateway] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let address = peer_address(&gateway).await;
    let large = "x".repeat(170 << 10);
    let (envelope, many) = (ENVELOPE_HEADER.to_string(), "a: b\r\n".repeat(110));
    let too_large = "the request's headers take ";
    let cases = [
        (format!("x: {large}\r\n"), too_large),
        (format!("{envelope}: {large}\r\n"), too_large),
        // Beyond twice the limit, nothing of it is read.
        (format!("{envelope}: {large}{large}\r\n"), "its first bytes are not an HTTP request"),
        (many, "its first bytes are not an HTTP request"),
    ];
    for (number, (lines_of_head, reason)) in (1_u8..).zip(cases) {
        let source = [127, 34, 3, number];
        let socket = connect_from(source, address).await;
        let answer = exchange(socket, format!("{}{PING}", head(&lines_of_head)).as_bytes()).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{number}: {answer}");
        line_about(source, reason).await;
    }
    // Another size is the same reason.
    let socket = connect_from([127, 34, 3, 1], address).await;
    exchange(socket, head(&format!("x: {large}x\r\n")).as_bytes()).await;
    assert_eq!(lines(" from 127.34.3.1 to cluster.listen is refused").len(), 1);
}

/// A replica that forwards pings of a client at its own address, with any keys.
struct Forwarder {
    id: ReplicaId,
    peer: SocketAddr,
    client: Client,
    address: SocketAddr,
}

impl Forwarder {
    async fn of(gateway: &Gateway, host: u8) -> Self {
        let status = gateway.status().await;
        let client = Client::sessionless(gateway.running.address, "2025-11-25").key("key-one");
        Self {
            id: ReplicaId::parse(status["cluster"]["id"].as_str().unwrap()).unwrap(),
            peer: peer_address(gateway).await,
            client: client.initialized().await,
            address: SocketAddr::from(([198, 51, 100, host], 4000)),
        }
    }

    /// Seals the envelope of a ping with a key.
    fn seal(&self, key: &str) -> String {
        let (method, uri) = (http::Method::POST, Uri::from_static("/mcp"));
        let line = RequestLine { method: &method, uri: &uri };
        let from = PeerAddress { addr: self.address, local: self.peer, tls: false, stdio: false };
        let mut shown = HeaderMap::new();
        shown.insert("authorization", "Bearer key-one".parse().unwrap());
        let shown = ShownCredentials::read(&shown, &[http::header::AUTHORIZATION]);
        let envelope = Envelope::new(line, PING.into(), from, "one").with_credentials(&shown);
        let envelope = envelope.addressed_to(self.id, unix_now());
        envelope.seal(&Sealer::new(ENVELOPE_PURPOSE, [key.as_bytes()]).unwrap()).unwrap()
    }

    /// Sends a ping with envelopes on a connection of its own, and returns its status.
    async fn ping(&self, envelopes: &[&str]) -> u16 {
        let sender = Client::plain(self.peer).becomes(self.client.kind()).h2();
        let mut ask = sender.http("POST", "/mcp").of_session().body(PING);
        ask = ask.header("content-type", "application/json");
        for envelope in envelopes {
            ask = ask.again(ENVELOPE_HEADER.as_str(), envelope);
        }
        ask.send().await.status()
    }

    fn lines(&self, reason: &str) -> usize {
        let client = self.address.ip();
        lines(&format!("a request from {client}, forwarded by 127.0.0.1, to cluster.listen is refused: {reason}")).len()
    }
}

#[tokio::test]
async fn envelopes_are_refused_twice_and_in_pairs_and_logged_once_a_minute() {
    warnings();
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [gateway] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let forwarder = Forwarder::of(&gateway, 1).await;
    let key = STATE_KEY;
    let valid = forwarder.seal(key);
    assert_eq!(forwarder.ping(&[&valid]).await, 200);
    // Each on another connection.
    for _ in 0..20 {
        assert_eq!(forwarder.ping(&[&valid]).await, 403);
    }
    assert_eq!(forwarder.lines("its envelope was used before"), 1);
    for envelopes in [
        &[&*forwarder.seal(key), &*forwarder.seal(key)][..],
        &[""],
        &["not base64!"],
        &[&forwarder.seal(key)[..40]],
    ] {
        assert_eq!(forwarder.ping(envelopes).await, 403, "{envelopes:?}");
    }
    assert_eq!(forwarder.ping(&[&forwarder.seal(key)]).await, 200);
    assert_eq!(forwarder.client.request("ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_key_that_was_replaced_seals_no_envelope() {
    warnings();
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let start = async |keys: &str| {
        let port = free_port();
        let builder = gateway_of(&upstream).gateway(&format!("state_keys = [{keys}]"));
        let cluster = format!(
            "[cluster]\nstore = \"{}\"\nlisten = \"127.0.0.1:{port}\"\nadvertise = \"127.0.0.1:{port}\"\n",
            redis.url()
        );
        builder.toml(&cluster).start().await
    };
    let (old, new) = ("the earlier key of a test's replicas", "the later key of a test's replicas");
    let rotating = start(&format!("\"{new}\", \"{old}\"")).await;
    let forwarder = Forwarder::of(&rotating, 2).await;
    let sealed = forwarder.seal(old);
    assert_eq!([forwarder.ping(&[&sealed]).await, forwarder.ping(&[&sealed]).await], [200, 403]);
    assert_eq!(forwarder.lines("its envelope was used before"), 1);
    let rotated = start(&format!("\"{new}\"")).await;
    let forwarder = Forwarder::of(&rotated, 3).await;
    // An envelope of the earlier replica, and one for this one with the earlier key.
    let forged = "to cluster.listen is refused: its envelope was not sealed by a replica";
    let before = lines(forged).len();
    assert_eq!(forwarder.ping(&[&sealed]).await, 403);
    assert_eq!(forwarder.ping(&[&forwarder.seal(old)]).await, 403);
    assert!(lines(forged).len() > before);
    assert_eq!(forwarder.ping(&[&forwarder.seal(new)]).await, 200);
}
