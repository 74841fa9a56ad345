//! Connections to the store: to one server, to the primary that sentinels name, or to a cluster.
//!
//! A command is sent once: one whose connection fails may have been executed, and is not repeated. The
//! next one finds the new primary. Without TLS, no connection leaves this machine, whatever address a
//! sentinel or a node of the cluster names.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::AsyncDNSResolver;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisFuture,
    RedisResult, ServerErrorKind, Value,
};
use tokio::net::lookup_host;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::config::{StoreHost, StoreKind, StoreUrl};

/// The connection to a store.
#[derive(Clone)]
pub(super) enum StoreConnection {
    /// To one server, opened again after a failure.
    Server(ConnectionManager),
    /// To the primary of a service.
    Primary(Arc<PrimaryConnection>),
    /// To the nodes of a cluster.
    Cluster(Arc<NodeConnections>),
}

impl StoreConnection {
    /// Creates a connection that is opened by its first use. Needs a runtime.
    pub(super) fn new(url: &StoreUrl) -> RedisResult<Self> {
        Ok(match url.kind() {
            StoreKind::Server => {
                let host = url.hosts().first().ok_or_else(no_host)?;
                let client = Client::open(url.node_url(host))?;
                // A renewal that fails is repeated by the next one.
                let config = ConnectionManagerConfig::new()
                    .set_number_of_retries(1)
                    .set_connection_timeout(Some(COMMAND_TIMEOUT))
                    .set_response_timeout(Some(COMMAND_TIMEOUT));
                Self::Server(ConnectionManager::new_lazy_with_config(client, config)?)
            }
            StoreKind::Sentinels { service } => {
                let (url, service) = (url.clone(), service.clone());
                let open = Mutex::default();
                Self::Primary(Arc::new(PrimaryConnection { url, service, open }))
            }
            StoreKind::Cluster => Self::Cluster(Arc::new(NodeConnections {
                client: build_cluster(url)?,
                open: Mutex::default(),
            })),
        })
    }

    /// Sends commands, which in a cluster are for keys of one slot.
    pub(super) async fn query<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<T> {
        match self {
            Self::Server(connection) => commands.query_async(&mut connection.clone()).await,
            Self::Primary(primary) => primary.query(commands).await,
            Self::Cluster(nodes) => nodes.query(commands).await,
        }
    }
}

/// The connection to the primary of a service that sentinels watch.
pub(super) struct PrimaryConnection {
    url: StoreUrl,
    service: String,
    /// The open connection, with its number.
    open: Mutex<(u64, Option<MultiplexedConnection>)>,
}

impl PrimaryConnection {
    async fn query<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<T> {
        let (number, mut connection) = self.connect().await?;
        let answered = commands.query_async(&mut connection).await;
        if answered.as_ref().is_err_and(is_of_lost_primary) {
            let mut open = self.open.lock().await;
            if open.0 == number {
                open.1 = None;
            }
        }
        answered
    }

    /// Returns the connection, or opens it. Commands wait for one attempt.
    async fn connect(&self) -> RedisResult<(u64, MultiplexedConnection)> {
        let mut open = self.open.lock().await;
        if let (number, Some(connection)) = &*open {
            return Ok((*number, connection.clone()));
        }
        let found = timeout(COMMAND_TIMEOUT, self.find_primary()).await;
        let connection = found.unwrap_or_else(|_| Err(late()))?;
        *open = (open.0 + 1, Some(connection.clone()));
        Ok((open.0, connection))
    }

    /// Asks all sentinels, and connects to the first address whose server is a primary: the answer of
    /// a sentinel may be old.
    async fn find_primary(&self) -> RedisResult<MultiplexedConnection> {
        let attempts = self.url.hosts().iter().map(|sentinel| {
            Box::pin(async move {
                let primary = self.ask_sentinel(sentinel).await?;
                if !self.url.is_tls() && !primary.is_own_machine() {
                    return Err(foreign_host());
                }
                let mut connection = open(&self.url.node_url(&primary)).await?;
                let role = redis::cmd("ROLE").query_async::<Vec<Value>>(&mut connection).await?;
                let is_primary =
                    matches!(role.first(), Some(Value::BulkString(it)) if it == b"master");
                if is_primary { Ok(connection) } else { Err(no_primary()) }
            })
        });
        Ok(select_ok(attempts).await?.0)
    }

    /// Returns the address of the primary that a sentinel names. It gets the credentials only if it
    /// refuses a command without them.
    async fn ask_sentinel(&self, sentinel: &StoreHost) -> RedisResult<StoreHost> {
        let mut refused = no_primary();
        for url in self.url.sentinel_urls(sentinel) {
            let mut connection = open(&url).await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
            match question.query_async::<Option<(String, u16)>>(&mut connection).await {
                Ok(Some((host, port))) if is_host(&host) => {
                    let host = if host.contains(':') { format!("[{host}]") } else { host };
                    return Ok(StoreHost { host, port });
                }
                Ok(_) => return Err(no_primary()),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
}

/// The connections to the nodes of a cluster.
pub(super) struct NodeConnections {
    client: ClusterClient,
    open: Mutex<Option<ClusterConnection>>,
}

impl NodeConnections {
    async fn query<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<T> {
        let answered = timeout(COMMAND_TIMEOUT, async {
            let mut connection = self.connect().await?;
            for _ in 0..MAX_REDIRECTIONS {
                match commands.query_async(&mut connection).await {
                    // The client reads the new places of the slots meanwhile.
                    Err(error) if is_not_executed(&error) => sleep(REDIRECTION_PAUSE).await,
                    answered => return answered,
                }
            }
            commands.query_async(&mut connection).await
        });
        answered.await.unwrap_or_else(|_| Err(late()))
    }

    /// Returns the connections, which find new nodes themselves, or opens them. Commands wait for one
    /// attempt.
    async fn connect(&self) -> RedisResult<ClusterConnection> {
        let mut open = self.open.lock().await;
        if let Some(connection) = &*open {
            return Ok(connection.clone());
        }
        let connection = self.client.get_async_connection().await?;
        *open = Some(connection.clone());
        Ok(connection)
    }
}

fn build_cluster(url: &StoreUrl) -> RedisResult<ClusterClient> {
    let nodes: Vec<_> = url.hosts().iter().map(|host| url.node_url(host)).collect();
    let builder = ClusterClientBuilder::new(nodes)
        // A command that may have been executed is not repeated.
        .retries(0)
        .connection_timeout(COMMAND_TIMEOUT)
        .response_timeout(COMMAND_TIMEOUT)
        .overall_response_timeout(Some(COMMAND_TIMEOUT));
    if url.is_tls() { builder.build() } else { builder.async_dns_resolver(OwnMachine).build() }
}

/// Resolves names to addresses of this machine alone.
struct OwnMachine;

impl AsyncDNSResolver for OwnMachine {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let all = lookup_host((host, port)).await?.filter(|address| address.ip().is_loopback());
            let own: Vec<_> = all.collect();
            if own.is_empty() {
                return Err(foreign_host());
            }
            Ok(Box::new(own.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// Returns true for a name or an address.
fn is_host(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    (1..=MAX_HOST_BYTES).contains(&text.len()) && text.bytes().all(is_valid)
}

async fn open(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(COMMAND_TIMEOUT))
        .set_response_timeout(Some(COMMAND_TIMEOUT));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// Returns true if the server is gone, or is no primary any more.
fn is_of_lost_primary(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, MasterDown, ReadOnly};
    error.is_io_error()
        || error.is_connection_dropped()
        || matches!(error.kind(), ErrorKind::Server(BusyLoading | MasterDown | ReadOnly))
}

/// Returns true if a node of a cluster has executed nothing: another one has the slot, or will have it.
fn is_not_executed(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, Moved, ReadOnly, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Ask | ClusterDown | Moved | ReadOnly | TryAgain))
}

fn late() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}

fn no_host() -> RedisError {
    (ErrorKind::InvalidClientConfig, "the URL has no host").into()
}

fn no_primary() -> RedisError {
    (ErrorKind::Client, "the sentinels name no primary of the service").into()
}

fn foreign_host() -> RedisError {
    (ErrorKind::InvalidClientConfig, "a host that is not this machine needs TLS (rediss)").into()
}

/// Time limit of a connection, and of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(1);
/// Repetitions of a command that a node of a cluster has not executed.
const MAX_REDIRECTIONS: usize = 5;
/// Time between them.
const REDIRECTION_PAUSE: Duration = Duration::from_millis(50);
/// The longest host that a sentinel names.
const MAX_HOST_BYTES: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_tls_names_are_resolved_to_this_machine_alone() {
        for (host, is_own) in [("127.0.0.1", true), ("localhost", true), ("192.0.2.1", false)] {
            let resolved = OwnMachine.resolve(host, 6379).await;
            assert_eq!(resolved.is_ok_and(|mut all| all.all(|it| it.ip().is_loopback())), is_own);
        }
    }
}
