//! A snapshot of the watched files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::codec::file::{MAX_PEM, read_file};
use crate::crypto::sha256;

use super::renames::RecentRenames;

/// Watched files, by their paths in the configuration.
pub(super) type WatchedFiles = BTreeMap<PathBuf, WatchedFile>;

/// Stamps of files; `None` for a missing one.
pub(crate) type FileStamps = BTreeMap<PathBuf, Option<FileStamp>>;

/// A file, and its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchedFile {
    /// `None` if the file is missing.
    pub(super) stamp: Option<FileStamp>,
    /// SHA-256 of the contents; `None` if they cannot be read.
    pub(super) digest: Option<[u8; 32]>,
    /// The end of the contents.
    pub(super) ending: FileEnding,
    /// True if the file was last renamed to its place, and not written to since.
    pub(super) is_renamed: bool,
}

/// The end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileEnding {
    /// The file is empty or unreadable.
    Nothing,
    /// A line end.
    WholeLine,
    /// A line without a line end.
    PartialLine,
}

/// Stamp that changes with every write to a file, and with every replacement of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStamp {
    /// The path without symbolic links.
    pub(super) real: PathBuf,
    pub(super) inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    fn new(real: PathBuf, metadata: &Metadata) -> Self {
        Self {
            real,
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    #[cfg(test)]
    pub(super) fn for_test(real: PathBuf, inode: u64, size: u64) -> Self {
        Self { real, inode: (1, inode), size, modified: (0, 0), changed: (0, 0) }
    }

    /// Returns the stamp of the file at a path; `None` if it is missing.
    pub(in crate::cli::serve) fn read(path: &Path) -> Option<Self> {
        let real = path.canonicalize().ok()?;
        let metadata = real.metadata().ok()?;
        Some(Self::new(real, &metadata))
    }
}

/// Reads the files. A file that changes meanwhile gets its final stamp, which a later look does not
/// find with the same contents unless the file has settled.
pub(super) fn observe_files(files: &[PathBuf], renames: &RecentRenames) -> WatchedFiles {
    files.iter().map(|path| (path.clone(), observe_file(path, renames))).collect()
}

fn observe_file(path: &Path, renames: &RecentRenames) -> WatchedFile {
    let contents = read_file(path, MAX_PEM).ok();
    let stamp = FileStamp::read(path);
    let is_renamed = renames.has(path) || stamp.as_ref().is_some_and(|it| renames.has(&it.real));
    let ending = match contents.as_deref() {
        None | Some([]) => FileEnding::Nothing,
        Some([.., b'\n']) => FileEnding::WholeLine,
        Some(_) => FileEnding::PartialLine,
    };
    let digest = contents.map(|bytes| sha256(&bytes));
    WatchedFile { stamp, digest, ending, is_renamed }
}

/// Returns the folders of the files, and of their symbolic links' targets.
pub(super) fn folders_of(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let real = files.iter().filter_map(|file| file.canonicalize().ok());
    let all = files.iter().cloned().chain(real);
    all.map(|file| match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    })
    .collect()
}
