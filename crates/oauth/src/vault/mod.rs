//! The vault: secrets that outlive the process, sealed in one file.
//!
//! A row has a name and a value. The value is sealed with AES-256-GCM under a key from the
//! configuration, with the name as associated data: a row that is moved to another owner or another
//! server does not open. Names are readable in the file, values are not. This module knows nothing
//! of OAuth; `grants` gives the rows their meaning. It differs from the gateway's kept lists, which
//! may be lost, and are dropped when their key changes: the vault drops a row only at its owner's
//! request.
//!
//! Processes share the file by turns: each operation locks it, opens it, and closes it again, so
//! that `trunkline login` can write while a gateway runs. Rows that are deleted, or sealed with an
//! old key, are not left behind in free pages: a new file is written and replaces the old one.

mod file;
mod seal;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use trunkline_config::Secret;

pub use file::FileStamp;
use file::VaultFile;
use seal::VaultKeys;

/// The vault.
#[derive(Debug)]
pub struct Vault {
    file: VaultFile,
    keys: VaultKeys,
    /// The file's state after the last operation of this process.
    left: Mutex<Option<FileStamp>>,
    /// Set if another process has written between two operations of this one, until all rows are
    /// read.
    is_foreign: AtomicBool,
}

/// The name of a row: its kind, and its owner's parts. Written as one JSON array, so that no two
/// names have the same text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowName(Vec<String>);

/// A row, opened.
pub struct VaultRow {
    /// Its name.
    pub name: RowName,
    /// The value before sealing. Never logged.
    pub value: Vec<u8>,
}

/// Reason why a vault cannot be used, or an operation on it failed.
#[derive(Debug, thiserror::Error)]
#[error("the vault {} cannot be used", path.display())]
pub struct VaultError {
    /// The file.
    pub path: PathBuf,
    /// The fault.
    #[source]
    pub fault: VaultFault,
}

/// A fault of a vault.
#[derive(Debug, thiserror::Error)]
pub enum VaultFault {
    /// The system's error, such as a full disk. The file is as it was before.
    #[error("the system cannot read or write it; its previous contents are unchanged")]
    System(#[from] io::Error),
    /// The path names no regular file, or another user may write to it.
    #[error("expected a regular file that only the gateway's own user can write to")]
    Foreign,
    /// Another process uses it.
    #[error(
        "another process is using it, for longer than {waited:?}: end that process, or try again"
    )]
    InUse {
        /// The time that this process has waited.
        waited: Duration,
    },
    /// The file is no vault, or is damaged. It is left unchanged.
    #[error(
        "it is damaged, or no vault ({reason}): restore it from a backup, or move it away to begin \
         with an empty one; nothing was changed"
    )]
    Damaged {
        /// The store's own reason.
        reason: String,
    },
    /// A row is sealed with a key that is not configured.
    #[error(
        "the row {row} is sealed with a key that is not configured: add that key to `vault.keys`, \
         after the newest; nothing was changed"
    )]
    UnknownKey {
        /// The row's name.
        row: String,
    },
    /// A row was changed, or moved to another name.
    #[error("the row {row} does not open: it was changed, or belongs to another owner or server")]
    Sealed {
        /// The row's name.
        row: String,
    },
    /// More than the vault may hold.
    #[error("it would have more than {limit} {unit}")]
    TooLarge {
        /// The limit.
        limit: usize,
        /// The unit of the limit: rows or bytes.
        unit: &'static str,
    },
    /// The cryptographic library refuses.
    #[error("the cryptographic library cannot seal")]
    Cipher,
    /// The task that worked on it ended early.
    #[error("the operation was interrupted")]
    Interrupted,
}

impl RowName {
    /// A name of these parts, the kind of the row first.
    pub fn new(parts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(parts.into_iter().map(Into::into).collect())
    }

    /// Its parts, the kind of the row first.
    pub fn parts(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    fn to_text(&self) -> String {
        serde_json::Value::from(self.0.clone()).to_string()
    }
}

impl Vault {
    /// Opens a vault, and creates it if it is missing. Opens every row, and seals those anew that
    /// are sealed with another key than the first. Blocks while it does so.
    ///
    /// # Errors
    /// [`VaultError`]; the file is left unchanged.
    pub fn open(path: &Path, keys: &[Secret]) -> Result<Self, VaultError> {
        let told = |fault| VaultError { path: path.to_owned(), fault };
        let keys = VaultKeys::new(keys).map_err(told)?;
        let vault = Self {
            file: VaultFile::new(path),
            keys,
            left: Mutex::default(),
            is_foreign: AtomicBool::new(false),
        };
        vault.seal_anew().map_err(told)?;
        Ok(vault)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Opens every row with the configured keys; if one is sealed with an older key, replaces the
    /// file by one in which all rows are sealed with the newest.
    fn seal_anew(&self) -> Result<(), VaultFault> {
        let _turn = self.file.lock()?;
        let rows = self.file.read_rows()?;
        let is_old = rows.iter().any(|(_, sealed)| !self.keys.is_newest(sealed));
        if is_old {
            let seal = |(name, sealed): &(String, Vec<u8>)| {
                let value = self.keys.open(name, sealed)?;
                Ok::<_, VaultFault>((name.clone(), self.keys.seal(name, value)?))
            };
            let anew = rows.iter().map(seal).collect::<Result<Vec<_>, _>>()?;
            self.file.replace_rows(&anew)?;
            tracing::info!(
                target: "trunkline::vault",
                rows = anew.len(),
                "the vault is sealed with the newest key"
            );
        } else {
            for (name, sealed) in &rows {
                self.keys.open(name, sealed)?;
            }
        }
        self.note_left();
        Ok(())
    }

    /// All rows.
    ///
    /// # Errors
    /// [`VaultError`].
    pub async fn read_rows(self: &Arc<Self>) -> Result<Vec<VaultRow>, VaultError> {
        self.run(|vault| {
            let rows = vault.file.read_rows()?;
            vault.is_foreign.store(false, Ordering::Relaxed);
            let open = |(name, sealed): (String, Vec<u8>)| {
                let value = vault.keys.open(&name, &sealed)?;
                let damaged = || VaultFault::Damaged { reason: format!("row {name}") };
                Ok(VaultRow { name: RowName::parse(&name).ok_or_else(damaged)?, value })
            };
            rows.into_iter().map(open).collect()
        })
        .await
    }

    /// The value of a row; `None` if there is none.
    ///
    /// # Errors
    /// [`VaultError`].
    pub async fn read_row(self: &Arc<Self>, name: RowName) -> Result<Option<Vec<u8>>, VaultError> {
        self.run(move |vault| {
            let name = name.to_text();
            let sealed = vault.file.read_row(&name)?;
            sealed.map(|sealed| vault.keys.open(&name, &sealed)).transpose()
        })
        .await
    }

    /// Writes a row, or replaces it. When this returns, the row is on the disk.
    ///
    /// # Errors
    /// [`VaultError`]; the row is unchanged.
    ///
    /// # Cancel safety
    /// The row is written even if the future is dropped.
    pub async fn write_row(
        self: &Arc<Self>,
        name: RowName,
        value: Vec<u8>,
    ) -> Result<(), VaultError> {
        self.run(move |vault| {
            let name = name.to_text();
            let sealed = vault.keys.seal(&name, value)?;
            vault.file.write_row(&name, &sealed)
        })
        .await
    }

    /// Replaces a row, if it still exists. Returns false if another process has deleted it: nothing
    /// is written then.
    ///
    /// # Errors
    /// [`VaultError`]; the row is unchanged.
    ///
    /// # Cancel safety
    /// The row is written even if the future is dropped.
    pub async fn replace_row(
        self: &Arc<Self>,
        name: RowName,
        value: Vec<u8>,
    ) -> Result<bool, VaultError> {
        self.run(move |vault| {
            let name = name.to_text();
            if vault.file.read_row(&name)?.is_none() {
                return Ok(false);
            }
            let sealed = vault.keys.seal(&name, value)?;
            vault.file.write_row(&name, &sealed).map(|()| true)
        })
        .await
    }

    /// Deletes a row. The file is written anew, so that the sealed bytes are gone as well.
    ///
    /// # Errors
    /// [`VaultError`].
    ///
    /// # Cancel safety
    /// The row is deleted even if the future is dropped.
    pub async fn delete_row(self: &Arc<Self>, name: RowName) -> Result<(), VaultError> {
        self.run(move |vault| {
            let name = name.to_text();
            let mut rows = vault.file.read_rows()?;
            let before = rows.len();
            rows.retain(|(known, _)| *known != name);
            if rows.len() == before {
                return Ok(());
            }
            match vault.file.replace_rows(&rows) {
                // A full disk has no room for a second file, but the row has to be deleted.
                Err(VaultFault::System(_)) => vault.file.delete_row(&name),
                other => other,
            }
        })
        .await
    }

    /// Returns true if another process has written to the file since this one used it.
    pub fn was_changed(&self) -> bool {
        let found = self.file.stamp();
        self.is_foreign.load(Ordering::Relaxed) || (found.is_some() && *self.left.lock() != found)
    }

    /// Remembers a change of another process, which the next operation of this one would hide.
    fn note_change(&self) {
        if *self.left.lock() != self.file.stamp() {
            self.is_foreign.store(true, Ordering::Relaxed);
        }
    }

    fn note_left(&self) {
        *self.left.lock() = self.file.stamp();
    }

    /// Runs an operation on a blocking thread, with the file locked.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        operate: impl FnOnce(&Self) -> Result<T, VaultFault> + Send + 'static,
    ) -> Result<T, VaultError> {
        let vault = Arc::clone(self);
        let operation = spawn_blocking(move || {
            let _turn = vault.file.lock()?;
            vault.note_change();
            let done = operate(&vault);
            vault.note_left();
            done
        });
        let done = operation.await.unwrap_or(Err(VaultFault::Interrupted));
        done.map_err(|fault| VaultError { path: self.path().to_owned(), fault })
    }
}
