//! Folder of stored lists: files that only the gateway's own user can read, written completely or
//! not at all.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::call::ServerName;
use crate::codec::file::{FileError, read_own_file};
use crate::codec::own_folder::{OwnFolder, OwnFolderError, place_of};
use crate::codec::replace_file::DRAFT_SUFFIX;
use crate::crypto::random_bytes;

/// Error while opening a folder.
#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error(transparent)]
    Folder(#[from] OwnFolderError),
    #[error("cannot create or read it")]
    System(#[from] io::Error),
    #[error("its key cannot be read")]
    Key(#[source] FileError),
}

/// A folder with a file for each server of one configuration file. Several
/// gateways may share it.
#[derive(Debug)]
pub(super) struct StoreFolder {
    folder: OwnFolder,
    /// End of the names of this configuration's files.
    ending: String,
}

impl StoreFolder {
    /// Opens the folder for a configuration file, and creates it if missing.
    ///
    /// Lists determine the texts that models read about a tool, so no other user may be able to
    /// write to the folder.
    pub(super) fn open(path: &Path, config: &Path) -> Result<Self, FolderError> {
        let folder = OwnFolder::open(path)?;
        Ok(Self { folder, ending: format!(".{}{LISTS_ENDING}", place_of(config)?) })
    }

    /// Returns the random key of this folder. The first gateway that uses the folder creates it.
    pub(super) fn key(&self) -> Result<[u8; 32], FolderError> {
        let path = self.folder.path().join(KEY_FILE);
        match read_key(&path) {
            Ok(Some(key)) => return Ok(key),
            // The key is damaged, so all files sealed with it are lost.
            Ok(None) => fs::remove_file(&path)?,
            Err(FileError::System(error)) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(FolderError::Key(error)),
        }
        // If several gateways start together, one creates the key and all use it.
        match self.folder.create(KEY_FILE, &random_bytes::<32>()?) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        let key = read_key(&path).map_err(FolderError::Key)?;
        key.ok_or_else(|| io::Error::from(ErrorKind::InvalidData).into())
    }

    /// Reads the file of a server. Returns `None` if there is none.
    pub(super) fn read(&self, server: &ServerName) -> Result<Option<Vec<u8>>, FileError> {
        self.folder.read(&self.file_name(server), MAX_FILE)
    }

    /// Replaces the file of a server.
    pub(super) fn replace(&self, server: &ServerName, bytes: &[u8]) -> io::Result<()> {
        self.folder.replace(&self.file_name(server), bytes)
    }

    /// Removes the file of a server.
    pub(super) fn remove(&self, server: &ServerName) {
        let _ = fs::remove_file(self.file(server));
    }

    /// Removes the files, of any configuration, that were last written more than `age` ago.
    pub(super) fn prune(&self, now: SystemTime, age: Duration) {
        let Ok(entries) = fs::read_dir(self.folder.path()) else { return };
        for entry in entries.take(MAX_CHECKED_FILES).flatten() {
            let name = entry.file_name();
            let is_ours = |ending: &str| name.as_bytes().ends_with(ending.as_bytes());
            let written = entry.metadata().and_then(|metadata| metadata.modified());
            let is_old = written.is_ok_and(|at| now.duration_since(at).is_ok_and(|ago| ago > age));
            if is_old && (is_ours(LISTS_ENDING) || is_ours(DRAFT_SUFFIX)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn file(&self, server: &ServerName) -> PathBuf {
        self.folder.path().join(self.file_name(server))
    }

    fn file_name(&self, server: &ServerName) -> String {
        format!("{server}{}", self.ending)
    }
}

/// Reads a key. Returns `None` if it is damaged.
fn read_key(path: &Path) -> Result<Option<[u8; 32]>, FileError> {
    match read_own_file(path, 32) {
        Ok(bytes) => Ok(bytes.try_into().ok()),
        Err(FileError::TooLarge { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Maximum size in bytes of a server's file.
pub(super) const MAX_FILE: usize = 16 << 20;
/// Maximum number of files that are checked for their age.
const MAX_CHECKED_FILES: usize = 10_000;
const LISTS_ENDING: &str = ".lists";
const KEY_FILE: &str = "key";

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn server(name: &str) -> ServerName {
        ServerName::new(name).unwrap()
    }

    #[test]
    fn folder_and_files_are_for_the_gateways_own_user_alone() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("a/b");
        let folder = StoreFolder::open(&path, Path::new("one.toml")).unwrap();
        folder.replace(&server("s"), b"lists").unwrap();
        folder.key().unwrap();
        assert_eq!((mode(&path), mode(&outer.path().join("a"))), (0o700, 0o700));
        let files: Vec<_> = fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()).collect();
        assert_eq!(files.len(), 2, "no draft is left: {files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
        assert_eq!(folder.read(&server("s")).unwrap().as_deref(), Some(&b"lists"[..]));
        assert!(folder.read(&server("t")).unwrap().is_none());
        let other = StoreFolder::open(&path, Path::new("two.toml")).unwrap();
        assert!(other.read(&server("s")).unwrap().is_none(), "of another configuration");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        for (bits, usable) in [(0o700, true), (0o755, true), (0o770, false), (0o707, false)] {
            fs::set_permissions(outer.path(), Permissions::from_mode(bits)).unwrap();
            let opened = StoreFolder::open(outer.path(), Path::new("x"));
            assert_eq!(opened.is_ok(), usable, "{bits:o}");
        }
        fs::set_permissions(outer.path(), Permissions::from_mode(0o700)).unwrap();
        let file = outer.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(StoreFolder::open(&file, Path::new("x")).is_err());
    }

    #[test]
    fn a_link_is_neither_read_nor_written_through() {
        let outer = tempfile::tempdir().unwrap();
        let folder = StoreFolder::open(&outer.path().join("lists"), Path::new("x")).unwrap();
        let (elsewhere, server) = (outer.path().join("elsewhere"), server("s"));
        fs::write(&elsewhere, "other").unwrap();
        symlink(&elsewhere, folder.file(&server)).unwrap();
        assert!(folder.read(&server).is_err());
        folder.replace(&server, b"lists").unwrap();
        assert_eq!(fs::read(&elsewhere).unwrap(), b"other");
        assert_eq!(folder.read(&server).unwrap().as_deref(), Some(&b"lists"[..]));
    }

    #[test]
    fn all_gateways_of_a_folder_have_one_key_and_a_damaged_one_is_replaced() {
        let outer = tempfile::tempdir().unwrap();
        let open = || StoreFolder::open(outer.path(), Path::new("x")).unwrap();
        let key = open().key().unwrap();
        assert_eq!(open().key().unwrap(), key);
        for damaged in [&b"short"[..], &[0; 33]] {
            fs::write(outer.path().join(KEY_FILE), damaged).unwrap();
            let next = open().key().unwrap();
            assert!(next != key && next == open().key().unwrap());
        }
    }

    #[test]
    fn old_files_are_removed_and_others_stay() {
        let outer = tempfile::tempdir().unwrap();
        let folder = StoreFolder::open(outer.path(), Path::new("x")).unwrap();
        folder.replace(&server("s"), b"lists").unwrap();
        folder.key().unwrap();
        for name in ["a.tmp", "notes.txt"] {
            fs::write(outer.path().join(name), "").unwrap();
        }
        let (now, day) = (crate::clock::wall_now(), Duration::from_hours(24));
        folder.prune(now, day);
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 4);
        folder.prune(now + 2 * day, day);
        let mut left: Vec<_> =
            fs::read_dir(outer.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["key", "notes.txt"]);
    }
}
