//! `trunkline import`: servers that other programs have configured, as TOML for `gateway.toml`.
//!
//! Every format is read into one form (`imported.rs`), which `plan.rs` turns into entries of the
//! configuration and `render.rs` into TOML. Nothing is written without `--write`, and no secret is
//! ever printed: what looks like one moves to a file that only its owner can read.

mod apply;
pub(super) mod clients;
mod codex;
pub(super) mod document;
mod fields;
mod goose;
mod imported;
mod names;
mod new_server;
mod opencode;
mod plan;
mod references;
mod render;
mod secrets;
mod server_map;
mod shapes;
mod sources;
mod systems;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::gateway_file::{GatewayFile, GatewayFileError, GatewaySection};
use super::replace_file::ReplaceError;
use super::{ConfigOption, FAILURE, WRONG_USE, print_error, report_error, write_to_stdout};
use apply::{preview_plan, write_plan};
use clients::{KNOWN_CLIENTS, KnownClient, UserFolders};
use document::DocumentError;
pub(super) use new_server::{AddMode, NewServer};
use plan::{find_known_entries, plan_import};
pub(super) use secrets::hide_secrets;
use sources::ConfigFile;

/// Take over the servers that other programs have configured
///
/// Without a source it lists the configurations that it finds. With one it prints what it would add
/// to gateway.toml.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ImportArgs {
    /// A program, a file, or `-` for standard input
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// The program that a file or standard input belongs to; by default its form tells
    #[arg(long, value_name = "PROGRAM", requires = "sources")]
    from: Option<String>,
    #[command(flatten)]
    config: ConfigOption,
    /// Write to the configuration file
    #[arg(long, requires = "sources")]
    write: bool,
    /// Only print; the default
    #[arg(long, conflicts_with = "write")]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Programs:
  claude-desktop, claude-code, cursor, vscode, windsurf, codex, gemini, zed, opencode, goose, cline,
  lm-studio, signalwire, ava, action-servers, openlegion

Examples:
  trunkline import                          # what there is to import
  trunkline import cursor                   # print the TOML
  trunkline import cursor --write           # add it to gateway.toml
  trunkline import ./agents.yaml --write
  pbpaste | trunkline import -";

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImportError {
    /// The source is neither a program nor a file.
    #[error("`{source_name}` is neither a file nor a program that is known: {known}")]
    UnknownSource {
        /// As given.
        source_name: String,
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
        /// As given.
        name: String,
        /// The configuration.
        config: PathBuf,
    },
    /// There is no server of this name.
    #[error("{} has no [servers.{name}]", config.display())]
    NoServer {
        /// As given.
        name: String,
        /// The configuration.
        config: PathBuf,
    },
    /// The server would not work.
    #[error("nothing was added: {reason}")]
    NotAdded {
        /// The reason.
        reason: String,
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

impl From<ReplaceError> for ImportError {
    fn from(error: ReplaceError) -> Self {
        Self::Gateway(error.into())
    }
}

pub(super) fn run(args: &ImportArgs) -> ExitCode {
    let folders = UserFolders::from_environment();
    if args.sources.is_empty() {
        return write_to_stdout(&list_found(&folders));
    }
    match import_sources(args, &folders) {
        Ok(text) => write_to_stdout(&text),
        Err(error @ ImportError::UnknownSource { .. }) => {
            print_error(&error.to_string());
            WRONG_USE.into_code()
        }
        Err(ImportError::Gateway(error @ GatewayFileError::Invalid { .. })) => {
            // Several lines, below the lines of the file.
            print_error(&error.to_string());
            FAILURE.into_code()
        }
        Err(error) => report_error(&error),
    }
}

/// The configurations that are found, and what to type next.
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
        "\nNext:\n  trunkline import {alone}   # print what would be added to gateway.toml\n  \
         trunkline import {first} --write   # add it\n"
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
    let from = args.from.as_deref().map(|id| find_client(id)).transpose()?;
    let mut found = Vec::new();
    for source in &args.sources {
        for file in find_files(source, from, folders)? {
            found.push(file.read(folders)?);
        }
    }
    let mut gateway = GatewayFile::open(&args.config.path)?;
    let plan = plan_import(found, &gateway);
    if args.write {
        write_plan(&plan, &mut gateway, &args.config.path)
    } else {
        Ok(preview_plan(&plan, &args.config.path))
    }
}

/// Adds one server that is described on the command line, or prints what would be added.
///
/// # Errors
/// [`ImportError`].
pub(super) fn add_new_server(
    server: &NewServer,
    config: &Path,
    mode: AddMode,
) -> Result<String, ImportError> {
    let mut gateway = GatewayFile::open(config)?;
    let name = server.name();
    if gateway.has_entry(GatewaySection::Servers, name) {
        let (name, config) = (name.to_owned(), config.to_owned());
        return Err(ImportError::NameTaken { name, config });
    }
    let plan = plan_import(vec![server.to_found()], &gateway);
    match plan.entries.as_slice() {
        [entry] if entry.inactive.is_none() => {}
        [entry] => {
            let reason = entry.inactive.clone().unwrap_or_default();
            return Err(ImportError::NotAdded { reason });
        }
        _ => return Err(ImportError::NotAdded { reason: plan.notes.join("; ") }),
    }
    match mode {
        AddMode::Write => write_plan(&plan, &mut gateway, config),
        AddMode::Preview => Ok(preview_plan(&plan, config)),
    }
}

/// The entries of a client's file that the gateway has as servers now.
///
/// # Errors
/// [`DocumentError`].
pub(super) fn find_imported_entries(
    client: &'static KnownClient,
    path: &Path,
    gateway: &GatewayFile,
    folders: &UserFolders,
) -> Result<Vec<String>, DocumentError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let found = ConfigFile::of_client(client, path.to_owned()).read(folders)?;
    Ok(find_known_entries(found, gateway))
}

fn find_client(id: &str) -> Result<&'static KnownClient, ImportError> {
    KnownClient::by_id(id).ok_or_else(|| ImportError::UnknownSource {
        source_name: id.to_owned(),
        known: KnownClient::ids(),
    })
}

/// The files of a source.
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
            return find_client(source).map(|_| Vec::new());
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
