//! Settings that require a shell: `~` for the home folder, `$NAME` for a variable, and a program with
//! its arguments in one text. The gateway uses no shell, so they have another meaning or none. Also
//! programs that do not exist.

use std::path::{Path, PathBuf};

use toml::Value;

use crate::cli::programs::{program_exists, program_folders};
use crate::config::{Config, ServerKind};

/// Describes the texts of a configuration that begin with `~/`, by their keys. Omits the values,
/// which may hold secrets.
pub(crate) fn describe_home_paths(written: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit_texts(written, "", &mut |key, text| {
        if names_home(text) {
            found.push(format!(
                "{key}: `~` is not the home folder here: write the whole path, or \
                 \"${{env:HOME}}/…\""
            ));
        }
    });
    found
}

/// Describes the texts of servers with `$NAME`, which are sent as they are. Omits the texts, which may
/// hold secrets.
pub(crate) fn describe_shell_variables(written: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit_texts(written, "", &mut |key, text| {
        let has_variables = key.starts_with("servers.")
            && ["headers", "env", "url"].iter().any(|it| has_segment(key, it));
        if has_variables && names_shell_variable(text) {
            found.push(format!(
                "{key}: variables of a shell have no value here: write ${{env:NAME}} for $NAME"
            ));
        }
    });
    found
}

fn has_segment(key: &str, segment: &str) -> bool {
    key.split(['.', '[']).any(|it| it == segment)
}

/// Returns true if a word of the text begins with `$` and looks like the name of a variable.
fn names_shell_variable(text: &str) -> bool {
    text.split([' ', '=', ':', ',', '"', '/']).any(|word| {
        word.strip_prefix('$').is_some_and(|name| {
            name.len() > 1
                && name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_')
        })
    })
}

/// Parses the text of a configuration, without substitutions.
pub(crate) fn parse_written(text: &str) -> Value {
    Value::Table(text.trim_start_matches('\u{feff}').parse().unwrap_or_default())
}

/// Calls the function with the key and the value of each text.
fn visit_texts(value: &Value, key: &str, visit: &mut dyn FnMut(&str, &str)) {
    match value {
        Value::String(text) => visit(key, text),
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                visit_texts(value, &format!("{key}[{index}]"), visit);
            }
        }
        Value::Table(members) => {
            for (name, value) in members {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                visit_texts(value, &key, visit);
            }
        }
        _ => {}
    }
}

/// Returns true for a path below `~`, also as the value of an option (`--root=~/docs`).
fn names_home(text: &str) -> bool {
    let path = match text.split_once('=') {
        Some((option, path)) if option.starts_with('-') => path,
        _ => text,
    };
    path == "~" || path.starts_with("~/")
}

/// Describes the commands with a program that does not exist, perhaps because it includes its
/// arguments.
pub(crate) fn describe_missing_programs(config: &Config, file: &Path) -> Vec<String> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let home = file.parent().unwrap_or(Path::new("")).display().to_string();
    let folders = program_folders();
    let servers = config.servers.iter().filter_map(|server| match &server.target {
        ServerKind::Command(command) => {
            Some((format!("servers.{}.command", server.name), &command.program))
        }
        ServerKind::Http(_) | ServerKind::OpenApi(_) => None,
    });
    let reader = config.events.command.iter().map(|program| ("events.command".to_owned(), program));
    servers
        .chain(reader)
        .filter_map(|(key, program)| {
            // A text with a slash was taken for a path that begins at the file's folder.
            let written = program.strip_prefix(&home).map(|rest| rest.trim_start_matches('/'));
            let written = written.filter(|text| text.contains(' ')).unwrap_or(program);
            let hint = describe_missing(program, written, &folders)?;
            Some(format!("{key}: {hint}"))
        })
        .collect()
}

/// Describes a program that does not exist; `None` for any other.
fn describe_missing(program: &str, written: &str, folders: &[PathBuf]) -> Option<String> {
    // A text with line breaks or other control characters is not a command line.
    if program.contains(char::is_control) {
        return None;
    }
    let mut words = written.split_ascii_whitespace();
    let (first, rest) = (words.next()?, words.collect::<Vec<_>>());
    if program_exists(program, folders) {
        return None;
    }
    if rest.is_empty() {
        let place = if program.contains('/') { "" } else { " in PATH" };
        let source = PROGRAM_SOURCES.iter().find(|(name, _)| *name == program);
        let install = source.map(|(_, it)| format!(": install {it}")).unwrap_or_default();
        return Some(format!("there is no program {program:?}{place}{install}"));
    }
    let args: Vec<String> = rest.iter().map(|word| format!("{word:?}")).collect();
    Some(format!(
        "there is no program {written:?}: write command = {first:?} and args = [{}]",
        args.join(", ")
    ))
}

/// Programs that start servers, and the software with them.
const PROGRAM_SOURCES: [(&str, &str); 6] = [
    ("npx", "Node.js"),
    ("node", "Node.js"),
    ("uvx", "uv"),
    ("uv", "uv"),
    ("docker", "Docker"),
    ("deno", "Deno"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_below_the_home_folder_is_reported() {
        for (text, reported) in [
            ("~/docs", true),
            ("~", true),
            ("--root=~/docs", true),
            ("-r=~", true),
            ("~user/docs", false),
            ("a~/docs", false),
            ("/~/docs", false),
            ("query=~/x", false),
            ("", false),
        ] {
            assert_eq!(names_home(text), reported, "{text}");
        }
    }

    #[test]
    fn a_variable_of_a_shell_is_found() {
        for (text, is_found) in [
            ("Bearer $GITHUB_TOKEN", true),
            ("$A_1/x", true),
            ("https://h/$KEY", true),
            ("$", false),
            ("costs $5 or $x", false),
            ("Pa55$WORD99", false),
            ("${env:TOKEN}", false),
            ("$Name", false),
        ] {
            assert_eq!(names_shell_variable(text), is_found, "{text}");
        }
    }

    #[test]
    fn a_program_with_its_arguments_is_reported_unless_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("my tool"), "").unwrap();
        let folders = [folder.path().to_owned()];
        let whole = folder.path().join("my tool").display().to_string();
        for (program, hint) in [
            ("npx -y x", Some("write command = \"npx\" and args = [\"-y\", \"x\"]")),
            ("npx  -y", Some("args = [\"-y\"]")),
            ("/no/such/program --stdio", Some("command = \"/no/such/program\"")),
            ("npx", Some("there is no program \"npx\" in PATH: install Node.js")),
            ("/no/such/program", Some("there is no program \"/no/such/program\"")),
            ("npx\n-y", None),
            ("my tool", None),
            (&whole, None),
            ("", None),
        ] {
            let found = describe_missing(program, program, &folders);
            assert_eq!(found.is_some(), hint.is_some(), "{program}: {found:?}");
            assert!(found.unwrap_or_default().contains(hint.unwrap_or_default()), "{program}");
        }
    }
}
