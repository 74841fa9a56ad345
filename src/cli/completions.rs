//! Shell completions.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::Cli;

/// The completion script of a shell.
pub(super) fn completion_script(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "trunkline", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
