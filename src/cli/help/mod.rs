//! The help of the program: its commands in groups, each with examples, at 80 columns.
//!
//! clap lists all subcommands in one list. The list of [`COMMAND_GROUPS`] replaces it; a command that
//! no group names is listed at the end, and a test fails.

mod examples;
mod exit_codes;
mod name_or_file;

pub(super) use examples::*;
pub(crate) use exit_codes::FailureExit;
pub(crate) use name_or_file::{NAME_OR_FILE, NameAndFile, NameOrFile};

use name_or_file::describe_repeated_file;
use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use super::Cli;
use super::columns::{TERMINAL_COLUMNS, wrap_text};

/// Commands that serve one purpose.
struct CommandGroup {
    title: &'static str,
    /// Their names, in the order of the help.
    commands: &'static [&'static str],
}

/// All groups, in the order of the help. A new command has its name in one of them.
const COMMAND_GROUPS: &[CommandGroup] = &[
    CommandGroup { title: "Run", commands: &["serve", "stdio"] },
    CommandGroup {
        title: "Ask a running gateway",
        commands: &["status", "top", "logs", "logins", "tools", "report", "why", "plan", "history"],
    },
    CommandGroup {
        title: "Change a running gateway",
        commands: &["call", "reload", "rollback", "restart", "disable", "enable", "test"],
    },
    CommandGroup {
        title: "Configure",
        commands: &[
            "check", "doctor", "add", "remove", "try", "import", "export", "key", "cert", "login",
            "schema",
        ],
    },
    CommandGroup {
        title: "Definitions and records",
        commands: &["pin", "openapi", "policy", "audit"],
    },
    CommandGroup {
        title: "Tools for developers",
        commands: &["bench", "example", "completions", "version"],
    },
];

/// Reads the command line. Prints the help or the fault, and exits, if there is nothing to run.
pub(super) fn parse_command_line() -> Cli {
    let mut command = grouped_command();
    let mut matches = command.get_matches_mut();
    if let Some(named) = find_file_named_twice(&matches) {
        command.error(ErrorKind::ArgumentConflict, describe_repeated_file(&named)).exit();
    }
    Cli::from_arg_matches_mut(&mut matches)
        .unwrap_or_else(|fault| fault.format(&mut command).exit())
}

/// Returns the definition of the command line, with the help of its groups.
pub(super) fn grouped_command() -> Command {
    let command = Cli::command().max_term_width(TERMINAL_COLUMNS);
    let template = help_template(&command);
    command.help_template(template).after_help(PROGRAM_EXAMPLES)
}

/// Returns the bare FILE of a command whose option `--config` is given as well. A file from the
/// environment only takes the place of a file that is not given. Two bare arguments are judged by
/// [`NameOrFile::pair`].
fn find_file_named_twice(matches: &ArgMatches) -> Option<String> {
    if let Some((_, inner)) = matches.subcommand() {
        return find_file_named_twice(inner);
    }
    let is_given = |id: &str| {
        matches.try_contains_id(id).is_ok()
            && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let first = matches.try_get_one(NAME_OR_FILE).ok().flatten();
    let (_, first) = NameOrFile::split(first);
    let second = matches.try_get_raw(BARE_FILE).ok().flatten().and_then(|mut it| it.next());
    match (first, second) {
        (Some(file), _) if is_given("config") => Some(file.display().to_string()),
        (None, Some(file)) if is_given("config") => Some(file.to_string_lossy().into_owned()),
        _ => None,
    }
}

fn help_template(command: &Command) -> StyledStr {
    let header = command.get_styles().get_header();
    let heading = |title: &str| format!("{}{title}:{}\n", header.render(), header.render_reset());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    let others = CommandGroup { title: "Other", commands: &[] };
    let width = visible_commands(command).map(|it| it.get_name().len()).max().unwrap_or_default();
    for group in COMMAND_GROUPS.iter().chain([&others]) {
        let is_other = group.title == others.title;
        let named = group.commands.iter().filter_map(|name| command.find_subcommand(name));
        let rest =
            visible_commands(command).filter(|it| is_other && group_of(it.get_name()).is_none());
        let mut lines = named.chain(rest).map(|it| describe_command(it, width)).peekable();
        if lines.peek().is_none() {
            continue;
        }
        let _ = write!(text, "\n{}", heading(group.title));
        text.extend(lines);
    }
    let _ = write!(text, "\n{}{{options}}{{after-help}}", heading("Options"));
    text.into()
}

fn visible_commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set())
}

fn group_of(name: &str) -> Option<&'static CommandGroup> {
    COMMAND_GROUPS.iter().find(|group| group.commands.contains(&name))
}

/// Returns the line of a command in the list of commands.
fn describe_command(command: &Command, width: usize) -> String {
    let name = command.get_name();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    wrap_text(&format!("  {name:width$}  "), &about)
}

/// Id of the argument for a configuration file without its option.
pub(super) const BARE_FILE: &str = "bare_file";

#[cfg(test)]
mod tests;
