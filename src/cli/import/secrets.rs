//! Which texts of an imported configuration are secrets.
//!
//! A secret moves to a file of its own and is never printed. To take a harmless text for a secret
//! costs one more file; to take a secret for a harmless text would print it. Doubt decides for the
//! file.

use serde_json::Value as Json;
use url::Url;

use crate::config::Secret;

use super::imported::{ImportedPiece, ImportedServer, ImportedTarget, ImportedText, SettingText};

/// Marks the secrets in all texts of a server.
pub(super) fn mark_secrets(server: &mut ImportedServer) {
    match &mut server.target {
        ImportedTarget::Command { args, env, .. } => {
            mark_arguments(args);
            mark_pairs(env);
        }
        ImportedTarget::Http { url, headers, .. } => {
            mark_url(url);
            mark_pairs(headers);
        }
        ImportedTarget::OpenApi { url } => mark_url(url),
    }
    for (_, value) in &mut server.settings {
        if let SettingText::Pairs(pairs) = value {
            mark_pairs(pairs);
        }
    }
}

fn mark_pairs(pairs: &mut [(String, ImportedText)]) {
    for (name, text) in pairs {
        mark_named(name, text);
    }
}

/// A text in which the secrets of a document are `***`.
pub(in crate::cli) fn hide_secrets(text: &str, document: &Json) -> String {
    let mut found = Vec::new();
    collect_secrets("", document, &mut found);
    // The longest first: one may be a part of another.
    found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut shown = text.to_owned();
    for secret in found {
        let escaped = Json::from(secret.as_str()).to_string();
        shown = shown.replace(escaped.trim_matches('"'), "***").replace(&secret, "***");
    }
    shown
}

/// The secrets of any document: by the names of its fields, by options before them, and by their
/// own form.
fn collect_secrets(name: &str, value: &Json, found: &mut Vec<String>) {
    let mut keep = |text: &ImportedText| {
        found.extend(text.0.iter().filter_map(|piece| match piece {
            ImportedPiece::Secret(secret) => Some(secret.expose().to_owned()),
            _ => None,
        }));
    };
    match value {
        Json::String(text) => {
            let mut text = ImportedText(vec![ImportedPiece::Plain(text.clone())]);
            mark_named(name, &mut text);
            mark_url(&mut text);
            keep(&text);
        }
        Json::Array(items) => {
            let texts = items
                .iter()
                .filter_map(Json::as_str)
                .map(|text| ImportedText(vec![ImportedPiece::Plain(text.to_owned())]));
            let mut texts: Vec<_> = texts.collect();
            mark_arguments(&mut texts);
            texts.iter().for_each(keep);
            for item in items {
                collect_secrets(name, item, found);
            }
        }
        Json::Object(fields) => {
            for (name, value) in fields {
                collect_secrets(name, value, found);
            }
        }
        _ => {}
    }
}

/// A value with a name: the name tells, or else the value.
fn mark_named(name: &str, text: &mut ImportedText) {
    if text.is_plain() && names_secret(name) {
        hide_whole(text);
    } else {
        mark_values(text);
    }
}

/// The pieces that look like secrets by themselves.
fn mark_values(text: &mut ImportedText) {
    for piece in &mut text.0 {
        if let ImportedPiece::Plain(plain) = piece
            && looks_secret(plain)
        {
            *piece = ImportedPiece::Secret(Secret::new(std::mem::take(plain)));
        }
    }
}

/// Arguments: `--token VALUE`, `--token=VALUE`, `TOKEN=VALUE`, `--header "Name: VALUE"`.
fn mark_arguments(args: &mut [ImportedText]) {
    let mut follows_secret_option = false;
    for arg in args {
        let [ImportedPiece::Plain(whole)] = arg.0.as_slice() else {
            follows_secret_option = false;
            mark_values(arg);
            continue;
        };
        let whole = whole.clone();
        let is_option = whole.starts_with('-');
        if std::mem::take(&mut follows_secret_option) && !is_option {
            hide_whole(arg);
        } else if let Some(at) = whole.find(['=', ':']).filter(|at| {
            let name = whole.get(..*at).unwrap_or_default();
            !whole.get(*at..).unwrap_or_default().starts_with("://") && names_secret(name)
        }) {
            hide_from(arg, &whole, at + 1);
        } else if is_option && names_secret(&whole) {
            follows_secret_option = true;
        } else {
            mark_values(arg);
        }
    }
}

/// A URL whose user part, path or query contains a credential is a secret as a whole.
fn mark_url(text: &mut ImportedText) {
    let suspect = text.0.iter().any(|piece| match piece {
        ImportedPiece::Plain(plain) => url_has_secret(plain),
        _ => false,
    });
    if suspect && text.is_plain() {
        hide_whole(text);
    }
}

fn url_has_secret(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return looks_secret(text) };
    url.password().is_some()
        || !url.username().is_empty()
        || url
            .query_pairs()
            .any(|(name, value)| !value.is_empty() && (names_secret(&name) || looks_random(&value)))
        || url.path().split('/').any(looks_random)
}

/// Turns the text from a byte on, without the blanks there, into a secret.
fn hide_from(text: &mut ImportedText, whole: &str, at: usize) {
    let (before, value) = whole.split_at(at);
    let secret = value.trim_start();
    let before = format!("{before}{}", value.get(..value.len() - secret.len()).unwrap_or_default());
    if !secret.is_empty() {
        let secret = ImportedPiece::Secret(Secret::new(secret.to_owned()));
        text.0 = vec![ImportedPiece::Plain(before), secret];
    }
}

/// Turns a plain text into a secret; the scheme of an `Authorization` header stays readable.
fn hide_whole(text: &mut ImportedText) {
    let [ImportedPiece::Plain(plain)] = text.0.as_slice() else { return };
    let whole = plain.clone();
    let scheme = whole.find(' ').filter(|at| {
        matches!(whole.get(..*at), Some("Bearer" | "bearer" | "Basic" | "Token" | "token"))
    });
    hide_from(text, &whole, scheme.map_or(0, |at| at + 1));
}

/// Whether the name of a variable, header, option or parameter says that its value is a secret.
fn names_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase();
    let within = ["TOKEN", "SECRET", "PASSW", "CREDENTIAL", "APIKEY", "AUTHORIZATION", "COOKIE"];
    within.iter().any(|word| name.contains(word))
        || name
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| matches!(word, "KEY" | "AUTH" | "PAT" | "PWD" | "DSN" | "SIGNATURE"))
        || name.ends_with("KEY")
}

/// Whether a text is a secret by itself, or contains one.
fn looks_secret(text: &str) -> bool {
    let with_password =
        Url::parse(text).is_ok_and(|url| url.has_host() && url.password().is_some());
    with_password
        || text.contains("-----BEGIN")
        || text
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | '='))
            .any(looks_random)
}

/// Whether a word is a token: it has the prefix of a known kind, or it is long and mixes letters
/// and digits as words do not.
fn looks_random(word: &str) -> bool {
    if KNOWN_PREFIXES.iter().any(|prefix| word.len() > prefix.len() + 8 && word.starts_with(prefix))
    {
        return true;
    }
    let token =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '.' | '/' | '=');
    if word.len() < 20 || !word.chars().all(token) || word.starts_with(['/', '.']) {
        return false;
    }
    let classes = word.chars().filter(char::is_ascii_alphanumeric).map(|c| match c {
        '0'..='9' => 0,
        'a'..='z' => 1,
        _ => 2,
    });
    let classes: Vec<_> = classes.collect();
    let changes = classes.windows(2).filter(|pair| pair.first() != pair.last()).count();
    // Six changes within twenty characters: names with a version or a date have fewer.
    changes * 10 >= word.len() * 3
}

/// The prefixes by which secret scanners recognise tokens.
const KNOWN_PREFIXES: [&str; 16] = [
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "sk_test_",
    "xoxb-",
    "xoxp-",
    "hf_",
    "npm_",
    "AKIA",
    "eyJ",
    "AIza",
    "tlk_",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognised() {
        for name in [
            "GITHUB_TOKEN",
            "api-key",
            "--api-key",
            "Authorization",
            "X-API-Key",
            "OPENAIKEY",
            "DB_PASSWORD",
            "client_secret",
            "GITLAB_PAT",
        ] {
            assert!(names_secret(name), "{name}");
        }
        for name in ["PATH", "LOG_LEVEL", "KEYBOARD", "--port", "Accept-Language", "PATTERN"] {
            assert!(!names_secret(name), "{name}");
        }
    }

    #[test]
    fn values_that_are_secrets_are_recognised_and_ordinary_ones_are_not() {
        for value in [
            "ghp_0123456789abcdef",
            "Bearer 8f3kQ92mZx7Lp0Wv5Rt1Yb6N",
            "postgres://app:hunter2@db/x",
            "d41d8cd98f00b204e9800998ecf8427e",
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            assert!(looks_secret(value), "{value}");
        }
        for value in [
            "@modelcontextprotocol/server-filesystem@2025.11.25",
            "/home/ann/projects/site/node_modules/.bin/server",
            "src.mcp_servers.aviation_atis_server",
            "https://mcp.example.com/v1/servers/documents",
            "Asterisk-AI-Voice-Agent (+https://github.com/...)",
            "mcp-server-postgres-with-a-long-name-2025-11-25",
        ] {
            assert!(!looks_secret(value), "{value}");
        }
    }

    #[test]
    fn a_url_with_a_credential_is_a_secret() {
        for url in [
            "https://ann:pw@host/mcp",
            "https://host/mcp?api_key=x",
            "https://host/s/8f3kQ92mZx7Lp0Wv5Rt1Yb6N/mcp",
        ] {
            assert!(url_has_secret(url), "{url}");
        }
        assert!(!url_has_secret("https://mcp.example.com/mcp?tools=a,b&version=2025-11-25"));
    }

    #[test]
    fn the_values_of_secret_options_are_secrets() {
        let texts = ["--api-key", "k1", "--token=k2", "TOKEN=k3", "--header", "Authorization: k4"];
        let mut args: Vec<_> = texts.map(ImportedText::plain).into();
        mark_arguments(&mut args);
        let hidden = args.iter().flat_map(|arg| &arg.0).filter_map(|piece| match piece {
            ImportedPiece::Secret(secret) => Some(secret.expose().to_owned()),
            _ => None,
        });
        assert_eq!(hidden.collect::<Vec<_>>(), ["k1", "k2", "k3", "k4"]);
        assert_eq!(args[2].0[0], ImportedPiece::Plain("--token=".into()));
    }
}
