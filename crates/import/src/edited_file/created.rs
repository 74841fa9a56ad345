//! Files that were created for a write, such as secrets that moved out of the text.
//!
//! Their paths and hashes are kept beside the backup of the write, in `BACKUP.files`, so that an undo
//! removes them.

use std::fs;
use std::path::{Component, Path, PathBuf};

use data_encoding::HEXLOWER;

use trunkline_core::codec::file::FileError;
use trunkline_core::codec::replace_file::parent_folder;
use trunkline_core::crypto::sha256;

use super::EditedFileError;
use super::replace::{create_file, read_existing};

/// A file that was created for a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedFile {
    /// Path relative to the folder of the written file.
    path: String,
    /// Hash of its content.
    hash: String,
}

impl CreatedFile {
    /// Describes a file by its path, relative to the folder of the written file, and its content.
    pub fn new(path: &str, bytes: &[u8]) -> Self {
        Self { path: path.to_owned(), hash: HEXLOWER.encode(&sha256(bytes)) }
    }
}

/// A created file after the undo of its write.
#[derive(Debug, PartialEq, Eq)]
pub struct UndoneFile {
    /// Path relative to the folder of the written file.
    pub path: String,
    /// Its state.
    pub state: UndoneState,
}

/// State of a created file after the undo of its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoneState {
    /// It was removed.
    Removed,
    /// It has changed since the write, and was not touched.
    Changed,
    /// The system did not permit to read or remove it.
    Stuck,
}

/// Keeps the list of created files beside a backup.
///
/// # Errors
/// [`EditedFileError::Write`].
pub(super) fn write_list(backup: &Path, created: &[CreatedFile]) -> Result<(), EditedFileError> {
    if created.is_empty() {
        return Ok(());
    }
    let lines = created.iter().map(|file| format!("{} {}\n", file.hash, file.path));
    let path = list_path(backup);
    create_file(&path, lines.collect::<String>().as_bytes(), 0o600)
        .map_err(|source| EditedFileError::Write { path, source })
}

/// Reads the list of created files beside a backup; it is empty for most. Leaves out paths that
/// lead out of the folder.
///
/// # Errors
/// [`EditedFileError::Read`].
pub(super) fn read_list(backup: &Path) -> Result<Vec<CreatedFile>, EditedFileError> {
    let bytes = read_existing(&list_path(backup), MAX_CREATED_BYTES)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let files = text.lines().filter_map(|line| line.split_once(' '));
    let files = files.filter(|(_, path)| is_below_folder(Path::new(path)));
    Ok(files.map(|(hash, path)| CreatedFile { path: path.into(), hash: hash.into() }).collect())
}

/// Removes the list beside a backup, if there is one.
pub(super) fn remove_list(backup: &Path) {
    let _ = fs::remove_file(list_path(backup));
}

/// Removes created files that are unchanged, and folders that are empty then. Leaves out those that
/// no longer exist.
pub(super) fn remove_unchanged(written: &Path, created: Vec<CreatedFile>) -> Vec<UndoneFile> {
    let folder = parent_folder(written);
    let mut undone = Vec::new();
    for file in created {
        let path = folder.join(&file.path);
        let state = match read_existing(&path, MAX_CREATED_BYTES) {
            Ok(None) => continue,
            Ok(Some(bytes)) if HEXLOWER.encode(&sha256(&bytes)) == file.hash => {
                match fs::remove_file(&path) {
                    Ok(()) => UndoneState::Removed,
                    Err(_) => UndoneState::Stuck,
                }
            }
            Ok(Some(_)) | Err(EditedFileError::Read { error: FileError::TooLarge { .. }, .. }) => {
                UndoneState::Changed
            }
            Err(_) => UndoneState::Stuck,
        };
        if parent_folder(&path) != folder {
            // Fails, as it should, unless the folder is empty.
            let _ = fs::remove_dir(parent_folder(&path));
        }
        undone.push(UndoneFile { path: file.path, state });
    }
    undone
}

fn list_path(backup: &Path) -> PathBuf {
    let mut path = backup.as_os_str().to_owned();
    path.push(LIST_ENDING);
    path.into()
}

fn is_below_folder(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Maximum bytes of a created file and of a list: no imported document is larger.
const MAX_CREATED_BYTES: usize = 32 << 20;
/// Ending of a list's name, after that of its backup.
const LIST_ENDING: &str = ".files";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_files_below_the_folder_are_removed() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("project");
        fs::create_dir_all(folder.join("secrets")).unwrap();
        let (written, backup) = (folder.join("file"), folder.join("backup"));
        let paths = ["secrets/a", "secrets/b", "secrets/gone", "../outside"];
        let absolute = outer.path().join("absolute").to_str().unwrap().to_owned();
        let all = paths.into_iter().chain([absolute.as_str()]);
        let created: Vec<_> = all.map(|path| CreatedFile::new(path, b"secret")).collect();
        for file in created.iter().filter(|file| file.path != "secrets/gone") {
            fs::write(folder.join(&file.path), "secret").unwrap();
        }
        fs::write(folder.join("secrets/b"), "another").unwrap();
        write_list(&backup, &created).unwrap();
        let undone = remove_unchanged(&written, read_list(&backup).unwrap());
        let state = |path: &str, state| UndoneFile { path: path.into(), state };
        let expected =
            [state("secrets/a", UndoneState::Removed), state("secrets/b", UndoneState::Changed)];
        assert_eq!(undone, expected);
        assert!(!folder.join("secrets/a").exists() && folder.join("secrets/b").exists());
        assert!(outer.path().join("outside").exists() && Path::new(&absolute).exists());
        fs::write(folder.join("secrets/b"), "secret").unwrap();
        remove_unchanged(&written, read_list(&backup).unwrap());
        assert!(!folder.join("secrets").exists(), "the empty folder is removed, too");
    }
}
