use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Command;

use super::exit_codes::EXIT_MEANINGS;
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
        let others = command.get_positionals().filter(|it| it.get_id() != BARE_FILE).count();
        let is_free = others == 0 && !command.has_subcommands();
        let has_bare = command.get_positionals().any(|it| it.get_id() == BARE_FILE);
        assert_eq!(is_free, has_bare || names.ends_with("export"), "{names}");
        if has_bare {
            with_file.insert(names.to_owned());
        }
    });
    for name in ["serve", "stdio", "check", "doctor", "status", "tools", "report", "plan", "reload"]
    {
        assert!(with_file.contains(&format!("trunkline {name}")), "{name}: {with_file:?}");
    }
}

#[test]
fn every_command_about_state_prints_json() {
    visit(&mut built_command(), "trunkline", &mut |names, command| {
        let name = names.split(' ').nth(1).unwrap_or_default();
        let asks = group_of(name).is_some_and(|group| group.title.ends_with("a running gateway"));
        let has_json = command.get_arguments().any(|it| it.get_long() == Some("json"));
        assert!(has_json || !asks, "{names}: expected --json");
    });
}

#[test]
fn the_page_of_commands_has_every_exit_code() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let mut table = "| code | meaning |\n|--:|---|\n| 0 | all is fine |\n".to_owned();
    for one in EXIT_MEANINGS {
        let _ = writeln!(table, "| {} | {} |", one.exit.0, one.meaning);
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
