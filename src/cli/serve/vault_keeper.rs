//! Opens the vault with the keys of the configuration, and follows changes by other processes and
//! replicas.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};

use crate::clock;
use crate::config::{Config, VaultConfig};
use crate::oauth::GrantBook;
use crate::oauth::vault::{Vault, VaultError};
use crate::telemetry::log::FaultLog;
use crate::text::error_chain;

/// Error of opening the vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultOpenError {
    /// The vault itself.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The task that opened it ended early.
    #[error("the vault was not opened")]
    Interrupted,
}

/// Opens the vault; `None` if the configuration has no key for it.
pub(crate) async fn open_vault(config: &Config) -> Result<Option<Arc<Vault>>, VaultOpenError> {
    let VaultConfig { path, keys } = &config.vault;
    if keys.is_empty() {
        return Ok(None);
    }
    let keys = keys.clone();
    let path = path.clone();
    let opening = spawn_blocking(move || Vault::open(&path, &keys));
    let opened = opening.await.map_err(|_| VaultOpenError::Interrupted)?;
    Ok(Some(Arc::new(opened?)))
}

/// Opens the vault, if there is one, reads its grants, and follows changes by other processes and
/// replicas.
///
/// # Errors
/// [`VaultOpenError`].
pub(super) async fn restore_grants(
    config: &Config,
    grants: &Arc<GrantBook>,
) -> Result<Option<JoinHandle<()>>, VaultOpenError> {
    let vault = open_vault(config).await?;
    if vault.is_none() && !grants.shares_grants() {
        return Ok(None);
    }
    if let Some(vault) = vault {
        grants.open_vault(vault).await?;
    }
    Ok(Some(follow_grants(grants)))
}

/// Follows changes of the vault by other processes, such as `trunkline login`, and logins that end at
/// other replicas.
fn follow_grants(grants: &Arc<GrantBook>) -> JoinHandle<()> {
    let grants = Arc::clone(grants);
    tokio::spawn(async move {
        let mut faults = FaultLog::default();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = grants.follow_vault().await
                && let Some(line) = faults.note(&error_chain(&error), clock::now())
            {
                tracing::warn!("cannot read the changes of another process: {line}");
            }
            grants.follow_shared().await;
        }
    })
}

/// Interval between checks for a new file.
const LOOK_EVERY: Duration = Duration::from_secs(1);
