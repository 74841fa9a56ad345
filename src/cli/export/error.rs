//! Errors of an export.

use std::path::PathBuf;

use trunkline_import::{DocumentError, EditedFileError, GatewayFileError};

use crate::cli::edited::gateway_file::gateway_file_exit;
use crate::cli::{CONFIG_FAULT, FAILURE_EXIT, FailureExit, WRONG_USE};
use crate::codec::file::FileError;

use super::edit::EditError;

/// Error of an export; nothing was written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    /// The client is unknown.
    #[error("--client: `{id}` is not known, expected one of {known}")]
    UnknownClient {
        /// The id as given.
        id: String,
        /// The ids of all clients.
        known: String,
    },
    /// The program has no file for an entry.
    #[error(
        "{title} has no configuration file that an entry could be written to; give it the gateway's URL"
    )]
    NoClientFile {
        /// The program.
        title: &'static str,
    },
    /// The client cannot read the key from a variable.
    #[error(
        "the gateway asks for a key, and {title} cannot read it from a variable: give it with --key-file FILE"
    )]
    KeyNeeded {
        /// The program.
        title: &'static str,
    },
    /// The client has a server of this name already.
    #[error(
        "{title} has another server `{name}`: choose a name with --name NAME, or import that server and use --replace"
    )]
    NameTaken {
        /// The program.
        title: &'static str,
        /// The name of the entry.
        name: String,
    },
    /// The file of the key.
    #[error("--key-file {}: {error}", path.display())]
    KeyFile {
        /// The path as given.
        path: PathBuf,
        /// The reason.
        error: FileError,
    },
    /// The file contains no valid key.
    #[error("--key-file: expected one line of 1 to 512 visible ASCII characters")]
    NoKey,
    /// The gateway's URL is not an HTTP URL.
    #[error("--url: expected an http or https URL")]
    NotHttp,
    /// The profile does not exist.
    #[error("--profile: no profile `{name}` in {config}")]
    UnknownProfile {
        /// The name as given.
        name: String,
        /// The configuration.
        config: String,
    },
    /// The configuration of the gateway is not valid.
    #[error(
        "{config} is not valid: run `trunkline check --config {config}`, or give the gateway's --url"
    )]
    InvalidConfig {
        /// The configuration.
        config: String,
    },
    /// The configuration of the gateway cannot be read.
    #[error(transparent)]
    Gateway(#[from] GatewayFileError),
    /// The client's file cannot be read.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The client's file cannot be written.
    #[error(transparent)]
    File(#[from] EditedFileError),
    /// The client's file cannot be edited.
    #[error("{file}: {error}")]
    Edit {
        /// The client's file.
        file: String,
        /// The reason.
        error: EditError,
    },
}

impl ExportError {
    /// The exit code of the command.
    pub(super) fn exit(&self) -> FailureExit {
        match self {
            Self::UnknownClient { .. }
            | Self::NoClientFile { .. }
            | Self::KeyNeeded { .. }
            | Self::NameTaken { .. }
            | Self::NotHttp
            | Self::UnknownProfile { .. } => WRONG_USE,
            Self::InvalidConfig { .. }
            | Self::KeyFile { .. }
            | Self::NoKey
            | Self::Document(_)
            | Self::File(EditedFileError::NotUtf8 { .. } | EditedFileError::Read { .. }) => {
                CONFIG_FAULT
            }
            Self::Gateway(error) => gateway_file_exit(error),
            _ => FAILURE_EXIT,
        }
    }
}
