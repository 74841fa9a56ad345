//! Files of baselines: one for each server. The gateway and `trunkline pin` both change them, under
//! a lock.
//!
//! The first line has a digest of the rest. A damaged file is an error that names the file, and is
//! neither used nor written: a new baseline would accept definitions that the old one did not.

use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use crate::call::ServerName;
use crate::codec::file::FileError;
use crate::codec::own_folder::{OwnFolder, OwnFolderError, place_of};
use crate::crypto::sha256;

use super::record::{BaselineChange, BaselineRecord};

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

    /// Approves pending definitions of a server: those with these names, or all.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn approve(
        &self,
        server: &ServerName,
        names: &[String],
    ) -> Result<Vec<(crate::catalog::DefinitionKind, String)>, BaselineError> {
        self.edit(server, |record| record.approve(names)).map(|(_, approved)| approved)
    }

    /// Approves the definitions of a server whose pending forms all have one of these digests, in
    /// hexadecimal digits: one that has changed since an operator saw it stays pending.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn approve_forms(
        &self,
        server: &ServerName,
        digests: &[String],
    ) -> Result<Vec<(crate::catalog::DefinitionKind, String)>, BaselineError> {
        self.edit(server, |record| record.approve_forms(digests)).map(|(_, approved)| approved)
    }

    /// Rejects the pending forms of a server with these digests, in hexadecimal digits. They stay
    /// held, and are not reported any more.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn reject_forms(
        &self,
        server: &ServerName,
        digests: &[String],
    ) -> Result<Vec<(crate::catalog::DefinitionKind, String)>, BaselineError> {
        self.edit(server, |record| record.reject_forms(digests)).map(|(_, rejected)| rejected)
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
