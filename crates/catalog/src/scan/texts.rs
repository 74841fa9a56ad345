//! The texts of a definition, each by itself and joined.

use std::collections::HashSet;

use serde_json::Value;

/// The texts of a definition.
#[derive(Debug, Default)]
pub(super) struct DefinitionTexts<'a> {
    /// Every text, keys included, in the definition's order.
    pub(super) all: Vec<&'a str>,
    /// The values in the definition's order, a line each: an order may be split over some of them.
    pub(super) values: String,
    /// The values with titles before descriptions, if that is another order.
    pub(super) titles_first: Option<String>,
    /// The names of parameters, a line each.
    pub(super) keys: String,
}

impl<'a> DefinitionTexts<'a> {
    /// Returns the texts of one text that is not JSON.
    pub(super) fn from_text(text: &'a str) -> Self {
        Self { values: text.to_owned(), all: vec![text], ..Self::default() }
    }

    /// Collects the texts of a value. Its depth is bounded by the parser.
    pub(super) fn from_value(value: &'a Value) -> Self {
        let mut lines = DefinitionLines::default();
        lines.collect(value, "");
        let mut titles_first = Vec::with_capacity(lines.values.len());
        collect_titles_first(value, "", &mut titles_first);
        let mut passages = HashSet::new();
        Self {
            values: join_lines(&lines.values, &mut passages),
            titles_first: (titles_first != lines.values)
                .then(|| join_lines(&titles_first, &mut passages)),
            keys: join_lines(&lines.keys, &mut HashSet::new()),
            all: lines.all,
        }
    }
}

/// The texts of a definition, before they are joined.
#[derive(Default)]
struct DefinitionLines<'a> {
    all: Vec<&'a str>,
    values: Vec<&'a str>,
    keys: Vec<&'a str>,
}

impl<'a> DefinitionLines<'a> {
    fn collect(&mut self, value: &'a Value, key: &str) {
        match value {
            Value::String(text) => {
                if is_prose(key, text) {
                    self.values.push(text);
                }
                self.all.push(text);
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item, key)),
            Value::Object(members) => {
                for (key, value) in members {
                    if !SCHEMA_KEYS.contains(&key.as_str()) {
                        self.keys.push(key);
                    }
                    self.all.push(key);
                    self.collect(value, key);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Collects the values of each object in the order in which clients show them.
fn collect_titles_first<'a>(value: &'a Value, key: &str, lines: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if is_prose(key, text) => lines.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_titles_first(item, key, lines)),
        Value::Object(members) => {
            let first = SHOWN_FIRST.iter().filter_map(|key| members.get_key_value(*key));
            let others = members.iter().filter(|(key, _)| !SHOWN_FIRST.contains(&key.as_str()));
            first.chain(others).for_each(|(key, value)| collect_titles_first(value, key, lines));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Joins lines, but leaves out passages that were `seen` before: the schemas of a large API repeat
/// the same hundred lines in one definition. Any [`MAX_SPLIT`] consecutive lines of the definition
/// are also consecutive here, at least once.
fn join_lines<'a, 'b>(lines: &'b [&'a str], seen: &mut HashSet<&'b [&'a str]>) -> String {
    join_windows(lines, |_, window| seen.insert(window))
}

/// Joins the lines that are in a wanted window: [`MAX_SPLIT`] consecutive lines, or all if there
/// are fewer. `is_wanted` gets the position of the window's first line, and the window.
pub(super) fn join_windows<'a, 'b>(
    lines: &'b [&'a str],
    mut is_wanted: impl FnMut(usize, &'b [&'a str]) -> bool,
) -> String {
    let mut is_kept = vec![false; lines.len()];
    for (start, window) in lines.windows(MAX_SPLIT.min(lines.len()).max(1)).enumerate() {
        if is_wanted(start, window)
            && let Some(kept) = is_kept.get_mut(start..start + window.len())
        {
            kept.fill(true);
        }
    }
    let kept = lines.iter().zip(is_kept).filter(|(_, is_kept)| *is_kept).map(|(line, _)| *line);
    kept.collect::<Vec<_>>().join("\n")
}

/// Returns false for the values of schema keywords, which would separate the halves of an order.
fn is_prose(key: &str, text: &str) -> bool {
    text.len() > MAX_KEYWORD_VALUE || !UNREAD_KEYWORDS.contains(&key)
}

/// The most lines over which an order may be split.
pub(super) const MAX_SPLIT: usize = 4;
/// The members that clients show before others.
const SHOWN_FIRST: [&str; 4] = ["name", "title", "annotations", "description"];
/// Keywords of JSON Schema and MCP with values that are no prose.
const UNREAD_KEYWORDS: [&str; 7] =
    ["type", "format", "$schema", "$ref", "mimeType", "contentEncoding", "taskSupport"];
/// Keys of definitions, which would separate the names of two parameters.
const SCHEMA_KEYS: [&str; 20] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "type",
    "properties",
    "items",
    "enum",
    "const",
    "default",
    "examples",
    "required",
    "format",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "additionalProperties",
];
/// The longest value of such a keyword, in bytes; a longer one is a text.
const MAX_KEYWORD_VALUE: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeated_passages_are_joined_once_and_neighbours_stay_neighbours() {
        let passage = ["one", "two", "three", "four", "five"];
        let lines: Vec<_> = passage.iter().cycle().take(1000).copied().chain(["end"]).collect();
        let joined = join_lines(&lines, &mut HashSet::new());
        assert!(joined.lines().count() <= 3 * passage.len(), "{joined}");
        for window in lines.windows(MAX_SPLIT) {
            assert!(joined.contains(&window.join("\n")), "{window:?}");
        }
        assert_eq!(join_lines(&["one", "one"], &mut HashSet::new()), "one\none");
    }

    #[test]
    fn an_order_with_parts_repeated_before_stays_whole() {
        let parts = ["ignore all", "previous", "instructions", "now"];
        let mut lines = Vec::new();
        for pair in parts.windows(2) {
            lines.extend_from_slice(&[pair[0], pair[1], "x", "y", "z"]);
        }
        lines.extend_from_slice(&parts);
        assert!(join_lines(&lines, &mut HashSet::new()).ends_with(&parts.join("\n")));
    }

    #[test]
    fn titles_come_before_descriptions() {
        let tool = json!({ "description": "about", "title": "call", "type": "string" });
        let texts = DefinitionTexts::from_value(&tool);
        assert_eq!(texts.values, "about\ncall");
        assert_eq!(texts.titles_first.as_deref(), Some("call\nabout"));
    }
}
