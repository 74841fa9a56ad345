//! The store: a Redis server, its replica and a sentinel, each behind a relay that can delay or
//! hold back all traffic.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};

use crate::network::STORE;
use crate::support::poll_for;
use crate::support::redis::{RedisProcesses, free_port, say};

/// A store with a failover.
pub struct Store {
    processes: Mutex<RedisProcesses>,
    /// Each of the two servers: its port, and the address of its relay.
    servers: [RelayedServer; 2],
    sentinel: RelayedServer,
    link: watch::Sender<LinkState>,
}

/// A server behind a relay.
#[derive(Debug, Clone, Copy)]
struct RelayedServer {
    port: u16,
    relay: SocketAddr,
}

/// State of all relays.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkState {
    /// Delay of each message to the store.
    pub delay: Duration,
    /// True if nothing is forwarded.
    pub is_stopped: bool,
}

impl Store {
    pub async fn start() -> Self {
        let link = watch::Sender::new(LinkState::default());
        let mut processes = RedisProcesses::new();
        let mut servers = Vec::new();
        for _ in 0..2 {
            servers.push(start_relay(free_port(), link.subscribe()).await);
        }
        let servers: [RelayedServer; 2] = servers.try_into().unwrap();
        processes.start_at(servers[0].port, &arguments(servers[0], None)).await;
        processes.start_at(servers[1].port, &arguments(servers[1], Some(servers[0]))).await;
        has_synced(servers[1].port).await;
        // Later lines of its file replace earlier ones. A slow store is no lost one.
        let patience = "sentinel down-after-milliseconds main 3000\n";
        let port = processes.start_sentinel(servers[0].relay, patience).await;
        let sentinel = start_relay(port, link.subscribe()).await;
        poll_for(async || {
            let known = say(port, "SENTINEL replicas main").await?;
            known.contains(&servers[1].relay.port().to_string()).then_some(())
        })
        .await;
        Self { processes: Mutex::new(processes), servers, sentinel, link }
    }

    pub fn url(&self) -> String {
        format!("redis+sentinel://{}/main", self.sentinel.relay)
    }

    /// Changes all relays.
    pub fn set_link(&self, state: LinkState) {
        self.link.send_replace(state);
    }

    /// Kills the primary, waits until the sentinel has made the other server the primary, and starts
    /// the killed one again as its replica.
    pub async fn fail_over(&self) {
        let mut processes = self.processes.lock().await;
        let [lost, next] = match self.is_primary(self.servers[0]).await {
            true => self.servers,
            false => [self.servers[1], self.servers[0]],
        };
        processes.kill(lost.port);
        poll_for(async || self.is_primary(next).await.then_some(())).await;
        processes.start_at(lost.port, &arguments(lost, Some(next))).await;
        has_synced(lost.port).await;
    }

    /// Returns true if the sentinel names this server.
    async fn is_primary(&self, server: RelayedServer) -> bool {
        let named = say(self.sentinel.port, "SENTINEL get-master-addr-by-name main").await;
        let port = format!("\r\n{}\r\n", server.relay.port());
        named.is_some_and(|named| named.contains(&port))
    }
}

/// Returns the arguments of a server, as a replica of another one or alone.
fn arguments(server: RelayedServer, primary: Option<RelayedServer>) -> Vec<String> {
    let (host, port) = (STORE.to_string(), server.relay.port().to_string());
    let mut arguments = vec![
        "--replica-announce-ip".to_owned(),
        host.clone(),
        "--replica-announce-port".to_owned(),
        port,
    ];
    if let Some(primary) = primary {
        arguments.extend(["--replicaof".to_owned(), host, primary.relay.port().to_string()]);
    }
    arguments
}

/// Waits until a server has the data of its primary.
async fn has_synced(port: u16) {
    poll_for(async || {
        say(port, "INFO replication").await?.contains("link_status:up").then_some(())
    })
    .await;
}

async fn start_relay(port: u16, link: watch::Receiver<LinkState>) -> RelayedServer {
    let listener = TcpListener::bind((STORE, free_port())).await.unwrap();
    let relay = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(relay_connection(client, port, link.clone()));
        }
    });
    RelayedServer { port, relay }
}

async fn relay_connection(client: TcpStream, port: u16, link: watch::Receiver<LinkState>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = forward(from_client, to_server, link.clone(), Direction::ToStore);
    let responses = forward(from_server, to_client, link, Direction::FromStore);
    tokio::select! {
        _ = requests => {}
        _ = responses => {}
    }
}

/// Direction of relayed bytes. A round trip is delayed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToStore,
    FromStore,
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut link: watch::Receiver<LinkState>,
    direction: Direction,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        if direction == Direction::ToStore {
            let delay = link.borrow().delay;
            tokio::time::sleep(delay).await;
        }
        link.wait_for(|link| !link.is_stopped).await.map_err(io::Error::other)?;
        to.write_all(&buffer[..read]).await?;
    }
}
