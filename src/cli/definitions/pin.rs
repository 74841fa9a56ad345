//! `trunkline pin`: changes in the definitions of servers, and their approval.
//!
//! The command reads the files of baselines. Decisions are made by the running gateway, or in the files
//! if none runs (`decisions`).

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use trunkline_import::unified_diff;

use crate::admin::PendingPage;
use crate::call::ServerName;
use crate::catalog::{DefinitionDigest, DefinitionKind};
use crate::cli::running::report_unanswered;
use crate::cli::stdio::cache_folder;
use crate::cli::{
    BareFile, CONFIG_FAULT, CommonArgs, ConfigOption, FAILURE_EXIT, NAME_OR_FILE, NameAndFile,
    NameOrFile, WRONG_USE, json_text, print_error, printable, report_error, write_to_stdout,
};
use crate::config::{Config, StateDir};
use crate::policy::{
    BaselineError, BaselineFolder, BaselineRecord, PinBasis, PinDecision, PinnedDefinition,
};

use super::decisions::{DecisionError, PinFiles};

/// Compare and approve the definitions of servers
///
/// Exit codes: 0 if it is done, 1 if nothing of the names waits for approval or the gateway refuses it,
/// 2 for an invalid command line or configuration, 3 if a gateway does not answer.
#[derive(Debug, Args)]
#[command(mut_arg("config", |option| option.global(true)))]
pub(crate) struct PinArgs {
    #[command(flatten)]
    config: ConfigOption,
    #[command(subcommand)]
    command: PinCommand,
}

#[derive(Debug, Subcommand)]
enum PinCommand {
    /// List the known definitions, and those that wait for approval
    List(PinQuery),
    /// Show the changes in the definitions that wait for approval
    Diff(PinQuery),
    /// Approve the definitions that wait for approval
    Approve(PinSelection),
    /// Reject the definitions that wait for approval: they stay held, and are not reported any more
    Reject(PinSelection),
}

/// The definitions to show.
#[derive(Debug, Args)]
struct PinQuery {
    /// The server, by default all; or the configuration file, like --config
    #[arg(id = NAME_OR_FILE, value_name = "SERVER|FILE", value_parser = NameOrFile::read_server)]
    subject: Option<NameOrFile>,
    #[command(flatten)]
    file: BareFile,
    /// Print the definitions as JSON
    #[arg(long)]
    json: bool,
}

/// The definitions to decide about.
#[derive(Debug, Args)]
struct PinSelection {
    /// The server
    server: String,
    /// The native names of tools, prompts and templates, URIs of resources, `instructions` and
    /// `serverInfo`; by default all
    names: Vec<String>,
    /// Print the decided definitions as JSON
    #[arg(long)]
    json: bool,
}

impl PinCommand {
    /// Returns the server to show, and the bare FILE.
    ///
    /// # Errors
    /// As [`NameOrFile::pair`].
    fn subject(&self) -> Result<NameAndFile, String> {
        match self {
            Self::List(query) | Self::Diff(query) => {
                let (first, second) = (query.subject.as_ref(), query.file.path.as_deref());
                NameOrFile::pair(first, second, NameOrFile::read_server)
            }
            Self::Approve(_) | Self::Reject(_) => Ok((None, None)),
        }
    }
}

pub(crate) fn run(args: PinArgs) -> ExitCode {
    let PinArgs { config, command } = args;
    let (server, file) = match command.subject() {
        Ok(subject) => subject,
        Err(problem) => {
            print_error(&problem);
            return WRONG_USE.into_code();
        }
    };
    let common = CommonArgs { config: config.or_file(file.into()), listen: None, log: None };
    let config = match common.read_config() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let Some(folder) = folder_of(&config) else {
        print_error(match config.cluster {
            None => {
                "definitions are not stored: set gateway.pin_dir or gateway.state_dir to a folder"
            }
            Some(_) => {
                "this replica has no files of definitions: set gateway.pin_dir or gateway.state_dir, or \
                 use the API"
            }
        });
        return CONFIG_FAULT.into_code();
    };
    let folder = match BaselineFolder::open(&folder, &common.config.path) {
        Ok(folder) => folder,
        Err(error) => return report_baseline(&error),
    };
    let show_all =
        |render: fn(&ReadBaselines) -> String| show(&config, &folder, server.as_deref(), render);
    match command {
        PinCommand::List(query) if query.json => show_all(list_as_json),
        PinCommand::List(_) => show_all(|all| join(all, list_pins)),
        PinCommand::Diff(query) if query.json => show_all(diff_as_json),
        PinCommand::Diff(_) => show_all(|all| join(all, show_changes)),
        PinCommand::Approve(selection) => {
            let pins = PinFiles { config: &config, path: &common.config.path, folder: &folder };
            decide(pins, PinDecision::Approve, &selection)
        }
        PinCommand::Reject(selection) => {
            let pins = PinFiles { config: &config, path: &common.config.path, folder: &folder };
            decide(pins, PinDecision::Reject, &selection)
        }
    }
}

/// Reports a baseline that cannot be used.
fn report_baseline(error: &BaselineError) -> ExitCode {
    let _ = report_error(error);
    let exit = match error {
        BaselineError::Folder { .. }
        | BaselineError::File { .. }
        | BaselineError::Damaged { .. } => CONFIG_FAULT,
        BaselineError::Write { .. }
        | BaselineError::Interrupted(_)
        | BaselineError::Sharing(_)
        | BaselineError::Unreadable { .. }
        | BaselineError::TooLarge { .. } => FAILURE_EXIT,
    };
    exit.into_code()
}

/// Returns the folder of baselines; that of `trunkline stdio` if the configuration has none, and is not
/// that of replicas.
fn folder_of(config: &Config) -> Option<std::path::PathBuf> {
    let automatic = || match config.gateway.state_dir {
        StateDir::Auto if config.cluster.is_none() => cache_folder(),
        StateDir::Auto | StateDir::Off | StateDir::Folder(_) => None,
    };
    config.gateway.baseline_folder().map(Into::into).or_else(automatic)
}

/// The baselines of servers, in file order.
type ReadBaselines = [(ServerName, BaselineRecord)];

/// Prints the output of `render` for one server, or for all.
fn show(
    config: &Config,
    folder: &BaselineFolder,
    server: Option<&str>,
    render: fn(&ReadBaselines) -> String,
) -> ExitCode {
    let servers = match servers_of(config, server) {
        Ok(servers) => servers,
        Err(code) => return code,
    };
    let mut read = Vec::new();
    let mut exit = ExitCode::SUCCESS;
    for server in servers {
        match folder.read(&server) {
            Ok(record) => read.push((server, record)),
            Err(error) => exit = report_baseline(&error),
        }
    }
    write_to_stdout(&render(&read));
    exit
}

fn join(all: &ReadBaselines, render: fn(&ServerName, &BaselineRecord) -> String) -> String {
    all.iter().map(|(server, record)| render(server, record)).collect()
}

/// Returns each form of each definition.
fn list_as_json(all: &ReadBaselines) -> String {
    let mut definitions = Vec::new();
    for (server, record) in all {
        for (kind, name, pinned) in record.definitions() {
            let mut add = |sha256: DefinitionDigest, state: &str, reasons: &[String]| {
                definitions.push(json!({
                    "server": server.as_str(), "kind": kind.member(), "name": name,
                    "sha256": sha256.to_string(), "state": state, "reasons": reasons,
                }));
            };
            for form in &pinned.accepted {
                let state = match form.basis {
                    PinBasis::Seen => "first_seen",
                    PinBasis::Approved => "approved",
                };
                add(form.sha256, state, &[]);
            }
            for form in &pinned.pending {
                add(form.sha256, if form.rejected { "rejected" } else { "pending" }, &form.reasons);
            }
        }
    }
    json_text(&json!({ "definitions": definitions }))
}

/// Returns the document of `GET /api/v1/definitions`.
fn diff_as_json(all: &ReadBaselines) -> String {
    let mut page = PendingPage::default();
    for (server, record) in all {
        page.add(server, record);
    }
    json_text(&serde_json::to_value(page).unwrap_or_default())
}

fn servers_of(config: &Config, name: Option<&str>) -> Result<Vec<ServerName>, ExitCode> {
    let all = config.servers.iter().map(|server| server.name.clone());
    let chosen: Vec<_> = all.filter(|one| name.is_none_or(|name| one.as_str() == name)).collect();
    match name {
        Some(name) if chosen.is_empty() => {
            print_error(&format!("the configuration has no server {name:?}"));
            Err(WRONG_USE.into_code())
        }
        _ => Ok(chosen),
    }
}

fn decide(pins: PinFiles<'_>, decision: PinDecision, selection: &PinSelection) -> ExitCode {
    let PinSelection { server, names, json } = selection;
    let server = match servers_of(pins.config, Some(server)).map(|all| all.into_iter().next()) {
        Ok(Some(server)) => server,
        Ok(None) => return WRONG_USE.into_code(),
        Err(code) => return code,
    };
    let decided = match pins.record_decision(decision, &server, names) {
        Ok(decided) => decided,
        Err(DecisionError::Baseline(error)) => return report_baseline(&error),
        Err(DecisionError::Gateway(error)) => return report_unanswered(&error),
    };
    let missing = names.iter().filter(|name| decided.iter().all(|(_, found)| found != *name));
    let missing: Vec<_> = missing.map(String::as_str).collect();
    let mut text = String::new();
    if *json {
        let decided =
            decided.iter().map(|(kind, name)| json!({ "kind": kind.member(), "name": name }));
        let decided: Vec<_> = decided.collect();
        write_to_stdout(&json_text(&json!({ decision.participle(): decided, "missing": missing })));
        return if missing.is_empty() { ExitCode::SUCCESS } else { FAILURE_EXIT.into_code() };
    }
    for (kind, name) in &decided {
        let _ = writeln!(text, "{}: {} {}", decision.participle(), kind.noun(), printable(name));
    }
    if decided.is_empty() && missing.is_empty() {
        text.push_str("nothing waits for approval\n");
    }
    write_to_stdout(&text);
    if missing.is_empty() {
        return ExitCode::SUCCESS;
    }
    print_error(&format!("nothing of these names waits for approval: {}", missing.join(", ")));
    FAILURE_EXIT.into_code()
}

/// Lists each form of each definition in a line.
fn list_pins(server: &ServerName, record: &BaselineRecord) -> String {
    let mut text = String::new();
    let mut line = |kind: DefinitionKind, name: &str, state: &str, digest: DefinitionDigest| {
        let digest = digest.to_string();
        let short = digest.get(..12).unwrap_or_default();
        let (kind, name) = (kind.noun(), printable(name));
        let _ = writeln!(text, "{server}  {kind}  {name}  {short}  {state}");
    };
    for (kind, name, pinned) in record.definitions() {
        for form in &pinned.accepted {
            let state = match form.basis {
                PinBasis::Seen => "first seen",
                PinBasis::Approved => "approved",
            };
            line(kind, name, state, form.sha256);
        }
        for form in &pinned.pending {
            let word = if form.rejected { "rejected" } else { "waits for approval" };
            let state = format!("{word}: {}", form.reasons.join(", "));
            line(kind, name, &state, form.sha256);
        }
    }
    text
}

/// Shows the differences between the accepted and the pending definitions.
fn show_changes(server: &ServerName, record: &BaselineRecord) -> String {
    let mut text = String::new();
    for (kind, name, pinned) in record.definitions() {
        for form in pinned.pending.iter().filter(|form| !form.rejected) {
            let (noun, name) = (kind.noun(), printable(name));
            let _ = writeln!(text, "{server}: {noun} {name}: {}", form.reasons.join(", "));
            let before = accepted_text(pinned);
            let after = form.definition.as_ref().map(pretty_text).unwrap_or_default();
            if before == after {
                text.push_str(&after);
            } else {
                text.push_str(&unified_diff(&format!("{server}/{name}"), &before, &after));
            }
        }
    }
    text
}

/// Returns the newest accepted form; empty if there is none.
fn accepted_text(pinned: &PinnedDefinition) -> String {
    let newest = pinned.accepted.last().and_then(|form| form.definition.as_ref());
    newest.map(pretty_text).unwrap_or_default()
}

/// Returns a definition, indented, with invisible characters escaped.
fn pretty_text(definition: &Value) -> String {
    let pretty = serde_json::to_string_pretty(definition).unwrap_or_default();
    pretty.lines().map(|line| printable(line) + "\n").collect()
}
