//! Several gateways behind one address, with a real Redis server.

mod limits;
mod operators;
mod peers;
mod records;
mod sessions;
mod stores;

use std::net::SocketAddr;

use crate::support::gateway::Builder;
use crate::support::{Client, Gateway};

pub use crate::support::redis::{RedisServer, free_port, say};

/// The key that all replicas share.
pub const STATE_KEY: &str = "a key that the replicas of a test share";

/// Makes a gateway a replica that listens at this port.
pub fn replica_at(builder: Builder, store: &str, port: u16, more: &str) -> Builder {
    builder.gateway(&format!("state_keys = [\"{STATE_KEY}\"]")).toml(&format!(
        "[cluster]\nstore = \"{store}\"\nlisten = \"127.0.0.1:{port}\"\n\
         advertise = \"127.0.0.1:{port}\"\n{more}"
    ))
}

/// Starts so many replicas of one configuration, which know each other.
pub async fn start_replicas<const N: usize>(
    store: &str,
    builder: impl Fn() -> Builder,
) -> [Gateway; N] {
    let mut replicas = Vec::new();
    for _ in 0..N {
        replicas.push(replica_at(builder(), store, free_port(), "").start().await);
    }
    for replica in &replicas {
        knows(replica, N - 1).await;
    }
    replicas.try_into().unwrap_or_else(|_| panic!("as many as were started"))
}

/// Waits until a replica knows so many others.
pub async fn knows(replica: &Gateway, others: usize) {
    let known = |status: &serde_json::Value| status["cluster"]["replicas"].as_array().map(Vec::len);
    replica.wait_for(|status| known(status) == Some(others)).await;
}

/// Returns the address of a replica's listener for the others.
pub async fn peer_address(replica: &Gateway) -> SocketAddr {
    replica.status().await["cluster"]["address"].as_str().unwrap().parse().unwrap()
}

/// Returns a client of another replica with the session and the key of a client.
pub fn through(replica: &Gateway, client: &Client, key: Option<&str>) -> Client {
    let other = replica.plain().becomes(client.kind());
    match key {
        Some(key) => other.key(key),
        None => other,
    }
}

/// Returns the number of forwarded requests with an outcome.
pub async fn forwarded(replica: &Gateway, outcome: &str) -> u64 {
    let metrics = replica.metrics().await;
    let line = format!("trunkline_forwarded_requests_total{{outcome=\"{outcome}\"}} ");
    let count = metrics.lines().find_map(|it| it.strip_prefix(&line));
    count.map_or(0, |count| count.parse().unwrap())
}

/// A way to the store that a test can close: connections through it are cut, and no others are made.
pub struct StoreGate {
    port: u16,
    is_open: tokio::sync::watch::Sender<bool>,
}

impl StoreGate {
    pub async fn start(redis: &RedisServer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), redis.port);
        let is_open = tokio::sync::watch::Sender::new(true);
        let state = is_open.subscribe();
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut state = state.clone();
                tokio::spawn(async move {
                    if !*state.borrow() {
                        return;
                    }
                    let mut to =
                        tokio::net::TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = state.wait_for(|is_open| !is_open) => {}
                    }
                });
            }
        });
        Self { port, is_open }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn close(&self) {
        self.is_open.send_replace(false);
    }

    pub fn open(&self) {
        self.is_open.send_replace(true);
    }
}
