//! The file of a vault: one table of sealed rows, locked for each operation.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition, TableError,
};
use rustix::fs::{FlockOperation, OFlags, flock};

use trunkline_core::clock;
use trunkline_core::codec::file::is_own;
use trunkline_core::codec::replace_file::sync_folder;
use trunkline_core::text::clip;

use super::VaultFault;

/// The rows: their names, and their sealed values.
const VAULT_ROWS: TableDefinition<&str, &[u8]> = TableDefinition::new("rows");

/// The file.
#[derive(Debug)]
pub(super) struct VaultFile {
    path: PathBuf,
}

/// Held while the file is used. Other processes wait for it.
pub(super) struct FileTurn(#[allow(dead_code, reason = "held for its drop")] File);

/// Identifies one state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    inode: u64,
    changed: (i64, i64),
    size: u64,
}

impl VaultFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the turn of this process.
    pub(super) fn lock(&self) -> Result<FileTurn, VaultFault> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        // A file of its own: the vault file is replaced from time to time, and this one is not.
        let file = open_own(&self.beside(".lock"))?;
        let since = clock::real_now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(FileTurn(file)),
                Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
                    if since.elapsed() > TURN_PATIENCE {
                        return Err(VaultFault::InUse { waited: TURN_PATIENCE });
                    }
                    pause(TURN_PAUSE);
                }
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }

    /// All rows, sealed.
    pub(super) fn read_rows(&self) -> Result<Vec<(String, Vec<u8>)>, VaultFault> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(VAULT_ROWS) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                table => table?,
            };
            let mut rows = Vec::new();
            for row in table.iter()? {
                if rows.len() >= MAX_ROWS {
                    return Err(VaultFault::TooLarge { limit: MAX_ROWS, unit: "rows" }.into());
                }
                let (name, sealed) = row?;
                rows.push((name.value().to_owned(), sealed.value().to_vec()));
            }
            Ok(rows)
        })
    }

    pub(super) fn read_row(&self, name: &str) -> Result<Option<Vec<u8>>, VaultFault> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            let table = match transaction.open_table(VAULT_ROWS) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            Ok(table.get(name)?.map(|sealed| sealed.value().to_vec()))
        })
    }

    pub(super) fn write_row(&self, name: &str, sealed: &[u8]) -> Result<(), VaultFault> {
        if sealed.len() > MAX_ROW_BYTES {
            return Err(VaultFault::TooLarge { limit: MAX_ROW_BYTES, unit: "bytes in a row" });
        }
        self.with(|database| insert_rows(database, [(name, sealed)]))
    }

    pub(super) fn delete_row(&self, name: &str) -> Result<(), VaultFault> {
        self.with(|database| {
            let transaction = database.begin_write()?;
            transaction.open_table(VAULT_ROWS)?.remove(name)?;
            Ok(transaction.commit()?)
        })
    }

    /// Replaces the file by a new one with these rows. The old file remains until the new one is
    /// complete.
    pub(super) fn replace_rows(&self, rows: &[(String, Vec<u8>)]) -> Result<(), VaultFault> {
        let draft = Self::new(&self.beside(".new"));
        // A draft left behind by a process that was killed.
        let _ = fs::remove_file(&draft.path);
        let rows = rows.iter().map(|(name, sealed)| (name.as_str(), sealed.as_slice()));
        let written = draft.with(|database| insert_rows(database, rows));
        let renamed = written.and_then(|()| Ok(fs::rename(&draft.path, &self.path)?));
        renamed.inspect_err(|_| {
            let _ = fs::remove_file(&draft.path);
        })?;
        Ok(sync_folder(&self.path)?)
    }

    /// The file now; `None` if there is none.
    pub(super) fn stamp(&self) -> Option<FileStamp> {
        let metadata = fs::metadata(&self.path).ok()?;
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Some(FileStamp { inode: metadata.ino(), changed, size: metadata.size() })
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// Opens the store, which is created if it is missing, and closes it again.
    fn with<T>(
        &self,
        operate: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, VaultFault> {
        let file = open_own(&self.path)?;
        let size = file.metadata()?.len();
        if size > MAX_FILE_BYTES {
            let limit = usize::try_from(MAX_FILE_BYTES).unwrap_or(usize::MAX);
            return Err(VaultFault::TooLarge { limit, unit: "bytes" });
        }
        // The store may panic on a file that it did not write.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let database = Builder::new()
                .set_cache_size(CACHE_BYTES)
                .create_with_backend(FileBackend::new(file)?)?;
            let done = operate(&database)?;
            database.close()?;
            Ok(done)
        }));
        match done {
            Ok(done) => done.map_err(StoreError::into_fault),
            Err(_) => Err(VaultFault::Damaged { reason: "its pages contradict each other".into() }),
        }
    }
}

fn insert_rows<'a>(
    database: &Database,
    rows: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<(), StoreError> {
    let transaction = database.begin_write()?;
    let mut table = transaction.open_table(VAULT_ROWS)?;
    for (name, sealed) in rows {
        table.insert(name, sealed)?;
    }
    drop(table);
    // Durable when it returns.
    Ok(transaction.commit()?)
}

/// Opens a file of the gateway's own user, and creates it if missing. Only that user can read a new
/// file.
fn open_own(path: &Path) -> Result<File, VaultFault> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = match options.open(path) {
        Err(error) if error.raw_os_error() == Some(SYMLINK_ERRNO) => {
            return Err(VaultFault::Foreign);
        }
        file => file?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || !is_own(&metadata) {
        return Err(VaultFault::Foreign);
    }
    Ok(file)
}

#[expect(clippy::disallowed_methods, reason = "on a blocking thread, and without a runtime at all")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// An error of the store, or of the operation on it.
enum StoreError {
    Store(redb::Error),
    Fault(VaultFault),
}

impl From<VaultFault> for StoreError {
    fn from(fault: VaultFault) -> Self {
        Self::Fault(fault)
    }
}

macro_rules! store_errors {
    ($($Error:ty),*) => { $(
        impl From<$Error> for StoreError {
            fn from(error: $Error) -> Self {
                Self::Store(error.into())
            }
        }
    )* };
}

store_errors!(DatabaseError, StorageError, TableError, redb::TransactionError, redb::CommitError);

impl StoreError {
    fn into_fault(self) -> VaultFault {
        match self {
            Self::Fault(fault) => fault,
            Self::Store(redb::Error::Io(error)) if !is_short(&error) => error.into(),
            Self::Store(redb::Error::DatabaseAlreadyOpen) => {
                VaultFault::InUse { waited: Duration::ZERO }
            }
            Self::Store(error) => VaultFault::Damaged {
                reason: clip(&error.to_string(), MAX_SHOWN_REASON_BYTES).to_owned(),
            },
        }
    }
}

/// Returns true if a file ends too early, or begins with unexpected bytes.
fn is_short(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData)
}

/// Time limit for a process that waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_secs(5);
const TURN_PAUSE: Duration = Duration::from_millis(20);
/// The most rows, the most bytes of one row, and of the file.
const MAX_ROWS: usize = 200_000;
const MAX_ROW_BYTES: usize = 256 << 10;
const MAX_FILE_BYTES: u64 = 1 << 30;
/// The memory of the store while it is open, in bytes.
const CACHE_BYTES: usize = 1 << 20;
/// The most bytes of the store's own reason in an error.
const MAX_SHOWN_REASON_BYTES: usize = 200;
/// The system's error for a symbolic link that is not followed.
const SYMLINK_ERRNO: i32 = rustix::io::Errno::LOOP.raw_os_error();
