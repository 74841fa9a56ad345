//! The last uses of elements and of clients' keys. In `gateway.state_dir` they survive a restart:
//! otherwise an element that was used yesterday would look unused.
//!
//! They are collected from levels that calls set anyway, on a timer and at the stop.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::admin::StatusReport;
use crate::call::NativeName;
use crate::catalog::Kind;
use crate::clock;
use crate::codec::own_folder::{OwnFolder, place_of};
use crate::config::ClientKey;
use crate::identity::ApiKey;
use crate::snapshot::{Snapshot, SnapshotServer};
use crate::telemetry::metrics::{Metrics, UsedElement};
use crate::text::error_chain;

use super::time;

/// The last uses of this run and of earlier ones.
#[derive(Default)]
pub(crate) struct KeptUses {
    /// Shared, because each status and each page reads them.
    times: Mutex<Arc<UseTimes>>,
    file: OnceLock<UseFile>,
}

/// Times of last uses, in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UseTimes {
    /// Start of the first run that kept them; 0 if none are kept.
    since: u64,
    /// By server, kind and native name.
    elements: BTreeMap<String, u64>,
    /// By the first digits of a key's SHA-256.
    keys: BTreeMap<String, u64>,
}

/// The file of one configuration.
struct UseFile {
    folder: OwnFolder,
    name: String,
}

/// Reasons that the file cannot be used.
#[derive(Debug, thiserror::Error)]
enum UseFileError {
    /// The folder or the file cannot be read or written.
    #[error("the file of last uses cannot be read or written")]
    File(#[source] io::Error),
    /// The file has other content.
    #[error("the file of last uses is damaged")]
    Damaged(#[source] serde_json::Error),
}

impl UseTimes {
    /// Returns the time from which on uses are known; `None` if none of earlier runs are.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        Some(self.since).filter(|since| *since > 0).map(wall_time_at)
    }

    /// Returns the last use of an element in earlier runs, or in this one up to the last collection.
    pub(crate) fn element(&self, server: &str, kind: Kind, native: &str) -> Option<Timestamp> {
        self.elements.get(&element_key(server, kind, native)).copied().map(wall_time_at)
    }

    /// Returns the last use of a key.
    pub(crate) fn key(&self, key: &ClientKey) -> Option<Timestamp> {
        self.keys.get(&key.hash.abbreviation()).copied().map(wall_time_at)
    }

    fn note(times: &mut BTreeMap<String, u64>, key: String, at: SystemTime) {
        let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let known = times.entry(key).or_insert(at);
        *known = at.max(*known);
    }

    /// Adds the times of another process.
    fn merge(&mut self, other: Self) {
        if other.since > 0 && other.since < self.since {
            self.since = other.since;
        }
        for (mine, theirs) in [(&mut self.elements, other.elements), (&mut self.keys, other.keys)] {
            for (key, at) in theirs {
                let known = mine.entry(key).or_insert(at);
                *known = at.max(*known);
            }
        }
    }

    /// Adds the uses of this run.
    fn collect(&mut self, snapshot: &Snapshot, metrics: &Metrics) {
        for member in snapshot.servers() {
            for list in member.server.known_lists() {
                for one in list.definitions() {
                    let Some(kind) = one.kind.listed() else { continue };
                    let Some(at) = last_use(metrics, member, kind, one.native) else { continue };
                    let server = member.config.name.as_str();
                    let key = element_key(server, kind, one.native.as_str());
                    Self::note(&mut self.elements, key, at);
                }
            }
        }
        for key in snapshot.config.clients.iter().flat_map(|client| &client.keys) {
            let used = snapshot.identity.key(&key.hash).and_then(ApiKey::last_use);
            let Some(since_1970) = used else { continue };
            let at = SystemTime::UNIX_EPOCH + since_1970;
            Self::note(&mut self.keys, key.hash.abbreviation(), at);
        }
    }

    /// Removes the oldest entries beyond the limit.
    fn keep_newest(&mut self) {
        keep_newest(&mut self.elements);
        keep_newest(&mut self.keys);
    }
}

impl KeptUses {
    /// Returns the times.
    pub(crate) fn times(&self) -> Arc<UseTimes> {
        Arc::clone(&self.times.lock())
    }
}

impl UseFile {
    fn open(folder: &Path, config: &Path) -> Result<Self, UseFileError> {
        let place = place_of(config).map_err(UseFileError::File)?;
        let folder = OwnFolder::open(folder).map_err(io::Error::other);
        Ok(Self { folder: folder.map_err(UseFileError::File)?, name: place + USE_FILE_ENDING })
    }

    fn read(&self) -> Result<UseTimes, UseFileError> {
        let read = self.folder.read(&self.name, MAX_USE_FILE_BYTES).map_err(io::Error::other);
        let Some(bytes) = read.map_err(UseFileError::File)? else { return Ok(UseTimes::default()) };
        serde_json::from_slice(&bytes).map_err(UseFileError::Damaged)
    }

    fn write(&self, times: &UseTimes) -> Result<(), UseFileError> {
        let text = serde_json::to_vec(times).map_err(UseFileError::Damaged)?;
        self.folder.replace(&self.name, &text).map_err(UseFileError::File)
    }
}

impl StatusReport {
    /// Reads the last uses of earlier runs, and keeps those of this one in the folder from now on. A
    /// fault is reported: then the uses of earlier runs are not known.
    pub async fn keep_uses(self: &Arc<Self>, folder: &Path, config: &Path) {
        let (folder, config) = (folder.to_owned(), config.to_owned());
        let open = move || {
            let file = UseFile::open(&folder, &config)?;
            let times = file.read();
            Ok::<_, UseFileError>((file, times))
        };
        let (file, read) = match spawn_blocking(open).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                tracing::warn!("last uses do not survive a restart: {}", error_chain(&error));
                return;
            }
            Err(_) => return,
        };
        let mut times = read.unwrap_or_else(|error| {
            tracing::warn!("last uses of earlier runs are unknown: {}", error_chain(&error));
            UseTimes::default()
        });
        if times.since == 0 {
            times.since = u64::try_from(self.started_at.as_second()).unwrap_or_default();
        }
        *self.uses.times.lock() = times.into();
        let _ = self.uses.file.set(file);
        let report = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(COLLECTION_INTERVAL).await;
                let Some(report) = report.upgrade() else { return };
                report.write_uses().await;
            }
        });
    }

    /// Collects the last uses, and writes them if they have changed.
    pub async fn write_uses(self: &Arc<Self>) {
        let report = Arc::clone(self);
        let write = move || {
            let Some(file) = report.uses.file.get() else { return Ok(()) };
            let before = report.uses.times();
            let mut times = UseTimes::clone(&before);
            times.collect(&report.gateway.snapshots.load(), &report.gateway.metrics);
            times.keep_newest();
            if times == *before {
                return Ok(());
            }
            // Hosts may start several gateways of one configuration.
            let _lock = file.folder.lock(USE_LOCK_FILE).map_err(UseFileError::File)?;
            times.merge(file.read().unwrap_or_default());
            times.keep_newest();
            file.write(&times)?;
            *report.uses.times.lock() = times.into();
            Ok::<_, UseFileError>(())
        };
        if let Ok(Err(error)) = spawn_blocking(write).await {
            tracing::warn!("last uses are not written: {}", error_chain(&error));
        }
    }
}

/// Returns the time of the last call of an element in this run.
pub(crate) fn last_use(
    metrics: &Metrics,
    member: &SnapshotServer,
    kind: Kind,
    native: &NativeName,
) -> Option<SystemTime> {
    let server = member.config.name.as_str();
    let used = match kind {
        Kind::Tools => metrics.last_tool_use(server, native.as_str()),
        Kind::Prompts => member.metrics.last_use(UsedElement::Prompt, native.as_str()),
        Kind::Resources | Kind::Templates => {
            member.metrics.last_use(UsedElement::Resource, native.as_str())
        }
        Kind::Skills => None,
    };
    let age = clock::now().saturating_duration_since(used?);
    Some(clock::wall_now() - age)
}

fn element_key(server: &str, kind: Kind, native: &str) -> String {
    format!("{server} {} {native}", kind.member())
}

fn wall_time_at(seconds: u64) -> Timestamp {
    time(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Removes the oldest entries beyond the limit.
fn keep_newest(times: &mut BTreeMap<String, u64>) {
    if times.len() <= MAX_KEPT_USES {
        return;
    }
    let mut ends: Vec<u64> = times.values().copied().collect();
    ends.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
    let oldest = ends.get(MAX_KEPT_USES).copied().unwrap_or_default();
    times.retain(|_, at| *at > oldest);
}

/// Lock of the files in a folder.
const USE_LOCK_FILE: &str = "uses.lock";
/// Suffix of the file's name.
const USE_FILE_ENDING: &str = ".uses.json";
/// Limit of the entries of each kind.
const MAX_KEPT_USES: usize = 50_000;
/// Limit of the bytes of the file.
const MAX_USE_FILE_BYTES: usize = 64 << 20;
/// Interval between collections: a killed process loses at most the uses of this time.
const COLLECTION_INTERVAL: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_keeps_the_times_and_a_damaged_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let file = UseFile::open(&path, Path::new("gateway.toml")).unwrap();
        assert_eq!(file.read().unwrap(), UseTimes::default());
        let mut times = UseTimes { since: 1_800_000_000, ..UseTimes::default() };
        times.merge(UseTimes { since: 1_900_000_000, ..UseTimes::default() });
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_005);
        UseTimes::note(&mut times.elements, element_key("s", Kind::Tools, "echo"), at);
        file.write(&times).unwrap();
        let read = file.read().unwrap();
        assert_eq!(read.element("s", Kind::Tools, "echo"), Some(time(at)));
        assert_eq!(read.element("s", Kind::Prompts, "echo"), None);
        assert_eq!(read.since().unwrap().as_second(), 1_800_000_000);
        std::fs::write(path.join(&file.name), "{").unwrap();
        assert!(matches!(file.read(), Err(UseFileError::Damaged(_))));
    }

    #[test]
    fn the_newest_uses_are_kept_within_the_limit() {
        let time = |number: usize| (format!("{number:06}"), number as u64);
        let mut times: BTreeMap<_, _> = (1..=MAX_KEPT_USES + 7).map(time).collect();
        keep_newest(&mut times);
        assert_eq!(times.len(), MAX_KEPT_USES);
        assert_eq!(times.first_key_value().unwrap().0, "000008");
    }
}
