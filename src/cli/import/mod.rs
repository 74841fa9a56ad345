//! `trunkline import`: servers from the configurations of other programs, as TOML for
//! `gateway.toml`.
//!
//! Every format is read into one form (`imported.rs`), which `plan.rs` turns into entries of the
//! configuration and `render.rs` into TOML. Nothing is written without `--write`, and no secret is
//! ever printed: a text that looks like one moves to a file that only its owner can read.

mod apply;
pub(super) mod clients;
mod compiled;
pub(super) mod document;
mod error;
mod fields;
pub(super) mod imported;
mod known;
mod names;
mod plan;
mod references;
mod render;
mod secret_files;
mod secrets;
mod shapes;
mod sources;
mod systems;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::config::ProfileConfig;

use super::gateway_file::{GatewayFile, GatewaySection};
use super::undo::undo_writes;
use super::{ConfigOption, report_edit_error, write_to_stdout};
use apply::{apply_plan, expected_text, offer_write, preview_plan, write_plan};
use clients::{KNOWN_CLIENTS, KnownClient, UserFolders};
use document::DocumentError;
pub(super) use error::ImportError;
pub(super) use plan::{ForeignEntry, ReplaceableEntries};
use plan::{ImportPlan, find_replaceable, plan_import};
pub(super) use references::{ReferenceContext, ReferenceNotation};
pub(super) use secrets::{ANY_SECRET, hide_secrets, holds_values};
pub(super) use sources::{ConfigFile, FoundConfig};

/// Take over the servers that other programs have configured
///
/// Without a source it lists the configurations that it finds. With one it prints the additions to
/// gateway.toml.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(super) struct ImportArgs {
    /// A program, a file, or `-` for standard input
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// The program that a file or standard input belongs to; detected by its form if not given
    #[arg(long, value_name = "PROGRAM", requires = "sources")]
    from: Option<String>,
    #[command(flatten)]
    config: ConfigOption,
    /// Write to the configuration file
    #[arg(long, requires = "sources")]
    write: bool,
    /// Only print (the default)
    #[arg(long, conflicts_with = "write")]
    dry_run: bool,
    /// Write only if it is the change that was shown
    #[arg(long, value_name = "HASH", requires = "write")]
    expect: Option<String>,
    /// Restore the configuration file as it was before the last import, add or remove
    #[arg(long, conflicts_with_all = ["sources", "dry_run"])]
    undo: bool,
}

const IMPORT_EXAMPLES: &str = "\
Programs:
  claude-desktop, claude-code, cursor, vscode, windsurf, codex, gemini, zed, opencode, goose, cline,
  lm-studio, signalwire, ava, action-servers, openlegion

Examples:
  trunkline import                          # list the known configurations
  trunkline import cursor                   # print the TOML
  trunkline import cursor --write           # add it to gateway.toml
  trunkline import ./agents.yaml --write
  trunkline import --undo                   # restore gateway.toml
  pbpaste | trunkline import -";

pub(super) fn run(args: &ImportArgs) -> ExitCode {
    let folders = UserFolders::from_environment();
    if args.undo {
        return undo_writes(std::slice::from_ref(&args.config.path));
    }
    let done = match args.sources.as_slice() {
        [] => Ok(list_found(&folders)),
        _ => import_sources(args, &folders),
    };
    match done {
        Ok(text) => write_to_stdout(&text),
        Err(error) => report_edit_error(&error, error.exit()),
    }
}

/// Lists the configurations found, and the next command to type.
fn list_found(folders: &UserFolders) -> String {
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
                Err(error) => crate::text::escape_controls(&error.to_string()),
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

fn import_sources(args: &ImportArgs, folders: &UserFolders) -> Result<String, ImportError> {
    let from = args.from.as_deref().map(find_program).transpose()?;
    let mut found = Vec::new();
    for source in &args.sources {
        for file in find_files(source, from, folders)? {
            found.push(file.read(folders)?);
        }
    }
    let mut gateway = GatewayFile::open(&args.config.path)?;
    let plan = plan_import(found, &gateway);
    apply_plan(&plan, &mut gateway)?;
    if args.write {
        gateway.file().check_expected(&expected_text(&plan, &gateway), args.expect.as_deref())?;
        return write_plan(&plan, &gateway);
    }
    Ok(preview_plan(&plan, &gateway) + &offer_write(&plan, &gateway))
}

/// Adds one server described on the command line, or prints the addition.
///
/// # Errors
/// [`ImportError`].
pub(super) fn add_found_server(
    name: &str,
    found: FoundConfig,
    config: &Path,
    mode: AddMode,
) -> Result<String, ImportError> {
    let mut gateway = GatewayFile::open(config)?;
    if gateway.has_entry(GatewaySection::Servers, name) {
        let (name, config) = (name.to_owned(), config.to_owned());
        return Err(ImportError::NameTaken { name, config });
    }
    let plan = plan_import(vec![found], &gateway);
    check_added(&plan, config)?;
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
pub(super) enum AddMode {
    /// Writes to the configuration.
    Write,
    /// Prints to standard output.
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
pub(super) fn find_replaceable_entries(
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
