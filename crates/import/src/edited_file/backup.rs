//! Backups: the version of a file before a write, kept beside it and restored by `--undo`.
//!
//! The name of a backup has a number and the hash of the written file:
//! `FILE.before-trunkline-3-HASH`. So no backup replaces another, a backup is found as long as the
//! file is unchanged, and an undo never discards a later change.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use trunkline_core::codec::replace_file::parent_folder;
use trunkline_core::crypto::sha256;

use super::EditedFileError;
use super::replace::{
    FileMode, check_unchanged, create_file, read_existing, replace_file, resolve_links,
};

/// Keeps the version of a file before a write. Returns the backup.
///
/// # Errors
/// [`EditedFileError::Write`].
pub(super) fn keep_backup(
    path: &Path,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<PathBuf, EditedFileError> {
    let write_error =
        |path: &Path, source| EditedFileError::Write { path: path.to_owned(), source };
    let folder = parent_folder(path);
    fs::create_dir_all(folder).map_err(|source| write_error(folder, source))?;
    let mode = fs::metadata(path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    let word = before.map_or(CREATION_SEPARATOR, |_| BACKUP_SEPARATOR);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut number = list_backups(path).last().map_or(1, |backup| backup.number + 1);
    loop {
        let backup = path.with_file_name(format!("{name}{word}{number}-{}", hash_version(after)));
        match create_file(&backup, before.unwrap_or_default(), mode) {
            Ok(()) => return Ok(backup),
            // Another command has just written the same change.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(write_error(&backup, error)),
        }
    }
}

/// Outcome of an undo.
#[derive(Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// The file has its content from before the write.
    Restored,
    /// The write had created the file.
    Removed,
    /// There is no backup.
    NoBackup,
    /// The file has changed since; the backup still exists.
    Changed(PathBuf),
}

/// Restores a file to its state before the last write, byte for byte and with its mode.
///
/// # Errors
/// [`EditedFileError`].
pub fn undo_write(path: &Path, max: usize) -> Result<UndoOutcome, EditedFileError> {
    let current = read_existing(path, max)?;
    let hash = current.as_deref().map(hash_version);
    let mut backups = list_backups(path);
    let matching = backups.iter().rposition(|backup| Some(&backup.hash) == hash.as_ref());
    let Some(at) = matching else {
        let newest = backups.pop().map(|backup| backup.path);
        return Ok(newest.map_or(UndoOutcome::NoBackup, UndoOutcome::Changed));
    };
    let backup = backups.swap_remove(at);
    let outcome = match backup.origin {
        Origin::Changed => {
            let before = read_existing(&backup.path, max)?.unwrap_or_default();
            let mode = fs::metadata(&backup.path).map(|metadata| metadata.permissions().mode());
            let mode = mode.map_or(FileMode::Kept, |mode| FileMode::Exactly(mode & 0o777));
            replace_file(path, current.as_deref(), &before, mode)?;
            UndoOutcome::Restored
        }
        Origin::Created => {
            check_unchanged(path, current.as_deref())?;
            let source = |source| EditedFileError::Write { path: path.to_owned(), source };
            remove_file(&resolve_links(path).map_err(source)?)?;
            UndoOutcome::Removed
        }
    };
    remove_file(&backup.path)?;
    Ok(outcome)
}

fn remove_file(path: &Path) -> Result<(), EditedFileError> {
    fs::remove_file(path).map_err(|source| EditedFileError::Write { path: path.to_owned(), source })
}

/// State of a file before a write.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Changed,
    Created,
}

/// An existing backup.
#[derive(Debug)]
struct Backup {
    path: PathBuf,
    origin: Origin,
    number: u32,
    /// Hash of the written version.
    hash: String,
}

/// The backups of a file, the oldest first.
fn list_backups(path: &Path) -> Vec<Backup> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = fs::read_dir(parent_folder(path)).into_iter().flatten().filter_map(Result::ok);
    let mut backups: Vec<_> = entries
        .filter_map(|entry| {
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let rest = file_name.strip_prefix(&name)?;
            let (origin, rest) = match rest.strip_prefix(BACKUP_SEPARATOR) {
                Some(rest) => (Origin::Changed, rest),
                None => (Origin::Created, rest.strip_prefix(CREATION_SEPARATOR)?),
            };
            let (number, hash) = rest.split_once('-')?;
            let (number, hash) = (number.parse().ok()?, hash.to_owned());
            Some(Backup { path: entry.path(), origin, number, hash })
        })
        .collect();
    backups.sort_by_key(|backup| backup.number);
    backups
}

fn hash_version(bytes: &[u8]) -> String {
    trunkline_core::text::clip(&HEXLOWER.encode(&sha256(bytes)), 16).to_owned()
}

/// Separator between the name of a file and the number, in the name of a backup.
const BACKUP_SEPARATOR: &str = ".before-trunkline-";
/// Separator for a file that did not exist before.
const CREATION_SEPARATOR: &str = ".created-by-trunkline-";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edited_file::EditedFile;

    fn write(path: &Path, text: &str) {
        EditedFile::open(path, 100).unwrap().write(text, FileMode::Kept).unwrap();
    }

    #[test]
    fn every_version_before_a_write_is_kept_even_when_a_version_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "original").unwrap();
        for text in ["a", "b", "a", "b"] {
            write(&path, text);
        }
        for text in ["a", "b", "a", "original"] {
            assert_eq!(undo_write(&path, 100).unwrap(), UndoOutcome::Restored);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(undo_write(&path, 100).unwrap(), UndoOutcome::NoBackup);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_undo_removes_a_created_file_and_not_the_link_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("later"), folder.path().join("link"));
        std::os::unix::fs::symlink("later", &link).unwrap();
        write(&link, "new");
        assert_eq!(undo_write(&link, 100).unwrap(), UndoOutcome::Removed);
        assert!(!file.exists() && link.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn an_undo_touches_no_later_change_and_restores_the_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "original").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        EditedFile::open(&path, 100).unwrap().write("key", FileMode::OwnerOnly).unwrap();
        fs::write(&path, "later").unwrap();
        let outcome = undo_write(&path, 100).unwrap();
        assert!(matches!(outcome, UndoOutcome::Changed(_)), "{outcome:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "later");
        fs::write(&path, "key").unwrap();
        undo_write(&path, 100).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "original");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }
}
