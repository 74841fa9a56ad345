//! The folders in which a gateway keeps state: lists of servers, and accepted definitions.

use std::path::Path;
use std::sync::Arc;

use super::ServeError;
use crate::config::{Config, PinsChoice};
use crate::policy::{BaselineFolder, DefinitionGuard, SharedBaselines, pins_of};
use crate::shared_records::SharedRecords;
use crate::text::error_chain;
use crate::upstream::{ListStore, ServerContext, StoreSettings};

/// Adds the store of kept lists: a folder, and the store of the replicas. Without it the gateway only starts more slowly, so a fault of the
/// store does not keep the gateway from starting.
pub(super) async fn with_store(
    surroundings: ServerContext,
    config: &Config,
    path: &Path,
    shared: Option<Arc<dyn SharedRecords>>,
) -> ServerContext {
    let folder = config.gateway.state_dir.folder().map(Path::to_owned);
    if folder.is_none() && shared.is_none() {
        return surroundings;
    }
    let settings = StoreSettings { folder, config: path, keys: &config.gateway.state_keys, shared };
    match ListStore::open(settings, &config.servers).await {
        Ok(store) => surroundings.with_store(store),
        Err(error) => {
            tracing::warn!("{}", error_chain(&error));
            surroundings
        }
    }
}

/// Opens the accepted definitions of servers: in a folder, and in the store of the replicas.
pub(super) async fn open_definitions(
    config: &Config,
    path: &Path,
    shared: Option<Arc<dyn SharedRecords>>,
) -> Result<DefinitionGuard, ServeError> {
    let shared = shared.map(SharedBaselines::new);
    let definitions = DefinitionGuard::new(open_baselines(config, path)?).sharing(shared);
    definitions.read_shared(config).await;
    Ok(definitions)
}

/// Opens the folder of accepted definitions, if the configuration has one. Without the folder every
/// start accepts the servers' current lists; so if a server holds changes, the gateway does not
/// start without it.
fn open_baselines(config: &Config, path: &Path) -> Result<Option<BaselineFolder>, ServeError> {
    let Some(folder) = config.gateway.baseline_folder() else { return Ok(None) };
    let is_needed = config.gateway.pin_dir.is_some()
        || config.servers.iter().any(|server| pins_of(config, server) == PinsChoice::Hold);
    match BaselineFolder::open(folder, path) {
        Ok(folder) => Ok(Some(folder)),
        Err(error) if is_needed => Err(error.into()),
        Err(error) => {
            tracing::warn!("definitions are not stored: {}", error_chain(&error));
            Ok(None)
        }
    }
}
