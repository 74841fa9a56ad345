//! The replicas under test, as processes of the built program behind nginx.

use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::network::Network;
use crate::process::{Process, TRUNKLINE, text};
use crate::support::nginx::{Nginx, ProxySettings};
use crate::support::until;

/// All replicas, with the balancer in front of them.
pub struct Fleet {
    network: Network,
    members: Vec<Mutex<Member>>,
    front: Nginx,
    /// Folder for the logs of ended processes.
    logs: PathBuf,
}

/// A replica, which may be between two starts.
struct Member {
    number: u8,
    process: Option<Process>,
    folder: TempDir,
    starts: u32,
}

impl Fleet {
    /// Starts the replicas with these servers and clients. They refuse sessions without a store.
    pub async fn start(network: Network, store: &str, tables: &str) -> Self {
        let logs = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("replica_hammer");
        let _ = std::fs::remove_dir_all(&logs);
        std::fs::create_dir_all(&logs).unwrap();
        let addresses: Vec<_> = (0..REPLICAS).map(Network::replica_address).collect();
        let mut members = Vec::new();
        for (number, address) in (0..REPLICAS).zip(&addresses) {
            let folder = tempfile::tempdir().unwrap();
            let config = configuration(*address, store, tables, number);
            std::fs::write(folder.path().join("gateway.toml"), config).unwrap();
            let mut member = Member { number, process: None, folder, starts: 0 };
            member.start(&network);
            members.push(Mutex::new(member));
        }
        let location = "proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 1h; \
                        proxy_connect_timeout 1s; \
                        proxy_set_header Host $http_host; proxy_set_header Connection close;";
        let settings = ProxySettings { servers: &addresses, upstream: "", location };
        let front = Nginx::start(settings).await;
        let fleet = Self { network, members, front, logs };
        fleet.is_complete().await;
        fleet
    }

    /// Waits until all replicas know each other and take calls to all servers.
    pub async fn is_complete(&self) {
        for member in &self.members {
            let member = member.lock().await;
            let process = member.process.as_ref().unwrap();
            let known = || process.status()["cluster"]["replicas"].as_array().map(Vec::len);
            until(|| known() == Some(self.members.len() - 1)).await;
            tokio::task::block_in_place(|| process.ready(&crate::servers::NAMES));
        }
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.front.address
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn logs(&self) -> &std::path::Path {
        &self.logs
    }

    /// Kills a replica.
    pub async fn kill(&self, replica: u8) {
        let mut member = self.members[usize::from(replica)].lock().await;
        if let Some(mut process) = member.process.take() {
            process.signal(Signal::KILL);
            tokio::task::block_in_place(|| process.ended());
            self.keep_log(&member, &process);
        }
    }

    /// Starts a killed replica again at the same addresses.
    pub async fn restart(&self, replica: u8) {
        let mut member = self.members[usize::from(replica)].lock().await;
        tokio::task::block_in_place(|| member.start(&self.network));
    }

    /// Sends a signal to a replica, if it runs.
    pub async fn signal(&self, replica: u8, signal: Signal) {
        let member = self.members[usize::from(replica)].lock().await;
        if let Some(process) = &member.process {
            process.signal(signal);
        }
    }

    /// Writes the logs of the running replicas.
    pub async fn keep_logs(&self) {
        for member in &self.members {
            let member = member.lock().await;
            if let Some(process) = &member.process {
                self.keep_log(&member, process);
            }
        }
    }

    fn keep_log(&self, member: &Member, process: &Process) {
        std::fs::write(self.logs.join(format!("{}.log", member.name())), process.log()).unwrap();
    }
}

impl Member {
    /// Returns the name of its current process.
    fn name(&self) -> String {
        format!("r{}.{}", self.number, self.starts)
    }

    fn start(&mut self, network: &Network) {
        self.starts += 1;
        let mut command = network.command(self.number, TRUNKLINE);
        command.args(["serve", "--config"]).arg(self.folder.path().join("gateway.toml"));
        command.env_remove("TRUNKLINE_LOG").env("HAMMERED_PROCESS", self.name());
        self.process = Some(Process::start_command(tempfile::tempdir().unwrap(), command));
    }
}

fn configuration(address: SocketAddr, store: &str, tables: &str, replica: u8) -> String {
    let keys = "[gateway]\nstate_keys = [\"a key that the replicas of a test share\"]\n";
    let text = text(tables).replacen("[gateway]\n", keys, 1);
    let text = text.replacen("127.0.0.1:0", &address.to_string(), 1);
    let peers = Network::replica_address(replica);
    format!(
        "{text}\n[cluster]\nstore = \"{store}\"\nlisten = \"{peers}\"\nadvertise = \"{peers}\"\n\
         degrade = \"refuse\"\n"
    )
}

/// Number of replicas.
pub const REPLICAS: u8 = 3;
