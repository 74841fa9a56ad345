//! A file of records with rotation by size or age.
//!
//! `audit.jsonl` is the current file, `audit.jsonl.1` the one before, and so on. Before each record
//! the file is checked: if another program has moved it away, a new one begins.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use tokio::time::Instant;

use trunkline_core::clock;

use super::chain::ChainEnd;
use super::sink::Lines;
use crate::log::FaultLog;

/// Conditions for the next file, and the number of kept files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRotation {
    /// Maximum bytes of a file; `None` for no limit.
    pub size: Option<u64>,
    /// Maximum age of a file; `None` for no limit.
    pub age: Option<Duration>,
    /// Number of kept files besides the current one.
    pub keep: usize,
}

/// The open file, and its predecessors.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    rotation: FileRotation,
    open: Option<OpenLog>,
    /// The fault of the last attempt to begin the next file, and the time of the next attempt.
    fault: Option<RotationFault>,
    /// Faults of all attempts, in the log.
    faults: FaultLog,
}

#[derive(Debug)]
struct RotationFault {
    text: String,
    next_attempt: Instant,
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    is_regular: bool,
    length: u64,
    begun: SystemTime,
}

impl RotatingFile {
    pub(super) fn new(path: PathBuf, rotation: FileRotation) -> Self {
        Self { path, rotation, open: None, fault: None, faults: FaultLog::default() }
    }

    /// Returns the last record of the log, and true if an incomplete record was removed, which a
    /// crash had left.
    pub(super) fn find_end(&mut self) -> io::Result<(ChainEnd, bool)> {
        let path = self.path.clone();
        let log = self.opened()?;
        if !log.is_regular {
            return Ok((ChainEnd::default(), false));
        }
        let complete = log.length.saturating_sub(torn_length(&path, log.length)?);
        let had_torn_line = complete < log.length;
        if had_torn_line {
            log.file.set_len(complete)?;
            log.length = complete;
        }
        let last = match last_line(&self.path)? {
            Some(line) => Some(line),
            None => last_line(&numbered(&self.path, 1)).unwrap_or_default(),
        };
        let end = last.and_then(|line| ChainEnd::of_line(&line));
        Ok((end.unwrap_or_default(), had_torn_line))
    }

    /// Appends as many of these lines as fit into the file, at least one, and returns their number.
    /// Begins the next file if this one is full or old.
    pub(super) fn append_lines(&mut self, lines: Lines<'_>) -> io::Result<usize> {
        if self.is_moved() {
            self.open = None;
            self.fault = None;
        }
        let rotation = self.rotation;
        let log = self.opened()?;
        if log.is_due(lines.first(1).len() as u64, rotation) {
            self.try_rotation();
        }
        let log = self.opened()?;
        let count = log.count_fitting(lines, rotation);
        match log.append(lines.first(count)) {
            Ok(()) => Ok(count),
            // One line may fit even if all of them do not.
            Err(_) if count > 1 => log.append(lines.first(1)).map(|()| 1),
            Err(error) => Err(error),
        }
    }

    /// Opens the file, unless it is open, and creates it if it is missing.
    pub(super) fn open(&mut self) -> io::Result<()> {
        self.opened().map(drop)
    }

    /// Returns the reason that the next file was not begun: records still arrive in this one.
    pub(super) fn rotation_fault(&self) -> Option<&str> {
        self.fault.as_ref().map(|fault| &*fault.text)
    }

    /// Closes the file, because another program has moved it.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    fn opened(&mut self) -> io::Result<&mut OpenLog> {
        let log = match self.open.take() {
            Some(log) => log,
            None => OpenLog::open(&self.path)?,
        };
        Ok(self.open.insert(log))
    }

    /// Returns true if the path no longer leads to the open file.
    fn is_moved(&self) -> bool {
        self.open.as_ref().is_some_and(|log| {
            let there = fs::metadata(&self.path);
            there.map_or(true, |there| (there.dev(), there.ino()) != log.identity)
        })
    }

    /// Begins the next file. After a failure, waits before the next attempt: a large file is better
    /// than a lost record.
    fn try_rotation(&mut self) {
        let now = clock::now();
        if self.fault.as_ref().is_some_and(|fault| now < fault.next_attempt) {
            return;
        }
        self.fault = self.rotate().err().map(|error| {
            let text = format!("the audit log could not be rotated: {error}");
            if let Some(line) = self.faults.note(&text, now) {
                tracing::warn!(target: "trunkline::telemetry::audit::rotation", "{line}");
            }
            RotationFault { text, next_attempt: now + ROTATION_PAUSE }
        });
    }

    fn rotate(&mut self) -> io::Result<()> {
        let path = &self.path;
        match self.rotation.keep {
            0 => fs::remove_file(path)?,
            keep => {
                for number in (1..keep).rev() {
                    ignore_missing(fs::rename(numbered(path, number), numbered(path, number + 1)))?;
                }
                fs::rename(path, numbered(path, 1))?;
            }
        }
        self.open = None;
        Ok(())
    }
}

impl OpenLog {
    fn open(path: &Path) -> io::Result<Self> {
        // Opening a pipe without a reader must not block.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let mut options = File::options();
        let file =
            options.append(true).create(true).mode(FILE_MODE).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        let is_regular = metadata.is_file();
        if is_regular {
            // Two writers would break the chain, and lose records when they rotate.
            file.try_lock().map_err(|error| match error {
                TryLockError::Error(error) => error,
                TryLockError::WouldBlock => io::Error::other("another process writes this file"),
            })?;
        }
        let (length, identity) = (metadata.len(), (metadata.dev(), metadata.ino()));
        let begun = metadata.created().unwrap_or_else(|_| clock::wall_now());
        Ok(Self { file, identity, is_regular, length, begun })
    }

    fn is_due(&self, more: u64, rotation: FileRotation) -> bool {
        let is_full = rotation.size.is_some_and(|size| self.length + more > size);
        self.is_regular && self.length > 0 && (is_full || self.is_old(rotation))
    }

    fn is_old(&self, rotation: FileRotation) -> bool {
        let age = || clock::wall_now().duration_since(self.begun).unwrap_or_default();
        rotation.age.is_some_and(|most| age() >= most)
    }

    /// Returns the number of lines to write together. It is one for other than regular files, which
    /// may accept only a part of several lines and keep it.
    fn count_fitting(&self, lines: Lines<'_>, rotation: FileRotation) -> usize {
        if !self.is_regular || self.is_old(rotation) {
            return 1;
        }
        let most = rotation.size.map_or(u64::MAX, |size| size.saturating_sub(self.length));
        lines.count_within(most).max(1)
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            if self.is_regular {
                // Remove the partial line before the next attempt.
                let _ = self.file.set_len(self.length);
            }
            return Err(error);
        }
        // Another program may have truncated it.
        self.length = self.file.metadata().map_or(self.length, |metadata| metadata.len());
        Ok(())
    }
}

/// Returns the length of an unterminated last line.
fn torn_length(path: &Path, length: u64) -> io::Result<u64> {
    let tail = read_tail(path, length)?;
    let torn = tail.iter().rev().take_while(|byte| **byte != b'\n').count();
    Ok(torn as u64)
}

/// Returns the last bytes of a file, up to the maximum length of a line.
fn read_tail(path: &Path, length: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_LINE_BYTES)))?;
    let mut tail = Vec::new();
    file.take(MAX_LINE_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

/// Returns the last complete line of a file, without its line end.
fn last_line(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let tail = read_tail(path, fs::metadata(path)?.len())?;
    let Some(tail) = tail.strip_suffix(b"\n") else { return Ok(None) };
    let begin = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Ok(tail.get(begin..).map(<[u8]>::to_vec))
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Returns the path of an earlier file; the latest one has the number 1.
pub fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Pause after a failed attempt to begin the next file.
const ROTATION_PAUSE: Duration = Duration::from_secs(10);
/// Records name people and their actions.
const FILE_MODE: u32 = 0o600;
/// Maximum bytes of a line.
pub(super) const MAX_LINE_BYTES: u64 = 4 << 20;
