//! Several gateways behind one address, with a real Redis server.

mod connections;
mod envelopes;
mod failures;
mod frames;
mod peers;
mod rates;
mod sessions;
mod store;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, poll_for};

/// The key that all replicas share.
pub const STATE_KEY: &str = "a key that the replicas of a test share";

/// A Redis server on a port of its own, which ends with the test.
pub struct RedisServer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl RedisServer {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        poll_for(async || Self::try_start(free_port(), folder.path()).await)
            .await
            .map_folder(folder)
    }

    /// Starts a server; `None` if another process has taken the port meanwhile.
    async fn try_start(port: u16, folder: &Path) -> Option<StartedRedis> {
        let mut child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .arg("--dir")
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("the Debian package redis-server");
        loop {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            if answers(port).await {
                return Some(StartedRedis { child, port });
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends the server.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a command, and returns the first bytes of the answer.
    pub async fn command(&self, line: &str) -> String {
        say(self.port, line).await.expect("an answer")
    }
}

struct StartedRedis {
    child: Child,
    port: u16,
}

impl StartedRedis {
    fn map_folder(self, folder: TempDir) -> RedisServer {
        RedisServer { child: self.child, port: self.port, _folder: folder }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn answers(port: u16) -> bool {
    say(port, "PING").await.is_some_and(|answer| answer.starts_with("+PONG"))
}

async fn say(port: u16, line: &str) -> Option<String> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    socket.write_all(format!("{line}\r\n").as_bytes()).await.ok()?;
    let mut answer = vec![0; 16 * 1024];
    let read = socket.read(&mut answer).await.ok()?;
    Some(String::from_utf8_lossy(&answer[..read]).into_owned())
}

/// Returns a free port below those that the system gives to connections, each once.
pub fn free_port() -> u16 {
    static TAKEN_PORTS: AtomicU32 = AtomicU32::new(0);
    let first = 16_384 + std::process::id() % 8_192;
    loop {
        let port = first + TAKEN_PORTS.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

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
