//! Errors of an import, an addition or a removal.

use std::io;
use std::path::PathBuf;

use crate::edited_file::EditedFileError;
use crate::gateway_file::GatewayFileError;

use crate::documents::DocumentError;
use crate::documents::imported::InactiveEntryFault;

/// Reason that no entry was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source is not a known program and not a file.
    #[error("`{source_name}` is neither a file nor a program that is known: {known}")]
    UnknownSource {
        /// The source as given.
        source_name: String,
        /// The ids of all programs.
        known: String,
    },
    /// The program is unknown.
    #[error("--from: `{id}` is not known, expected one of {known}")]
    UnknownProgram {
        /// The id as given.
        id: String,
        /// The ids of all programs.
        known: String,
    },
    /// The program has no file here.
    #[error("{title} has no configuration here; looked for {places}")]
    NoFile {
        /// The program.
        title: &'static str,
        /// Its files.
        places: String,
    },
    /// The name belongs to another server.
    #[error("{} has a [servers.{name}] already", config.display())]
    NameTaken {
        /// The name as given.
        name: String,
        /// The configuration.
        config: PathBuf,
    },
    /// There is no server of this name.
    #[error("{} has no [servers.{name}]", config.display())]
    NoServer {
        /// The name as given.
        name: String,
        /// The configuration.
        config: PathBuf,
    },
    /// The server would not work.
    #[error("nothing was added: {reason}")]
    NotAdded {
        /// The reason.
        reason: InactiveEntryFault,
    },
    /// The same server has another name.
    #[error("nothing was added: {} has this server already, as [servers.{known}]", config.display())]
    Known {
        /// Its name.
        known: String,
        /// The configuration.
        config: PathBuf,
    },
    /// The entry that was found is not a server to add.
    #[error("nothing was added: {note}")]
    NotAServer {
        /// Description of the entry.
        note: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The configuration of the gateway cannot be read or written.
    #[error(transparent)]
    Gateway(#[from] GatewayFileError),
    /// A file with a secret cannot be written.
    #[error("cannot write {}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl From<EditedFileError> for ImportError {
    fn from(error: EditedFileError) -> Self {
        Self::Gateway(error.into())
    }
}
