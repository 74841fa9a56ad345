//! The texts of the faults of the TOML parser, in the words of people who write configurations.
//!
//! The parser describes its grammar ("invalid float, expected `nan`" for a text without quotes). Here
//! are the mistakes behind its most frequent messages. A text never repeats a value, which may be a
//! secret.

use std::ops::Range;

use trunkline_core::text::{clip, escape_controls};

use super::problem::SettingFault;

/// Recognises a file in another language than TOML; `None` for any other.
pub(super) fn find_other_language(text: &str) -> Option<SettingFault> {
    let lines = text.lines().map(str::trim_end);
    let first = lines.clone().find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let is_json = first.trim_start().starts_with('{')
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    if is_json {
        return Some(SettingFault::Json);
    }
    let is_key = |key: &str| {
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_yaml = first == "---" || first.strip_suffix(':').is_some_and(is_key);
    is_yaml.then_some(SettingFault::Yaml)
}

/// The mistake behind a message of the parser, and its correction.
pub(super) fn explain_message(text: &str, message: &str, span: &Range<usize>) -> SettingFault {
    if message == "duplicate key" {
        let help = Some("keep one of them".into());
        return SettingFault::Syntax { message: message.to_owned(), help };
    }
    let line = line_around(text, span.start);
    let (key, value) = line.split_once('=').unwrap_or(("", ""));
    let (key, value) = (key.trim(), value.trim());
    if let Some(quote) = line.chars().find(|c| CURLY_QUOTES.contains(c)) {
        return SettingFault::Syntax {
            message: format!("`{quote}` is not a quote in TOML"),
            help: Some("write \" before and after the text".into()),
        };
    }
    if message.contains("unicode value") || message.contains("escape") {
        return SettingFault::Syntax {
            message: "`\\` begins an escape in \"…\"".into(),
            help: Some("write '…' around a text with `\\`".into()),
        };
    }
    if message == "invalid basic string, expected `\"`" {
        return SettingFault::Syntax {
            message: "the text has no closing quote".into(),
            help: Some("write \" at its end".into()),
        };
    }
    let is_bare = value.starts_with(|c: char| c.is_alphanumeric() || "/.~@$".contains(c))
        && value.contains(|c: char| c.is_alphabetic() || c == ':');
    let rest = text.get(span.start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    if is_bare && value.ends_with(rest.trim()) {
        return SettingFault::Syntax {
            message: "a text needs quotes".into(),
            help: Some(format!("write {} = \"…\"", escape_controls(clip(key, MAX_SHOWN_KEY)))),
        };
    }
    let message = match message.strip_suffix(", expected nothing").unwrap_or(message) {
        "unexpected key or value, expected newline, `#`" => "unexpected text after the value",
        message => message,
    };
    SettingFault::Syntax { message: message.to_owned(), help: None }
}

/// The line with a byte, without its line end.
fn line_around(text: &str, at: usize) -> &str {
    let at = text.floor_char_boundary(at);
    let (before, after) = text.split_at(at);
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let end = after.find('\n').map_or(text.len(), |end| at + end);
    text.get(start..end).unwrap_or_default()
}

/// The longest key in a text, in bytes.
const MAX_SHOWN_KEY: usize = 60;
const CURLY_QUOTES: [char; 5] = ['“', '”', '„', '‘', '’'];
