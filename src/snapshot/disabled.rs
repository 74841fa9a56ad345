//! Servers that an operator has disabled. They are configured, and are not in a snapshot's servers:
//! clients see none of their elements, and nothing starts them.
//!
//! The snapshot has the list, so that a call sees one state of it. [`DisabledFile`] keeps it for the
//! next run, in `gateway.state_dir`, and for other gateways with the same configuration file. It
//! differs from `diff`, which compares configurations.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::call::ServerName;
use crate::codec::file::FileError;
use crate::codec::own_folder::{OwnFolder, OwnFolderError, place_of};
use crate::config::Config;
use crate::shared_records::SharedRecords;
use crate::text::error_chain;

use super::shared_disabled::SharedDisabled;

/// A disabled server: the operator, and the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisabledServer {
    /// The operator, as in the audit log.
    pub by: String,
    /// The time.
    pub at: Timestamp,
}

/// The disabled servers, by name. A snapshot has at most as many as its configuration has servers. The
/// file also has those of other gateways, which may have read a newer configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DisabledServers(BTreeMap<String, DisabledServer>);

impl DisabledServers {
    /// Returns the entry of a server, if it is disabled.
    pub fn find(&self, server: &ServerName) -> Option<&DisabledServer> {
        self.0.get(server.as_str())
    }

    /// Returns the names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns true if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of another list. Own entries stay.
    #[must_use]
    pub(super) fn with_all(mut self, others: &Self) -> Self {
        for (name, entry) in &others.0 {
            self.0.entry(name.clone()).or_insert_with(|| entry.clone());
        }
        self
    }

    /// Adds a server.
    #[must_use]
    pub(super) fn with(&self, server: &ServerName, entry: DisabledServer) -> Self {
        let mut all = self.clone();
        all.0.insert(server.as_str().to_owned(), entry);
        all
    }

    /// Removes a server.
    #[must_use]
    pub(super) fn without(&self, server: &ServerName) -> Self {
        let mut all = self.clone();
        all.0.remove(server.as_str());
        all
    }

    /// Removes the servers that a configuration does not have.
    #[must_use]
    pub fn of_config(&self, config: &Config) -> Self {
        self.filtered(|name| has_server(config, name))
    }

    /// Removes the servers that `before` has and `now` no longer has. Keeps those that are in neither:
    /// another gateway may have them already.
    #[must_use]
    pub(super) fn without_removed(&self, before: &Config, now: &Config) -> Self {
        self.filtered(|name| has_server(now, name) || !has_server(before, name))
    }

    fn filtered(&self, keeps: impl Fn(&str) -> bool) -> Self {
        let kept = self.0.iter().filter(|(name, _)| keeps(name));
        Self(kept.map(|(name, entry)| (name.clone(), entry.clone())).collect())
    }
}

fn has_server(config: &Config, name: &str) -> bool {
    config.servers.iter().any(|it| it.name.as_str() == name)
}

/// The disabled servers of an earlier run, and the file for the next one.
#[derive(Debug, Default)]
pub struct DisabledAtStart {
    /// The servers.
    pub servers: DisabledServers,
    /// The file; `None` without a `state_dir`, and if replicas share the servers.
    pub file: Option<DisabledFile>,
    /// The store that replicas share; `None` if the gateway is alone.
    pub shared: Option<SharedDisabled>,
}

impl DisabledAtStart {
    /// Returns the servers of a configuration file that an earlier run has disabled, if there is a
    /// `state_dir`. Those that the configuration no longer has are forgotten. An unusable file is
    /// reported, and does not keep the gateway from starting.
    pub fn open(config: &Config, path: &Path) -> Self {
        let Some(folder) = config.gateway.state_dir.folder() else { return Self::default() };
        let report = |fault: &str, error: &DisabledFileError| {
            tracing::error!("{fault}: {}", error_chain(error));
        };
        let file = match DisabledFile::open(folder, path) {
            Ok(file) => file,
            Err(error) => {
                report("disabled servers are enabled again", &error);
                return Self::default();
            }
        };
        // A damaged file is not replaced before a server is disabled.
        let servers = match file.read() {
            Ok(_) => {
                let stored = |stored: Option<DisabledServers>| stored.unwrap_or_default();
                let edited = file.edit(|it| stored(it).of_config(config));
                if let Err(error) = &edited.written {
                    report("a removed server is still noted as disabled", error);
                }
                edited.servers
            }
            Err(error) => {
                report("disabled servers are enabled again", &error);
                DisabledServers::default()
            }
        };
        for name in servers.names() {
            tracing::warn!(server = name, "disabled in an earlier run");
        }
        Self { servers, file: Some(file), shared: None }
    }

    /// Shares the disabled servers with other replicas. Those of the file are moved to the store; they
    /// are used alone as long as it cannot be reached.
    pub async fn sharing(
        mut self,
        records: Option<Arc<dyn SharedRecords>>,
        config: &Config,
    ) -> Self {
        let Some(records) = records else { return self };
        let shared = SharedDisabled::new(records, self.file.take(), self.servers.clone());
        match shared.edit(|all| all).await {
            Ok(servers) => self.servers = servers.of_config(config),
            Err(error) => {
                tracing::error!("servers may be enabled again: {}", error_chain(&error));
            }
        }
        Self { shared: Some(shared), ..self }
    }
}

/// The file of one configuration.
#[derive(Debug, Clone)]
pub struct DisabledFile {
    folder: OwnFolder,
    name: String,
}

/// The result of an edit of the file.
#[derive(Debug)]
pub struct EditedServers {
    /// The disabled servers.
    pub servers: DisabledServers,
    /// The outcome of writing them.
    pub written: Result<(), DisabledFileError>,
}

/// Faults of reading or writing the file.
#[derive(Debug, thiserror::Error)]
pub enum DisabledFileError {
    /// The folder cannot be used.
    #[error("the folder of disabled servers {} cannot be used", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: OwnFolderError,
    },
    /// The file cannot be read.
    #[error("the file of disabled servers cannot be read")]
    File(#[from] FileError),
    /// The file is damaged, or has other content.
    #[error("the file of disabled servers is damaged")]
    Damaged(#[source] serde_json::Error),
    /// The file cannot be written.
    #[error("the file of disabled servers cannot be written")]
    Write(#[source] io::Error),
}

impl DisabledFile {
    /// Opens the folder for a configuration file, and creates it if missing.
    ///
    /// # Errors
    /// [`DisabledFileError::Folder`].
    pub fn open(path: &Path, config: &Path) -> Result<Self, DisabledFileError> {
        let opened = OwnFolder::open(path).and_then(|folder| Ok((folder, place_of(config)?)));
        let (folder, place) =
            opened.map_err(|cause| DisabledFileError::Folder { path: path.to_owned(), cause })?;
        Ok(Self { folder, name: place + DISABLED_FILE_ENDING })
    }

    /// Reads the servers; none if there is no file.
    ///
    /// # Errors
    /// [`DisabledFileError`].
    pub fn read(&self) -> Result<DisabledServers, DisabledFileError> {
        let Some(bytes) = self.folder.read(&self.name, MAX_DISABLED_FILE_BYTES)? else {
            return Ok(DisabledServers::default());
        };
        serde_json::from_slice(&bytes).map_err(DisabledFileError::Damaged)
    }

    /// Reads the servers, edits them, and writes them if they have changed, under the folder's lock:
    /// other gateways with the same configuration file use it as well. `edit` gets `None` if the file
    /// cannot be read.
    pub fn edit(
        &self,
        edit: impl FnOnce(Option<DisabledServers>) -> DisabledServers,
    ) -> EditedServers {
        let lock = self.folder.lock(DISABLED_LOCK_FILE);
        let stored = lock.as_ref().ok().and_then(|_| self.read().ok());
        let servers = edit(stored.clone());
        let written = match lock {
            Ok(_) if stored.as_ref() == Some(&servers) => Ok(()),
            Ok(_) => self.write(&servers),
            Err(error) => Err(DisabledFileError::Write(error)),
        };
        EditedServers { servers, written }
    }

    fn write(&self, servers: &DisabledServers) -> Result<(), DisabledFileError> {
        let text = serde_json::to_vec(servers).map_err(io::Error::other);
        let written = text.and_then(|text| self.folder.replace(&self.name, &text));
        written.map_err(DisabledFileError::Write)
    }
}

/// The file that is locked for an edit: the file itself is replaced.
const DISABLED_LOCK_FILE: &str = "disabled.lock";
/// Suffix of the file's name.
const DISABLED_FILE_ENDING: &str = ".disabled.json";
/// Limit of the file's bytes: an entry has some hundred, and there is one for each server at most.
const MAX_DISABLED_FILE_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_servers_survive_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = DisabledFile::open(&path, Path::new("gateway.toml")).unwrap();
        assert_eq!(file.read().unwrap(), DisabledServers::default());
        let name = ServerName::new("s").unwrap();
        let entry = DisabledServer { by: "uid 7".into(), at: Timestamp::UNIX_EPOCH };
        let servers = DisabledServers::default().with(&name, entry.clone());
        file.edit(|_| servers.clone()).written.unwrap();
        assert_eq!(file.read().unwrap().find(&name), Some(&entry));
        assert_eq!(servers.without(&name), DisabledServers::default());
        assert_eq!(
            servers.of_config(&crate::upstream::tests::config(&[])),
            DisabledServers::default()
        );
        std::fs::write(path.join(&file.name), vec![b' '; MAX_DISABLED_FILE_BYTES + 1]).unwrap();
        assert!(matches!(file.read(), Err(DisabledFileError::File(FileError::TooLarge { .. }))));
        std::fs::write(path.join(&file.name), "{").unwrap();
        assert!(matches!(file.read(), Err(DisabledFileError::Damaged(_))));
        let edited = file.edit(|stored| stored.unwrap_or_else(|| servers.clone()));
        assert_eq!(edited.servers, servers);
        assert_eq!(file.read().unwrap(), servers);
    }

    #[test]
    fn edits_of_several_gateways_at_once_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let open = || DisabledFile::open(folder.path(), Path::new("gateway.toml")).unwrap();
        let disable = |number: usize| {
            let name = ServerName::new(format!("s{number}").as_str()).unwrap();
            let entry = DisabledServer { by: "uid 7".into(), at: Timestamp::UNIX_EPOCH };
            let edited = open().edit(|stored| stored.unwrap_or_default().with(&name, entry));
            edited.written.unwrap();
        };
        std::thread::scope(|threads| {
            for number in 0..16 {
                threads.spawn(move || disable(number));
            }
        });
        assert_eq!(open().read().unwrap().names().count(), 16);
    }
}
