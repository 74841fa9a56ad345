//! A text file of a person or another program, edited on their behalf.
//!
//! Commands see plain lines; the byte order mark and the line ends of the file stay as they are. A
//! write keeps the previous version as a backup, and does not touch a file that changed after it
//! was read.

mod backup;
mod created;
mod line_diff;
mod line_ends;
mod replace;

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use trunkline_core::codec::file::FileError;
use trunkline_core::crypto::sha256;
use trunkline_core::text::escape_controls;

pub use backup::{UndoOutcome, UndoneWrite, undo_write};
pub use created::{CreatedFile, UndoneFile, UndoneState};
use line_diff::write_unified;
use line_ends::restore_line_ends;
pub use replace::FileMode;
pub(crate) use replace::create_file;
use replace::{check_unchanged, read_existing, replace_file};

/// Error of an edit. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum EditedFileError {
    /// The file was changed after it was read.
    #[error("{} has changed meanwhile and was not touched; run the command again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The change is not the one that was shown.
    #[error(
        "{} was not touched: this is not the change that --expect names; look at it again",
        path.display()
    )]
    Unexpected {
        /// The file.
        path: PathBuf,
    },
    /// The file was changed after the write that should be undone.
    #[error(
        "{} has changed since and was not touched; before the change it was {}",
        path.display(), backup.display()
    )]
    ChangedSince {
        /// The file.
        path: PathBuf,
        /// The version before the write.
        backup: PathBuf,
    },
    /// The file has other names, which would keep the previous version.
    #[error(
        "{} has {names} names (hard links) and was not touched: the others would keep the old text",
        path.display()
    )]
    HardLinks {
        /// The file.
        path: PathBuf,
        /// Number of its names.
        names: u64,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: FileError,
    },
    /// The bytes are not UTF-8.
    #[error("{}:{line}: expected text in UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line of the first invalid byte.
        line: usize,
    },
    /// The file or its folder cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

/// A file as it was read.
#[derive(Debug)]
pub struct EditedFile {
    path: PathBuf,
    /// `None` if the file does not exist.
    before: Option<Vec<u8>>,
    /// Text without a byte order mark, and with `\n` at the end of each line.
    text: String,
}

/// Rules of a write.
#[derive(Debug, Clone, Copy)]
pub struct WriteRules<'a> {
    /// Mode of the written file.
    pub mode: FileMode,
    /// Maximum number of backups that remain.
    pub max_backups: usize,
    /// Files that were created for this write. An undo removes those that are unchanged.
    pub created: &'a [CreatedFile],
}

/// Side effects of a write.
#[derive(Debug)]
pub struct WriteOutcome {
    /// The previous version, or the marker of a missing file.
    pub backup: PathBuf,
    /// True if users other than the owner could read the file before and no longer can.
    pub restricted: bool,
}

impl EditedFile {
    /// Reads a file of at most `max` bytes; one that does not exist is empty.
    ///
    /// # Errors
    /// [`EditedFileError`].
    pub fn open(path: &Path, max: usize) -> Result<Self, EditedFileError> {
        let before = read_existing(path, max)?;
        let bytes = before.as_deref().unwrap_or_default();
        let text = std::str::from_utf8(bytes).map_err(|error| EditedFileError::NotUtf8 {
            path: path.to_owned(),
            line: count_lines(bytes.get(..error.valid_up_to()).unwrap_or_default()),
        })?;
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).replace("\r\n", "\n");
        Ok(Self { path: path.to_owned(), before, text })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text that commands read and edit.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if the file existed when it was read.
    pub fn exists(&self) -> bool {
        self.before.is_some()
    }

    /// Checks that the file had this SHA-256 in hexadecimal when it was read, or did not exist.
    ///
    /// # Errors
    /// [`EditedFileError::Changed`].
    pub(crate) fn check_digest(&self, expected: Option<&str>) -> Result<(), EditedFileError> {
        let found = self.before.as_deref().map(|before| HEXLOWER.encode(&sha256(before)));
        if found.as_deref() != expected {
            return Err(EditedFileError::Changed { path: self.path.clone() });
        }
        Ok(())
    }

    /// Returns the beginning of the hash of a change, computed from the current and the new
    /// content.
    pub fn hash_change(&self, after: &str) -> String {
        let mut change = sha256(self.before.as_deref().unwrap_or_default()).to_vec();
        change.extend(sha256(&self.encode(after)));
        trunkline_core::text::clip(&HEXLOWER.encode(&sha256(&change)), 16).to_owned()
    }

    /// Checks that a change is the one that was shown, if its hash is given.
    ///
    /// # Errors
    /// [`EditedFileError::Unexpected`].
    pub fn check_expected(
        &self,
        after: &str,
        expected: Option<&str>,
    ) -> Result<(), EditedFileError> {
        match expected {
            Some(expected) if expected != self.hash_change(after) => {
                Err(EditedFileError::Unexpected { path: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Replaces the file, and keeps the previous version beside all earlier ones.
    ///
    /// # Errors
    /// [`EditedFileError`].
    pub fn write(&self, after: &str, mode: FileMode) -> Result<WriteOutcome, EditedFileError> {
        self.write_with(after, &WriteRules { mode, max_backups: usize::MAX, created: &[] })
    }

    /// Replaces the file by these rules, and keeps the previous version.
    ///
    /// # Errors
    /// [`EditedFileError`].
    pub fn write_with(
        &self,
        after: &str,
        rules: &WriteRules<'_>,
    ) -> Result<WriteOutcome, EditedFileError> {
        self.write_bytes(&self.encode(after), rules)
    }

    /// Replaces the file by exactly these bytes, and keeps the previous version.
    ///
    /// # Errors
    /// [`EditedFileError`].
    pub(crate) fn write_bytes(
        &self,
        after: &[u8],
        rules: &WriteRules<'_>,
    ) -> Result<WriteOutcome, EditedFileError> {
        let before = self.before.as_deref();
        let backup = backup::keep_backup(&self.path, before, after, rules)?;
        match replace_file(&self.path, before, after, rules.mode) {
            Ok(restricted) => {
                backup::prune_backups(&self.path, after, rules.max_backups);
                Ok(WriteOutcome { backup, restricted })
            }
            Err(error) => {
                // A backup of a write that failed is only another copy of the file, but the write
                // itself succeeded if only the sync of the folder failed.
                if check_unchanged(&self.path, Some(after)).is_err() {
                    backup::discard_backup(&backup);
                }
                Err(error)
            }
        }
    }

    /// Returns the bytes of an edited text, with the byte order mark and the line ends of the file.
    fn encode(&self, after: &str) -> Vec<u8> {
        let original = self.before.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        match original.strip_prefix(BYTE_ORDER_MARK) {
            Some(original) => {
                format!("{BYTE_ORDER_MARK}{}", restore_line_ends(original, after)).into_bytes()
            }
            None => restore_line_ends(&original, after).into_bytes(),
        }
    }
}

/// Returns the differing lines of two versions of a file, for a terminal.
pub fn unified_diff(name: &str, before: &str, after: &str) -> String {
    let diff = write_unified(name, before, after);
    diff.lines().map(|line| escape_controls(line) + "\n").collect()
}

/// Returns the number of the line in which a text ends, from 1.
pub(crate) fn count_lines(before: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', before).count() + 1
}

/// Mark that some editors write at the beginning of a file; no parser accepts it within the text.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_and_the_line_ends_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for (before, after) in [
            ("\u{feff}a\r\nb\r\n", "\u{feff}a\r\nnew\r\nb\r\n"),
            ("a\r\nb\n", "a\r\nnew\r\nb\n"),
            ("a\nb", "a\nnew\nb"),
        ] {
            std::fs::write(&path, before).unwrap();
            let file = EditedFile::open(&path, 100).unwrap();
            assert!(!file.text().contains(['\r', BYTE_ORDER_MARK]));
            file.write(&file.text().replace("a\n", "a\nnew\n"), FileMode::Kept).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn the_hash_of_a_change_depends_on_both_versions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "a\n").unwrap();
        let file = EditedFile::open(&path, 100).unwrap();
        let shown = file.hash_change("b\n");
        file.check_expected("b\n", Some(&shown)).unwrap();
        assert!(file.check_expected("c\n", Some(&shown)).is_err());
        std::fs::write(&path, "x\n").unwrap();
        let changed = EditedFile::open(&path, 100).unwrap();
        assert!(changed.check_expected("b\n", Some(&shown)).is_err());
    }
}
