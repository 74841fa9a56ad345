//! The last versions of the configuration file that were applied, in `gateway.state_dir`.
//!
//! Each version is a file of its own with its text, exactly as it was on disk: with comments, and
//! with literal secrets if the configuration has any. Only the gateway's user can read it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::admin::{ConfigActor, ConfigVersion, Expiry, StatusReport, VersionError};
use crate::cli::serve::loaded_file;
use crate::codec::own_folder::{OwnFolder, place_of};
use crate::config::ConfigSource;
use crate::text::error_chain;

/// The stored versions of one configuration file.
#[derive(Debug, Clone)]
pub(crate) struct ConfigHistory {
    folder: OwnFolder,
    /// Beginning of the names of this configuration's files.
    prefix: String,
}

/// A version in its file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredVersion {
    #[serde(flatten)]
    pub(super) version: ConfigVersion,
    pub(super) text: String,
}

/// A text that was applied.
#[derive(Debug)]
pub(crate) struct AppliedText {
    /// The file.
    pub(crate) source: ConfigSource,
    /// The party that had it applied.
    pub(crate) actor: ConfigActor,
    /// The changes, in words.
    pub(crate) summary: String,
}

impl ConfigHistory {
    /// Opens the versions of a configuration file in the state folder that the gateway has used since
    /// its start.
    ///
    /// # Errors
    /// [`VersionError`].
    pub(crate) fn open(folder: Option<&Path>, path: &Path) -> Result<Self, VersionError> {
        let folder = folder.ok_or(VersionError::NoStateDir)?;
        let prefix = format!("{}{VERSION_WORD}", place_of(path)?);
        Ok(Self { folder: OwnFolder::open(folder)?, prefix })
    }

    /// Returns all versions, the newest first. Leaves out those that cannot be read.
    pub(super) fn list(&self) -> Result<Vec<ConfigVersion>, VersionError> {
        let mut versions = Vec::new();
        for number in self.numbers()?.into_iter().rev() {
            match self.read(number) {
                Ok(stored) => versions.push(stored.version),
                Err(error) => tracing::warn!("{}", error_chain(&error)),
            }
        }
        Ok(versions)
    }

    /// Reads a version.
    pub(super) fn read(&self, number: u64) -> Result<StoredVersion, VersionError> {
        let bytes = self.folder.read(&self.file_name(number), MAX_VERSION_BYTES)?;
        let bytes = bytes.ok_or(VersionError::Unknown { number })?;
        serde_json::from_slice(&bytes).map_err(|_| VersionError::Damaged { number })
    }

    /// Adds a text as the newest version, and removes the oldest ones. Does nothing if the newest
    /// version has this text.
    pub(crate) fn keep(&self, applied: AppliedText) -> Result<(), VersionError> {
        let AppliedText { source, actor, summary } = applied;
        let _lock = self.folder.lock(LOCK_FILE)?;
        let digest = source.digest();
        let numbers = self.numbers()?;
        let newest = numbers.last().copied().unwrap_or_default();
        if self.read(newest).is_ok_and(|stored| stored.version.digest == digest) {
            return Ok(());
        }
        let number = newest + 1;
        let (applied_at, applied_by) = (Timestamp::now(), actor);
        let version = ConfigVersion { number, digest, applied_at, applied_by, summary };
        // A configuration that was applied is UTF-8.
        let text = String::from_utf8(source.bytes).unwrap_or_default();
        let bytes =
            serde_json::to_vec(&StoredVersion { version, text }).map_err(io::Error::from)?;
        self.folder.replace(&self.file_name(number), &bytes)?;
        let surplus = (numbers.len() + 1).saturating_sub(MAX_VERSIONS);
        for number in numbers.into_iter().take(surplus) {
            fs::remove_file(self.folder.path().join(self.file_name(number)))?;
        }
        Ok(())
    }

    /// Returns the numbers of all versions, in order.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for file in fs::read_dir(self.folder.path())? {
            let name = file?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&self.prefix));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn file_name(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }
}

/// Notes the file of a gateway that starts, and keeps the last uses from now on. The text is the one
/// that was read: the file may have changed since.
pub(crate) async fn note_start(
    report: &Arc<StatusReport>,
    path: &Path,
    source: ConfigSource,
    expiries: Vec<Expiry>,
) {
    let actor = ConfigActor::Start;
    report.loaded(path, loaded_file(&source, expiries, actor.clone()));
    let config = report.configured();
    let folder = config.gateway.state_dir.folder();
    if let Some(folder) = folder {
        report.keep_uses(folder, path).await;
    }
    let text = AppliedText { source, actor, summary: "the gateway has started".to_owned() };
    keep_version(folder, path, text).await;
}

/// Adds a text to the versions of a configuration, if there is a folder for them, on a blocking
/// thread. A fault is reported in the log: the configuration is in force in any case.
pub(crate) async fn keep_version(folder: Option<&Path>, path: &Path, text: AppliedText) {
    if folder.is_none() {
        return;
    }
    let opened = ConfigHistory::open(folder, path);
    let kept = tokio::task::spawn_blocking(move || opened.and_then(|history| history.keep(text)));
    if let Ok(Err(error)) = kept.await {
        tracing::warn!("a version of the configuration is not kept: {}", error_chain(&error));
    }
}

/// Number of versions that are kept.
const MAX_VERSIONS: usize = 10;
/// Limit of the bytes of a version: JSON may need several bytes for one of the text.
const MAX_VERSION_BYTES: usize = 8 * ConfigSource::MAX_LEN;
const VERSION_WORD: &str = ".version-";
const LOCK_FILE: &str = "versions.lock";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn ten_versions_stay_and_numbers_are_not_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = "x.version-".to_owned();
        let history = ConfigHistory { folder: OwnFolder::open(folder.path()).unwrap(), prefix };
        let keep = |text: String| {
            let (name, bytes) = ("gateway.toml".into(), text.into_bytes());
            let source = ConfigSource { name, folder: "/".into(), bytes };
            let summary = "changed".to_owned();
            history.keep(AppliedText { source, actor: ConfigActor::Signal, summary }).unwrap();
        };
        for number in 1..=13 {
            keep(format!("# {number}\n"));
            keep(format!("# {number}\n"));
        }
        let numbers: Vec<_> = history.list().unwrap().iter().map(|it| it.number).collect();
        assert_eq!(numbers, (4..=13).rev().collect::<Vec<_>>());
        assert_eq!(history.read(13).unwrap().text, "# 13\n");
        assert!(matches!(history.read(3), Err(VersionError::Unknown { number: 3 })));
        let path = folder.path().join("x.version-13");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::write(&path, "{").unwrap();
        assert!(matches!(history.read(13), Err(VersionError::Damaged { number: 13 })));
        assert_eq!(history.list().unwrap().len(), 9, "the others are listed");
    }
}
