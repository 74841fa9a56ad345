//! The version of a client's file before an export, kept beside it, and restored by `--undo`.
//!
//! The name of a backup contains the hash of the file that the export wrote. So a backup is found
//! for as long as nobody changes the file, and an undo never takes away what came later.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use crate::cli::replace_file::{
    ReplaceError, check_unchanged, create_file, read_existing, replace_file,
};
use crate::crypto::sha256;

/// Writes a file, and keeps what it was.
///
/// # Errors
/// [`ReplaceError`].
pub(super) fn write_with_backup(
    path: &Path,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<PathBuf, ReplaceError> {
    let backup = backup_path(path, before.map_or(Origin::Created, |_| Origin::Changed), after);
    let write_error = |source| ReplaceError::Write { path: backup.clone(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(write_error)?;
    }
    // A backup of this name belongs to the same result, and is older.
    if backup.symlink_metadata().is_ok() {
        fs::remove_file(&backup).map_err(write_error)?;
    }
    let mode = fs::metadata(path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    create_file(&backup, before.unwrap_or_default(), mode).map_err(write_error)?;
    let written = replace_file(path, before, after);
    if written.is_err() {
        let _ = fs::remove_file(&backup);
    }
    written.map(|()| backup)
}

/// What an undo did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UndoOutcome {
    /// The file is as it was before the export.
    Restored,
    /// The export had created the file.
    Removed,
    /// There is nothing to undo.
    NoBackup,
    /// The file has changed since; the backup is still there.
    Changed(PathBuf),
}

/// Restores the file as it was before the last export, byte for byte.
///
/// # Errors
/// [`ReplaceError`].
pub(super) fn undo_export(path: &Path, max: usize) -> Result<UndoOutcome, ReplaceError> {
    let Some(current) = read_existing(path, max)? else { return Ok(UndoOutcome::NoBackup) };
    let changed = backup_path(path, Origin::Changed, &current);
    let created = backup_path(path, Origin::Created, &current);
    if let Some(before) = read_existing(&changed, max)? {
        replace_file(path, Some(&current), &before)?;
        remove_file(&changed)?;
        return Ok(UndoOutcome::Restored);
    }
    if read_existing(&created, max)?.is_some() {
        check_unchanged(path, Some(&current))?;
        remove_file(path)?;
        remove_file(&created)?;
        return Ok(UndoOutcome::Removed);
    }
    Ok(newest_backup(path).map_or(UndoOutcome::NoBackup, UndoOutcome::Changed))
}

fn remove_file(path: &Path) -> Result<(), ReplaceError> {
    fs::remove_file(path).map_err(|source| ReplaceError::Write { path: path.to_owned(), source })
}

/// Whether a file was there before the export.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Changed,
    Created,
}

fn backup_path(path: &Path, origin: Origin, after: &[u8]) -> PathBuf {
    let digest = HEXLOWER.encode(&sha256(after));
    let digest = crate::text::clip(&digest, 16);
    let word = match origin {
        Origin::Changed => BEFORE,
        Origin::Created => CREATED,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}{word}{digest}"))
}

fn newest_backup(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let entries = fs::read_dir(path.parent()?).ok()?.filter_map(Result::ok);
    let backups = entries.filter(|entry| {
        let found = entry.file_name().to_string_lossy().into_owned();
        found
            .strip_prefix(&name)
            .is_some_and(|rest| rest.starts_with(BEFORE) || rest.starts_with(CREATED))
    });
    let newest =
        backups.max_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok());
    newest.map(|entry| entry.path())
}

/// Between the name of a file and the hash, in the name of a backup.
const BEFORE: &str = ".before-trunkline-";
/// The same for a file that did not exist.
const CREATED: &str = ".created-by-trunkline-";
