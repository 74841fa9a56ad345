//! `trunkline export`: points a client at the gateway, by one entry in the client's own
//! configuration.
//!
//! A client's file belongs to its user: nothing is written without `--write`, the rest of the file
//! stays as it is, the version before is kept beside it, and a file that has changed since it was
//! shown is not touched.

mod backup;
mod edit;
mod entry;
mod yaml;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use data_encoding::HEXLOWER;
use serde_json::Value as Json;
use url::Url;

use crate::codec::file::{FileError, read_file};
use crate::config::{Config, Secret};
use crate::crypto::sha256;
use crate::text::escape_controls;

use super::gateway_file::{GatewayFile, GatewayFileError, PendingFiles, unified_diff};
use super::import::clients::{ClientPlace, KNOWN_CLIENTS, KnownClient, UserFolders};
use super::import::document::{DocumentError, MAX_DOCUMENT, Notation, decode_text, parse_document};
use super::import::{find_imported_entries, hide_secrets};
use super::replace_file::{ReplaceError, read_existing};
use super::{ConfigOption, report_error, write_to_stdout};
use backup::{UndoOutcome, undo_export, write_with_backup};
use edit::{EditError, FileEdit, edit_text};
use entry::{ClientKey, GatewayAddress, KEY_VARIABLE, KeyDisplay};

/// Point a client at the gateway
///
/// Prints the entry for the client's configuration and what it would change there.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExportArgs {
    /// The client: claude-code, claude-desktop, cursor, vscode, windsurf, codex, gemini, zed,
    /// opencode, goose, cline or lm-studio
    #[arg(long, value_name = "CLIENT", required_unless_present = "undo")]
    client: Option<String>,
    #[command(flatten)]
    config: ConfigOption,
    /// The profile that the client uses; by default everything
    #[arg(short, long, value_name = "NAME")]
    profile: Option<String>,
    /// The gateway's URL for this client, if it is not the address that it listens on
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// A file with the client's API key, to write into its configuration; by default the client
    /// reads it from the environment variable TRUNKLINE_KEY
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The name of the entry
    #[arg(long, value_name = "NAME", default_value = "trunkline")]
    name: String,
    /// The client's configuration file; by default where the client has it
    #[arg(long, value_name = "FILE", requires = "client")]
    file: Option<PathBuf>,
    /// Write to the client's configuration
    #[arg(long, conflicts_with = "undo")]
    write: bool,
    /// Take out the entries of servers that the gateway has now
    #[arg(long, conflicts_with = "undo")]
    replace: bool,
    /// Write only if the client's file is still the one that was shown
    #[arg(long, value_name = "HASH", requires = "write")]
    expect: Option<String>,
    /// Restore the client's configuration as it was before the last export
    #[arg(long)]
    undo: bool,
}

const EXAMPLES: &str = "\
Examples:
  trunkline export --client cursor                     # show what would change
  trunkline export --client cursor --write --replace   # and take out what was imported
  trunkline export --client cursor --undo              # as it was before, byte for byte";

/// Why nothing was exported.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    /// The client is not known.
    #[error("--client: `{id}` is not known, expected one of {known}")]
    UnknownClient {
        /// As given.
        id: String,
        /// The ids of all clients.
        known: String,
    },
    /// The program has no file that an entry could be written to.
    #[error("{title} has no configuration file of its own; point it at the gateway's URL")]
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
    /// The file of the key.
    #[error("--key-file: {error}")]
    KeyFile {
        /// The reason.
        error: FileError,
    },
    /// The file of the key has none.
    #[error("--key-file: expected one line of 1 to 512 visible ASCII characters")]
    NoKey,
    /// The profile does not exist.
    #[error("--profile: no profile `{name}` in {config}")]
    UnknownProfile {
        /// As given.
        name: String,
        /// The configuration.
        config: String,
    },
    /// The configuration of the gateway is not valid.
    #[error("{config} is not valid: run `trunkline check`, or give the gateway's --url")]
    InvalidConfig {
        /// The configuration.
        config: String,
    },
    /// The file is not the one that was shown.
    #[error("{file} is not the one that --expect names and was not touched; look at it again")]
    Unexpected {
        /// The client's file.
        file: String,
    },
    /// The client's file was changed after the export.
    #[error(
        "{} has changed since the export and was not touched; before the export it was {}",
        file.display(), backup.display()
    )]
    ChangedSince {
        /// The client's file.
        file: PathBuf,
        /// The version before the export.
        backup: PathBuf,
    },
    /// The configuration of the gateway cannot be read.
    #[error(transparent)]
    Gateway(#[from] GatewayFileError),
    /// The client's file cannot be read.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The client's file cannot be written.
    #[error(transparent)]
    File(#[from] ReplaceError),
    /// The client's file cannot be edited.
    #[error("{file}: {error}")]
    Edit {
        /// The client's file.
        file: String,
        /// The reason.
        error: EditError,
    },
}

pub(super) fn run(args: &ExportArgs) -> ExitCode {
    let folders = UserFolders::from_environment();
    let client = args.client.as_deref().map(find_client).transpose();
    let done = client.and_then(|client| match client {
        Some(client) if !args.undo => export_entry(args, client, &folders),
        client => undo_exports(args, client, &folders),
    });
    match done {
        Ok(text) => write_to_stdout(&text),
        Err(error) => report_error(&error),
    }
}

fn find_client(id: &str) -> Result<&'static KnownClient, ExportError> {
    KnownClient::by_id(id)
        .ok_or_else(|| ExportError::UnknownClient { id: id.to_owned(), known: KnownClient::ids() })
}

fn export_entry(
    args: &ExportArgs,
    client: &'static KnownClient,
    folders: &UserFolders,
) -> Result<String, ExportError> {
    let gateway = GatewayFile::open(&args.config.path)?;
    let address = gateway_address(args, &gateway)?;
    let target = ClientFile::open(args, client, folders)?;
    let remove = if args.replace {
        find_imported_entries(client, &target.path, &gateway, folders)?
    } else {
        Vec::new()
    };
    let edit = |display| {
        let entry = address.client_entry(client, &target.document, &args.name, display)?;
        let edit =
            FileEdit { table: entry.table, name: &args.name, value: &entry.value, remove: &remove };
        let edited = edit_text(&target.text, target.notation, &edit);
        edited.map_err(|error| ExportError::Edit { file: target.label(), error })
    };
    let shown = edit(KeyDisplay::Hidden)?;
    let diff = unified_diff(&target.label(), &target.text, &shown);
    let mut text = String::new();
    for line in hide_secrets(&diff, &target.document).lines() {
        let _ = writeln!(text, "{}", escape_controls(line));
    }
    if !args.write {
        let _ = writeln!(text, "\nTo write it, add: --write --expect {}", target.digest());
        return Ok(text);
    }
    target.check_expected(args.expect.as_deref())?;
    let after = edit(KeyDisplay::Whole)?;
    if after == target.text {
        return Ok(format!("{} is up to date\n", target.label()));
    }
    let backup = write_with_backup(&target.path, target.before.as_deref(), after.as_bytes())?;
    let _ = writeln!(text, "{}: written", target.label());
    let _ = writeln!(text, "before: {}", backup.display());
    if matches!(address.key, ClientKey::Variable) {
        let _ = writeln!(text, "{} reads its key from the variable {KEY_VARIABLE}", client.title);
    }
    Ok(text)
}

/// A client's file as it is.
struct ClientFile {
    path: PathBuf,
    before: Option<Vec<u8>>,
    text: String,
    notation: Notation,
    document: Json,
}

impl ClientFile {
    fn open(
        args: &ExportArgs,
        client: &KnownClient,
        folders: &UserFolders,
    ) -> Result<Self, ExportError> {
        let default = || user_file(client, folders);
        let path = args.file.clone().or_else(default);
        let path = path.ok_or(ExportError::NoClientFile { title: client.title })?;
        let before = read_existing(&path, MAX_DOCUMENT)?;
        let name = path.display().to_string();
        let bytes = before.as_deref().unwrap_or_default();
        // The byte order mark stays where it is; no parser accepts it within the text.
        let text = decode_text(&name, bytes)?.to_owned();
        let notation = Notation::detect(&path, &text);
        let document = parse_document(&name, &text, notation)?;
        Ok(Self { path, before, text, notation, document })
    }

    fn label(&self) -> String {
        self.path.display().to_string()
    }

    /// The beginning of the hash of the file that was shown.
    fn digest(&self) -> String {
        let digest = HEXLOWER.encode(&sha256(self.before.as_deref().unwrap_or_default()));
        crate::text::clip(&digest, 16).to_owned()
    }

    fn check_expected(&self, expected: Option<&str>) -> Result<(), ExportError> {
        match expected {
            Some(expected) if expected != self.digest() => {
                Err(ExportError::Unexpected { file: self.label() })
            }
            _ => Ok(()),
        }
    }
}

/// The user's own file of a client: the first that exists, or the one of this system.
fn user_file(client: &KnownClient, folders: &UserFolders) -> Option<PathBuf> {
    let is_mac = |place: &ClientPlace| matches!(place, ClientPlace::Home(path) if path.starts_with("Library/"));
    let places: Vec<_> =
        client.places.iter().filter(|place| !matches!(place, ClientPlace::Project(_))).collect();
    let existing = places.iter().filter_map(|place| place.path(folders)).find(|path| path.exists());
    existing.or_else(|| {
        let native = places.iter().filter(|place| is_mac(place) == cfg!(target_os = "macos"));
        let any = places.iter();
        native.chain(any).find_map(|place| place.path(folders))
    })
}

/// Where the client finds the gateway, and whether it needs a key.
fn gateway_address(
    args: &ExportArgs,
    gateway: &GatewayFile,
) -> Result<GatewayAddress, ExportError> {
    let config = gateway.read_config(&PendingFiles::default()).ok();
    let name = args.config.path.display().to_string();
    let url = args.url.clone().or_else(|| listener_url(config.as_ref()?));
    let Some(mut url) = url else {
        return Err(ExportError::InvalidConfig { config: name });
    };
    if let Some(profile) = &args.profile {
        let is_known = config.as_ref().is_none_or(|config| {
            config.profiles.iter().any(|known| known.name.as_str() == profile)
        });
        if !is_known {
            return Err(ExportError::UnknownProfile { name: profile.clone(), config: name });
        }
        let path = format!("{}/{profile}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    let needs_key = config.is_none_or(|config| !config.clients.is_empty());
    let key = match &args.key_file {
        Some(file) => ClientKey::Literal(read_key(file)?),
        None if needs_key => ClientKey::Variable,
        None => ClientKey::None,
    };
    Ok(GatewayAddress { url, key })
}

/// The URL of the listener, for a client on this machine or, if the listener is open to others, by
/// the first name that it is known by.
fn listener_url(config: &Config) -> Option<Url> {
    let gateway = &config.gateway;
    let scheme = if gateway.tls.is_some() { "https" } else { "http" };
    let address = gateway.listen;
    let authority = match gateway.allowed_hosts.first() {
        Some(host) if !address.ip().is_loopback() && host.contains(':') => host.clone(),
        Some(host) if !address.ip().is_loopback() => format!("{host}:{}", address.port()),
        _ if address.ip().is_unspecified() => format!("127.0.0.1:{}", address.port()),
        _ => address.to_string(),
    };
    Url::parse(&format!("{scheme}://{authority}/mcp")).ok()
}

/// Reads the key of a client.
fn read_key(file: &Path) -> Result<Secret, ExportError> {
    let bytes = read_file(file, 1024).map_err(|error| ExportError::KeyFile { error })?;
    let text = String::from_utf8(bytes).map_err(|_| ExportError::NoKey)?;
    let key = text.trim_end_matches(['\r', '\n']);
    let valid = (1..=512).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    if valid { Ok(Secret::new(key.to_owned())) } else { Err(ExportError::NoKey) }
}

/// Restores the files of one client, or of all.
fn undo_exports(
    args: &ExportArgs,
    client: Option<&'static KnownClient>,
    folders: &UserFolders,
) -> Result<String, ExportError> {
    let clients = KNOWN_CLIENTS.iter().filter(|known| client.is_none_or(|it| it.id == known.id));
    let paths: Vec<_> = match &args.file {
        Some(file) => vec![file.clone()],
        None => clients
            .flat_map(|client| client.places.iter().filter_map(|place| place.path(folders)))
            .collect(),
    };
    let mut text = String::new();
    let mut changed = None;
    for path in paths {
        let name = path.display();
        let _ = match undo_export(&path, MAX_DOCUMENT)? {
            UndoOutcome::NoBackup => Ok(()),
            UndoOutcome::Restored => writeln!(text, "{name}: as it was before the export"),
            UndoOutcome::Removed => writeln!(text, "{name}: removed, as before the export"),
            UndoOutcome::Changed(backup) => {
                changed = Some(ExportError::ChangedSince { file: path.clone(), backup });
                Ok(())
            }
        };
    }
    match changed {
        Some(error) => Err(error),
        None if text.is_empty() => Ok("nothing to undo\n".to_owned()),
        None => Ok(text),
    }
}
