//! The file of quotas in `gateway.state_dir`, so that their counts survive a restart.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use crate::codec::file::FileError;
use crate::codec::own_folder::{OwnFolder, OwnFolderError, place_of};

use super::{QuotaCounts, QuotaLedger, WindowCounts};

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
#[serde(deny_unknown_fields)]
struct StoredQuotas {
    windows: Vec<StoredWindow>,
}

/// Counts of one window.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredWindow {
    /// Its length.
    seconds: NonZeroU64,
    /// Its number since 1970.
    number: u64,
    used: BTreeMap<String, u64>,
}

/// Content of the file as earlier versions wrote it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredDay {
    /// In days since 1970.
    day: u64,
    used: BTreeMap<String, u64>,
}

/// Content of either form.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredContent {
    Windows(StoredQuotas),
    Day(StoredDay),
}

impl StoredContent {
    /// Returns the windows, which have different lengths.
    fn into_counts(self) -> serde_json::Result<QuotaCounts> {
        let stored = match self {
            Self::Windows(StoredQuotas { windows }) => windows,
            Self::Day(StoredDay { day, used }) => {
                vec![StoredWindow { seconds: DAY_SECONDS, number: day, used }]
            }
        };
        if stored.len() > MAX_WINDOWS {
            return Err(serde_json::Error::custom(format_args!("more than {MAX_WINDOWS} windows")));
        }
        let mut windows = BTreeMap::new();
        for StoredWindow { seconds, number, used } in stored {
            if windows.insert(seconds, WindowCounts { number, used }).is_some() {
                let error = format_args!("two windows of {seconds} seconds");
                return Err(serde_json::Error::custom(error));
            }
        }
        Ok(QuotaCounts { windows, is_changed: false })
    }
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
        let counts = serde_json::from_slice(&bytes).and_then(StoredContent::into_counts);
        Ok(Arc::new(QuotaLedger::with_counts(counts.map_err(QuotaFileError::Damaged)?)))
    }

    /// Writes the counts, if they have changed.
    ///
    /// # Errors
    /// [`QuotaFileError::Write`].
    pub fn write_changes(&self, ledger: &QuotaLedger) -> Result<(), QuotaFileError> {
        let Some(QuotaCounts { windows, .. }) = ledger.take_changed() else { return Ok(()) };
        let used = windows.into_iter().filter(|(_, counts)| !counts.used.is_empty());
        let windows = used.map(|(seconds, WindowCounts { number, used })| StoredWindow {
            seconds,
            number,
            used,
        });
        let stored = StoredQuotas { windows: windows.collect() };
        let text = serde_json::to_vec(&stored).map_err(io::Error::other);
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

/// Limit of the windows: there is one for each unit of time.
const MAX_WINDOWS: usize = 16;
/// The length of the windows in the earlier form of the file.
const DAY_SECONDS: NonZeroU64 = NonZeroU64::new(86_400).unwrap();

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::config::{CountUnit, Quota};
    use crate::policy::quotas::ChargedQuota;

    const NOW: Duration = Duration::from_hours(24 * 20_000);
    const ONE: NonZeroU32 = NonZeroU32::MIN;

    fn quotas(unit: CountUnit) -> [ChargedQuota; 1] {
        let setting = Quota { count: ONE, unit };
        [ChargedQuota { limit: "q".into(), holder: Some("client ci".into()), setting }]
    }

    #[test]
    fn counts_survive_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = QuotaFile::open(&path, Path::new("gateway.toml")).unwrap();
        let ledger = file.read().unwrap();
        let units = [CountUnit::Second, CountUnit::Minute, CountUnit::Hour, CountUnit::Day];
        for unit in units {
            ledger.charge(&quotas(unit), ONE, NOW).unwrap();
        }
        file.write_changes(&ledger).unwrap();
        for unit in units {
            let again = file.read().unwrap();
            assert!(again.charge(&quotas(unit), ONE, NOW).is_err(), "{unit:?}");
            again.charge(&quotas(unit), ONE, NOW + unit.length()).unwrap();
        }
        // A second later, the counts of the second are no longer written.
        let again = file.read().unwrap();
        again.check(&quotas(CountUnit::Second), ONE, NOW + Duration::from_secs(1)).unwrap();
        file.write_changes(&again).unwrap();
        let text = std::fs::read_to_string(path.join(&file.name)).unwrap();
        assert!(text.contains("60") && !text.contains(r#"{"seconds":1,"#), "{text}");
        for damaged in [
            "{",
            "{}",
            r#"{"day":1}"#,
            r#"{"windows":[{"seconds":0,"number":1,"used":{}}]}"#,
            r#"{"windows":[{"seconds":60,"number":-1,"used":{}}]}"#,
            r#"{"windows":[{"seconds":60,"number":1,"used":{"q":"1"}}]}"#,
            r#"{"windows":[{"seconds":60,"number":1,"used":{}},{"seconds":60,"number":2,"used":{}}]}"#,
            &many_windows(MAX_WINDOWS + 1),
        ] {
            std::fs::write(path.join(&file.name), damaged).unwrap();
            assert!(matches!(file.read(), Err(QuotaFileError::Damaged(_))), "{damaged}");
            // No changes since.
            file.write_changes(&ledger).unwrap();
            assert!(file.read().is_err());
        }
        std::fs::write(path.join(&file.name), many_windows(MAX_WINDOWS)).unwrap();
        assert_eq!(file.read().unwrap().counts.lock().windows.len(), MAX_WINDOWS);
    }

    fn many_windows(count: usize) -> String {
        let window = |seconds| format!(r#"{{"seconds":{seconds},"number":1,"used":{{}}}}"#);
        let windows: Vec<_> = (1..=count).map(window).collect();
        format!(r#"{{"windows":[{}]}}"#, windows.join(","))
    }

    #[test]
    fn the_file_of_an_earlier_version_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = QuotaFile::open(&path, Path::new("gateway.toml")).unwrap();
        let earlier = r#"{"day":20000,"used":{"q client ci":1}}"#;
        std::fs::write(path.join(&file.name), earlier).unwrap();
        let ledger = file.read().unwrap();
        assert!(ledger.charge(&quotas(CountUnit::Day), ONE, NOW).is_err());
        ledger.charge(&quotas(CountUnit::Hour), ONE, NOW).unwrap();
        file.write_changes(&ledger).unwrap();
        let again = file.read().unwrap();
        for unit in [CountUnit::Day, CountUnit::Hour] {
            assert!(again.charge(&quotas(unit), ONE, NOW).is_err(), "{unit:?}");
        }
        again.charge(&quotas(CountUnit::Day), ONE, NOW + CountUnit::Day.length()).unwrap();
    }

    #[test]
    fn a_window_of_an_absurd_time_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = QuotaFile::open(&path, Path::new("gateway.toml")).unwrap();
        for number in [0, u64::MAX] {
            let window = format!(r#"{{"day":{number},"used":{{"q client ci":1}}}}"#);
            std::fs::write(path.join(&file.name), window).unwrap();
            let ledger = file.read().unwrap();
            ledger.charge(&quotas(CountUnit::Day), ONE, NOW).unwrap();
            assert!(ledger.charge(&quotas(CountUnit::Day), ONE, NOW).is_err(), "{number}");
        }
    }
}
