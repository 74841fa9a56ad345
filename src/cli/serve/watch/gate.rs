//! Decides when changed files are loaded.
//!
//! A file that was renamed to its path, or that a symbolic link now leads to, is complete and loads
//! at once. A file that was written in place may be partial: it loads when it has been unchanged
//! for [`SETTLE_TIME`], and only if its last line is complete.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::files::{FileEnding, FileStamp, WatchedFile, WatchedFiles};

/// Compares the files with the ones that were loaded last.
pub(super) struct ReloadGate {
    /// The configuration file. Its last line must always be terminated.
    config: PathBuf,
    loaded: WatchedFiles,
    settling: BTreeMap<PathBuf, SettlingFile>,
}

/// A file that was written in place.
struct SettlingFile {
    stamp: Option<FileStamp>,
    /// Time since which it has this stamp.
    since: Instant,
}

/// The decision after a look at the files.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GateDecision {
    /// The contents equal the ones that were loaded last.
    Unchanged,
    /// A file may still be written: look again at this time.
    Wait(Instant),
    /// These files have settled, but their last lines have no line end.
    Incomplete(Vec<PathBuf>),
    /// The files are complete.
    Load,
}

impl ReloadGate {
    pub(super) fn new(config: PathBuf, loaded: WatchedFiles) -> Self {
        Self { config, loaded, settling: BTreeMap::new() }
    }

    /// Decides about the current files.
    pub(super) fn decide(&mut self, files: &WatchedFiles, now: Instant) -> GateDecision {
        let changed: Vec<_> =
            files.iter().filter(|(path, file)| self.differs(path, file)).collect();
        self.settling.retain(|path, _| changed.iter().any(|(other, _)| *other == path));
        if changed.is_empty() {
            return GateDecision::Unchanged;
        }
        let (mut wait, mut incomplete) = (None, Vec::new());
        for (path, file) in changed {
            if self.came_complete(path, file) {
                continue;
            }
            let settled_at = self.settled_at(path, file, now);
            if settled_at > now {
                wait = wait.max(Some(settled_at));
            } else if self.is_incomplete(path, file) {
                incomplete.push(path.clone());
            }
        }
        match wait {
            Some(at) => GateDecision::Wait(at),
            None if incomplete.is_empty() => GateDecision::Load,
            None => GateDecision::Incomplete(incomplete),
        }
    }

    /// Marks the files as loaded, or as reported faults.
    pub(super) fn settle(&mut self, files: WatchedFiles) {
        self.settling.clear();
        self.loaded = files;
    }

    fn differs(&self, path: &Path, file: &WatchedFile) -> bool {
        self.loaded.get(path).is_none_or(|loaded| loaded.digest != file.digest)
    }

    fn came_complete(&self, path: &Path, file: &WatchedFile) -> bool {
        let Some(stamp) = &file.stamp else { return false };
        let loaded = self.loaded.get(path).and_then(|loaded| loaded.stamp.as_ref());
        let is_other_link = loaded.is_some_and(|loaded| loaded.real != stamp.real);
        let is_other_file = loaded.is_none_or(|loaded| loaded.inode != stamp.inode);
        is_other_link || (is_other_file && file.is_renamed)
    }

    fn settled_at(&mut self, path: &Path, file: &WatchedFile, now: Instant) -> Instant {
        let fresh = || SettlingFile { stamp: file.stamp.clone(), since: now };
        let settling = self.settling.entry(path.to_owned()).or_insert_with(fresh);
        if settling.stamp != file.stamp {
            *settling = fresh();
        }
        settling.since + SETTLE_TIME
    }

    /// Returns true if the last line may be partial. A secret often has no line end: it needs one
    /// only if it had one before.
    fn is_incomplete(&self, path: &Path, file: &WatchedFile) -> bool {
        let had_line_end =
            self.loaded.get(path).is_some_and(|loaded| loaded.ending == FileEnding::WholeLine);
        file.ending == FileEnding::PartialLine && (path == self.config || had_line_end)
    }
}

/// Time for which a file written in place has to be unchanged.
pub(super) const SETTLE_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
