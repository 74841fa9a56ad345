//! A folder that only the gateway's own user can write to, with files that are replaced whole or not
//! at all.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use super::file::{FileError, is_own, read_own_file};
use super::replace_file::{Draft, remove_abandoned_drafts, replace_file};
use crate::clock;
use crate::crypto::sha256;

/// Reasons that a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OwnFolderError {
    /// The system's error.
    #[error("cannot create or read it")]
    System(#[from] io::Error),
    /// The path is not a folder.
    #[error("expected a folder")]
    NotFolder,
    /// Another user owns the folder, or may write to it.
    #[error("expected a folder that only the gateway's own user can write to")]
    Foreign,
}

/// The folder.
#[derive(Debug, Clone)]
pub struct OwnFolder(PathBuf);

impl OwnFolder {
    /// Opens the folder, and creates it if missing. Removes drafts of killed processes.
    ///
    /// # Errors
    /// [`OwnFolderError`].
    pub fn open(path: &Path) -> Result<Self, OwnFolderError> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)?;
        let metadata = fs::metadata(path)?;
        if !metadata.is_dir() {
            return Err(OwnFolderError::NotFolder);
        }
        if !is_own(&metadata) {
            return Err(OwnFolderError::Foreign);
        }
        remove_abandoned_drafts(path, clock::wall_now());
        Ok(Self(path.to_owned()))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read(&self, name: &str, max: usize) -> Result<Option<Vec<u8>>, FileError> {
        match read_own_file(&self.0.join(name), max) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(FileError::System(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file; see [`replace_file`].
    ///
    /// # Errors
    /// The system's error.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        replace_file(&self.0.join(name), bytes, FILE_MODE)
    }

    /// Creates a file with this content. If several processes do so at once, one of them creates
    /// it.
    ///
    /// # Errors
    /// The system's error, `AlreadyExists` if the file exists.
    pub fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut draft = Draft::create(&self.0.join(name), FILE_MODE)?;
        draft.file().write_all(bytes)?;
        draft.commit_new().map(drop)
    }

    /// Waits for the exclusive lock of this name. It is held until the returned file is dropped.
    ///
    /// # Errors
    /// The system's error.
    pub fn lock(&self, name: &str) -> io::Result<File> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(FILE_MODE);
        let file = options.open(self.0.join(name))?;
        file.lock()?;
        Ok(file)
    }
}

/// Returns a short name for the path of a configuration file: several gateways may share a folder.
///
/// # Errors
/// The system's error, if the current folder is unknown.
pub fn place_of(config: &Path) -> io::Result<String> {
    let digest = sha256(std::path::absolute(config)?.as_os_str().as_bytes());
    Ok(HEXLOWER.encode(digest.first_chunk::<8>().unwrap_or(&[0; 8])))
}

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
