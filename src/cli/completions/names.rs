//! The names that a word of a command line may have: of servers, profiles, clients and tools.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory as _};
use serde_json::Value;
use toml::Table;

use crate::call::ProfileName;
use crate::cli::help::{BARE_FILE, NAME_OR_FILE};
use crate::cli::running::{GatewayOption, GatewayRequest};
use crate::cli::{Cli, write_to_stdout};
use crate::config::ConfigSource;
use crate::text::skip_byte_order_mark;

/// The kind of the names that an argument has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Servers,
    Profiles,
    Clients,
    Tools,
}

/// A word of a command line that is a name.
#[derive(Debug, PartialEq, Eq)]
struct ExpectedName {
    kind: NameKind,
    /// The option in the same word, with its sign: `--profile=`.
    option: String,
    /// The configuration that the command line names.
    config: Option<PathBuf>,
}

/// Prints the names that the last word may have, one a line. The words are those after the program.
pub(crate) fn print_names(words: &[String]) -> ExitCode {
    let mut command = Cli::command();
    // Gives subcommands the options of the commands above.
    command.build();
    let Some(expected) = find_expected_name(&command, words) else { return ExitCode::SUCCESS };
    let variable = || std::env::var_os("TRUNKLINE_CONFIG").map(PathBuf::from);
    let config = expected.config.or_else(variable).unwrap_or_else(|| "gateway.toml".into());
    let word = words.last().map(String::as_str).unwrap_or_default();
    let start = word.strip_prefix(&expected.option).unwrap_or_default();
    let names = match expected.kind {
        NameKind::Tools => tool_names(config),
        kind => configured_names(kind, &config),
    };
    let shown = names.into_iter().filter(|name| name.starts_with(start) && is_plain(name));
    write_to_stdout(
        &shown
            .take(MAX_NAMES)
            .map(|name| expected.option.clone() + &name + "\n")
            .collect::<String>(),
    )
}

/// Returns the kind of the last word; `None` if it is no name.
fn find_expected_name(root: &Command, words: &[String]) -> Option<ExpectedName> {
    let (current, before) = words.split_last()?;
    let mut command = root;
    let mut config = None;
    let mut pending: Option<&Arg> = None;
    let mut positionals = 0;
    for word in before {
        // bash has a word of its own for the sign.
        if word == "=" {
            continue;
        }
        if let Some(option) = pending.take() {
            note_config(option, word, &mut config);
            continue;
        }
        if word == "--" {
            return None;
        }
        if word.starts_with('-') {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), None),
            };
            let option = find_option(command, name).filter(|it| it.get_action().takes_values());
            match (option, value) {
                (Some(option), Some(value)) => note_config(option, value, &mut config),
                (option, None) => pending = option,
                (None, Some(_)) => {}
            }
            continue;
        }
        match command.find_subcommand(word).filter(|_| positionals == 0) {
            Some(inner) => command = inner,
            None => positionals += 1,
        }
    }
    if pending.is_none() && current.starts_with('-') {
        // bash gives the value a word of its own.
        let (name, _) = current.split_once('=')?;
        let option = find_option(command, name).filter(|it| it.get_action().takes_values())?;
        let kind = kind_of(command, option)?;
        return Some(ExpectedName { kind, option: format!("{name}="), config });
    }
    let argument = pending.or_else(|| find_positional(command, positionals))?;
    Some(ExpectedName { kind: kind_of(command, argument)?, option: String::new(), config })
}

fn note_config(option: &Arg, value: &str, config: &mut Option<PathBuf>) {
    if option.get_id() == "config" {
        *config = Some(value.into());
    }
}

fn find_option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let long = name.strip_prefix("--");
    let short = name.strip_prefix('-').and_then(|rest| rest.chars().next());
    let mut options = command.get_arguments().filter(|it| !it.is_positional());
    options.find(|it| match long {
        Some(long) => it.get_long() == Some(long),
        None => it.get_short() == short,
    })
}

/// Returns a positional argument by its place; the last one may have several values.
fn find_positional(command: &Command, place: usize) -> Option<&Arg> {
    let all = command.get_positionals().filter(|it| it.get_id() != BARE_FILE && !it.is_last_set());
    let all: Vec<_> = all.collect();
    all.get(place).copied()
}

/// Returns the kind of the names of an argument.
fn kind_of(command: &Command, argument: &Arg) -> Option<NameKind> {
    let kind = match (command.get_name(), argument.get_id().as_str()) {
        // `test` needs the name that the server itself gives the tool.
        ("add" | "try" | "export" | "cert" | "key" | "openapi", "name" | "client")
        | ("test", "tool") => return None,
        (_, "profile") => NameKind::Profiles,
        (_, "server") | ("remove", "name") | ("list" | "diff", NAME_OR_FILE) => NameKind::Servers,
        (_, "tool") => NameKind::Tools,
        (_, "client") => NameKind::Clients,
        _ => return None,
    };
    Some(kind)
}

/// Returns the names of tables in the configuration, which is not loaded: it may be faulty, or name
/// programs to start.
fn configured_names(kind: NameKind, config: &Path) -> Vec<String> {
    let bytes = ConfigSource::open(config).map(|source| source.bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(skip_byte_order_mark(&bytes));
    let table: Table = text.parse().unwrap_or_default();
    let (section, more) = match kind {
        NameKind::Servers => ("servers", None),
        NameKind::Profiles => ("profiles", Some(ProfileName::DEFAULT)),
        NameKind::Clients => ("clients", None),
        NameKind::Tools => return Vec::new(),
    };
    let own = table.get(section).and_then(toml::Value::as_table);
    let own = own.into_iter().flat_map(Table::keys).cloned();
    own.chain(more.map(str::to_owned)).collect()
}

/// Asks the running gateway for its tools.
fn tool_names(config: PathBuf) -> Vec<String> {
    let gateway = GatewayOption::of_config(config);
    let answer = gateway.request_within(&GatewayRequest::get("/tools/names"), COMPLETION_PATIENCE);
    let document = answer.unwrap_or_default();
    let names = document.get("names").and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// Returns true for a name that a shell does not interpret: servers choose those of tools.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c))
}

/// Time limit for the answer of the gateway: a user waits.
const COMPLETION_PATIENCE: Duration = Duration::from_millis(700);
/// Limit of the names that a shell shows.
const MAX_NAMES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_a_name_of_the_kind_of_its_argument() {
        let command = Cli::command();
        for (line, kind, config) in [
            ("call clo", Some(NameKind::Tools), None),
            ("test clock no", None, None),
            ("call -c a.toml clo", Some(NameKind::Tools), Some("a.toml")),
            ("call --config=a.toml clo", Some(NameKind::Tools), Some("a.toml")),
            ("call --as c", Some(NameKind::Clients), None),
            ("call t --profile ", Some(NameKind::Profiles), None),
            ("call t --profile = x", Some(NameKind::Profiles), None),
            ("call t --profile=x", Some(NameKind::Profiles), None),
            ("call -c a.toml --as=x", Some(NameKind::Clients), Some("a.toml")),
            ("call --json=x", None, None),
            ("call --unknown=x", None, None),
            ("call t key", None, None),
            ("why c", Some(NameKind::Clients), None),
            ("why ci t", Some(NameKind::Tools), None),
            ("login g", Some(NameKind::Servers), None),
            ("login --client c", Some(NameKind::Clients), None),
            ("pin diff g", Some(NameKind::Servers), None),
            ("remove g", Some(NameKind::Servers), None),
            ("tools --profile d", Some(NameKind::Profiles), None),
            ("add g", None, None),
            ("export --client c", None, None),
            ("call --j", None, None),
            ("status g", None, None),
            ("sta", None, None),
            ("try -- call x", None, None),
            ("", None, None),
        ] {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let current = words.last().filter(|word| word.starts_with('-'));
            let option = current.and_then(|word| word.split_once('=')).map(|(name, _)| name);
            let option = option.map(|name| format!("{name}=")).unwrap_or_default();
            let config = config.map(Into::into);
            let expected = kind.map(|kind| ExpectedName { kind, option, config });
            assert_eq!(find_expected_name(&command, &words), expected, "{line}");
        }
    }

    #[test]
    fn names_that_a_shell_interprets_are_left_out() {
        for (name, plain) in [("a__b-c.d", true), ("$(id)", false), ("a b", false), ("a\nb", false)]
        {
            assert_eq!(is_plain(name), plain, "{name}");
        }
    }
}
