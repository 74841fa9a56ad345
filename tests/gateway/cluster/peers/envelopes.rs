//! Requests at the address for replicas that no replica has forwarded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, Method, Uri};
use serde_json::json;
use trunkline::call::PeerAddress;
use trunkline::clock::unix_now;
use trunkline::cluster::{
    ENVELOPE_HEADER, ENVELOPE_PURPOSE, Envelope, ReplicaId, RequestLine, ShownCredentials,
};
use trunkline::crypto::Sealer;

use crate::authorization::audited;
use crate::cluster::{RedisServer, STATE_KEY, forwarded, peer_address, start_replicas, through};
use crate::refused_logins::{line_with, warnings};
use crate::support::client::Ask;
use crate::support::{Client, Gateway, Upstream, client_table, poll_for};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// The owner of a session, and the keys of a replica that forwards requests to it.
pub struct Owner {
    id: ReplicaId,
    pub address: SocketAddr,
    keys: Sealer,
    client: Client,
}

impl Owner {
    pub async fn of(gateway: &Gateway) -> Self {
        let status = gateway.status().await;
        let client = Client::sessionless(gateway.running.address, "2025-11-25").key("key-one");
        Self {
            id: ReplicaId::parse(status["cluster"]["id"].as_str().unwrap()).unwrap(),
            address: peer_address(gateway).await,
            keys: keys(STATE_KEY),
            client: client.initialized().await,
        }
    }

    /// Returns the envelope of a ping in the session.
    fn envelope(&self) -> Envelope {
        self.envelope_of("POST", PING)
    }

    /// Returns the envelope of a request to the endpoint.
    pub fn envelope_of(&self, method: &str, body: &str) -> Envelope {
        self.envelope_at("/mcp", method, body)
    }

    /// Returns the envelope of a request to this path.
    pub fn envelope_at(&self, path: &str, method: &str, body: &str) -> Envelope {
        let (method, uri) = (method.parse().unwrap(), path.parse::<Uri>().unwrap());
        let line = RequestLine { method: &method, uri: &uri };
        let addr = SocketAddr::from(([192, 0, 2, 7], 4000));
        let from = PeerAddress { addr, local: self.address, tls: false, stdio: false };
        let mut shown = HeaderMap::new();
        shown.insert("authorization", "Bearer key-one".parse().unwrap());
        let shown = ShownCredentials::read(&shown, &[http::header::AUTHORIZATION]);
        Envelope::new(line, body.to_owned().into(), from, "one").with_credentials(&shown)
    }

    pub fn seal(&self, envelope: Envelope) -> String {
        envelope.addressed_to(self.id, unix_now()).seal(&self.keys).unwrap()
    }

    /// Sends a request with an envelope, and returns its status.
    async fn send(&self, path: &str, body: &str, envelope: Option<&str>) -> u16 {
        ask(&self.sender(), path, body, envelope).send().await.status()
    }

    /// Sends a request without a session, with an envelope, and returns its status.
    pub async fn send_by(&self, method: &str, path: &str, body: &str, envelope: &str) -> u16 {
        let sender = self.sender();
        let ask = sender.http(method, path).header("content-type", "application/json").body(body);
        ask.header(ENVELOPE_HEADER.as_str(), envelope).send().await.status()
    }

    /// Returns a client of the address for replicas.
    pub fn sender(&self) -> Client {
        Client::plain(self.address).becomes(self.client.kind()).h2()
    }

    /// Sends a ping in an envelope, and returns its status.
    pub async fn ping_by(&self, sender: &Client) -> u16 {
        let sealed = self.seal(self.envelope());
        ask(sender, "/mcp", PING, Some(&sealed)).send().await.status()
    }
}

/// Returns a request at the address for replicas, with an envelope or with the client's key.
fn ask<'a>(sender: &'a Client, path: &str, body: &str, envelope: Option<&str>) -> Ask<'a> {
    let ask = sender.http("POST", path).of_session().body(body);
    let ask = ask.header("content-type", "application/json");
    match envelope {
        Some(envelope) => ask.header(ENVELOPE_HEADER.as_str(), envelope),
        None => ask.header("authorization", "Bearer key-one"),
    }
}

fn keys(secret: &str) -> Sealer {
    Sealer::new(ENVELOPE_PURPOSE, [secret.as_bytes()]).unwrap()
}

pub async fn replica(upstream: &Upstream, redis: &RedisServer) -> Gateway {
    let builder = || {
        Gateway::with("s", upstream.http())
            .toml(&client_table("one", "key-one", ""))
            .toml(&client_table("two", "key-two", ""))
    };
    let [gateway] = start_replicas(&redis.url(), builder).await;
    gateway
}

#[tokio::test]
async fn only_a_valid_envelope_is_served_and_only_once() {
    warnings();
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let gateway = replica(&upstream, &redis).await;
    let owner = Owner::of(&gateway).await;
    let valid = owner.seal(owner.envelope());
    assert_eq!(owner.send("/mcp", PING, Some(&valid)).await, 200);
    let second = Duration::from_secs(1);
    let at = |now| owner.envelope().addressed_to(owner.id, now);
    let sealed = |envelope: Envelope| envelope.seal(&owner.keys).unwrap();
    let mut changed = BASE64URL_NOPAD.decode(valid.as_bytes()).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    let other = ReplicaId::new([9; 8]);
    let retargeted = owner.envelope().addressed_to(other, unix_now());
    let foreign = owner.envelope().addressed_to(owner.id, unix_now());
    let cases = [
        ("no envelope", None, "/mcp", PING),
        ("replayed", Some(valid.clone()), "/mcp", PING),
        ("changed", Some(BASE64URL_NOPAD.encode(&changed)), "/mcp", PING),
        ("forged", Some(foreign.seal(&keys("another key")).unwrap()), "/mcp", PING),
        ("expired", Some(sealed(at(unix_now() - second * 16))), "/mcp", PING),
        ("from the future", Some(sealed(at(unix_now() + second * 6))), "/mcp", PING),
        ("another path", Some(owner.seal(owner.envelope())), "/mcp?servers=s", PING),
        ("another body", Some(owner.seal(owner.envelope())), "/mcp", "{}"),
    ];
    let count = cases.len() as u64;
    for (name, envelope, path, body) in cases {
        assert_eq!(owner.send(path, body, envelope.as_deref()).await, 403, "{name}");
    }
    // The replica of another id that was at this address before.
    assert_eq!(owner.send("/mcp", PING, Some(&sealed(retargeted))).await, 421);
    assert_eq!(forwarded(&gateway, "refused").await, count + 1);
    for line in [
        "a request from 127.0.0.1 to cluster.listen is refused: it has no envelope",
        "a request from 127.0.0.1 to cluster.listen is refused: its envelope was not sealed",
        "a request from 192.0.2.7, forwarded by 127.0.0.1, to cluster.listen is refused: its envelope \
         was used before",
        "192.0.2.7, forwarded by 127.0.0.1, to cluster.listen is refused: its envelope has expired",
        "192.0.2.7, forwarded by 127.0.0.1, to cluster.listen is refused: its body is not that",
    ] {
        assert!(line_with(line).is_some(), "{line}");
    }
    // The replica is served all the same.
    assert_eq!(owner.send("/mcp", PING, Some(&owner.seal(owner.envelope()))).await, 200);
}

#[tokio::test]
async fn an_envelope_gives_no_identity_that_its_credential_does_not() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let gateway = replica(&upstream, &redis).await;
    let owner = Owner::of(&gateway).await;
    let (method, uri) = (Method::POST, Uri::from_static("/mcp"));
    let line = RequestLine { method: &method, uri: &uri };
    let from = PeerAddress { addr: owner.address, local: owner.address, tls: false, stdio: false };
    let bare = |principal| Envelope::new(line, PING.into(), from, principal);
    let shown = |key: &str| {
        let mut shown = HeaderMap::new();
        shown.insert("x-api-key", key.parse().unwrap());
        ShownCredentials::read(&shown, &["x-api-key".parse().unwrap()])
    };
    let cases = [
        ("without a credential", bare("one"), 401),
        ("with a wrong key", bare("one").with_credentials(&shown("key-wrong")), 401),
        ("with another's key", bare("one").with_credentials(&shown("key-two")), 403),
        ("of another's session", bare("two").with_credentials(&shown("key-two")), 404),
        ("as it should be", bare("one").with_credentials(&shown("key-one")), 200),
    ];
    for (name, envelope, status) in cases {
        let sealed = owner.seal(envelope);
        assert_eq!(owner.send("/mcp", PING, Some(&sealed)).await, status, "{name}");
    }
}

#[tokio::test]
async fn a_request_that_another_replica_has_counted_is_not_counted_again() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = || {
        let rate = "client_rate = \"2/h\"";
        Gateway::with("s", upstream.http()).gateway(rate).toml(&client_table("one", "key-one", ""))
    };
    let [gateway] = start_replicas(&redis.url(), builder).await;
    let owner = Owner::of(&gateway).await;
    // In several pieces, too.
    let large = format!("{PING}{}", " ".repeat(300_000));
    for (number, body) in [PING, &large, PING].into_iter().enumerate() {
        let sealed = owner.seal(owner.envelope_of("POST", body).counted());
        assert_eq!(owner.send("/mcp", body, Some(&sealed)).await, 200, "{number}");
    }
    // The second permit of the session's client. A refusal in a session has the status 200.
    for is_admitted in [true, false] {
        let sealed = owner.seal(owner.envelope());
        let sender = owner.sender();
        let said = ask(&sender, "/mcp", PING, Some(&sealed)).send().await.said().await;
        assert_eq!(said.answer()["error"].is_null(), is_admitted);
    }
}

#[tokio::test]
async fn a_forwarded_request_is_not_forwarded_again() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = || Gateway::with("s", upstream.http()).toml(&client_table("one", "key-one", ""));
    let [a, b] = start_replicas(&redis.url(), builder).await;
    let mut owner = Owner::of(&a).await;
    // A session of `a` in a request that was forwarded to `b`.
    let status = b.status().await;
    owner.id = ReplicaId::parse(status["cluster"]["id"].as_str().unwrap()).unwrap();
    owner.address = peer_address(&b).await;
    let sealed = owner.seal(owner.envelope());
    assert_eq!(owner.send("/mcp", PING, Some(&sealed)).await, 421);
    assert_eq!(forwarded(&b, "answered").await, 0);
    assert_eq!(owner.client.request("ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_client_cannot_send_an_envelope_of_its_own() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = || Gateway::with("s", upstream.http()).toml(&client_table("one", "key-one", ""));
    let [a, b] = start_replicas(&redis.url(), builder).await;
    let owner = Arc::new(Owner::of(&a).await);
    let at_b = through(&b, &owner.client, Some("key-one"));
    let ask = at_b.ask("ping", json!({})).header(ENVELOPE_HEADER.as_str(), "x");
    assert_eq!(ask.send().await.status(), 200, "it is replaced");
    let direct = owner.client.ask("ping", json!({})).header(ENVELOPE_HEADER.as_str(), "x");
    assert_eq!(direct.send().await.status(), 200, "it has no meaning for clients");
}

#[tokio::test]
async fn refused_bodies_and_envelopes_are_recorded_at_the_owner() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = || {
        Gateway::with("s", upstream.http())
            .gateway("limits.body = \"2KiB\"")
            .toml(&client_table("one", "key-one", ""))
            .toml("[audit]\nfile = \"audit.jsonl\"\n")
    };
    let [gateway] = start_replicas(&redis.url(), builder).await;
    let owner = Owner::of(&gateway).await;
    let (large, broken) = ("x".repeat(3000), "{\"jsonrpc\":");
    for (body, status) in [(&*large, 413), (broken, 400)] {
        let sealed = owner.seal(owner.envelope_of("POST", body));
        assert_eq!(owner.send("/mcp", body, Some(&sealed)).await, status);
    }
    let stranger = owner.seal(owner.envelope_of("POST", "{}"));
    assert_eq!(owner.send("/mcp", PING, Some(&stranger)).await, 403, "another body");
    assert_eq!(owner.send("/mcp", PING, None).await, 403, "no envelope");
    assert_eq!(owner.send("/mcp", PING, Some(&stranger)).await, 403, "used before");
    let is_refusal = |record: &serde_json::Value| record["reason"].is_string();
    let refused = poll_for(async || {
        let all = audited(gateway.folder(), 1).await;
        let refused: Vec<_> = all.into_iter().filter(is_refusal).collect();
        (refused.len() >= 5).then_some(refused)
    })
    .await;
    let found: Vec<_> = refused
        .iter()
        .map(|it| [&it["reason"], &it["principal"], &it["address"]].map(|it| it.as_str()))
        .collect();
    let (client, known) = (Some("192.0.2.7"), Some("one"));
    assert_eq!(
        found,
        [
            [Some("body_too_large"), known, client],
            [Some("parse_error"), known, client],
            [Some("invalid_request"), known, client],
            [Some("invalid_request"), None, Some("127.0.0.1")],
            [Some("invalid_request"), None, client],
        ],
        "{refused:#?}"
    );
}
