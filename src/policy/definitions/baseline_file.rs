//! Files of baselines: one for each server. The gateway and `trunkline pin` both change them, under
//! a lock.
//!
//! The first line has a digest of the rest. A damaged file is an error that names the file, and is
//! neither used nor written: a new baseline would accept definitions that the old one did not.

use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use crate::call::ServerName;
use crate::catalog::DefinitionKind;
use crate::codec::file::FileError;
use crate::codec::own_folder::{OwnFolder, OwnFolderError, place_of};
use crate::crypto::sha256;
use crate::shared_records::SharingFault;

use super::record::{BaselineChange, BaselineRecord, PinDecision};

/// Faults of reading or writing a baseline.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The folder cannot be used.
    #[error("the folder of baselines {} cannot be used", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: OwnFolderError,
    },
    /// The file cannot be read.
    #[error("the baseline {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: FileError,
    },
    /// The file is damaged, or is not a baseline.
    #[error(
        "the baseline {} is damaged: restore it, or remove it to accept the server's current lists",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("the baseline {} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: io::Error,
    },
    /// The work with files was interrupted.
    #[error("the baseline cannot be read or written")]
    Interrupted(#[source] io::Error),
    /// The store of the replicas cannot be used.
    #[error(transparent)]
    Sharing(#[from] SharingFault),
    /// The record in the store of the replicas cannot be opened.
    #[error(
        "the accepted definitions of {server} in the store of the gateway's replicas were changed, or \
         are sealed with a key that `gateway.state_keys` does not have"
    )]
    Unreadable {
        /// The server.
        server: ServerName,
    },
    /// The record is too large for the store of the replicas.
    #[error(
        "the known definitions of {server} have {bytes} bytes, and the store of the gateway's replicas \
         takes at most {limit}: use fewer tools and resources, or `pins = \"off\"`"
    )]
    TooLarge {
        /// The server.
        server: ServerName,
        /// The size of its record, sealed.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// The folder with the baselines of one configuration file.
#[derive(Debug, Clone)]
pub struct BaselineFolder {
    folder: OwnFolder,
    /// Suffix of the names of this configuration's files.
    ending: String,
}

impl BaselineFolder {
    /// Opens the folder for a configuration file, and creates it if missing.
    ///
    /// # Errors
    /// [`BaselineError::Folder`].
    pub fn open(path: &Path, config: &Path) -> Result<Self, BaselineError> {
        let opened = OwnFolder::open(path).and_then(|folder| Ok((folder, place_of(config)?)));
        let (folder, place) =
            opened.map_err(|cause| BaselineError::Folder { path: path.to_owned(), cause })?;
        Ok(Self { folder, ending: format!(".{place}{BASELINE_ENDING}") })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns true if a file in the folder is a baseline of this configuration.
    pub fn has_file(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|path| path.ends_with(&self.ending))
    }

    /// Reads the baseline of a server; an empty one if there is none.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn read(&self, server: &ServerName) -> Result<BaselineRecord, BaselineError> {
        let (name, path) = (self.file_name(server), self.file(server));
        match self.folder.read(&name, MAX_BASELINE) {
            Ok(None) => Ok(BaselineRecord::default()),
            Ok(Some(bytes)) => parse_file(&bytes).ok_or(BaselineError::Damaged { path }),
            Err(cause) => Err(BaselineError::File { path, cause }),
        }
    }

    /// Decides about the pending forms of a server with these digests, in hexadecimal digits. A form that
    /// has changed since an operator saw it stays pending; a rejected one stays held.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn decide(
        &self,
        decision: PinDecision,
        server: &ServerName,
        digests: &[String],
    ) -> Result<Vec<(DefinitionKind, String)>, BaselineError> {
        self.edit(server, |record| record.decide(decision, digests)).map(|(_, decided)| decided)
    }

    /// Writes the baseline that a server has in the store of the replicas. Decisions in the file that
    /// are not in the store yet stay.
    pub(super) fn copy_shared(
        &self,
        server: &ServerName,
        shared: &BaselineRecord,
    ) -> Result<(), BaselineError> {
        let copy = |record: &mut BaselineRecord| {
            let before = std::mem::replace(record, shared.clone());
            record.adopt(&before);
        };
        self.edit(server, copy).map(drop)
    }

    /// Applies changes to the baseline of a server, and returns the result.
    pub(super) fn update(
        &self,
        server: &ServerName,
        changes: &[BaselineChange],
    ) -> Result<BaselineRecord, BaselineError> {
        if changes.is_empty() {
            return self.read(server);
        }
        let apply = |record: &mut BaselineRecord| {
            for change in changes {
                record.apply(change.clone());
            }
        };
        self.edit(server, apply).map(|(record, ())| record)
    }

    /// Reads a baseline, edits it, and writes it if it has changed, under the folder's lock.
    fn edit<T>(
        &self,
        server: &ServerName,
        edit: impl FnOnce(&mut BaselineRecord) -> T,
    ) -> Result<(BaselineRecord, T), BaselineError> {
        let written = |cause| BaselineError::Write { path: self.file(server), cause };
        let _lock = self.folder.lock(LOCK_FILE).map_err(written)?;
        let before = self.read(server)?;
        let mut record = before.clone();
        let edited = edit(&mut record);
        if record != before {
            let bytes = write_file(&record).map_err(written)?;
            self.folder.replace(&self.file_name(server), &bytes).map_err(written)?;
        }
        Ok((record, edited))
    }

    fn file(&self, server: &ServerName) -> PathBuf {
        self.folder.path().join(self.file_name(server))
    }

    fn file_name(&self, server: &ServerName) -> String {
        format!("{server}{}", self.ending)
    }
}

fn parse_file(bytes: &[u8]) -> Option<BaselineRecord> {
    let rest = bytes.strip_prefix(BASELINE_MAGIC)?;
    let (digest, record) = rest.split_at_checked(DIGEST_CHARS)?;
    let record = record.strip_prefix(b"\n")?;
    if digest != HEXLOWER.encode(&sha256(record)).as_bytes() {
        return None;
    }
    serde_json::from_slice(record).ok()
}

fn write_file(record: &BaselineRecord) -> io::Result<Vec<u8>> {
    let record = serde_json::to_vec_pretty(record)?;
    let digest = HEXLOWER.encode(&sha256(&record));
    let file = [BASELINE_MAGIC, digest.as_bytes(), b"\n", &record].concat();
    if file.len() > MAX_BASELINE {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(file)
}

/// Prefix of every file; the number is the format's version.
const BASELINE_MAGIC: &[u8] = b"trunkline definitions 1 ";
/// Number of hexadecimal digits of SHA-256.
const DIGEST_CHARS: usize = 64;
/// Limit of a file's bytes.
const MAX_BASELINE: usize = 64 << 20;
const BASELINE_ENDING: &str = ".pins";
const LOCK_FILE: &str = "pins.lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_is_neither_written_nor_read() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("gateway.toml");
        let baselines = BaselineFolder::open(&folder.path().join("pins"), &config).unwrap();
        let server = ServerName::new("s").unwrap();
        let form = serde_json::json!({
            "sha256": "1".repeat(64), "basis": "seen", "definition": "x".repeat(MAX_BASELINE),
        });
        let large = serde_json::json!({ "tools": { "add": { "accepted": [form] } } });
        let large: BaselineRecord = serde_json::from_value(large).unwrap();
        let refused = baselines.copy_shared(&server, &large);
        assert!(matches!(refused, Err(BaselineError::Write { .. })), "{refused:?}");
        assert_eq!(baselines.read(&server).unwrap(), BaselineRecord::default());
        std::fs::write(baselines.file(&server), vec![b' '; MAX_BASELINE + 1]).unwrap();
        assert!(matches!(baselines.read(&server), Err(BaselineError::File { .. })));
    }
}
