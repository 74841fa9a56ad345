//! `trunkline export`: points a client at the gateway, by one entry in the client's own
//! configuration.
//!
//! A client's file belongs to its user. Nothing is written without `--write`, the rest of the file
//! stays unchanged, the previous version is kept beside it, and a file that has changed since it
//! was shown is not touched.

mod address;
mod client_file;
mod edit;
mod entry;
mod error;
mod yaml;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::Value as Json;
use url::Url;

use trunkline_import::{
    ConfigFile, FileMode, ForeignEntry, GatewayFile, KEY_VARIABLE, KNOWN_CLIENTS, KnownClient,
    ReplaceableEntries, UserFolders, find_replaceable_entries,
};

use crate::config::is_own_machine;
use crate::text::escape_controls;

use super::edited::gateway_file::open_gateway_file;
use super::edited::undo::undo_writes;
use super::preview::FileChange;
use super::{ConfigOption, report_edit_error, write_to_stdout};
use address::gateway_address;
use client_file::ClientFile;
use edit::{FileEdit, edit_text};
use entry::{ClientEntry, ExportedKey, GatewayAddress};
use error::ExportError;

/// Default name of the entry.
const OWN_NAME: &str = "trunkline";

/// Point a client at the gateway
///
/// Prints the entry for the client's configuration and the resulting change.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXPORT_EXAMPLES)]
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
    #[arg(long, value_name = "NAME", default_value = OWN_NAME)]
    name: String,
    /// The client's configuration file; by default the client's usual one
    #[arg(long, value_name = "FILE", requires = "client")]
    file: Option<PathBuf>,
    /// Remove the entries of servers that the gateway has now
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    writing: WriteOptions,
    /// Restore the client's configuration, or by default each client's, as it was before the last
    /// export
    #[arg(
        long,
        conflicts_with_all = ["write", "dry_run", "replace", "expect", "profile", "url", "key_file", "name"]
    )]
    undo: bool,
}

/// Options of writing the change.
#[derive(Debug, Clone, clap::Args)]
struct WriteOptions {
    /// Write to the client's configuration
    #[arg(long)]
    write: bool,
    /// Only print (the default)
    #[arg(long, conflicts_with = "write")]
    dry_run: bool,
    /// Write only if it is the change that was shown
    #[arg(long, value_name = "HASH", requires = "write")]
    expect: Option<String>,
}

const EXPORT_EXAMPLES: &str = "\
Examples:
  trunkline export --client cursor                     # show what would change
  trunkline export --client cursor --write --replace  # no imported server
  trunkline export --client cursor --undo              # restore the file";

pub(super) fn run(args: &ExportArgs) -> ExitCode {
    let folders = UserFolders::from_environment();
    let done =
        args.client.as_deref().map(find_client).transpose().and_then(|client| match client {
            Some(client) if !args.undo => export_entry(args, client, &folders).map(Ok),
            client => Ok(Err(list_files(args, client, &folders))),
        });
    match done {
        Ok(Ok(text)) => write_to_stdout(&text),
        Ok(Err(files)) => undo_writes(&files),
        Err(error) => report_edit_error(&error, error.exit()),
    }
}

fn find_client(id: &str) -> Result<&'static KnownClient, ExportError> {
    KnownClient::by_id(id).ok_or_else(|| ExportError::UnknownClient {
        id: id.to_owned(),
        known: KnownClient::export_ids(),
    })
}

/// Lists the files of one client, or of all.
fn list_files(
    args: &ExportArgs,
    client: Option<&'static KnownClient>,
    folders: &UserFolders,
) -> Vec<PathBuf> {
    if let Some(file) = &args.file {
        return vec![file.clone()];
    }
    let clients = KNOWN_CLIENTS.iter().filter(|known| client.is_none_or(|it| it.id == known.id));
    clients
        .flat_map(|client| client.places.iter().filter_map(|place| place.path(folders)))
        .collect()
}

fn export_entry(
    args: &ExportArgs,
    client: &'static KnownClient,
    folders: &UserFolders,
) -> Result<String, ExportError> {
    if !client.takes_exports() {
        return Err(ExportError::NoClientFile { title: client.title });
    }
    let gateway = open_gateway_file(&args.config.path)?;
    let address = gateway_address(args, &gateway)?;
    let target = ClientFile::open(args.file.clone(), client, folders)?;
    let source = ConfigFile::of_client(client, target.file.path().to_owned());
    let replaced = if args.replace && target.file.exists() {
        find_replaceable_entries(&source, &gateway, folders, address.profile.as_ref())?
    } else {
        ReplaceableEntries::default()
    };
    let entry = address.client_entry(client, &target.document, &args.name)?;
    let planned = PlannedEntry { client, name: &args.name, url: &address.url, entry: &entry };
    refuse_foreign_entry(&target, &planned, &replaced.entries)?;
    let after = edit_file(&target, &entry, &args.name, &replaced.entries)?;
    let mut text = note_conditions(&gateway, &replaced);
    if after == target.file.text() {
        return Ok(format!("{text}{} is up to date\n", target.label()));
    }
    let mut tables: Vec<_> = replaced.entries.into_iter().map(|entry| entry.table).collect();
    tables.push(entry.table);
    let change = FileChange {
        name: &target.label(),
        notation: target.notation,
        tables: &tables,
        references: &source.references(folders),
        before: target.file.text(),
        after: &after,
    };
    text += &change.render_diff();
    if !args.writing.write {
        let hash = target.file.hash_change(&after);
        return Ok(format!("{text}\nTo write exactly this, add: --write --expect {hash}\n"));
    }
    target.file.check_expected(&after, args.writing.expect.as_deref())?;
    write_entry(&target, &after, &address, client, text)
}

/// An entry to be written into a client's file.
struct PlannedEntry<'a> {
    client: &'a KnownClient,
    name: &'a str,
    url: &'a Url,
    entry: &'a ClientEntry,
}

/// Refuses to overwrite an entry that does not lead to the gateway and is not replaced.
fn refuse_foreign_entry(
    target: &ClientFile,
    planned: &PlannedEntry<'_>,
    replaced: &[ForeignEntry],
) -> Result<(), ExportError> {
    let PlannedEntry { client, name, url, entry } = *planned;
    let table = entry.table.iter().try_fold(&target.document, |table, key| table.get(key));
    let present = table.and_then(|table| table.get(name));
    let is_replaced = || replaced.iter().any(|one| one.name == *name && one.table == entry.table);
    match present {
        Some(present) if !leads_to_gateway(present, url) && !is_replaced() => {
            Err(ExportError::NameTaken { title: client.title, name: name.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Returns true if an entry of a client is one of the gateway: it runs the gateway's program, reads
/// the variable of its key, or has a URL of the gateway. `gateway` is the URL to be written; the
/// gateway may have had another address of this machine before.
fn leads_to_gateway(entry: &Json, gateway: &Url) -> bool {
    let is_command = entry.get("command").and_then(Json::as_str) == Some("trunkline");
    let has_key = entry.to_string().contains(KEY_VARIABLE);
    let urls = ["url", "serverUrl", "httpUrl", "uri"].into_iter();
    let mut urls = urls.filter_map(|key| Url::parse(entry.get(key)?.as_str()?).ok());
    is_command
        || has_key
        || urls.any(|url| {
            let is_endpoint = url.path() == "/mcp" || url.path().starts_with("/mcp/");
            let is_ours = url.host() == gateway.host() || is_own_machine(&url);
            url.origin() == gateway.origin() || (is_endpoint && is_ours)
        })
}

/// Returns the text of the client's file with the entry, and without the entries that it replaces.
fn edit_file(
    target: &ClientFile,
    entry: &ClientEntry,
    name: &str,
    remove: &[ForeignEntry],
) -> Result<String, ExportError> {
    let edit = FileEdit { table: &entry.table, name, value: &entry.value, remove };
    edit_text(target.file.text(), target.notation, &edit)
        .map_err(|error| ExportError::Edit { file: target.label(), error })
}

/// Returns notes about conditions that the user may not expect.
fn note_conditions(gateway: &GatewayFile, replaced: &ReplaceableEntries) -> String {
    let mut text = String::new();
    if !gateway.file().exists() {
        let _ = writeln!(text, "note: {} does not exist: its defaults are used", gateway.label());
    }
    for note in &replaced.notes {
        let _ = writeln!(text, "note: {}", escape_controls(note));
    }
    text
}

/// Writes the client's file. `text` is the preview of the change.
fn write_entry(
    target: &ClientFile,
    after: &str,
    address: &GatewayAddress,
    client: &KnownClient,
    mut text: String,
) -> Result<String, ExportError> {
    let mode = match address.key {
        ExportedKey::Literal(_) => FileMode::OwnerOnly,
        ExportedKey::None | ExportedKey::Variable => FileMode::Kept,
    };
    let written = target.file.write(after, mode)?;
    let _ = writeln!(text, "{}: written", target.label());
    if written.restricted {
        let _ = writeln!(text, "It contains the key now: only its owner can read it.");
    }
    if target.file.exists() {
        let _ = writeln!(text, "before: {}", written.backup.display());
    }
    if matches!(address.key, ExportedKey::Variable) {
        let _ = writeln!(text, "{} reads its key from the variable {KEY_VARIABLE}", client.title);
    }
    Ok(text)
}
