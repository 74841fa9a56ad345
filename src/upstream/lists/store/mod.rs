//! The last known lists of servers, stored in a folder between runs of the gateway, and in the store
//! that replicas share.
//!
//! The next run serves them before the servers are ready, and replaces them once they are. Only
//! lists that clients share are stored, together with the server's eras. A file is used only for
//! the configuration with which it was written, and additional content is ignored.

mod fingerprint;
mod folder;
mod record;
mod seal;
mod shared;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use crate::call::ServerName;
use crate::clock;
use crate::codec::file::{FileError, FileReader};
use crate::config::{Secret, ServerConfig};
use crate::crypto::sha256;
use crate::shared_records::SharedRecords;
use crate::text::error_chain;

pub(crate) use fingerprint::settings_digest;
use folder::{FolderError, MAX_FILE, StoreFolder};
use record::KeptRecord;
pub(crate) use record::KnownServer;
use seal::{FILE_OVERHEAD_BYTES, StoreKeys};
pub(crate) use shared::KeepOutcome;
use shared::SharedLists;

/// The stored lists of all servers.
#[derive(Debug)]
pub struct ListStore {
    /// `None` if a replica has no files.
    folder: Option<StoreFolder>,
    /// The store that replicas share; `None` if the gateway is alone.
    shared: Option<Arc<dyn SharedRecords>>,
    keys: StoreKeys,
    /// Writes one file at a time.
    files: FileReader,
    /// Data that was read at the start and is not used yet, with its configuration.
    known: Mutex<HashMap<ServerName, (Arc<ServerConfig>, KnownServer)>>,
    /// State of the files on disk.
    written: Mutex<HashMap<ServerName, WrittenFile>>,
    /// The lists of this gateway that are in the store of the replicas.
    known_shared: Mutex<HashMap<ServerName, SharedLists>>,
}

/// Settings of the store.
#[derive(Debug)]
pub struct StoreSettings<'a> {
    /// The folder; `None` if a replica has no files.
    pub folder: Option<PathBuf>,
    /// The configuration file.
    pub config: &'a Path,
    /// Keys that seal the files, the newest first. Without any, a random key in the folder is used.
    pub keys: &'a [Secret],
    /// The store that replicas share; `None` if the gateway is alone.
    pub shared: Option<Arc<dyn SharedRecords>>,
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

/// Sealed lists of a server.
#[derive(Debug, Clone)]
struct SealedLists {
    /// The bytes of a file.
    bytes: Vec<u8>,
    /// The digest of the content.
    digest: ListDigest,
    /// The time of the seal, in seconds since 1970.
    at: u64,
    /// The time at which the lists were requested, in milliseconds since 1970.
    listed_at: u64,
}

/// State of a file on disk: the digest of its contents, and the time of its last write.
#[derive(Debug, Clone, Copy)]
struct WrittenFile {
    digest: ListDigest,
    at: u64,
}

/// SHA-256 of the lists of a server.
type ListDigest = [u8; 32];

/// The outcome of writing a file.
enum FileOutcome {
    /// The file, and the store of the replicas, have these lists.
    Unchanged,
    /// The content of the file.
    Written(SealedLists),
    /// No file is written.
    TooLarge,
}

impl SealedLists {
    fn written(&self) -> WrittenFile {
        WrittenFile { digest: self.digest, at: self.at }
    }
}

impl WrittenFile {
    /// Returns true if it need not be written again as long as nothing changes.
    fn is_recent(self, now: u64) -> bool {
        now.saturating_sub(self.at) < REWRITE_AGE.as_secs()
    }
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
        let StoreSettings { folder, config, keys, shared } = settings;
        let (path, config, keys) = (folder.clone(), config.to_owned(), keys.to_vec());
        let files = FileReader::new(OPEN_TIME);
        let opened = files.run(move || Self::open_folder(path.as_deref(), &config, &keys)).await;
        let opened = opened.unwrap_or(Err(StoreFault::Time));
        let folder = folder.unwrap_or_default();
        let opened = opened.map_err(|cause| StoreError { folder, cause })?;
        let store = Arc::new(Self { shared, ..opened });
        let _ = timeout(OPEN_TIME, store.read_all(servers)).await;
        Ok(store)
    }

    fn open_folder(
        path: Option<&Path>,
        config: &Path,
        keys: &[Secret],
    ) -> Result<Self, StoreFault> {
        let folder = path.map(|path| StoreFolder::open(path, config)).transpose()?;
        let own = match &folder {
            Some(folder) if keys.is_empty() => Some(folder.key()?),
            _ => None,
        };
        let secrets = keys.iter().map(|key| key.expose().as_bytes());
        let secrets = secrets.chain(own.as_ref().map(<[u8; 32]>::as_slice));
        Ok(Self {
            keys: StoreKeys::new(secrets).map_err(|_| StoreFault::Key)?,
            folder,
            shared: None,
            files: FileReader::default(),
            known: Mutex::default(),
            written: Mutex::default(),
            known_shared: Mutex::default(),
        })
    }

    async fn read_all(self: &Arc<Self>, servers: &[Arc<ServerConfig>]) {
        let mut reading = JoinSet::new();
        for config in servers {
            reading.spawn(Arc::clone(self).read_server(Arc::clone(config)));
        }
        while reading.join_next().await.is_some() {}
    }

    /// Reads the data of a server: that which the replicas share, or else the file. Shares that of the
    /// file.
    async fn read_server(self: Arc<Self>, config: Arc<ServerConfig>) {
        let shared = self.read_shared(&config).await;
        let is_shared = shared.is_some();
        let (store, own) = (Arc::clone(&self), Arc::clone(&config));
        // This compiles the schemas of the tools.
        let restoring = spawn_blocking(move || {
            let is_restored = shared.is_some_and(|shared| store.restore_shared(&own, &shared));
            if is_restored { None } else { store.restore_file(&own) }
        });
        if let Ok(Some(lists)) = restoring.await
            && !is_shared
        {
            self.share(&config, &lists).await;
        }
    }

    /// Restores the data that the replicas share. Returns false if it cannot be used.
    fn restore_shared(&self, config: &Arc<ServerConfig>, shared: &[u8]) -> bool {
        match self.open_lists(config, shared) {
            Ok((known, _)) => {
                self.known.lock().insert(config.name.clone(), (Arc::clone(config), known));
                true
            }
            Err(fault) => {
                let (server, fault) = (&config.name, error_chain(&fault));
                tracing::info!(%server, "lists of other replicas are not used: {fault}");
                false
            }
        }
    }

    /// Restores the data in the file of a server, and returns it, sealed.
    fn restore_file(&self, config: &Arc<ServerConfig>) -> Option<SealedLists> {
        let (name, folder) = (&config.name, self.folder.as_ref()?);
        match self.load(config) {
            Ok(None) => {}
            Ok(Some((known, lists))) => {
                tracing::debug!(server = %name, tools = known.base.tools.len(), "lists were kept");
                self.known.lock().insert(name.clone(), (Arc::clone(config), known));
                return Some(lists);
            }
            Err(fault @ (StoreFault::Configuration | StoreFault::Old)) => {
                tracing::info!(server = %name, "kept lists are dropped: {}", error_chain(&fault));
                folder.remove(name);
            }
            Err(fault) => {
                tracing::warn!(server = %name, "kept lists are ignored: {}", error_chain(&fault));
            }
        }
        None
    }

    fn load(
        &self,
        config: &ServerConfig,
    ) -> Result<Option<(KnownServer, SealedLists)>, StoreFault> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let Some(file) = folder.read(&config.name)? else { return Ok(None) };
        let (known, written) = self.open_lists(config, &file)?;
        let WrittenFile { digest, at } = written;
        self.written.lock().insert(config.name.clone(), written);
        let listed_at = at.saturating_mul(1000);
        Ok(Some((known, SealedLists { bytes: file, digest, at, listed_at })))
    }

    /// Opens sealed lists, and compiles them.
    fn open_lists(
        &self,
        config: &ServerConfig,
        sealed: &[u8],
    ) -> Result<(KnownServer, WrittenFile), StoreFault> {
        let (record, written) = self.open_record(config, sealed)?;
        let record: KeptRecord =
            serde_json::from_slice(&record).map_err(|_| StoreFault::Damaged)?;
        let known = record.restore(&config.name).ok_or(StoreFault::Damaged)?;
        Ok((known, written))
    }

    /// Opens sealed lists, and checks their age.
    fn open_record(
        &self,
        config: &ServerConfig,
        sealed: &[u8],
    ) -> Result<(Vec<u8>, WrittenFile), StoreFault> {
        let opened = self.keys.open(config, sealed)?;
        let (at, record) = opened.split_first_chunk().ok_or(StoreFault::Damaged)?;
        let (at, now) = (u64::from_be_bytes(*at), clock::unix_now().as_secs());
        let is_future = at > now.saturating_add(CLOCK_MARGIN.as_secs());
        if is_future || now.saturating_sub(at) > MAX_STORED_LIST_AGE.as_secs() {
            return Err(StoreFault::Old);
        }
        Ok((record.to_vec(), WrittenFile { digest: sha256(record), at }))
    }

    /// Takes the data of a server from an earlier run, if its configuration is unchanged since it
    /// was read.
    pub(crate) fn take(&self, config: &ServerConfig) -> Option<KnownServer> {
        let (kept_for, known) = self.known.lock().remove(&config.name)?;
        (*kept_for == *config).then_some(known)
    }

    /// Stores the data of a server for the next run, and for other replicas. The file is written away
    /// from the threads that serve clients, and only if it changes.
    pub(crate) async fn keep(
        self: &Arc<Self>,
        config: &Arc<ServerConfig>,
        known: KnownServer,
    ) -> KeepOutcome {
        let (store, own) = (Arc::clone(self), Arc::clone(config));
        let now = clock::unix_now().as_secs();
        let shared = self.shared_digest(config, now).await;
        match self.files.run(move || store.write(&own, &known, now, shared)).await {
            Ok(FileOutcome::Unchanged) => KeepOutcome::Done,
            Ok(FileOutcome::Written(lists)) => self.share(config, &lists).await,
            Ok(FileOutcome::TooLarge) => {
                self.unshare(config).await;
                KeepOutcome::Done
            }
            Err(error) => {
                tracing::warn!("lists are not kept: {}", error_chain(&error));
                KeepOutcome::Done
            }
        }
    }

    /// Writes the file of a server, unless it has these lists. `shared` is the digest of those in the
    /// store of the replicas.
    fn write(
        &self,
        config: &ServerConfig,
        known: &KnownServer,
        now: u64,
        shared: Option<ListDigest>,
    ) -> FileOutcome {
        let name = &config.name;
        let size = known.size();
        let record = (size <= MAX_FILE).then(|| known.to_record()).flatten();
        let record = record.and_then(|record| serde_json::to_vec(&record).ok());
        let Some(record) = record.filter(|record| record.len() <= MAX_FILE - FILE_OVERHEAD_BYTES)
        else {
            tracing::info!(server = %name, size, "its lists are too large to be kept");
            self.folder.iter().for_each(|folder| folder.remove(name));
            return FileOutcome::TooLarge;
        };
        let (digest, listed_at) = (sha256(&record), known.listed_at);
        let before = self.written.lock().get(name).copied();
        let is_stored = before.is_some_and(|it| it.digest == digest && it.is_recent(now));
        let is_shared = self.shared.is_none() || shared == Some(digest);
        if (is_stored || self.folder.is_none()) && is_shared {
            return FileOutcome::Unchanged;
        }
        let dated = [&now.to_be_bytes(), record.as_slice()].concat();
        let Ok(bytes) = self.keys.seal(config, dated) else { return FileOutcome::Unchanged };
        let lists = SealedLists { bytes, digest, at: now, listed_at };
        if let Some(folder) = &self.folder
            && !is_stored
        {
            self.write_file(folder, config, &lists);
        }
        FileOutcome::Written(lists)
    }

    fn write_file(&self, folder: &StoreFolder, config: &ServerConfig, lists: &SealedLists) {
        let name = &config.name;
        if let Err(error) = folder.replace(name, &lists.bytes) {
            tracing::warn!(server = %name, "its lists are not kept: {error}");
            return;
        }
        let before = self.written.lock().insert(name.clone(), lists.written());
        if before.is_none() {
            folder.prune(clock::wall_now(), MAX_STORED_LIST_AGE);
        }
    }
}

/// Time limit for reading all lists. The gateway starts without lists that are not read in time.
const OPEN_TIME: Duration = Duration::from_secs(2);
/// The most by which the clock of another replica is ahead.
const CLOCK_MARGIN: Duration = Duration::from_secs(10);
/// Maximum age of stored lists.
const MAX_STORED_LIST_AGE: Duration = Duration::from_hours(30 * 24);
/// Age at which a file is written again even if nothing has changed.
const REWRITE_AGE: Duration = Duration::from_hours(24);

#[cfg(test)]
pub(crate) mod tests;
