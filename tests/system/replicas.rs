//! Several built programs as replicas behind nginx, with a real Redis server: no stickiness, and a new
//! connection for each request. `TRUNKLINE_REPLICA_PROGRAM` names another build of the program.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::process::{Process, TRUNKLINE};
use crate::support::nginx::{Nginx, ProxySettings};
use crate::support::redis::{RedisServer, free_port};
use crate::support::until;

/// Replicas of one configuration.
pub struct Replicas {
    pub all: Vec<Process>,
    /// The configuration of each replica.
    folders: Vec<TempDir>,
    front: Nginx,
    _store: RedisServer,
}

impl Replicas {
    /// Starts so many replicas, which know each other. `config` is that of each of them, with
    /// `[gateway]` as its first table.
    pub async fn start(count: usize, config: &str) -> Self {
        let store = RedisServer::start().await;
        let folders: Vec<_> = (0..count).map(|_| configure(config, &store.url())).collect();
        let all: Vec<_> = folders.iter().map(|folder| start_in(folder.path())).collect();
        for replica in &all {
            knows_others(replica, count - 1).await;
        }
        let servers: Vec<_> = all.iter().map(|replica| replica.address).collect();
        let location = "proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h; \
                        proxy_set_header Host $http_host; proxy_set_header Connection close;";
        let front = Nginx::start(ProxySettings { servers: &servers, upstream: "", location }).await;
        Self { all, folders, front, _store: store }
    }

    /// Ends a replica with a signal, and starts it again at the same addresses. Returns once all
    /// replicas know each other.
    pub async fn restart(&mut self, number: usize, signal: Signal) {
        self.all[number].signal(signal);
        self.all[number].ended();
        self.all[number] = start_in(self.folders[number].path());
        for replica in &self.all {
            knows_others(replica, self.all.len() - 1).await;
        }
    }

    /// Returns the address for clients.
    pub fn address(&self) -> std::net::SocketAddr {
        self.front.address
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.front.address)
    }
}

/// One gateway, or several replicas of it.
pub enum Front {
    Alone(Process),
    Replicas(Box<Replicas>),
}

impl Front {
    /// Starts so many gateways of one configuration.
    pub async fn start(config: &str, replicas: usize) -> Self {
        if replicas > 1 {
            return Self::Replicas(Box::new(Replicas::start(replicas, config).await));
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

    /// Returns the address for clients.
    pub fn address(&self) -> std::net::SocketAddr {
        match self {
            Self::Alone(gateway) => gateway.address,
            Self::Replicas(replicas) => replicas.address(),
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

/// Waits until a replica knows exactly so many others.
async fn knows_others(replica: &Process, others: usize) {
    let known = || replica.status()["cluster"]["replicas"].as_array().map(Vec::len);
    until(|| known() == Some(others)).await;
}

/// Writes the configuration of a replica, with addresses that it keeps over a restart.
fn configure(config: &str, store: &str) -> TempDir {
    let (clients, peers) = (free_port(), free_port());
    let keys = "[gateway]\nstate_keys = [\"a key that the replicas of a test share\"]\n";
    let text = config.replacen("[gateway]\n", keys, 1);
    let text = text.replacen("127.0.0.1:0", &format!("127.0.0.1:{clients}"), 1);
    let text = format!(
        "{text}\n[cluster]\nstore = \"{store}\"\nlisten = \"127.0.0.1:{peers}\"\n\
         advertise = \"127.0.0.1:{peers}\"\n"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    folder
}

fn start_in(folder: &Path) -> Process {
    let program = std::env::var_os("TRUNKLINE_REPLICA_PROGRAM");
    let mut command = Command::new(program.unwrap_or_else(|| TRUNKLINE.into()));
    command.args(["serve", "--config"]).arg(folder.join("gateway.toml"));
    command.env_remove("TRUNKLINE_LOG");
    Process::start_command(tempfile::tempdir().unwrap(), command)
}
