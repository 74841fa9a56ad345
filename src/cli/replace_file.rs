//! Writes over a file that belongs to a person or another program: all of it or nothing, never over
//! a change that was not seen, with the mode that the file has, and through symbolic links.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use crate::codec::file::{FileError, read_file};
use crate::crypto::random_bytes;

/// Why a file was not written. It is as it was.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplaceError {
    /// The file was changed after it was read.
    #[error("{} has changed meanwhile and was not touched; run the command again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: FileError,
    },
    /// The file or its folder cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The bytes of a file, `None` if there is none.
///
/// # Errors
/// [`ReplaceError::Read`].
pub(super) fn read_existing(path: &Path, max: usize) -> Result<Option<Vec<u8>>, ReplaceError> {
    match read_file(path, max) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FileError::System(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ReplaceError::Read { path: path.to_owned(), error }),
    }
}

/// Replaces a file that had these bytes, or creates it if it had none.
///
/// # Errors
/// [`ReplaceError`]; the file is as it was.
pub(super) fn replace_file(
    path: &Path,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<(), ReplaceError> {
    let write_error = |source| ReplaceError::Write { path: path.to_owned(), source };
    // The link stays, and what it leads to is replaced.
    let target = match fs::canonicalize(path) {
        Ok(target) => target,
        Err(_) => path.to_owned(),
    };
    let mode = match fs::metadata(&target) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(_) => NEW_FILE_MODE,
    };
    if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(write_error)?;
    }
    let draft = write_draft(&target, after, mode).map_err(write_error)?;
    let renamed = check_unchanged(path, before)
        .and_then(|()| fs::rename(&draft, &target).map_err(write_error));
    if renamed.is_err() {
        // A draft that cannot be removed is harmless.
        let _ = fs::remove_file(&draft);
    }
    renamed
}

/// Checks that a file still has the bytes with which it was read.
///
/// # Errors
/// [`ReplaceError`].
pub(super) fn check_unchanged(path: &Path, before: Option<&[u8]>) -> Result<(), ReplaceError> {
    // One byte more is enough to see that it has grown.
    let max = before.map_or(1, |bytes| bytes.len() + 1);
    match read_existing(path, max) {
        Ok(found) if found.as_deref() == before => Ok(()),
        Ok(_) | Err(ReplaceError::Read { error: FileError::TooLarge { .. }, .. }) => {
            Err(ReplaceError::Changed { path: path.to_owned() })
        }
        Err(error) => Err(error),
    }
}

/// Creates a file that must not exist, with a mode from its first byte on.
///
/// # Errors
/// Those of the system.
pub(super) fn create_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    // The mode of the call passes the umask; the file's own does not.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a temporary file beside the target, from where it can be renamed.
fn write_draft(target: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    let unique = random_bytes::<8>().map_err(|_| io::Error::other("no random numbers"))?;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let draft = target.with_file_name(format!(".{name}.{}.new", HEXLOWER.encode(&unique)));
    create_file(&draft, bytes, mode).inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })?;
    Ok(draft)
}

/// The mode of a file that did not exist.
const NEW_FILE_MODE: u32 = 0o600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_keeps_its_mode_and_the_links_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace_file(&link, Some(b"old"), b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no drafts are left");
    }

    #[test]
    fn a_file_that_changed_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (before, now) in
            [(Some(&b"old"[..]), "other"), (Some(b"old"), "old and more"), (None, "x")]
        {
            fs::write(&file, now).unwrap();
            let error = replace_file(&file, before, b"new").unwrap_err();
            assert!(matches!(error, ReplaceError::Changed { .. }), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), now);
        }
        fs::remove_file(&file).unwrap();
        assert!(replace_file(&file, Some(b"old"), b"new").is_err());
        replace_file(&file, None, b"new").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
