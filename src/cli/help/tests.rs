use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Command;

use super::*;

/// Calls a function with each command and each command below it, by its names.
fn visit(command: &mut Command, names: &str, look: &mut impl FnMut(&str, &mut Command)) {
    look(names, command);
    for inner in command.get_subcommands_mut().filter(|it| !it.is_hide_set()) {
        if inner.get_name() == "help" {
            continue;
        }
        let names = format!("{names} {}", inner.get_name());
        visit(inner, &names, look);
    }
}

fn built_command() -> Command {
    let mut command = grouped_command();
    command.build();
    command
}

#[test]
fn every_command_is_in_one_group_and_has_an_example() {
    let command = grouped_command();
    for inner in visible_commands(&command) {
        let name = inner.get_name();
        let groups = COMMAND_GROUPS.iter().filter(|group| group.commands.contains(&name)).count();
        assert_eq!(groups, 1, "{name}: expected one group in COMMAND_GROUPS");
        let more = inner.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(more.contains("Examples:"), "{name}: expected examples in `after_help`");
        let used = format!("trunkline {name}");
        assert!(more.contains(&used), "{name}: expected an example with {used:?}");
    }
}

#[test]
fn every_help_text_fits_80_columns() {
    visit(&mut built_command(), "trunkline", &mut |names, command| {
        let more = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        // Wrapping would break the lines of examples.
        for line in more.lines() {
            assert!(line.chars().count() <= TERMINAL_COLUMNS, "{names}: {line}");
        }
        for text in [command.render_help(), command.render_long_help()] {
            for line in text.to_string().lines() {
                let is_word = !line.trim().contains(' ');
                assert!(line.chars().count() <= TERMINAL_COLUMNS || is_word, "{names}: {line}");
            }
        }
    });
}

#[test]
fn every_command_that_reads_a_configuration_accepts_it_in_each_form() {
    let mut with_file = BTreeSet::new();
    visit(&mut built_command(), "trunkline", &mut |names, command| {
        let Some(config) = command.get_arguments().find(|it| it.get_long() == Some("config"))
        else {
            return;
        };
        assert_eq!(config.get_short(), Some('c'), "{names}");
        let is_file = |id: &clap::Id| id == BARE_FILE || id == NAME_OR_FILE;
        let others = command.get_positionals().filter(|it| !is_file(it.get_id())).count();
        let is_free = others == 0 && !command.has_subcommands();
        let has_bare = command.get_positionals().any(|it| it.get_id() == BARE_FILE);
        assert_eq!(is_free, has_bare || names.ends_with("export"), "{names}");
        if has_bare {
            with_file.insert(names.to_owned());
        }
    });
    for name in [
        "serve", "stdio", "check", "doctor", "status", "tools", "report", "plan", "reload",
        "history", "pin list", "pin diff",
    ] {
        assert!(with_file.contains(&format!("trunkline {name}")), "{name}: {with_file:?}");
    }
}

/// The commands without `--json`, and the reasons, which docs/commands.md has, too.
const WITHOUT_JSON: &[(&str, &str)] = &[
    ("serve", "runs until it is stopped; `log.format = \"json\"` has its log as JSON"),
    ("stdio", "its output is the protocol"),
    ("example", "its output is the protocol"),
    ("login", "waits for a person; `logins --json` lists the logins"),
    ("schema", "its output is JSON already"),
    ("completions", "its output is a script for a shell"),
    ("cert", "its output is files in PEM"),
    ("import", "its output is TOML for the configuration"),
    ("export", "its output is a change in the file of a client"),
];

#[test]
fn every_command_prints_json_or_has_a_reason_not_to() {
    let mut excepted = BTreeSet::new();
    visit(&mut built_command(), "trunkline", &mut |names, command| {
        let name = names.strip_prefix("trunkline ").unwrap_or_default();
        if name.is_empty() || (command.has_subcommands() && command.is_subcommand_required_set()) {
            return;
        }
        let has_json = command.get_arguments().any(|it| it.get_long() == Some("json"));
        let top = name.split(' ').next().unwrap_or_default();
        if WITHOUT_JSON.iter().any(|(one, _)| *one == top) {
            excepted.insert(top.to_owned());
            assert!(!has_json, "{name} has --json: take it out of WITHOUT_JSON");
        } else {
            assert!(has_json, "{name}: expected --json, or a reason in WITHOUT_JSON");
        }
    });
    assert_eq!(excepted.len(), WITHOUT_JSON.len(), "a command is gone: {excepted:?}");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    for (name, reason) in WITHOUT_JSON {
        let line = format!("| `{name}` | {reason} |\n");
        assert!(page.contains(&line), "docs/commands.md: expected the line {line}");
    }
}

#[test]
fn the_page_of_commands_has_every_exit_code() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let mut table = "| code | meaning |\n|--:|---|\n| 0 | all is fine |\n".to_owned();
    for exit in FailureExit::ALL {
        let _ = writeln!(table, "| {} | {} |", exit.code(), exit.meaning());
    }
    let (start, end) = ("<!-- exit codes, generated -->\n", "<!-- end of exit codes -->");
    let (before, rest) = page.split_once(start).expect("the page has the mark");
    let (_, after) = rest.split_once(end).expect("the page has the end");
    let fresh = format!("{before}{start}\n{table}\n{end}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &fresh).expect("the page is written");
        return;
    }
    assert!(fresh == page, "docs/commands.md is stale: run the tests with UPDATE_DOCS=1");
}

#[test]
fn the_page_of_commands_has_a_section_for_each_command_about_a_running_gateway() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let command = grouped_command();
    let shown = COMMAND_GROUPS.iter().filter(|group| group.title.ends_with("a running gateway"));
    for name in shown.flat_map(|group| group.commands) {
        if command.find_subcommand(name).is_none() {
            continue;
        }
        let heads = page.lines().filter(|line| line.starts_with("## "));
        let is_there = heads.flat_map(|head| head.split([' ', ','])).any(|word| word == *name);
        assert!(is_there, "{name}: expected a section in docs/commands.md");
    }
}
