//! The last known lists of servers, stored in a folder between runs of the gateway.
//!
//! The next run serves them before the servers are ready, and replaces them once they are. Only
//! lists that clients share are stored, together with the server's eras. A file is used only for
//! the configuration with which it was written, and additional content is ignored.

mod fingerprint;
mod folder;
mod record;
mod seal;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::call::ServerName;
use crate::clock;
use crate::codec::file::{FileError, FileReader};
use crate::config::{Secret, ServerConfig};
use crate::crypto::sha256;
use crate::text::error_chain;

use folder::{FolderError, MAX_FILE, StoreFolder};
use record::KeptRecord;
pub(crate) use record::KnownServer;
use seal::{FILE_OVERHEAD_BYTES, StoreKeys};

/// The stored lists of all servers.
#[derive(Debug)]
pub struct ListStore {
    folder: StoreFolder,
    keys: StoreKeys,
    /// Writes one file at a time.
    files: FileReader,
    /// Data that was read at the start and is not used yet, with its configuration.
    known: Mutex<HashMap<ServerName, (Arc<ServerConfig>, KnownServer)>>,
    /// State of the files on disk.
    written: Mutex<HashMap<ServerName, WrittenFile>>,
}

/// Settings of the store.
#[derive(Debug)]
pub struct StoreSettings<'a> {
    /// The folder.
    pub folder: PathBuf,
    /// The configuration file.
    pub config: &'a Path,
    /// Keys that seal the files, the newest first. Without any, a random key in the folder is used.
    pub keys: &'a [Secret],
}

/// Error while opening a store.
#[derive(Debug, thiserror::Error)]
#[error("lists are not kept in {}", folder.display())]
pub struct StoreError {
    folder: PathBuf,
    #[source]
    cause: StoreFault,
}

/// Reason to ignore a folder or file.
#[derive(Debug, thiserror::Error)]
enum StoreFault {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot read it")]
    File(#[from] FileError),
    #[error("the cryptographic library rejects the key")]
    Key,
    #[error("the file is not of this version of the gateway")]
    Format,
    #[error("the configuration of the server, or the key, has changed")]
    Configuration,
    #[error("the file is damaged")]
    Damaged,
    #[error("the lists are too old")]
    Old,
    #[error("the folder did not answer in time")]
    Time,
}

/// State of a file on disk: the digest of its contents, and the time of its last write.
#[derive(Debug, Clone, Copy)]
struct WrittenFile {
    digest: [u8; 32],
    at: u64,
}

impl ListStore {
    /// Opens a store, and reads the data of these servers. This takes a few milliseconds, and has a
    /// time limit. Data that cannot be read in time is left out.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be used.
    pub async fn open(
        settings: StoreSettings<'_>,
        servers: &[Arc<ServerConfig>],
    ) -> Result<Arc<Self>, StoreError> {
        let StoreSettings { folder, config, keys } = settings;
        let (path, config, keys) = (folder.clone(), config.to_owned(), keys.to_vec());
        let files = FileReader::new(OPEN_TIME);
        let opened = files.run(move || Self::open_folder(&path, &config, &keys)).await;
        let opened = opened.unwrap_or(Err(StoreFault::Time));
        let store = Arc::new(opened.map_err(|cause| StoreError { folder, cause })?);
        let _ = timeout(OPEN_TIME, store.read_all(servers)).await;
        Ok(store)
    }

    fn open_folder(path: &Path, config: &Path, keys: &[Secret]) -> Result<Self, StoreFault> {
        let folder = StoreFolder::open(path, config)?;
        let own = match keys {
            [] => Some(folder.key()?),
            _ => None,
        };
        let secrets = keys.iter().map(|key| key.expose().as_bytes());
        let secrets = secrets.chain(own.as_ref().map(<[u8; 32]>::as_slice));
        Ok(Self {
            keys: StoreKeys::new(secrets).map_err(|_| StoreFault::Key)?,
            folder,
            files: FileReader::default(),
            known: Mutex::default(),
            written: Mutex::default(),
        })
    }

    async fn read_all(self: &Arc<Self>, servers: &[Arc<ServerConfig>]) {
        let mut reading = JoinSet::new();
        for config in servers {
            let (store, config) = (Arc::clone(self), Arc::clone(config));
            // This compiles the schemas of the tools.
            reading.spawn_blocking(move || store.read_server(&config));
        }
        while reading.join_next().await.is_some() {}
    }

    fn read_server(&self, config: &Arc<ServerConfig>) {
        let name = &config.name;
        match self.load(config) {
            Ok(None) => {}
            Ok(Some(known)) => {
                tracing::debug!(server = %name, tools = known.base.tools.len(), "lists were kept");
                self.known.lock().insert(name.clone(), (Arc::clone(config), known));
            }
            Err(fault @ (StoreFault::Configuration | StoreFault::Old)) => {
                tracing::info!(server = %name, "kept lists are dropped: {}", error_chain(&fault));
                self.folder.remove(name);
            }
            Err(fault) => {
                tracing::warn!(server = %name, "kept lists are ignored: {}", error_chain(&fault));
            }
        }
    }

    fn load(&self, config: &ServerConfig) -> Result<Option<KnownServer>, StoreFault> {
        let Some(file) = self.folder.read(&config.name)? else { return Ok(None) };
        let opened = self.keys.open(config, &file)?;
        let (written, record) = opened.split_first_chunk().ok_or(StoreFault::Damaged)?;
        let (written, now) = (u64::from_be_bytes(*written), clock::unix_now().as_secs());
        if written > now || now - written > MAX_STORED_LIST_AGE.as_secs() {
            return Err(StoreFault::Old);
        }
        let digest = sha256(record);
        let record: KeptRecord = serde_json::from_slice(record).map_err(|_| StoreFault::Damaged)?;
        let known = record.restore(&config.name).ok_or(StoreFault::Damaged)?;
        self.written.lock().insert(config.name.clone(), WrittenFile { digest, at: written });
        Ok(Some(known))
    }

    /// Takes the data of a server from an earlier run, if its configuration is unchanged since it
    /// was read.
    pub(in crate::upstream) fn take(&self, config: &ServerConfig) -> Option<KnownServer> {
        let (kept_for, known) = self.known.lock().remove(&config.name)?;
        (*kept_for == *config).then_some(known)
    }

    /// Stores the data of a server for the next run. The file is written away from the threads that
    /// serve clients, and only if it changes.
    pub(in crate::upstream) async fn keep(
        self: &Arc<Self>,
        config: &Arc<ServerConfig>,
        known: KnownServer,
    ) {
        let (store, config, now) = (Arc::clone(self), Arc::clone(config), clock::unix_now());
        let kept = self.files.run(move || store.write(&config, &known, now.as_secs())).await;
        if let Err(error) = kept {
            tracing::warn!("lists are not kept: {}", error_chain(&error));
        }
    }

    fn write(&self, config: &ServerConfig, known: &KnownServer, now: u64) {
        let name = &config.name;
        let size = known.size();
        let record = (size <= MAX_FILE).then(|| known.to_record()).flatten();
        let record = record.and_then(|record| serde_json::to_vec(&record).ok());
        let Some(record) = record.filter(|record| record.len() <= MAX_FILE - FILE_OVERHEAD_BYTES)
        else {
            tracing::info!(server = %name, size, "its lists are too large to be kept");
            return self.folder.remove(name);
        };
        let digest = sha256(&record);
        let before = self.written.lock().get(name).copied();
        let is_same = |file: WrittenFile| {
            file.digest == digest && now.saturating_sub(file.at) < REWRITE_AGE.as_secs()
        };
        if before.is_some_and(is_same) {
            return;
        }
        let dated = [&now.to_be_bytes(), record.as_slice()].concat();
        let Ok(sealed) = self.keys.seal(config, dated) else { return };
        if let Err(error) = self.folder.replace(name, &sealed) {
            tracing::warn!(server = %name, "its lists are not kept: {error}");
            return;
        }
        if before.is_none() {
            self.folder.prune(clock::wall_now(), MAX_STORED_LIST_AGE);
        }
        self.written.lock().insert(name.clone(), WrittenFile { digest, at: now });
    }
}

/// Time limit for reading all lists. The gateway starts without lists that are not read in time.
const OPEN_TIME: Duration = Duration::from_secs(2);
/// Maximum age of stored lists.
const MAX_STORED_LIST_AGE: Duration = Duration::from_hours(30 * 24);
/// Age at which a file is written again even if nothing has changed.
const REWRITE_AGE: Duration = Duration::from_hours(24);

#[cfg(test)]
pub(crate) mod tests;
