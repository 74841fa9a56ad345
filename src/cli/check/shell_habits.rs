//! Settings that require a shell: `~` for the home folder, and a program with its arguments in one
//! text. The gateway uses no shell, so they refer to files that do not exist.

use std::path::{Path, PathBuf};

use toml::Value;

use crate::config::{Config, ServerKind};

/// Describes the texts of a configuration that begin with `~/`, by their keys. Omits the values,
/// which may hold secrets.
pub(crate) fn describe_home_paths(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let mut found = Vec::new();
    collect_home_paths(&Value::Table(table), "", &mut found);
    found
        .into_iter()
        .map(|key| {
            format!(
                "{key}: `~` is not the home folder here: write the whole path, or \
                 \"${{env:HOME}}/…\""
            )
        })
        .collect()
}

fn collect_home_paths(value: &Value, key: &str, found: &mut Vec<String>) {
    match value {
        Value::String(text) if names_home(text) => found.push(key.to_owned()),
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                collect_home_paths(value, &format!("{key}[{index}]"), found);
            }
        }
        Value::Table(members) => {
            for (name, value) in members {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect_home_paths(value, &key, found);
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

/// Describes the commands with a program that does not exist because it includes its arguments.
pub(crate) fn describe_joined_commands(config: &Config) -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let servers = config.servers.iter().filter_map(|server| match &server.target {
        ServerKind::Command(command) => Some((&server.name, &command.program)),
        ServerKind::Http(_) | ServerKind::OpenApi(_) => None,
    });
    servers
        .filter_map(|(name, program)| {
            let hint = describe_joined(program, &folders)?;
            Some(format!("servers.{name}.command: {hint}"))
        })
        .collect()
}

/// Describes a program with blanks that does not exist; `None` for any other.
fn describe_joined(program: &str, folders: &[PathBuf]) -> Option<String> {
    // A text with line breaks or other control characters is not a command line.
    if program.contains(char::is_control) {
        return None;
    }
    let mut words = program.split_ascii_whitespace();
    let (first, rest) = (words.next()?, words.collect::<Vec<_>>());
    let exists = if program.contains('/') {
        Path::new(program).exists()
    } else {
        folders.iter().any(|folder| folder.join(program).exists())
    };
    if rest.is_empty() || exists {
        return None;
    }
    let args: Vec<String> = rest.iter().map(|word| format!("{word:?}")).collect();
    Some(format!(
        "there is no program {program:?}: write command = {first:?} and args = [{}]",
        args.join(", ")
    ))
}

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
    fn a_program_with_its_arguments_is_reported_unless_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("my tool"), "").unwrap();
        let folders = [folder.path().to_owned()];
        let whole = folder.path().join("my tool").display().to_string();
        for (program, hint) in [
            ("npx -y x", Some("write command = \"npx\" and args = [\"-y\", \"x\"]")),
            ("npx  -y", Some("args = [\"-y\"]")),
            ("/no/such/program --stdio", Some("command = \"/no/such/program\"")),
            ("npx", None),
            ("npx\n-y", None),
            ("my tool", None),
            (&whole, None),
            ("", None),
        ] {
            let found = describe_joined(program, &folders);
            assert_eq!(found.is_some(), hint.is_some(), "{program}: {found:?}");
            assert!(found.unwrap_or_default().contains(hint.unwrap_or_default()), "{program}");
        }
    }
}
