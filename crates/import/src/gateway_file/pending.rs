//! Environment for checking an edited configuration.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use trunkline_config::{CommandFault, Environment, Secret, SystemEnvironment, check_file_value};
use trunkline_core::codec::file::FileError;

/// Files that are written together with the configuration. The configuration is checked as if they
/// existed.
#[derive(Debug, Default)]
pub struct PendingFiles {
    texts: HashMap<PathBuf, Secret>,
}

impl PendingFiles {
    /// Adds a file by its absolute path.
    pub fn insert(&mut self, path: PathBuf, text: Secret) {
        self.texts.insert(path, text);
    }
}

impl Environment for PendingFiles {
    fn variable(&self, name: &str) -> Option<OsString> {
        SystemEnvironment.variable(name)
    }

    fn text(&self, path: &Path) -> Result<String, FileError> {
        match self.texts.get(path) {
            Some(text) => check_file_value(text.expose().as_bytes().to_vec()),
            None => SystemEnvironment.text(path),
        }
    }

    fn executable(&self) -> Option<PathBuf> {
        SystemEnvironment.executable()
    }
}

/// An environment with a value for every variable and every command. Missing variables and commands
/// get their name as the value, so that two servers that use the same one are equal in every
/// comparison.
#[derive(Debug)]
pub struct CompleteEnvironment<'a>(pub &'a PendingFiles);

impl Environment for CompleteEnvironment<'_> {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.variable(name).or_else(|| Some(format!("unset-{name}").into()))
    }

    fn text(&self, path: &Path) -> Result<String, FileError> {
        self.0.text(path)
    }

    fn output(&self, line: &str) -> Result<String, CommandFault> {
        Ok(format!("output-of-{line}"))
    }

    fn executable(&self) -> Option<PathBuf> {
        self.0.executable()
    }
}
