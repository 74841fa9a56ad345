//! The source of a configuration, and its interface to the system: the only file of this module
//! that accesses the system.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The text of a configuration, and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSource {
    /// The name of the file in messages.
    pub name: String,
    /// The folder of relative paths; absolute, because a child may have another working directory.
    pub folder: PathBuf,
    /// The bytes of the file.
    pub bytes: Vec<u8>,
}

impl ConfigSource {
    /// The largest configuration, in bytes.
    pub const MAX_LEN: usize = 1 << 20;

    /// Reads a file, at most one byte more than [`ConfigSource::MAX_LEN`].
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path) -> io::Result<Self> {
        let bytes = read_bounded(path, Self::MAX_LEN + 1)?;
        let folder = std::path::absolute(path)?.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { name: path.display().to_string(), folder, bytes })
    }
}

/// The configuration's interface to the system: [`SystemEnvironment`] in the program, a table in
/// tests.
pub trait Environment {
    /// An environment variable.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The text of a file named by a substitution.
    ///
    /// # Errors
    /// The system's error; `InvalidData` if the file is not UTF-8 or too large.
    fn text(&self, path: &Path) -> io::Result<String>;

    /// The running program.
    fn executable(&self) -> Option<PathBuf>;
}

/// The real system environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        let bytes = read_bounded(path, MAX_VALUE + 1)?;
        if bytes.len() > MAX_VALUE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn executable(&self) -> Option<PathBuf> {
        // Computed once: after an in-place upgrade the system would name a deleted file, and every
        // server that runs this program would look changed.
        static EXECUTABLE: OnceLock<Option<PathBuf>> = OnceLock::new();
        EXECUTABLE.get_or_init(|| std::env::current_exe().ok()).clone()
    }
}

/// The first `max` bytes of a file.
fn read_bounded(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let max = u64::try_from(max).unwrap_or(u64::MAX);
    std::fs::File::open(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The largest value of a `${file:…}`, in bytes.
const MAX_VALUE: usize = 64 << 10;
