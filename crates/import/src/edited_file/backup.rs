//! Backups: the version of a file before a write, kept beside it and restored by `--undo`.
//!
//! The name of a backup has a number, the mode of the file, and the hash of the written file:
//! `FILE.before-trunkline-3-644-HASH`. So no backup replaces another, a backup is found as long as
//! the file is unchanged, and an undo never discards a later change. Only its owner can read it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use trunkline_core::codec::replace_file::parent_folder;
use trunkline_core::crypto::sha256;

use super::created::{self, UndoneFile};
use super::replace::{
    FileMode, check_unchanged, create_file, read_existing, replace_file, resolve_links,
};
use super::{EditedFileError, WriteRules};

/// Keeps the version of a file before a write, and the list of files that were created for it.
/// Returns the backup.
///
/// # Errors
/// [`EditedFileError::Write`].
pub(super) fn keep_backup(
    path: &Path,
    before: Option<&[u8]>,
    after: &[u8],
    rules: &WriteRules<'_>,
) -> Result<PathBuf, EditedFileError> {
    let write_error =
        |path: &Path, source| EditedFileError::Write { path: path.to_owned(), source };
    let folder = parent_folder(path);
    fs::create_dir_all(folder).map_err(|source| write_error(folder, source))?;
    let mode = fs::metadata(path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    let (word, mode) = match before {
        Some(_) => (BACKUP_SEPARATOR, format!("{mode:03o}-")),
        None => (CREATION_SEPARATOR, String::new()),
    };
    let hash = hash_version(after);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut number = list_backups(path).last().map_or(1, |backup| backup.number + 1);
    loop {
        let backup = path.with_file_name(format!("{name}{word}{number}-{mode}{hash}"));
        match create_file(&backup, before.unwrap_or_default(), BACKUP_MODE) {
            Ok(()) => {
                let listed = created::write_list(&backup, rules.created);
                return listed.inspect_err(|_| discard_backup(&backup)).map(|()| backup);
            }
            // Another command has just written the same change.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(write_error(&backup, error)),
        }
    }
}

/// Removes the oldest backups, so that at most this many remain. The backup that the next undo needs
/// stays in any case.
pub(super) fn prune_backups(path: &Path, current: &[u8], max: usize) {
    let mut backups = list_backups(path);
    let hash = hash_version(current);
    let needed = backups.iter().rposition(|backup| backup.hash == hash);
    let needed = needed.map(|at| backups.swap_remove(at).path);
    backups.sort_by_key(|backup| std::cmp::Reverse(backup.number));
    let kept = max.saturating_sub(usize::from(needed.is_some()));
    for backup in backups.iter().skip(kept) {
        discard_backup(&backup.path);
    }
    let left = needed.iter().chain(backups.iter().take(kept).map(|backup| &backup.path));
    left.for_each(|path| hide_backup(path));
}

/// Gives a backup of an earlier version [`BACKUP_MODE`]. Its mode, which was that of the file, is lost:
/// an undo restores a file that only its owner can read.
fn hide_backup(path: &Path) {
    if let Ok(metadata) = fs::metadata(path)
        && metadata.permissions().mode() & 0o077 != 0
    {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(BACKUP_MODE));
    }
}

/// Removes a backup, and the list beside it. One that cannot be removed is removed after the next
/// write.
pub(super) fn discard_backup(backup: &Path) {
    let _ = fs::remove_file(backup);
    created::remove_list(backup);
}

/// An undone write.
#[derive(Debug, PartialEq, Eq)]
pub struct UndoneWrite {
    /// Outcome for the written file.
    pub outcome: UndoOutcome,
    /// The files that were created for the write.
    pub created: Vec<UndoneFile>,
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

/// Restores a file to its state before the last write, byte for byte and with its mode. Then removes
/// the files that were created for that write and are unchanged.
///
/// # Errors
/// [`EditedFileError`].
pub fn undo_write(path: &Path, max: usize) -> Result<UndoneWrite, EditedFileError> {
    let current = read_existing(path, max)?;
    let hash = current.as_deref().map(hash_version);
    let mut backups = list_backups(path);
    let matching = backups.iter().rposition(|backup| Some(&backup.hash) == hash.as_ref());
    let Some(at) = matching else {
        let newest = backups.pop().map(|backup| backup.path);
        let outcome = newest.map_or(UndoOutcome::NoBackup, UndoOutcome::Changed);
        return Ok(UndoneWrite { outcome, created: Vec::new() });
    };
    let backup = backups.swap_remove(at);
    let created = created::read_list(&backup.path)?;
    let outcome = match backup.origin {
        Origin::Changed => {
            let before = read_existing(&backup.path, max)?.unwrap_or_default();
            replace_file(path, current.as_deref(), &before, backup.file_mode())?;
            UndoOutcome::Restored
        }
        Origin::Created => {
            check_unchanged(path, current.as_deref())?;
            let source = |source| EditedFileError::Write { path: path.to_owned(), source };
            remove_file(&resolve_links(path).map_err(source)?)?;
            UndoOutcome::Removed
        }
    };
    let created = created::remove_unchanged(path, created);
    remove_file(&backup.path)?;
    created::remove_list(&backup.path);
    Ok(UndoneWrite { outcome, created })
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
    /// Mode of the file before the write. Names of earlier versions lack it: there the backup itself
    /// has the mode.
    mode: Option<u32>,
    /// Hash of the written version.
    hash: String,
}

impl Backup {
    /// Reads a backup from its name, if it is one of the file with this name.
    fn parse(path: PathBuf, file_name: &str, name: &str) -> Option<Self> {
        let rest = file_name.strip_prefix(name)?;
        let (origin, rest) = match rest.strip_prefix(BACKUP_SEPARATOR) {
            Some(rest) => (Origin::Changed, rest),
            None => (Origin::Created, rest.strip_prefix(CREATION_SEPARATOR)?),
        };
        let (number, rest) = rest.split_once('-')?;
        let (mode, hash) = match rest.split_once('-') {
            Some((mode, hash)) => (Some(u32::from_str_radix(mode, 8).ok()?), hash),
            None => (None, rest),
        };
        let is_hash = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = number.parse().ok()?;
        is_hash.then(|| Self { path, origin, number, mode, hash: hash.to_owned() })
    }

    fn file_mode(&self) -> FileMode {
        let own = || fs::metadata(&self.path).map(|metadata| metadata.permissions().mode()).ok();
        let mode = self.mode.or_else(own);
        mode.map_or(FileMode::Kept, |mode| FileMode::Exactly(mode & 0o777))
    }
}

/// The backups of a file, the oldest first.
fn list_backups(path: &Path) -> Vec<Backup> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = fs::read_dir(parent_folder(path)).into_iter().flatten().filter_map(Result::ok);
    let mut backups: Vec<_> = entries
        .filter_map(|entry| {
            let file_name = entry.file_name().to_string_lossy().into_owned();
            Backup::parse(entry.path(), &file_name, &name)
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
/// Mode of every backup: the file may contain a secret that a write removes.
const BACKUP_MODE: u32 = 0o600;

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
            assert_eq!(undo_write(&path, 100).unwrap().outcome, UndoOutcome::Restored);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(undo_write(&path, 100).unwrap().outcome, UndoOutcome::NoBackup);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_undo_removes_a_created_file_and_not_the_link_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("later"), folder.path().join("link"));
        std::os::unix::fs::symlink("later", &link).unwrap();
        write(&link, "new");
        assert_eq!(undo_write(&link, 100).unwrap().outcome, UndoOutcome::Removed);
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
        let outcome = undo_write(&path, 100).unwrap().outcome;
        assert!(matches!(outcome, UndoOutcome::Changed(_)), "{outcome:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "later");
        fs::write(&path, "key").unwrap();
        undo_write(&path, 100).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "original");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_backup_of_an_earlier_version_is_restored_with_its_own_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "new").unwrap();
        let backup =
            folder.path().join(format!("file.before-trunkline-1-{}", hash_version(b"new")));
        fs::write(&backup, "old").unwrap();
        fs::set_permissions(&backup, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(undo_write(&path, 100).unwrap().outcome, UndoOutcome::Restored);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn the_oldest_backups_are_removed_and_never_the_one_that_an_undo_needs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "original").unwrap();
        for text in ["a", "b", "c", "d"] {
            write(&path, text);
        }
        // A person has restored the first written version.
        fs::write(&path, "a").unwrap();
        prune_backups(&path, b"a", 2);
        let numbers = |path: &Path| -> Vec<_> {
            list_backups(path).iter().map(|backup| backup.number).collect()
        };
        assert_eq!(numbers(&path), [1, 4]);
        assert_eq!(undo_write(&path, 100).unwrap().outcome, UndoOutcome::Restored);
        assert_eq!(fs::read_to_string(&path).unwrap(), "original");
    }
}
