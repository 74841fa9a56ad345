//! Replaces a file of a person or another program. A write is complete or has no effect, never
//! overwrites an unseen change, keeps the file's mode, and follows symbolic links.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use trunkline_core::codec::file::{FileError, read_file};
use trunkline_core::codec::replace_file::{Draft, parent_folder, sync_folder};

use super::EditedFileError;

/// Mode of a written file.
#[derive(Debug, Clone, Copy)]
pub enum FileMode {
    /// The file's current mode; a new file is for its owner only.
    Kept,
    /// For its owner only, because it contains a secret now.
    OwnerOnly,
    /// This mode.
    Exactly(u32),
}

/// Reads the bytes of a file; `None` if it does not exist.
///
/// # Errors
/// [`EditedFileError::Read`].
pub(super) fn read_existing(path: &Path, max: usize) -> Result<Option<Vec<u8>>, EditedFileError> {
    match read_file(path, max) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FileError::System(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(EditedFileError::Read { path: path.to_owned(), error }),
    }
}

/// Replaces a file that had these bytes, or creates it if it did not exist. Returns true if other
/// users could read it before and no longer can.
///
/// # Errors
/// [`EditedFileError`]; the file is unchanged, unless only the sync of its folder failed.
pub(super) fn replace_file(
    path: &Path,
    before: Option<&[u8]>,
    after: &[u8],
    mode: FileMode,
) -> Result<bool, EditedFileError> {
    let write_error = |source| EditedFileError::Write { path: path.to_owned(), source };
    // The links stay, and their final target is replaced.
    let target = resolve_links(path).map_err(write_error)?;
    let metadata = fs::metadata(&target).ok();
    if let Some(names) = metadata.as_ref().map(MetadataExt::nlink).filter(|names| *names > 1) {
        return Err(EditedFileError::HardLinks { path: path.to_owned(), names });
    }
    let found = metadata.as_ref().map_or(NEW_FILE_MODE, |it| it.permissions().mode() & 0o777);
    let mode = match mode {
        FileMode::Kept => found,
        FileMode::OwnerOnly => found & 0o700,
        FileMode::Exactly(mode) => mode,
    };
    fs::create_dir_all(parent_folder(&target)).map_err(write_error)?;
    let mut draft = Draft::create(&target, mode).map_err(write_error)?;
    fill_file(draft.file(), after, mode).map_err(write_error)?;
    let kept_owner = metadata.map_or(Ok(()), |metadata| keep_owner(draft.file(), &metadata));
    kept_owner.map_err(write_error)?;
    check_unchanged(path, before)?;
    draft.commit().map_err(write_error)?;
    let is_private = |mode: u32| mode.trailing_zeros() >= 6;
    Ok(!is_private(found) && is_private(mode))
}

/// Gives a draft the owner and the group of the file that it replaces: a gateway that runs as
/// another user must be able to read it afterwards.
fn keep_owner(draft: &File, replaced: &Metadata) -> io::Result<()> {
    let own = draft.metadata()?;
    if (own.uid(), own.gid()) == (replaced.uid(), replaced.gid()) {
        return Ok(());
    }
    fchown(draft, Some(replaced.uid()), Some(replaced.gid()))
}

/// Resolves symbolic links to their final target, which may not exist.
pub(super) fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            Ok(next) => target = parent_folder(&target).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Checks that a file still has the bytes that were read.
///
/// # Errors
/// [`EditedFileError`].
pub(super) fn check_unchanged(path: &Path, before: Option<&[u8]>) -> Result<(), EditedFileError> {
    // One more byte is enough to detect growth.
    let max = before.map_or(1, |bytes| bytes.len() + 1);
    match read_existing(path, max) {
        Ok(found) if found.as_deref() == before => Ok(()),
        Ok(_) | Err(EditedFileError::Read { error: FileError::TooLarge { .. }, .. }) => {
            Err(EditedFileError::Changed { path: path.to_owned() })
        }
        Err(error) => Err(error),
    }
}

/// Creates a file that must not exist, with its mode from the first byte on.
///
/// # Errors
/// Errors of the system.
pub(crate) fn create_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    fill_file(&mut file, bytes, mode)?;
    file.sync_all()?;
    sync_folder(path)
}

fn fill_file(file: &mut File, bytes: &[u8], mode: u32) -> io::Result<()> {
    // The umask applied to the mode of the new file, but not to this one.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)
}

/// Maximum number of symbolic links that are followed, as on Linux.
const MAX_LINKS: usize = 40;
/// Mode of a new file.
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
        replace_file(&link, Some(b"old"), b"new", FileMode::Kept).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no drafts are left");
        assert!(replace_file(&link, Some(b"new"), b"key", FileMode::OwnerOnly).unwrap());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_with_other_names_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&file, "old").unwrap();
        fs::hard_link(&file, &other).unwrap();
        let error = replace_file(&file, Some(b"old"), b"new", FileMode::Kept).unwrap_err();
        assert!(matches!(error, EditedFileError::HardLinks { names: 2, .. }), "{error}");
        assert_eq!(fs::read(&other).unwrap(), b"old");
    }

    /// Only root can change the owner of a file.
    #[test]
    fn a_replaced_file_keeps_its_owner_and_group() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::chown(&file, Some(1), Some(2)).unwrap();
        replace_file(&file, Some(b"old"), b"new", FileMode::Kept).unwrap();
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (1, 2));
    }

    #[test]
    fn a_link_to_a_file_that_does_not_exist_yet_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("later/file"), folder.path().join("link"));
        std::os::unix::fs::symlink("later/file", &link).unwrap();
        replace_file(&link, None, b"new", FileMode::Kept).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn a_file_that_changed_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (before, now) in
            [(Some(&b"old"[..]), "other"), (Some(b"old"), "old and more"), (None, "x")]
        {
            fs::write(&file, now).unwrap();
            let error = replace_file(&file, before, b"new", FileMode::Kept).unwrap_err();
            assert!(matches!(error, EditedFileError::Changed { .. }), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), now);
        }
        fs::remove_file(&file).unwrap();
        assert!(replace_file(&file, Some(b"old"), b"new", FileMode::Kept).is_err());
        replace_file(&file, None, b"new", FileMode::Kept).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
