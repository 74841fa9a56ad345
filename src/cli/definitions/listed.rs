//! Lists the servers of a configuration without serving clients.

use std::io;
use std::sync::Arc;

use crate::cli::serve::guardian;
use crate::config::{Config, StartChoice};
use crate::pipeline::own_info;
use crate::policy::DefinitionGuard;
use crate::snapshot::{Snapshot, Snapshots, StartUp};
use crate::telemetry::metrics::Metrics;
use crate::upstream::ServerContext;

/// Starts all servers of a configuration, including lazy ones, waits until each has listed or
/// failed, and stops them after `look` has inspected the result.
///
/// # Errors
/// If no threads can be started.
pub(crate) fn with_listed_servers<T>(
    mut config: Config,
    look: impl FnOnce(&Arc<Snapshot>) -> T,
) -> io::Result<T> {
    for server in &mut config.servers {
        Arc::make_mut(server).start = StartChoice::Eager;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(runtime.block_on(async {
        let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION")));
        let surroundings = ServerContext::new(guardian(), metrics);
        let definitions = DefinitionGuard::default();
        let startup =
            StartUp { config, surroundings, info: own_info(), definitions, quotas: Arc::default() };
        let snapshots = Snapshots::start(startup);
        snapshots.settle().await;
        snapshots.catch_up().await;
        let seen = look(&snapshots.load_full());
        snapshots.stop().await;
        seen
    }))
}

/// Returns a line for each server that could not be listed, with the reason.
pub(crate) fn unlisted_servers(snapshot: &Snapshot) -> Vec<String> {
    let silent = snapshot.servers().filter(|member| member.server.list().is_none());
    let lines = silent.map(|member| {
        let name = &member.config.name;
        match member.server.view().last_error {
            Some((_, error)) => format!("servers.{name}: it cannot be listed: {error}"),
            None => format!("servers.{name}: it cannot be listed"),
        }
    });
    lines.collect()
}
