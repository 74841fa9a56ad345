//! Two replicas, for the cost of a Legacy call at the owner of its session and through another replica.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::Url;

use crate::plan::{BASICS, servers};
use crate::process::{Process, Wrapper, binary, free_port};

#[path = "../../tests/support/redis_command.rs"]
mod redis_command;
use redis_command::{REDIS_PACKAGE, redis_command};

/// Two gateways with one store.
pub struct Replicas {
    /// The gateways.
    pub gateways: [Process; 2],
    _store: Process,
    _folder: tempfile::TempDir,
}

impl Replicas {
    /// Starts the store and both gateways. Returns once they know each other.
    pub async fn start(mock: &Url, wrappers: [&Wrapper; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let store = start_store(port, folder.path()).await;
        let configs = ["first.toml", "second.toml"].map(|name| folder.path().join(name));
        let gateways = [0, 1].map(|one| {
            std::fs::write(&configs[one], config(mock, port)).unwrap();
            Process::gateway(&configs[one], wrappers[one])
        });
        for config in &configs {
            let begun = Instant::now();
            while !knows_the_other(config) {
                assert!(begun.elapsed() < Duration::from_mins(2), "the replicas do not meet");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Self { gateways, _store: store, _folder: folder }
    }
}

/// A TCP relay to one of several programs: a client behind it keeps its session when the target changes.
pub struct Relay {
    /// The address for clients.
    pub url: Url,
    target: watch::Sender<SocketAddr>,
}

impl Relay {
    /// Starts a relay to the endpoint of a program.
    pub async fn start(to: &Process) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut url = to.url.clone();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let (target, current) = watch::channel(address(to));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut current = current.clone();
                let target = *current.borrow_and_update();
                tokio::spawn(async move {
                    let server = TcpStream::connect(target).await;
                    let mut server = server.expect("the program listens");
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = current.changed() => {}
                    }
                });
            }
        });
        Self { url, target }
    }

    /// Ends all connections, and relays new ones to another program.
    pub fn switch(&self, to: &Process) {
        self.target.send_replace(address(to));
    }
}

fn address(of: &Process) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, of.url.port().unwrap()))
}

async fn start_store(port: u16, folder: &Path) -> Process {
    let url = Url::parse(&format!("redis://127.0.0.1:{port}")).unwrap();
    let command = redis_command(port, folder);
    let started = Process::foreign(command, url, &folder.join("store.log")).await;
    started.unwrap_or_else(|end| panic!("{REDIS_PACKAGE} does not start: {end}"))
}

fn config(mock: &Url, store: u16) -> String {
    let gateway = BASICS.replacen("[gateway]\n", &format!("[gateway]\n{STATE_KEYS}"), 1);
    let peers = free_port();
    format!(
        "{gateway}{}[cluster]\nstore = \"redis://127.0.0.1:{store}\"\n\
         listen = \"127.0.0.1:{peers}\"\nadvertise = \"127.0.0.1:{peers}\"\n",
        servers(mock, "")
    )
}

/// Returns true if the gateway with this configuration lists another replica.
fn knows_the_other(config: &PathBuf) -> bool {
    let asked = Command::new(binary()).args(["status", "--json", "--config"]).arg(config).output();
    let status: Value = serde_json::from_slice(&asked.unwrap().stdout).unwrap_or_default();
    status["cluster"]["replicas"].as_array().is_some_and(|replicas| !replicas.is_empty())
}

const STATE_KEYS: &str = "state_keys = [\"a-key-of-the-bench-0123456789abcdef0123456789abcdef\"]\n";
