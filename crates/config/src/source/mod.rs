//! The source of a configuration, and its interface to the system: files, variables and programs.
//!
//! Nothing else of this crate reads a file or a variable, or runs a program. Sections ask the
//! [`Environment`] of the reading; its functions for the real system are here and in
//! `command_output`, which runs the programs of `${command:…}`. `secret` is the type of values that
//! are never shown, and `embedding_model` makes a model of the bytes that the environment has read.

pub(crate) mod command_output;
#[cfg(feature = "embedding-models")]
pub(crate) mod embedding_model;
pub(crate) mod secret;
#[cfg(not(feature = "embedding-models"))]
pub(crate) mod unsupported_model;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use data_encoding::HEXLOWER;

use trunkline_core::codec::file::{FileError, read_file};
use trunkline_core::crypto::sha256;

use command_output::{CommandFault, output_of};

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
    pub const MAX_LEN: usize = 4 << 20;

    /// Reads a regular file of at most [`ConfigSource::MAX_LEN`] bytes.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let bytes = read_file(path, Self::MAX_LEN)?;
        let folder = std::path::absolute(path)?.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Self { name: path.display().to_string(), folder, bytes })
    }

    /// The SHA-256 of the file, in hexadecimal.
    pub fn digest(&self) -> String {
        HEXLOWER.encode(&sha256(&self.bytes))
    }
}

/// The configuration's interface to the system: [`SystemEnvironment`] in the program, a table in
/// tests. By default, commands are run and models are read as in the program.
pub trait Environment {
    /// An environment variable.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// The text of a file named by a substitution.
    ///
    /// # Errors
    /// [`FileError`].
    fn text(&self, path: &Path) -> Result<String, FileError>;

    /// The output of a command line named by a substitution.
    ///
    /// # Errors
    /// [`CommandFault`].
    fn output(&self, line: &str) -> Result<String, CommandFault> {
        SystemEnvironment.output(line)
    }

    /// The bytes of a file of an embedding model, at most `max`.
    ///
    /// # Errors
    /// [`FileError`].
    fn model_file(&self, path: &Path, max: usize) -> Result<Vec<u8>, FileError> {
        SystemEnvironment.model_file(path, max)
    }

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

    fn text(&self, path: &Path) -> Result<String, FileError> {
        check_file_value(read_file(path, MAX_FILE_VALUE)?)
    }

    fn output(&self, line: &str) -> Result<String, CommandFault> {
        output_of(line)
    }

    fn model_file(&self, path: &Path, max: usize) -> Result<Vec<u8>, FileError> {
        read_file(path, max)
    }

    fn executable(&self) -> Option<PathBuf> {
        // Computed once: after an in-place upgrade the system would name a deleted file, and every
        // server that runs this program would look changed.
        static EXECUTABLE_PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
        EXECUTABLE_PATH.get_or_init(|| std::env::current_exe().ok()).clone()
    }
}

/// Stands in for the system where values do not matter.
pub(crate) struct NoEnvironment;

impl Environment for NoEnvironment {
    fn variable(&self, _: &str) -> Option<OsString> {
        Some(PLACEHOLDER_VALUE.into())
    }

    fn text(&self, _: &Path) -> Result<String, FileError> {
        Ok(PLACEHOLDER_VALUE.to_owned())
    }

    fn output(&self, _: &str) -> Result<String, CommandFault> {
        Ok(PLACEHOLDER_VALUE.to_owned())
    }

    fn model_file(&self, _: &Path, _: usize) -> Result<Vec<u8>, FileError> {
        Err(FileError::Empty)
    }

    fn executable(&self) -> Option<PathBuf> {
        None
    }
}

/// Value of every reference in [`NoEnvironment`].
const PLACEHOLDER_VALUE: &str = "0";

/// Returns the contents of a file as the value of a `${file:…}`.
///
/// # Errors
/// [`FileError`] for contents that no value may have.
pub fn check_file_value(bytes: Vec<u8>) -> Result<String, FileError> {
    if bytes.len() > MAX_FILE_VALUE {
        return Err(FileError::TooLarge { max: MAX_FILE_VALUE });
    }
    if bytes.trim_ascii().is_empty() {
        return Err(FileError::Empty);
    }
    String::from_utf8(bytes).map_err(|_| FileError::NotText)
}

/// The largest value of a `${file:…}`, in bytes.
const MAX_FILE_VALUE: usize = 64 << 10;
/// The most dimensions of a vector.
pub(crate) const MAX_DIMENSIONS: usize = 8192;
