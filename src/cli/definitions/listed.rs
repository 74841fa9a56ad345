//! The lists of servers: of the running gateway, or of the servers of a configuration, which are
//! started without serving clients.

use std::io;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admin::UnlistedServer;
use crate::cli::running::{GatewayOption, GatewayRequest, RunningGatewayError};
use crate::cli::serve::guardian;
use crate::cli::{print_error, printable};
use crate::config::{Config, StartChoice};
use crate::pipeline::own_info;
use crate::policy::DefinitionGuard;
use crate::snapshot::{DisabledAtStart, Snapshot, Snapshots, StartUp};
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
        let startup = StartUp {
            shared_limits: None,
            config,
            surroundings,
            info: own_info(),
            definitions,
            quotas: Arc::default(),
            disabled: DisabledAtStart::default(),
        };
        let snapshots = Snapshots::start(startup);
        snapshots.settle().await;
        snapshots.catch_up().await;
        let seen = look(&snapshots.load_full());
        snapshots.stop().await;
        seen
    }))
}

/// Asks the running gateway for a document. `None` if the servers of the configuration are to be
/// started instead, because no gateway runs with it, which is printed, or `--offline` is given.
///
/// # Errors
/// [`RunningGatewayError`] of a gateway that runs, and of one with another address.
pub(crate) fn ask_running_gateway(
    gateway: &GatewayOption,
    choice: ListSource,
    path: &str,
) -> Result<Option<Value>, RunningGatewayError> {
    if choice == ListSource::StartedServers {
        return Ok(None);
    }
    match gateway.request(&GatewayRequest::get(path)) {
        Ok(document) => Ok(Some(document)),
        Err(error) if error.shows_none_runs() => {
            let config = gateway.config().display();
            print_error(&format!("no gateway runs with {config}: its servers are started"));
            Ok(None)
        }
        Err(RunningGatewayError::NoSocket { config }) => {
            let config = config.display();
            print_error(&format!(
                "{config}: admin.socket is \"off\", so no gateway can be asked: its servers are started"
            ));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The servers whose lists a command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListSource {
    /// Those of the running gateway, if there is one.
    RunningGateway,
    /// Those of the configuration, which are started.
    StartedServers,
}

impl From<bool> for ListSource {
    /// Reads the option `--offline`.
    fn from(is_offline: bool) -> Self {
        if is_offline { Self::StartedServers } else { Self::RunningGateway }
    }
}

/// Reads a document of the running gateway.
///
/// # Errors
/// [`RunningGatewayError::OtherVersion`].
pub(crate) fn read_document<T: DeserializeOwned>(
    document: &Value,
) -> Result<T, RunningGatewayError> {
    T::deserialize(document).map_err(RunningGatewayError::OtherVersion)
}

/// Prints each server that could not be listed, with the reason.
pub(crate) fn print_unlisted(unlisted: &[UnlistedServer]) {
    for server in unlisted {
        print_error(&printable(&describe_unlisted(server)));
    }
}

/// Describes a server that could not be listed, in its own words.
pub(crate) fn describe_unlisted(server: &UnlistedServer) -> String {
    let UnlistedServer { name, reason } = server;
    let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("servers.{name}: it cannot be listed{reason}")
}
