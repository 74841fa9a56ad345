//! The file of daily quotas in `gateway.state_dir`, so that their counts survive a restart.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::codec::file::FileError;
use crate::codec::own_folder::{OwnFolder, OwnFolderError, place_of};

use super::{QuotaCounts, QuotaLedger};

/// The file of one configuration.
#[derive(Debug, Clone)]
pub struct QuotaFile {
    folder: OwnFolder,
    name: String,
}

/// Faults of reading or writing the file.
#[derive(Debug, thiserror::Error)]
pub enum QuotaFileError {
    /// The folder cannot be used.
    #[error("the folder of quotas {} cannot be used", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: OwnFolderError,
    },
    /// The file cannot be read.
    #[error("the file of quotas cannot be read")]
    File(#[from] FileError),
    /// The file is damaged, or has other content.
    #[error("the file of quotas is damaged")]
    Damaged(#[source] serde_json::Error),
    /// The file cannot be written.
    #[error("the file of quotas cannot be written")]
    Write(#[source] io::Error),
}

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct StoredQuotas {
    /// In days since 1970.
    day: u64,
    used: std::collections::BTreeMap<String, u64>,
}

impl QuotaFile {
    /// Opens the folder for a configuration file, and creates it if missing.
    ///
    /// # Errors
    /// [`QuotaFileError::Folder`].
    pub fn open(path: &Path, config: &Path) -> Result<Self, QuotaFileError> {
        let opened = OwnFolder::open(path).and_then(|folder| Ok((folder, place_of(config)?)));
        let (folder, place) =
            opened.map_err(|cause| QuotaFileError::Folder { path: path.to_owned(), cause })?;
        Ok(Self { folder, name: place + QUOTA_FILE_ENDING })
    }

    /// Reads the counts; empty if there is no file.
    ///
    /// # Errors
    /// [`QuotaFileError`].
    pub fn read(&self) -> Result<Arc<QuotaLedger>, QuotaFileError> {
        let Some(bytes) = self.folder.read(&self.name, MAX_FILE)? else {
            return Ok(Arc::default());
        };
        let StoredQuotas { day, used } =
            serde_json::from_slice(&bytes).map_err(QuotaFileError::Damaged)?;
        Ok(Arc::new(QuotaLedger::with_counts(QuotaCounts { day, used, is_changed: false })))
    }

    /// Writes the counts, if they have changed.
    ///
    /// # Errors
    /// [`QuotaFileError::Write`].
    pub fn write_changes(&self, ledger: &QuotaLedger) -> Result<(), QuotaFileError> {
        let Some(QuotaCounts { day, used, .. }) = ledger.take_changed() else { return Ok(()) };
        let text = serde_json::to_vec(&StoredQuotas { day, used }).map_err(io::Error::other);
        let written = text.and_then(|text| self.folder.replace(&self.name, &text));
        written.map_err(|error| {
            ledger.mark_changed();
            QuotaFileError::Write(error)
        })
    }
}

/// Suffix of the file's name.
const QUOTA_FILE_ENDING: &str = ".quotas.json";
/// Limit of the file's bytes: the number of counts is bounded, and their names are short.
const MAX_FILE: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::policy::quotas::ChargedQuota;

    #[test]
    fn counts_survive_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = QuotaFile::open(&path, Path::new("gateway.toml")).unwrap();
        let quotas =
            [ChargedQuota { limit: "q".into(), holder: Some("client ci".into()), most: 1 }];
        let (one, now) = (NonZeroU32::MIN, Duration::from_hours(24 * 20_000));
        let ledger = file.read().unwrap();
        ledger.charge(&quotas, one, now).unwrap();
        file.write_changes(&ledger).unwrap();
        let again = file.read().unwrap();
        assert!(again.charge(&quotas, one, now).is_err());
        std::fs::write(path.join(&file.name), "{").unwrap();
        assert!(matches!(file.read(), Err(QuotaFileError::Damaged(_))));
        // No changes since.
        file.write_changes(&ledger).unwrap();
        assert!(file.read().is_err());
    }
}
