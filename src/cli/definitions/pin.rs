//! `trunkline pin`: changes in the definitions of servers, and their approval.
//!
//! The command reads the files of baselines. Decisions are made by the running gateway, or in the files
//! if none runs (`decisions`).

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use trunkline_import::unified_diff;

use crate::call::ServerName;
use crate::catalog::{DefinitionDigest, DefinitionKind};
use crate::cli::running::report_unanswered;
use crate::cli::stdio::cache_folder;
use crate::cli::{
    CONFIG_FAULT, CommonArgs, ConfigOption, FAILURE_EXIT, WRONG_USE, print_error, printable,
    report_error, write_to_stdout,
};
use crate::config::{Config, StateDir};
use crate::policy::{BaselineFolder, BaselineRecord, PinBasis, PinnedDefinition};

use super::decisions::{DecisionError, PinDecision, PinFiles};

/// Compare and approve the definitions of servers
#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    #[command(flatten)]
    config: ConfigOption,
    #[command(subcommand)]
    command: PinCommand,
}

#[derive(Debug, Subcommand)]
enum PinCommand {
    /// List the known definitions, and those that wait for approval
    List {
        /// The server; by default all
        server: Option<String>,
    },
    /// Show the changes in the definitions that wait for approval
    Diff {
        /// The server; by default all
        server: Option<String>,
    },
    /// Approve the definitions that wait for approval
    Approve {
        /// The server
        server: String,
        /// The native names of tools, prompts and templates, URIs of resources, `instructions` and
        /// `serverInfo`; by default all
        names: Vec<String>,
    },
    /// Reject the definitions that wait for approval: they stay held, and are not reported any more
    Reject {
        /// The server
        server: String,
        /// The native names of tools, prompts and templates, URIs of resources, `instructions` and
        /// `serverInfo`; by default all
        names: Vec<String>,
    },
}

pub(crate) fn run(args: PinArgs) -> ExitCode {
    let PinArgs { config, command } = args;
    let common = CommonArgs { config, listen: None, log: None };
    let config = match common.read_config() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let Some(folder) = folder_of(&config) else {
        print_error(
            "definitions are not stored: set gateway.pin_dir or gateway.state_dir to a folder",
        );
        return CONFIG_FAULT.into_code();
    };
    let folder = match BaselineFolder::open(&folder, &common.config.path) {
        Ok(folder) => folder,
        Err(error) => return report_error(&error),
    };
    match command {
        PinCommand::List { server } => show(&config, &folder, server.as_deref(), list_pins),
        PinCommand::Diff { server } => show(&config, &folder, server.as_deref(), show_changes),
        PinCommand::Approve { server, names } => {
            let pins = PinFiles { config: &config, path: &common.config.path, folder: &folder };
            decide(pins, PinDecision::Approve, &server, &names)
        }
        PinCommand::Reject { server, names } => {
            let pins = PinFiles { config: &config, path: &common.config.path, folder: &folder };
            decide(pins, PinDecision::Reject, &server, &names)
        }
    }
}

/// Returns the folder of baselines; that of `trunkline stdio` if the configuration has none.
fn folder_of(config: &Config) -> Option<std::path::PathBuf> {
    let automatic = || match config.gateway.state_dir {
        StateDir::Auto => cache_folder(),
        StateDir::Off | StateDir::Folder(_) => None,
    };
    config.gateway.baseline_folder().map(Into::into).or_else(automatic)
}

/// Prints the output of `render` for one server, or for each.
fn show(
    config: &Config,
    folder: &BaselineFolder,
    server: Option<&str>,
    render: fn(&ServerName, &BaselineRecord) -> String,
) -> ExitCode {
    let servers = match servers_of(config, server) {
        Ok(servers) => servers,
        Err(code) => return code,
    };
    let mut text = String::new();
    let mut exit = ExitCode::SUCCESS;
    for server in servers {
        match folder.read(&server) {
            Ok(record) => text.push_str(&render(&server, &record)),
            Err(error) => exit = report_error(&error),
        }
    }
    write_to_stdout(&text);
    exit
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

fn decide(pins: PinFiles<'_>, decision: PinDecision, server: &str, names: &[String]) -> ExitCode {
    let server = match servers_of(pins.config, Some(server)).map(|all| all.into_iter().next()) {
        Ok(Some(server)) => server,
        Ok(None) => return WRONG_USE.into_code(),
        Err(code) => return code,
    };
    let decided = match pins.record_decision(decision, &server, names) {
        Ok(decided) => decided,
        Err(DecisionError::Baseline(error)) => return report_error(&error),
        Err(DecisionError::Gateway(error)) => return report_unanswered(&error),
    };
    let missing = names.iter().filter(|name| decided.iter().all(|(_, found)| found != *name));
    let missing: Vec<_> = missing.map(String::as_str).collect();
    let mut text = String::new();
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
