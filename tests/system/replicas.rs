//! Several built programs as replicas behind nginx, with a real Redis server: no stickiness, and a new
//! connection for each request.

use super::process::Process;
use crate::support::nginx::{Nginx, ProxySettings};
use crate::support::redis::{RedisServer, free_port};
use crate::support::until;

/// Replicas of one configuration.
pub struct Replicas {
    pub all: Vec<Process>,
    front: Nginx,
    _store: RedisServer,
}

impl Replicas {
    /// Starts so many replicas, which know each other. `config` is that of each of them, with
    /// `[gateway]` as its first table.
    pub async fn start(count: usize, config: &str) -> Self {
        let store = RedisServer::start().await;
        let all: Vec<_> = (0..count).map(|_| start_replica(config, &store.url())).collect();
        for replica in &all {
            let others = || replica.status()["cluster"]["replicas"].as_array().map(Vec::len);
            until(|| others() == Some(count - 1)).await;
        }
        let servers: Vec<_> = all.iter().map(|replica| replica.address).collect();
        let location = "proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h; \
                        proxy_set_header Host $http_host; proxy_set_header Connection close;";
        let front = Nginx::start(ProxySettings { servers: &servers, upstream: "", location }).await;
        Self { all, front, _store: store }
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.front.address)
    }
}

/// One gateway, or several replicas of it.
pub enum Front {
    Alone(Process),
    Replicas(Replicas),
}

impl Front {
    /// Starts so many gateways of one configuration.
    pub async fn start(config: &str, replicas: usize) -> Self {
        if replicas > 1 {
            return Self::Replicas(Replicas::start(replicas, config).await);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, config).unwrap();
        Self::Alone(Process::start_with(folder, &path, &[]))
    }

    pub fn gateways(&self) -> &[Process] {
        match self {
            Self::Alone(gateway) => std::slice::from_ref(gateway),
            Self::Replicas(replicas) => &replicas.all,
        }
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        match self {
            Self::Alone(gateway) => gateway.url(),
            Self::Replicas(replicas) => replicas.url(),
        }
    }
}

fn start_replica(config: &str, store: &str) -> Process {
    let port = free_port();
    let keys = "[gateway]\nstate_keys = [\"a key that the replicas of a test share\"]\n";
    let text = config.replacen("[gateway]\n", keys, 1);
    let text = format!(
        "{text}\n[cluster]\nstore = \"{store}\"\nlisten = \"127.0.0.1:{port}\"\n\
         advertise = \"127.0.0.1:{port}\"\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, text).unwrap();
    Process::start_with(folder, &path, &[])
}
