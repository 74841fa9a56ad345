//! Files that are replaced whole or not at all, even if the power fails.
//!
//! The new content is written to a draft beside the file and synced; then the draft is renamed and
//! the folder synced. Without the first sync a file system may keep the rename and lose the
//! content, which leaves an empty file; without the second it may forget the rename.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use rustix::io::Errno;

use crate::crypto::random_bytes;

/// Replaces a file, or creates it with this mode. A symbolic link is replaced, not followed.
///
/// # Errors
/// The system's error. The old file is unchanged, unless only the sync of the folder failed.
pub fn replace_file(target: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut draft = Draft::create(target, mode)?;
    draft.file().write_all(bytes)?;
    draft.commit().map(drop)
}

/// New content of a file, under a temporary name beside it. It is removed if it is dropped before
/// it gets its final name.
#[derive(Debug)]
pub struct Draft {
    file: File,
    name: DraftName,
    target: PathBuf,
}

impl Draft {
    /// Creates an empty draft with this mode, less the bits of the umask.
    ///
    /// # Errors
    /// The system's error, and `InvalidInput` for a path without a file name.
    pub fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let name = target.file_name().ok_or(ErrorKind::InvalidInput)?;
        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(format!(".{}{DRAFT_SUFFIX}", HEXLOWER.encode(&random_bytes::<RANDOM_BYTES>()?)));
        let path = target.with_file_name(draft);
        let file = File::options().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { file, name: DraftName(path), target: target.to_owned() })
    }

    /// Returns the file, for its content, owner and mode.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Replaces the target. Returns the open file, at its end.
    ///
    /// # Errors
    /// The system's error. The old file is unchanged, unless only the sync of the folder failed.
    pub fn commit(self) -> io::Result<File> {
        self.place(|draft, target| fs::rename(draft, target))
    }

    /// Creates the target. If several processes do so at once, one of them creates it.
    ///
    /// # Errors
    /// The system's error, `AlreadyExists` if the target exists.
    pub fn commit_new(self) -> io::Result<File> {
        self.place(|draft, target| fs::hard_link(draft, target))
    }

    fn place(self, place: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<File> {
        let Self { file, name, target } = self;
        sync(&file)?;
        place(&name.0, &target)?;
        sync_folder(&target)?;
        Ok(file)
    }
}

/// The temporary name. A renamed draft has it no longer, so that its removal does nothing.
#[derive(Debug)]
struct DraftName(PathBuf);

impl Drop for DraftName {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Syncs the folder of a file, so that new names in it survive a power failure. Skips folders that
/// this user may not read and file systems that cannot sync folders.
///
/// # Errors
/// The system's error.
pub fn sync_folder(file: &Path) -> io::Result<()> {
    match File::open(parent_folder(file)).and_then(|folder| sync(&folder)) {
        Err(error)
            if UNSUPPORTED_SYNC_ERRORS
                .iter()
                .any(|no| error.raw_os_error() == Some(no.raw_os_error())) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

/// Returns the folder of a file; a bare name is in the current one.
pub fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes the drafts in a folder that were last written more than [`ABANDONED_AGE`] ago: their
/// processes were killed.
pub(super) fn remove_abandoned_drafts(folder: &Path, now: SystemTime) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.take(MAX_ENTRIES).flatten() {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        let age = written.map(|at| now.duration_since(at).unwrap_or_default());
        if is_draft(entry.file_name().as_bytes()) && age.is_ok_and(|age| age > ABANDONED_AGE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn is_draft(name: &[u8]) -> bool {
    let random =
        name.strip_prefix(b".").and_then(|rest| rest.strip_suffix(DRAFT_SUFFIX.as_bytes()));
    let random = random.and_then(|rest| rest.rsplit(|byte| *byte == b'.').next());
    random.is_some_and(|random| HEXLOWER.decode(random).is_ok_and(|it| it.len() == RANDOM_BYTES))
}

fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    tests::observe_sync(file)?;
    file.sync_all()
}

/// Suffix of unfinished files.
pub const DRAFT_SUFFIX: &str = ".tmp";
/// Random bytes in the name of a draft.
const RANDOM_BYTES: usize = 8;
/// Errors of opening or syncing a folder that say nothing about its files, as `PostgreSQL` has them.
const UNSUPPORTED_SYNC_ERRORS: [Errno; 5] =
    [Errno::ACCESS, Errno::ISDIR, Errno::BADF, Errno::INVAL, Errno::NOTSUP];
/// Age of a draft from which on no process can still be writing it.
const ABANDONED_AGE: Duration = Duration::from_hours(24);
/// Maximum number of files that are checked for abandoned drafts.
const MAX_ENTRIES: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    type SyncObserver = Box<dyn FnMut(&Path) -> io::Result<()>>;

    thread_local! {
        static OBSERVER: RefCell<Option<SyncObserver>> = const { RefCell::new(None) };
    }

    /// Passes the present path of a file that is about to be synced to the test's observer.
    pub(super) fn observe_sync(file: &File) -> io::Result<()> {
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        OBSERVER.with_borrow_mut(|observer| observer.as_mut().map_or(Ok(()), |it| it(&path)))
    }

    fn list(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_file_is_synced_before_its_rename_and_the_folder_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(&target, "old").unwrap();
        let synced = std::rc::Rc::new(RefCell::new(Vec::new()));
        let (seen, file) = (std::rc::Rc::clone(&synced), target.clone());
        OBSERVER.set(Some(Box::new(move |path| {
            seen.borrow_mut().push((path.to_owned(), fs::read(&file).unwrap()));
            Ok(())
        })));
        replace_file(&target, b"new", 0o600).unwrap();
        OBSERVER.set(None);
        let synced = synced.take();
        let [(draft, before), (parent, after)] = &synced[..] else { panic!("{synced:?}") };
        assert!(is_draft(draft.file_name().unwrap().as_bytes()), "{draft:?}");
        assert_eq!((&before[..], &after[..]), (&b"old"[..], &b"new"[..]));
        assert_eq!(parent, folder.path());
        assert_eq!(list(folder.path()), ["file"], "no draft is left");
    }

    #[test]
    fn a_file_whose_content_cannot_be_synced_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(&target, "old").unwrap();
        OBSERVER.set(Some(Box::new(|_| Err(Errno::IO.into()))));
        let replaced = replace_file(&target, b"new", 0o600);
        OBSERVER.set(None);
        assert_eq!(replaced.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
        assert_eq!((fs::read(&target).unwrap(), list(folder.path()).len()), (b"old".to_vec(), 1));
    }

    #[test]
    fn only_an_error_of_the_disk_matters_when_the_folder_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        for (error, is_ok) in [(Errno::INVAL, true), (Errno::ACCESS, true), (Errno::IO, false)] {
            OBSERVER.set(Some(Box::new(
                move |path| {
                    if path.is_dir() { Err(error.into()) } else { Ok(()) }
                },
            )));
            let replaced = replace_file(&target, format!("{error:?}").as_bytes(), 0o600);
            OBSERVER.set(None);
            assert_eq!(replaced.is_ok(), is_ok, "{error:?}");
            assert_eq!(fs::read_to_string(&target).unwrap(), format!("{error:?}"));
        }
    }

    #[test]
    fn a_draft_that_is_dropped_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        fs::write(&target, "old").unwrap();
        let mut draft = Draft::create(&target, 0o600).unwrap();
        draft.file().write_all(b"new").unwrap();
        assert_eq!(list(folder.path()).len(), 2);
        drop(draft);
        assert_eq!(list(folder.path()), ["file"]);
        assert_eq!(fs::read(&target).unwrap(), b"old");
        assert!(Draft::create(Path::new("/"), 0o600).is_err());
    }

    #[test]
    fn a_new_file_has_its_mode_and_its_first_writer_wins() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("file");
        for content in ["first", "second"] {
            let mut draft = Draft::create(&target, 0o600).unwrap();
            draft.file().write_all(content.as_bytes()).unwrap();
            let created = draft.commit_new();
            let exists = |error: io::Error| error.kind() == ErrorKind::AlreadyExists;
            assert_eq!(created.is_err_and(exists), content == "second");
        }
        assert_eq!(fs::read(&target).unwrap(), b"first");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(list(folder.path()), ["file"]);
    }

    #[test]
    fn drafts_of_killed_processes_are_removed_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let draft = Draft::create(&folder.path().join("a.pins"), 0o600).unwrap();
        for name in ["a.pins", ".notes.tmp", ".a.0123.tmp", "x.tmp"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let now = crate::clock::wall_now();
        remove_abandoned_drafts(folder.path(), now + Duration::from_hours(23));
        assert_eq!(list(folder.path()).len(), 5, "it may still be written");
        remove_abandoned_drafts(folder.path(), now + Duration::from_hours(25));
        assert_eq!(list(folder.path()), [".a.0123.tmp", ".notes.tmp", "a.pins", "x.tmp"]);
        drop(draft);
    }
}
