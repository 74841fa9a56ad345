//! One line in the log when the servers of a configuration are ready.

mod server_counts;

use std::sync::Arc;

use tokio::task::{JoinHandle, JoinSet};

use crate::snapshot::Snapshots;
use crate::upstream::Server;

use server_counts::ServerSummary;

/// Logs a line after the start, and after each reload that adds, replaces or removes a server: once
/// every server is ready or has failed, and again once all of them are ready.
pub(super) fn summarise_servers(snapshots: &Arc<Snapshots>) -> JoinHandle<()> {
    tokio::spawn(follow_loads(Arc::clone(snapshots)))
}

async fn follow_loads(snapshots: Arc<Snapshots>) {
    let mut loads = snapshots.load_count();
    let mut known = Vec::new();
    // Dropping it ends its task.
    let mut summary = JoinSet::new();
    loop {
        let servers = servers_of(&snapshots);
        let is_known = |server: &Arc<Server>| known.iter().any(|it| Arc::ptr_eq(it, server));
        if servers.len() != known.len() || !servers.iter().all(is_known) {
            summary.shutdown().await;
            summary.spawn(log_summary(servers.clone()));
        }
        known = servers;
        if loads.changed().await.is_err() {
            return;
        }
    }
}

/// Returns the servers, without the snapshot: holding it would keep servers that are removed from
/// being stopped.
fn servers_of(snapshots: &Snapshots) -> Vec<Arc<Server>> {
    snapshots.load().servers().map(|member| Arc::clone(&member.server)).collect()
}

async fn log_summary(servers: Vec<Arc<Server>>) {
    for server in &servers {
        server.settled().await;
    }
    let summary = ServerSummary::of(&servers);
    summary.log();
    if summary.pending.is_empty() {
        return;
    }
    for server in &servers {
        server.became_ready().await;
    }
    let summary = ServerSummary::of(&servers);
    // Otherwise the gateway stops, or the servers were replaced.
    if summary.pending.is_empty() {
        summary.log();
    }
}
