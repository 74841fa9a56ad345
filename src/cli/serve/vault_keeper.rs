//! Opens the vault with the keys of the configuration, and follows what other processes write to it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::config::{Config, Secret, VaultConfig};
use crate::text::error_chain;
use crate::upstream::GrantBook;
use crate::vault::{Vault, VaultError};

/// Why there is no vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultKeyError {
    /// The command cannot be started, or its output cannot be read.
    #[error("vault.key_command: cannot run {program:?}")]
    Command {
        /// The program.
        program: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The command says that it has failed.
    #[error("vault.key_command: {program:?} ended with {status}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// The command takes too long.
    #[error("vault.key_command: {program:?} has not ended within {}s", KEY_TIME.as_secs())]
    Timeout {
        /// The program.
        program: String,
    },
    /// The command prints something else.
    #[error(
        "vault.key_command: expected {program:?} to print a key of {} to {MOST_OUTPUT} bytes of \
         text",
        VaultConfig::SHORTEST_KEY
    )]
    Output {
        /// The program.
        program: String,
    },
    /// The vault itself.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The task that opened it ended early.
    #[error("the vault was not opened")]
    Interrupted,
}

/// Opens the vault; `None` if the configuration has no key for it.
pub(in crate::cli) async fn open_vault(
    config: &Config,
) -> Result<Option<Arc<Vault>>, VaultKeyError> {
    let VaultConfig { path, keys, key_command } = &config.vault;
    let mut all = Vec::new();
    if let [program, arguments @ ..] = key_command.as_slice() {
        all.push(run_key_command(program, arguments).await?);
    }
    all.extend(keys.iter().cloned());
    if all.is_empty() {
        return Ok(None);
    }
    let path = path.clone();
    let opening = spawn_blocking(move || Vault::open(&path, &all));
    let opened = opening.await.map_err(|_| VaultKeyError::Interrupted)?;
    Ok(Some(Arc::new(opened?)))
}

/// The key that a program prints. What it writes to standard error is the operator's to read.
async fn run_key_command(program: &str, arguments: &[String]) -> Result<Secret, VaultKeyError> {
    let program = program.to_owned();
    let failed = |source| VaultKeyError::Command { program: program.clone(), source };
    let mut command = Command::new(&program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let run = async {
        let mut printed = Vec::new();
        if let Some(output) = child.stdout.take() {
            let most = u64::try_from(MOST_OUTPUT).unwrap_or(u64::MAX) + 2;
            output.take(most).read_to_end(&mut printed).await?;
        }
        Ok((printed, child.wait().await?))
    };
    let ended = timeout(KEY_TIME, run).await;
    let ended = ended.map_err(|_| VaultKeyError::Timeout { program: program.clone() })?;
    let (printed, status) = ended.map_err(failed)?;
    if !status.success() {
        return Err(VaultKeyError::Failed { program, status });
    }
    let key = String::from_utf8(printed).ok();
    let key = key
        .as_deref()
        .map(str::trim_end)
        .filter(|key| (VaultConfig::SHORTEST_KEY..=MOST_OUTPUT).contains(&key.len()));
    let key = key.map(|key| Secret::new(key.to_owned()));
    key.ok_or(VaultKeyError::Output { program })
}

/// Follows what other processes write to the vault, such as `trunkline login`.
pub(super) fn follow_vault(grants: &Arc<GrantBook>) -> JoinHandle<()> {
    let grants = Arc::clone(grants);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(error) = grants.follow_vault().await {
                tracing::warn!("what another process wrote is not read: {}", error_chain(&error));
            }
        }
    })
}

/// How long the command may take, and how much it may print.
const KEY_TIME: Duration = Duration::from_secs(30);
const MOST_OUTPUT: usize = 4096;
/// How often the gateway looks whether the file is another one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
