//! This gateway as one of several replicas: the listener for the others, and the lease.

use std::sync::Arc;

use tokio::task::JoinHandle;
use trunkline_https::{PeerFiles, peer_tls};

use crate::admin::StatusReport;
use crate::call::Drain;
use crate::cluster::{Cluster, ClusterError, ClusterParts, RedisStore};
use crate::config::{ClusterConfig, Config};
use crate::downstream::McpService;
use crate::listener::{Listener, LiveSettings, Settings, Workers, edge};
use crate::telemetry::metrics::Metrics;

use super::{Doors, ServeError, bind};

/// A replica with a bound listener, which serves nothing yet.
pub(super) struct BoundReplica {
    pub(super) cluster: Arc<Cluster>,
    socket: Listener,
    settings: Settings,
}

/// A replica that serves the others.
pub(super) struct RunningReplica {
    cluster: Arc<Cluster>,
    listener: JoinHandle<()>,
    lease: JoinHandle<()>,
}

/// Binds the listener for other replicas; `None` without `[cluster]`, and for a gateway of one client.
pub(super) async fn bind_replica(
    config: &Config,
    settings: Option<Settings>,
    doors: Doors,
    metrics: &Metrics,
) -> Result<Option<BoundReplica>, ServeError> {
    let (Some(cluster), Some(settings), Some(_)) = (&config.cluster, settings, doors.clients)
    else {
        return Ok(None);
    };
    let Some(socket) = bind("cluster.listen", Some(cluster.listen)).await? else { return Ok(None) };
    let parts = ClusterParts {
        keys: &config.gateway.state_keys,
        store: Arc::new(RedisStore::new(&cluster.store).map_err(ClusterError::from)?),
        tls: client_tls(cluster)?,
        counts: metrics.cluster_counts().clone(),
    };
    let cluster = Cluster::new(cluster, parts)?;
    Ok(Some(BoundReplica { cluster, socket, settings }))
}

fn client_tls(cluster: &ClusterConfig) -> Result<Option<rustls::ClientConfig>, ClusterError> {
    let (Some(cert), Some(key), Some(ca)) = (&cluster.cert, &cluster.key, &cluster.ca) else {
        return Ok(None);
    };
    Ok(Some(peer_tls(PeerFiles { cert, key, ca })?))
}

impl BoundReplica {
    /// Serves other replicas until the drain is over, and keeps the lease.
    pub(super) fn serve(
        self,
        workers: Arc<Workers>,
        mcp: &Arc<McpService>,
        report: &Arc<StatusReport>,
        draining: Drain,
    ) -> RunningReplica {
        let Self { cluster, socket, settings } = self;
        let (mcp, report) = (Arc::clone(mcp), Arc::clone(report));
        let settings = LiveSettings::new(settings);
        let live = settings.clone();
        let stack = move |peer| edge::replicas(live.clone(), peer, Arc::clone(&mcp));
        let socket = socket.on(workers);
        let listener = tokio::spawn(async move {
            let drained = socket.serve(settings, stack, draining).await;
            if drained.cut > 0 {
                tracing::warn!(connections = drained.cut, "cut connections of other replicas");
            }
        });
        tracing::info!(id = %cluster.id(), "this gateway is a replica");
        let digest = move || report.loaded_digest();
        let lease = tokio::spawn(Arc::clone(&cluster).keep_lease(digest));
        RunningReplica { cluster, listener, lease }
    }
}

impl RunningReplica {
    /// Ends the lease, after the requests that other replicas have forwarded.
    pub(super) async fn leave(self) {
        let _ = self.listener.await;
        self.lease.abort();
        let _ = self.lease.await;
        self.cluster.leave().await;
    }
}
