//! Hides the values of a YAML file line by line. Shows only a value that is complete on the line of
//! its key; text that may continue another line is hidden.

use serde_json::Value as Json;

use trunkline_import::{
    ANY_SECRET, Notation, ReferenceContext, hide_secrets, holds_values, parse_document,
};

use super::HIDDEN_SECRET;

/// Returns the text with `***` in place of hidden values.
pub(super) fn hide_yaml(
    text: &str,
    tables: &[Vec<String>],
    references: &ReferenceContext,
) -> String {
    let mut state = LineState::default();
    let lines = text.lines().map(|line| state.hide_line(line, tables, references) + "\n");
    lines.collect()
}

/// Context of a line from the preceding lines.
#[derive(Default)]
struct LineState {
    /// True if the last key at the top level is a table of servers.
    is_table: bool,
    /// Depth of a line with a value; deeper lines continue the value.
    continued: Option<usize>,
    /// Depth of a table of variables or headers.
    values: Option<usize>,
}

impl LineState {
    fn hide_line(
        &mut self,
        line: &str,
        tables: &[Vec<String>],
        references: &ReferenceContext,
    ) -> String {
        let content = line.trim_start();
        let depth = line.len() - content.len();
        let blank = line.get(..depth).unwrap_or_default();
        if content.is_empty() || content.starts_with('#') {
            let comment = if content.is_empty() { "" } else { "# ***" };
            return format!("{blank}{comment}");
        }
        if self.continued.is_some_and(|start| depth > start) {
            return format!("{blank}{HIDDEN_SECRET}");
        }
        let pair = split_pair(content);
        let has_value = pair.is_none_or(|(_, value)| !value.is_empty());
        self.continued = has_value.then_some(depth);
        self.values = self.values.filter(|start| depth > *start);
        let Some((key, value)) = pair else {
            let mark = if content.starts_with("- ") { "- " } else { "" };
            return format!("{blank}{mark}{HIDDEN_SECRET}");
        };
        if depth == 0 {
            self.is_table = tables.iter().any(|table| matches!(&table[..], [only] if only == key));
        }
        let name = if self.values.is_some() { ANY_SECRET } else { key };
        if holds_values(name) {
            self.values = Some(depth);
        }
        if !has_value || (self.is_table && is_harmless(name, value, references)) {
            return line.to_owned();
        }
        format!("{blank}{key}: {HIDDEN_SECRET}")
    }
}

/// Splits a key and its value.
fn split_pair(content: &str) -> Option<(&str, &str)> {
    if content.starts_with([':', '-', '{', '[', '"', '\'', '?', '!', '&', '*']) {
        return None;
    }
    let (key, value) = match content.strip_suffix(':') {
        Some(key) => (key, ""),
        None => content.split_once(": ")?,
    };
    (!key.contains([' ', '"'])).then(|| (key, value.trim()))
}

/// Returns true if a value may be shown.
fn is_harmless(name: &str, value: &str, references: &ReferenceContext) -> bool {
    // A comment behind the value, an anchor, an alias, a tag, or the head of a block of lines.
    if value.contains(" #") || value.starts_with(['|', '>', '&', '*', '!', '#']) {
        return false;
    }
    match parse_document("", value, Notation::Yaml) {
        Ok(Json::Object(_) | Json::Array(_)) | Err(_) => false,
        Ok(value) => hide_secrets(name, &value, references) == value,
    }
}
