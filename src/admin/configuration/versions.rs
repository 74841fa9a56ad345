//! Versions of the configuration file, and the reasons that one is not shown or applied.

use std::io;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use trunkline_import::EditedFileError;

use super::PlanError;
use crate::codec::file::FileError;
use crate::codec::own_folder::OwnFolderError;

/// The party that had a configuration applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ConfigActor {
    /// The start of the gateway.
    #[default]
    Start,
    /// The watcher of the file.
    Watch,
    /// SIGHUP.
    Signal,
    /// An operator, by the API.
    Operator {
        /// Its name.
        name: String,
    },
}

/// The configuration file as it is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileOnDisk {
    /// SHA-256 of its text; `None` if it cannot be read.
    pub digest: Option<String>,
    /// True if its text is not the running one.
    pub differs: bool,
    /// Its faults, as a reload would find them; empty for a viewer.
    pub faults: Vec<String>,
}

/// A version of the configuration file that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigVersion {
    /// Its number. It is never used again.
    pub number: u64,
    /// SHA-256 of the text.
    pub digest: String,
    /// Time when it was applied.
    pub applied_at: Timestamp,
    /// The party that had it applied.
    pub applied_by: ConfigActor,
    /// The changes from the version before, in words.
    pub summary: String,
}

/// A version, with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VersionDocument {
    /// The version.
    #[serde(flatten)]
    pub version: ConfigVersion,
    /// Its text, with `***` in place of literal secrets.
    pub text: String,
    /// The changes that a rollback makes to the running text, as a unified diff; empty if there are
    /// none.
    pub diff: String,
    /// The references in the text, such as `${env:TOKEN}`. Their values are not stored: a rollback
    /// uses the present ones.
    pub references: Vec<String>,
}

/// Reasons that versions are not shown.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// Versions are not kept.
    #[error("versions of the configuration are not kept: set gateway.state_dir")]
    NoStateDir,
    /// No version has this number.
    #[error("there is no version {number}: list them again")]
    Unknown {
        /// The number.
        number: u64,
    },
    /// The folder cannot be used.
    #[error("the versions of the configuration cannot be read")]
    Folder(#[from] OwnFolderError),
    /// A version cannot be read.
    #[error("a version of the configuration cannot be read")]
    File(#[from] FileError),
    /// A version is damaged.
    #[error("version {number} of the configuration is damaged")]
    Damaged {
        /// The number.
        number: u64,
    },
    /// The folder cannot be read or written.
    #[error("the folder of versions cannot be read or written")]
    System(#[from] io::Error),
}

/// Reasons that a configuration is not planned or applied.
#[derive(Debug, thiserror::Error)]
pub enum ConfigChangeError {
    /// The plan is not the current one.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The version cannot be read.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// The file cannot be written.
    #[error("the configuration file cannot be written")]
    Write(#[from] EditedFileError),
}
