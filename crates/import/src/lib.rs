//! Servers from the configurations of other programs, as entries of `gateway.toml`: `trunkline import`,
//! and the edits of `trunkline add`, `remove` and `export`.
//!
//! Every format is read into one form (`documents`), which `plan` turns into entries of the
//! configuration. Nothing is written without a request, and no secret is ever printed: a text that
//! looks like one moves to a file that only its owner can read.
//!
//! The commands' arguments, their output and their exit codes belong to the gateway's program. This
//! crate starts no server; rules that only the gateway can check come from it
//! ([`SettingsCheck`]).

#![warn(unreachable_pub)]

mod plan;
mod error;
mod secrets;
mod foreign;
mod documents;
mod gateway_file;
mod toml_entry;
mod edited_file;

use std::fmt::Write as _;
use std::path::Path;

use trunkline_config::ProfileConfig;
use trunkline_core::text::escape_controls;

use plan::apply::{apply_plan, expected_text, offer_write, preview_plan, write_plan};
use plan::{ImportPlan, find_replaceable, plan_import};

pub use documents::fields::FieldFault;
pub use documents::imported::{
    ImportedTarget, ImportedText, InactiveEntryFault, SandboxPermissions,
};
pub use documents::references::{ReferenceContext, ReferenceNotation};
pub use documents::{DocumentError, MAX_DOCUMENT, Notation, jsonc_options, parse_document};
pub use edited_file::{
    CreatedFile, EditedFile, EditedFileError, FileMode, UndoOutcome, UndoneFile, UndoneState,
    UndoneWrite, WriteOutcome, WriteRules, undo_write, unified_diff,
};
pub use error::ImportError;
pub use foreign::clients::{ClientPlace, KNOWN_CLIENTS, KnownClient, UserFolders, opencode};
pub use foreign::sources::{ConfigFile, FoundConfig};
pub use gateway_file::{
    CompleteEnvironment, GatewayFile, GatewayFileError, GatewaySection, PendingFiles,
    SettingsCheck, replace_gateway_text,
};
pub use plan::known::KEY_VARIABLE;
pub use plan::{ForeignEntry, ReplaceableEntries};
pub use secrets::{ANY_SECRET, hide_secrets, holds_values};
pub use toml_entry::remove_entry_text;

/// Lists the configurations found, and the next command to type.
pub fn list_found(folders: &UserFolders) -> String {
    let mut text = String::new();
    let mut first = None;
    for client in KNOWN_CLIENTS {
        for path in client.existing_files(folders) {
            let file = ConfigFile::of_client(client, path);
            let contents = match file.read(folders) {
                Ok(found) => {
                    let count = found.contents.servers.len();
                    first = first.or((count > 0).then_some(client.id));
                    count_servers(count)
                }
                Err(error) => escape_controls(&error.to_string()),
            };
            let _ = writeln!(text, "{:<16}{:<44}{contents}", client.id, file.label(folders));
        }
    }
    let Some(first) = first else {
        return format!(
            "{text}No configuration with MCP servers found. `trunkline import FILE` reads any \
             file; programs: {}\n",
            KnownClient::ids()
        );
    };
    let alone = format!("{first:<width$}", width = first.len() + " --write".len());
    let _ = write!(
        text,
        "\nNext:\n  trunkline import {alone}   # print the additions to gateway.toml\n  trunkline \
         import {first} --write   # add it\n"
    );
    text
}

fn count_servers(count: usize) -> String {
    match count {
        0 => "no servers".to_owned(),
        1 => "1 server".to_owned(),
        count => format!("{count} servers"),
    }
}

/// Reads the sources of an import: programs, files, or `-` for standard input. `from` names the
/// program that files and standard input belong to.
///
/// # Errors
/// [`ImportError`].
pub fn read_sources(
    sources: &[String],
    from: Option<&str>,
    folders: &UserFolders,
) -> Result<Vec<FoundConfig>, ImportError> {
    let from = from.map(find_program).transpose()?;
    let mut found = Vec::new();
    for source in sources {
        for file in find_files(source, from, folders)? {
            found.push(file.read(folders)?);
        }
    }
    Ok(found)
}

/// Mode of an import.
#[derive(Debug, Clone, Copy)]
pub enum ImportMode<'a> {
    /// Returns the additions, and the command that writes them.
    Preview,
    /// Writes to the configuration, if the change has the expected hash.
    Write {
        /// The hash that a preview has shown; any change if `None`.
        expect: Option<&'a str>,
    },
}

/// Adds the servers found to the configuration, or returns the additions.
///
/// # Errors
/// [`ImportError`].
pub fn import_found(
    found: Vec<FoundConfig>,
    mut gateway: GatewayFile,
    mode: ImportMode<'_>,
) -> Result<String, ImportError> {
    let plan = plan_import(found, &gateway);
    apply_plan(&plan, &mut gateway)?;
    match mode {
        ImportMode::Write { expect } => {
            gateway.file().check_expected(&expected_text(&plan, &gateway), expect)?;
            write_plan(&plan, &gateway)
        }
        ImportMode::Preview => Ok(preview_plan(&plan, &gateway) + &offer_write(&plan, &gateway)),
    }
}

/// Adds one server described on the command line, or returns the addition.
///
/// # Errors
/// [`ImportError`].
pub fn add_found_server(
    name: &str,
    found: FoundConfig,
    mut gateway: GatewayFile,
    mode: AddMode,
) -> Result<String, ImportError> {
    if gateway.has_entry(GatewaySection::Servers, name) {
        let (name, config) = (name.to_owned(), gateway.file().path().to_owned());
        return Err(ImportError::NameTaken { name, config });
    }
    let plan = plan_import(vec![found], &gateway);
    check_added(&plan, gateway.file().path())?;
    match mode {
        AddMode::Write => {
            apply_plan(&plan, &mut gateway)?;
            write_plan(&plan, &gateway)
        }
        AddMode::Preview => Ok(preview_plan(&plan, &gateway)),
    }
}

/// Mode of an addition.
#[derive(Debug, Clone, Copy)]
pub enum AddMode {
    /// Writes to the configuration.
    Write,
    /// Returns the addition.
    Preview,
}

/// Checks that a plan adds a working server.
fn check_added(plan: &ImportPlan, config: &Path) -> Result<(), ImportError> {
    match plan.entries.as_slice() {
        [entry] => match &entry.inactive {
            Some(reason) => Err(ImportError::NotAdded { reason: reason.clone() }),
            None => Ok(()),
        },
        _ => Err(match plan.duplicates.first() {
            Some(known) => ImportError::Known { known: known.clone(), config: config.to_owned() },
            None => ImportError::NotAServer { note: plan.notes.join("; ") },
        }),
    }
}

/// Returns the entries of a client's file that the gateway has as servers now.
///
/// # Errors
/// [`DocumentError`].
pub fn find_replaceable_entries(
    file: &ConfigFile,
    gateway: &GatewayFile,
    folders: &UserFolders,
    profile: Option<&ProfileConfig>,
) -> Result<ReplaceableEntries, DocumentError> {
    Ok(find_replaceable(file.read(folders)?, gateway, profile))
}

fn find_program(id: &str) -> Result<&'static KnownClient, ImportError> {
    let unknown = || ImportError::UnknownProgram { id: id.to_owned(), known: KnownClient::ids() };
    KnownClient::by_id(id).ok_or_else(unknown)
}

/// Returns the files of a source.
fn find_files(
    source: &str,
    from: Option<&'static KnownClient>,
    folders: &UserFolders,
) -> Result<Vec<ConfigFile>, ImportError> {
    if source == "-" {
        return Ok(vec![ConfigFile::standard_input(from)]);
    }
    let Some(client) = KnownClient::by_id(source) else {
        let path = Path::new(source);
        if !path.exists() && !source.contains(['/', '.']) {
            let (source_name, known) = (source.to_owned(), KnownClient::ids());
            return Err(ImportError::UnknownSource { source_name, known });
        }
        return Ok(vec![ConfigFile::at_path(path, from)]);
    };
    let files = client.existing_files(folders);
    if files.is_empty() {
        let places = client.places.iter().filter_map(|place| place.path(folders));
        let places: Vec<_> = places.map(|path| path.display().to_string()).collect();
        return Err(ImportError::NoFile { title: client.title, places: places.join(", ") });
    }
    Ok(files.into_iter().map(|path| ConfigFile::of_client(client, path)).collect())
}
