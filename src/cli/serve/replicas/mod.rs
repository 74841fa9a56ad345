//! This gateway as one of several replicas: the listener for the others, and the lease.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::admin::StatusReport;
use crate::call::{DrainSwitch, drain};
use crate::cluster::{Cluster, ClusterError, ClusterParts, RedisStore};
use crate::config::Config;
use crate::downstream::McpService;
use crate::listener::{
    Certificates, ConnectionRefusals, Listener, LiveSettings, Settings, Workers, edge,
};
use crate::policy::{QuotaLedger, SharedLimits};
use crate::shared_records::SharedRecords;
use crate::telemetry::metrics::Metrics;
use crate::upstream::ServerContext;

use super::settings::ReplicaSettings;
use super::{Doors, ServeError, bind};

/// A replica with a bound listener, which serves nothing yet.
pub(super) struct BoundReplica {
    pub(super) cluster: Arc<Cluster>,
    socket: Listener,
    settings: LiveSettings,
}

/// A replica that serves the others.
pub(super) struct RunningReplica {
    connections: PeerConnections,
    listener: JoinHandle<()>,
    /// Starts the drain of the listener.
    switch: DrainSwitch,
    lease: JoinHandle<()>,
}

/// The connections with other replicas, shared with the code that reloads their certificates.
#[derive(Clone)]
pub(super) struct PeerConnections {
    cluster: Arc<Cluster>,
    listener: LiveSettings,
}

impl PeerConnections {
    /// Uses other certificates for new connections. Connections that this replica has opened are
    /// replaced if the certificates differ; those that others have opened are verified again. The other
    /// settings are those of the start, and so is the choice between TLS and none.
    pub(super) fn renew_certificates(&self, settings: ReplicaSettings) {
        let ReplicaSettings { listener, outgoing, .. } = settings;
        let (Some(tls), Some(outgoing)) = (listener.tls, outgoing) else { return };
        let running = self.listener.load();
        if let Some(before) = &running.tls {
            if !tls.has_certificates_of(before) {
                self.cluster.renew_tls(outgoing);
            }
            let Settings { limits, guard, .. } = listener;
            self.listener.publish(Settings { limits, guard, tls: Some(tls) });
        }
    }

    /// Returns the certificates in use; `None` without TLS.
    pub(super) fn certificates(&self) -> Option<Certificates> {
        self.listener.load().tls.clone()
    }
}

/// Counts quotas together with the other replicas, and returns the limits that they share.
pub(super) fn share_limits(
    replica: Option<&BoundReplica>,
    quotas: &QuotaLedger,
) -> Option<SharedLimits> {
    let cluster = &replica?.cluster;
    quotas.share(cluster.shared_quotas());
    Some(SharedLimits { rates: cluster.shared_rates(), items: cluster.used_items() })
}

/// Keeps grants of logins in the store that replicas share, and lets one of them run the child of each
/// server with `instances = "one"`.
pub(super) fn join_cluster(
    replica: Option<&BoundReplica>,
    surroundings: ServerContext,
) -> ServerContext {
    let Some(BoundReplica { cluster, .. }) = replica else { return surroundings };
    surroundings.grants.share_grants(cluster.shared_records());
    surroundings.in_cluster(Arc::clone(cluster))
}

/// Returns the records in the store that replicas share; `None` if the gateway is alone.
pub(super) fn share_records(replica: Option<&BoundReplica>) -> Option<Arc<dyn SharedRecords>> {
    replica.map(|replica| replica.cluster.shared_records())
}

/// Binds the listener for other replicas; `None` without `[cluster]`, and for a gateway of one client.
pub(super) async fn bind_replica(
    config: &Config,
    settings: Option<ReplicaSettings>,
    doors: Doors,
    metrics: &Metrics,
) -> Result<Option<BoundReplica>, ServeError> {
    let (Some(cluster), Some(settings), Some(_)) = (&config.cluster, settings, doors.clients)
    else {
        return Ok(None);
    };
    let Some(socket) = bind("cluster.listen", Some(cluster.listen)).await? else { return Ok(None) };
    let counts = metrics.cluster_counts().clone();
    let store = RedisStore::new(&cluster.store).map_err(ClusterError::from)?;
    let parts = ClusterParts {
        keys: &config.gateway.state_keys,
        store: Arc::new(store.counting(counts.clone())),
        tls: settings.outgoing,
        counts,
    };
    let cluster = Cluster::new(cluster, parts)?;
    let settings = LiveSettings::new(settings.listener);
    Ok(Some(BoundReplica { cluster, socket, settings }))
}

/// The services that a replica offers to the others.
#[derive(Clone, Copy)]
pub(super) struct ReplicaService<'a> {
    pub(super) mcp: &'a Arc<McpService>,
    pub(super) report: &'a Arc<StatusReport>,
    /// The settings of the listener for clients, whose certificates are verified again.
    pub(super) clients: &'a LiveSettings,
}

impl BoundReplica {
    /// Serves other replicas until it leaves, and keeps the lease.
    pub(super) fn serve(
        self,
        workers: Arc<Workers>,
        service: ReplicaService<'_>,
    ) -> RunningReplica {
        let (switch, draining) = drain();
        let Self { cluster, socket, settings } = self;
        let ReplicaService { mcp, report, clients } = service;
        let (mcp, report, clients) = (Arc::clone(mcp), Arc::clone(report), clients.clone());
        let (live, gate) = (settings.clone(), Arc::clone(&mcp));
        let refusals = ConnectionRefusals::new(move |peer, refused| {
            gate.refuse_peer_connection(peer, &refused.to_string());
        });
        let connections =
            PeerConnections { cluster: Arc::clone(&cluster), listener: settings.clone() };
        let stack =
            move |peer| edge::replicas(live.clone(), clients.clone(), peer, Arc::clone(&mcp));
        let socket = socket.on(workers).report_refusals(refusals);
        let listener = tokio::spawn(async move {
            let drained = socket.serve(settings, stack, draining).await;
            if drained.cut > 0 {
                tracing::warn!(connections = drained.cut, "cut connections of other replicas");
            }
        });
        tracing::info!(id = %cluster.id(), "this gateway is a replica");
        let digest = move || report.loaded_digest();
        let lease = tokio::spawn(Arc::clone(&cluster).keep_lease(digest));
        RunningReplica { connections, listener, switch, lease }
    }
}

impl RunningReplica {
    /// Returns its connections.
    pub(super) fn connections(&self) -> &PeerConnections {
        &self.connections
    }

    /// Hands the sessions over to the other replicas.
    pub(super) fn hand_over(&self) -> JoinHandle<()> {
        let cluster = Arc::clone(&self.connections.cluster);
        tokio::spawn(async move { cluster.hand_over().await })
    }

    /// Accepts no more requests from other replicas, and ends the lease after those that they have
    /// forwarded, which are cut after this time.
    pub(super) async fn leave(self, within: Duration) {
        self.switch.start(within);
        let _ = self.listener.await;
        self.lease.abort();
        let _ = self.lease.await;
        self.connections.cluster.leave().await;
    }
}
