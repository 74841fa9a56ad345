//! The command line of a bench, for its report, without secrets: the report is passed on.

use serde_json::Value;

use crate::bench::mask_url;
use crate::text::{escape_controls, names_secret};

use super::args::BenchArgs;

/// Returns a command line that a shell would read in the same way, with `***` for values of headers,
/// passwords and secret parameters of URLs, and secret arguments of the tool.
pub(super) fn mask_command_line(args: &BenchArgs, words: impl Iterator<Item = String>) -> String {
    let mut line = String::from("trunkline");
    // The first word is the program.
    for word in words.skip(1) {
        line.push(' ');
        line.push_str(&quote_word(&mask_word(args, &word)));
    }
    escape_controls(&line)
}

/// Masks a word, which may have an option before its value: `--header=NAME: VALUE`.
fn mask_word(args: &BenchArgs, word: &str) -> String {
    for header in &args.header {
        if let Some(option) = word.strip_suffix(header.as_str()) {
            let name = header.split_once(':').map_or("", |(name, _)| name);
            return format!("{option}{name}: ***");
        }
    }
    if let Some(arguments) = &args.arguments
        && let Some(option) = word.strip_suffix(arguments.as_str())
        && let Ok(mut value) = serde_json::from_str::<Value>(arguments)
    {
        return if mask_members(&mut value) { format!("{option}{value}") } else { word.to_owned() };
    }
    mask_url(word)
}

/// Masks the members whose names mark them as secrets. Returns true if there are any.
fn mask_members(value: &mut Value) -> bool {
    let mut is_changed = false;
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if names_secret(name) {
                    *member = Value::from("***");
                    is_changed = true;
                } else {
                    is_changed |= mask_members(member);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                is_changed |= mask_members(item);
            }
        }
        _ => {}
    }
    is_changed
}

fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@,%+*".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Shell {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn masked(words: &[&str]) -> String {
        let all = [&["bench"], words].concat();
        let args = Shell::parse_from(&all).args;
        let words = ["trunkline"].iter().chain(&all).map(|word| (*word).to_owned());
        mask_command_line(&args, words)
    }

    #[test]
    fn a_command_line_shows_no_secret_in_any_spelling() {
        for words in [
            &["http://h/mcp", "-H", "Authorization: Bearer hunter2"][..],
            &["http://h/mcp", "-HAuthorization: Bearer hunter2"],
            &["http://h/mcp", "--header", "Authorization:hunter2"],
            &["http://h/mcp", "--header=X: hunter2", "-H", "Y: hunter2 "],
            &["http://me:hunter2@h/mcp"],
            &["http://h/mcp?a=1&api_key=hunter2"],
            &["--compare", "http://h/mcp?token=hunter2", "http://hunter2@h/mcp"],
            &["http://h/mcp", "--args", r#"{"a":[{"password":"hunter2"},{"token":"hunter2"}]}"#],
            &["http://h/mcp", r#"--args={"token":{"deep":"hunter2"}}"#],
        ] {
            let line = masked(words);
            assert!(line.contains("***") && !line.contains("hunter2"), "{line}");
        }
    }

    #[test]
    fn the_rest_is_there_as_a_shell_reads_it() {
        let line = masked(&["http://h/mcp?a=1", "--args", r#"{"q":"it's"}"#, "-n", "5"]);
        assert_eq!(line, r#"trunkline bench 'http://h/mcp?a=1' --args '{"q":"it'\''s"}' -n 5"#);
    }
}
