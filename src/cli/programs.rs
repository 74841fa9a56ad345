//! Programs of the system, found as a child process finds them.

use std::path::{Path, PathBuf};

/// Returns the folders with programs.
pub(super) fn program_folders() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

/// Returns true if a program exists: at its path, or by its name in one of the folders.
pub(super) fn program_exists(program: &str, folders: &[PathBuf]) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    folders.iter().any(|folder| folder.join(program).exists())
}
