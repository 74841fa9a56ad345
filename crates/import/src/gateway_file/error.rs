//! Errors of editing a configuration.

use std::path::PathBuf;

use crate::edited_file::EditedFileError;

/// Reason that the file was not edited.
#[derive(Debug, thiserror::Error)]
pub enum GatewayFileError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] EditedFileError),
    /// The file is not TOML; `trunkline check` prints details.
    #[error("{}: invalid TOML: run `trunkline check --config {}` first", path.display(), path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
    },
    /// The section is not a table that entries can be added to.
    #[error("{}: `{section}` is an inline table; write [{section}.NAME] tables instead", path.display())]
    InlineSection {
        /// The file.
        path: PathBuf,
        /// `servers` or `profiles`.
        section: &'static str,
    },
    /// The form of the entry is not supported by the edit.
    #[error("{}: [{section}.{name}] is written in a form that cannot be edited safely; remove it by hand", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// `servers` or `profiles`.
        section: &'static str,
        /// The entry.
        name: String,
    },
    /// The gateway would not read a file of this size.
    #[error("nothing was written, because {} would have {len} bytes, and the gateway reads at most {max}: add fewer entries", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size with the edits, in bytes.
        len: usize,
        /// Maximum size of a configuration, in bytes.
        max: usize,
    },
    /// The configuration would be invalid.
    #[error("nothing was written, because the configuration would be invalid:\n{faults}")]
    Invalid {
        /// All faults, below their lines.
        faults: String,
    },
}
