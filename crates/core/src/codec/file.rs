//! Local files of the configuration: regular ones only, bounded in size, and read away from the
//! threads that serve clients, within a time limit.
//!
//! A path in a configuration may lead to anything: a named pipe without a writer blocks its reader
//! forever, `/dev/zero` has no end, and a file on a network that is gone hangs in the kernel, where
//! nothing can cancel the read.

use std::fs::{File, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::geteuid;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use crate::text::describe_system_error;

/// Reasons that a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system's error. It is no source: a chain of causes would repeat it.
    #[error("{}", describe_system_error(.0))]
    System(io::Error),
    /// A pipe, a device, a socket or a directory.
    #[error("expected a regular file, found {found}")]
    NotRegular {
        /// Its kind, with an article.
        found: &'static str,
    },
    /// The file exceeds the limit of its reader.
    #[error("expected at most {max} bytes, found more")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// Another user owns the file, or may write to it.
    #[error("expected a file that only the gateway's own user can write")]
    Foreign,
    /// The file is empty, like one that is being written.
    #[error("expected contents, found an empty file")]
    Empty,
    /// The file is not UTF-8.
    #[error("expected text in UTF-8")]
    NotText,
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Reads a regular file of at most `max` bytes.
///
/// # Errors
/// [`FileError`]. A named pipe is refused without waiting for its writer.
pub fn read_file(path: &Path, max: usize) -> Result<Vec<u8>, FileError> {
    let (file, _) = open_regular(path, OFlags::empty())?;
    read_bounded(file, max)
}

/// Reads a file that the gateway wrote itself: like [`read_file`], but follows no symbolic link,
/// and refuses a file that another user could have written.
///
/// # Errors
/// [`FileError`].
pub fn read_own_file(path: &Path, max: usize) -> Result<Vec<u8>, FileError> {
    let (file, metadata) = open_regular(path, OFlags::NOFOLLOW)?;
    if !is_own(&metadata) {
        return Err(FileError::Foreign);
    }
    read_bounded(file, max)
}

/// Returns true if the gateway's own user owns a file or folder, and no other user can write to it.
pub fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

fn open_regular(path: &Path, flags: OFlags) -> Result<(File, Metadata), FileError> {
    // Opening a pipe or a device must not block either.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        return Err(FileError::NotRegular { found: name_kind(kind) });
    }
    Ok((file, metadata))
}

fn read_bounded(file: File, max: usize) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    // A file may grow while it is read.
    file.take(u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        return Err(FileError::TooLarge { max });
    }
    Ok(bytes)
}

fn name_kind(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Reasons that files were not read in time.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system did not answer in time.
    #[error("reading the files takes longer than {within:?}")]
    Timeout {
        /// The time limit.
        within: Duration,
    },
    /// The read panicked, or the gateway is stopping.
    #[error("reading the files failed")]
    Task(#[from] JoinError),
}

/// Reads files on blocking threads, one read at a time.
///
/// The system cannot cancel a read that hangs. It keeps its thread, and the next read of the same
/// reader waits for it, so that no more than one thread hangs.
#[derive(Debug, Clone)]
pub struct FileReader {
    within: Duration,
    turn: Arc<Semaphore>,
}

impl FileReader {
    /// Creates a reader with a time limit for each read.
    pub fn new(within: Duration) -> Self {
        Self { within, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Runs `read`, which reads files.
    ///
    /// # Errors
    /// [`ReadError`]; the result of a read that takes too long is dropped.
    pub async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        let read = async {
            let turn = Arc::clone(&self.turn).acquire_owned().await;
            spawn_blocking(move || {
                let _turn = turn;
                read()
            })
            .await
        };
        let within = self.within;
        Ok(timeout(within, read).await.map_err(|_| ReadError::Timeout { within })??)
    }
}

impl Default for FileReader {
    fn default() -> Self {
        Self::new(READ_TIME)
    }
}

/// The permission bits that let other users write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Default time limit of a read.
const READ_TIME: Duration = Duration::from_secs(10);
/// Limit of the bytes of a file of certificates or keys.
pub const MAX_PEM: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for (path, expected) in [
            (pipe.as_path(), "a named pipe"),
            (&link, "a named pipe"),
            (folder.path(), "a directory"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let fault = read_file(path, 100).unwrap_err().to_string();
            assert_eq!(fault, format!("expected a regular file, found {expected}"));
        }
    }

    #[test]
    fn a_file_of_the_gateways_own_is_no_link_and_not_writable_by_others() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&path, "x").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for (mode, is_own) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = read_own_file(&path, 100);
            assert_eq!(read.is_ok(), is_own, "{mode:o}");
            assert!(is_own || matches!(read, Err(FileError::Foreign)));
            assert!(matches!(read_own_file(&link, 100), Err(FileError::System(_))), "a link");
        }
    }

    #[test]
    fn a_missing_file_is_named_once_in_a_chain() {
        let fault = read_file(Path::new("/no/such/file"), 100).unwrap_err();
        assert_eq!(crate::text::error_chain(&fault), "No such file or directory");
    }

    #[test]
    fn a_file_is_bounded_in_size() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [b'x'; 100]).unwrap();
        assert_eq!(read_file(file.path(), 100).unwrap().len(), 100);
        let fault = read_file(file.path(), 99).unwrap_err();
        assert!(matches!(fault, FileError::TooLarge { max: 99 }), "{fault}");
    }

    #[tokio::test]
    async fn a_read_that_hangs_ends_in_time_and_the_next_one_waits_for_it() {
        let (release, released) = mpsc::sync_channel::<()>(0);
        let reader = FileReader::new(Duration::from_millis(20));
        let hung = reader.run(move || released.recv()).await;
        assert!(matches!(hung, Err(ReadError::Timeout { .. })));
        assert!(matches!(reader.run(|| 7).await, Err(ReadError::Timeout { .. })));
        assert_eq!(FileReader::default().run(|| 7).await.unwrap(), 7, "another reader is free");
        drop(release);
        let patient = FileReader { within: READ_TIME, ..reader };
        assert_eq!(patient.run(|| 7).await.unwrap(), 7);
    }
}
