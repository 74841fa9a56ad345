//! Detection of secrets in the texts of an imported configuration.
//!
//! A secret moves to a file of its own and is never printed. A harmless text that is mistaken for a
//! secret costs one more file; a secret that is mistaken for harmless text would be printed.
//! Doubtful texts therefore move to a file.

mod signs;

use serde_json::Value as Json;

use trunkline_config::Secret;
use trunkline_core::text::names_secret;

use crate::documents::imported::{
    ImportedPiece, ImportedServer, ImportedTarget, ImportedText, SettingText,
};
use crate::documents::references::ReferenceContext;
use signs::{find_named_value, looks_secret, url_has_secret};

/// Marks the secrets in all texts of a server.
pub(super) fn mark_secrets(server: &mut ImportedServer) {
    match &mut server.target {
        ImportedTarget::Command { args, env, .. } => {
            mark_arguments(args);
            mark_pairs(env);
        }
        ImportedTarget::Http { url, headers, .. } | ImportedTarget::OpenApi { url, headers } => {
            mark_url(url);
            mark_pairs(headers);
        }
    }
    for (_, value) in &mut server.settings {
        if let SettingText::Pairs(pairs) = value {
            mark_pairs(pairs);
        }
    }
}

/// Returns true if the program of a server contains a secret. A secret can only be moved from an
/// argument.
pub(super) fn command_has_secret(server: &ImportedServer) -> bool {
    let ImportedTarget::Command { command, .. } = &server.target else { return false };
    let command = command.describe();
    command.contains(' ') && is_suspect(&command)
}

fn mark_pairs(pairs: &mut [(String, ImportedText)]) {
    for (name, text) in pairs {
        mark_named(name, text);
    }
}

/// Returns a value with `***` in place of the document's secrets. Text that a program replaces by
/// values of its own is no secret.
pub fn hide_secrets(name: &str, value: &Json, references: &ReferenceContext) -> Json {
    let split = |text: &str| references.split_text(text, &mut Vec::new());
    match value {
        Json::String(text) => {
            let mut split = split(text);
            mark_named(name, &mut split);
            if split.has_secret() { HIDDEN_SECRET.into() } else { value.clone() }
        }
        Json::Number(_) if names_secret(name) => HIDDEN_SECRET.into(),
        Json::Array(items) => {
            let text_of = |item: &Json| match item {
                Json::String(text) => split(text),
                Json::Number(number) => split(&number.to_string()),
                _ => split(""),
            };
            let mut texts: Vec<_> = items.iter().map(text_of).collect();
            mark_arguments(&mut texts);
            let shown = items.iter().zip(&texts).map(|(item, text)| {
                if text.has_secret() {
                    HIDDEN_SECRET.into()
                } else {
                    hide_secrets(name, item, references)
                }
            });
            shown.collect()
        }
        Json::Object(fields) => {
            let hide = |(key, value): (&String, _)| {
                // The name of a variable or a header need not reveal its purpose.
                let name = if holds_values(name) { ANY_SECRET } else { key };
                (key.clone(), hide_secrets(name, value, references))
            };
            Json::Object(fields.iter().map(hide).collect())
        }
        other => other.clone(),
    }
}

/// Returns true if a table contains variables or headers, which a preview hides completely.
pub fn holds_values(name: &str) -> bool {
    matches!(name, "env" | "envs" | "environment" | "headers" | "http_headers")
}

/// Marks a value with a name: by the name, or else by the value.
fn mark_named(name: &str, text: &mut ImportedText) {
    if names_secret(name) {
        hide_plain_pieces(text);
    } else {
        replace_pieces(text, |plain| {
            let piece = match plain {
                plain if is_suspect(plain) => hide_text(plain),
                plain => ImportedPiece::Plain(plain.to_owned()),
            };
            vec![piece]
        });
    }
}

/// Marks a URL. If its user part, path or query contains a credential, it is a secret as a whole.
fn mark_url(text: &mut ImportedText) {
    mark_named("", text);
}

/// Returns true if a text is or contains a secret.
fn is_suspect(text: &str) -> bool {
    looks_secret(text)
        || find_named_value(text).is_some()
        || text.split_whitespace().any(url_has_secret)
}

/// Marks arguments: `--token VALUE`, `--token=VALUE`, `TOKEN=VALUE`, `--header "Name: VALUE"`.
fn mark_arguments(args: &mut [ImportedText]) {
    let mut follows_secret_option = false;
    for arg in args {
        let is_option =
            matches!(arg.0.first(), Some(ImportedPiece::Plain(text)) if text.starts_with('-'));
        if std::mem::take(&mut follows_secret_option) && !is_option {
            hide_plain_pieces(arg);
            continue;
        }
        follows_secret_option = match arg.0.as_slice() {
            [ImportedPiece::Plain(whole)] => {
                is_option && !whole.contains(['=', ':', ' ']) && names_secret(whole)
            }
            _ => false,
        };
        replace_pieces(arg, hide_argument);
    }
}

/// Hides an argument. A named value stays readable up to the value.
fn hide_argument(plain: &str) -> Vec<ImportedPiece> {
    match find_named_value(plain) {
        Some(at) => {
            let (name, value) = plain.split_at(at);
            let mut pieces = vec![ImportedPiece::Plain(name.to_owned())];
            pieces.extend(hide_value(value));
            pieces
        }
        None if is_suspect(plain) => vec![hide_text(plain)],
        None => vec![ImportedPiece::Plain(plain.to_owned())],
    }
}

/// Hides the plain pieces of a secret text. References, the scheme of an `Authorization` header,
/// and punctuation remain.
fn hide_plain_pieces(text: &mut ImportedText) {
    replace_pieces(text, hide_value);
}

/// Hides a secret value; the blanks and the scheme before it remain.
fn hide_value(value: &str) -> Vec<ImportedPiece> {
    let trimmed = value.trim_start();
    let scheme = READABLE_SCHEMES.iter().find(|scheme| trimmed.starts_with(**scheme));
    let start = value.len() - trimmed.len() + scheme.map_or(0, |scheme| scheme.len());
    let (before, secret) = value.split_at(start);
    let blanks = secret.len() - secret.trim_start().len();
    let (before, secret) = (value.get(..before.len() + blanks), secret.trim_start());
    if !secret.contains(char::is_alphanumeric) {
        return vec![ImportedPiece::Plain(value.to_owned())];
    }
    let before = ImportedPiece::Plain(before.unwrap_or_default().to_owned());
    // `${file:…}` strips the line ends at the end of a file.
    let (secret, line_ends) = secret.split_at(secret.trim_end_matches(['\r', '\n']).len());
    let after = ImportedPiece::Plain(line_ends.to_owned());
    [before, hide_text(secret), after].into_iter().filter(|piece| !piece.is_empty()).collect()
}

fn hide_text(text: &str) -> ImportedPiece {
    ImportedPiece::Secret(Secret::new(text.to_owned()))
}

fn replace_pieces(text: &mut ImportedText, replace: impl Fn(&str) -> Vec<ImportedPiece>) {
    let pieces = std::mem::take(&mut text.0).into_iter().flat_map(|piece| match piece {
        ImportedPiece::Plain(plain) => replace(&plain),
        other => vec![other],
    });
    text.0 = pieces.collect();
}

/// Schemes of an `Authorization` header that stay readable.
const READABLE_SCHEMES: [&str; 5] = ["Bearer ", "bearer ", "Basic ", "Token ", "token "];
/// A name that marks its value as a secret.
pub const ANY_SECRET: &str = "SECRET";
/// Text in place of a secret.
const HIDDEN_SECRET: &str = "***";

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets_of(texts: &[ImportedText]) -> Vec<String> {
        let hidden = texts.iter().flat_map(|arg| &arg.0).filter_map(|piece| match piece {
            ImportedPiece::Secret(secret) => Some(secret.expose().to_owned()),
            _ => None,
        });
        hidden.collect()
    }

    #[test]
    fn the_values_of_secret_options_are_secrets() {
        for (args, secrets) in [
            (&["--api-key", "k1", "x"][..], &["k1"][..]),
            (&["--token=k2"], &["k2"]),
            (&["-e", "TOKEN=k3"], &["k3"]),
            (&["--header", "Authorization: k4"], &["k4"]),
            (&["--header=Authorization: Bearer k5"], &["k5"]),
            (&["--password k6"], &["k6"]),
            (&["X-Pass:k7", "--verbose"], &["k7"]),
            (&["--db=Server=x;Password=k8"], &["k8"]),
            (&["--config={\"apiKey\":\"k9\"}"], &["\"k9\"}"]),
            (&["--url=https://h/mcp?token=k10"], &["k10"]),
            (&["--token", "--verbose", "a"], &[]),
            (&["--port=1", "say: hello", "https://h:8080/x", "-y"], &[]),
        ] {
            let mut texts: Vec<_> = args.iter().copied().map(ImportedText::plain).collect();
            mark_arguments(&mut texts);
            assert_eq!(secrets_of(&texts), secrets, "{args:?}");
        }
    }

    #[test]
    fn line_ends_stay_behind_a_secret() {
        let pieces = hide_value("Bearer k1\r\n");
        let [
            ImportedPiece::Plain(scheme),
            ImportedPiece::Secret(secret),
            ImportedPiece::Plain(end),
        ] = &pieces[..]
        else {
            panic!("{pieces:?}")
        };
        assert_eq!((&**scheme, secret.expose(), &**end), ("Bearer ", "k1", "\r\n"));
    }

    #[test]
    fn a_named_value_is_a_secret_up_to_its_references() {
        for (name, pieces, secrets) in [
            ("PASS", vec!["hunter2"], vec!["hunter2"]),
            ("X-Pass", vec!["hunter2"], vec!["hunter2"]),
            ("Authorization", vec!["Bearer ", "${X}"], vec![]),
            ("Authorization", vec!["x ", "${X}"], vec!["x "]),
            ("LOGIN_AUTH", vec!["${USER}", ":", "${X}"], vec![]),
            ("DB", vec!["Server=x;Password=y"], vec!["Server=x;Password=y"]),
            ("REPO", vec!["https://tok@host/x"], vec!["https://tok@host/x"]),
            ("DB", vec!["app:pw@tcp(db)/x"], vec!["app:pw@tcp(db)/x"]),
            (
                "ALERTS",
                vec!["https://hooks.slack.com/services/T0/B0/abc"],
                vec!["https://hooks.slack.com/services/T0/B0/abc"],
            ),
            ("LEVEL", vec!["info"], vec![]),
        ] {
            let pieces = pieces.into_iter().map(|piece| match piece.strip_prefix("${") {
                Some(variable) => ImportedPiece::Variable(variable.trim_end_matches('}').into()),
                None => ImportedPiece::Plain(piece.into()),
            });
            let mut text = ImportedText(pieces.collect());
            mark_named(name, &mut text);
            assert_eq!(secrets_of(&[text]), secrets, "{name}");
        }
    }
}
