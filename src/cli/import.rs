//! `trunkline import`: the arguments, the output and the exit code. Crate `trunkline-import` does the
//! work.

use std::process::ExitCode;

use trunkline_import::{
    ImportError, ImportMode, UserFolders, import_found, list_found, read_sources,
};

use super::edited::gateway_file::{gateway_file_exit, open_gateway_file};
use super::edited::undo::undo_writes;
use super::{
    CONFIG_FAULT, ConfigOption, FAILURE_EXIT, FailureExit, WRONG_USE, report_edit_error,
    write_to_stdout,
};

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
  claude-desktop, claude-code, cursor, vscode, windsurf, codex, gemini, zed,
  opencode, goose, cline, lm-studio, signalwire, ava, action-servers, openlegion

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
        Err(error) => report_edit_error(&error, import_exit(&error)),
    }
}

fn import_sources(args: &ImportArgs, folders: &UserFolders) -> Result<String, ImportError> {
    let found = read_sources(&args.sources, args.from.as_deref(), folders)?;
    let gateway = open_gateway_file(&args.config.path)?;
    let expect = args.expect.as_deref();
    let mode = if args.write { ImportMode::Write { expect } } else { ImportMode::Preview };
    import_found(found, gateway, mode)
}

/// Returns the exit code of a command that has not imported, added or removed an entry.
pub(super) fn import_exit(error: &ImportError) -> FailureExit {
    match error {
        ImportError::UnknownSource { .. }
        | ImportError::UnknownProgram { .. }
        | ImportError::NoServer { .. }
        | ImportError::NotAdded { .. } => WRONG_USE,
        ImportError::Document(_) => CONFIG_FAULT,
        ImportError::Gateway(error) => gateway_file_exit(error),
        _ => FAILURE_EXIT,
    }
}
