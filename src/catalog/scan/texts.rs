//! The texts of a definition, each by itself and joined.

use serde_json::Value;

/// The texts of a definition.
#[derive(Debug, Default)]
pub(super) struct DefinitionTexts {
    /// Every text, keys included, in the definition's order.
    pub(super) all: Vec<String>,
    /// The values in the definition's order, a line each: an order may be split over two of them.
    pub(super) values: String,
    /// The values with titles before descriptions, if that is another order.
    pub(super) titles_first: Option<String>,
    /// The names of parameters, a line each.
    pub(super) keys: String,
}

impl DefinitionTexts {
    /// Returns the texts of one text that is not JSON.
    pub(super) fn from_text(text: String) -> Self {
        Self { values: text.clone(), all: vec![text], ..Self::default() }
    }

    /// Collects the texts of a value. Its depth is bounded by the parser.
    pub(super) fn from_value(value: Value) -> Self {
        let mut texts = Self::default();
        let mut titles_first = String::new();
        join_titles_first(&value, "", &mut titles_first);
        texts.collect(value, "");
        if titles_first != texts.values {
            texts.titles_first = Some(titles_first);
        }
        texts
    }

    fn collect(&mut self, value: Value, key: &str) {
        match value {
            Value::String(text) => {
                if is_prose(key, &text) {
                    push_line(&text, &mut self.values);
                }
                self.all.push(text);
            }
            Value::Array(items) => items.into_iter().for_each(|item| self.collect(item, key)),
            Value::Object(members) => {
                for (key, value) in members {
                    if !SCHEMA_KEYS.contains(&key.as_str()) {
                        push_line(&key, &mut self.keys);
                    }
                    self.all.push(key.clone());
                    self.collect(value, &key);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Joins the values of each object in the order in which clients show them.
fn join_titles_first(value: &Value, key: &str, joined: &mut String) {
    match value {
        Value::String(text) if is_prose(key, text) => push_line(text, joined),
        Value::Array(items) => items.iter().for_each(|item| join_titles_first(item, key, joined)),
        Value::Object(members) => {
            let first = SHOWN_FIRST.iter().filter_map(|key| members.get_key_value(*key));
            let others = members.iter().filter(|(key, _)| !SHOWN_FIRST.contains(&key.as_str()));
            first.chain(others).for_each(|(key, value)| join_titles_first(value, key, joined));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn push_line(text: &str, joined: &mut String) {
    if !joined.is_empty() {
        joined.push('\n');
    }
    joined.push_str(text);
}

/// Returns false for the values of schema keywords, which would separate the halves of an order.
fn is_prose(key: &str, text: &str) -> bool {
    text.len() > MAX_KEYWORD_VALUE || !KEYWORDS.contains(&key)
}

/// The members that clients show before others.
const SHOWN_FIRST: [&str; 4] = ["name", "title", "annotations", "description"];
/// Keywords of JSON Schema and MCP whose values are no prose.
const KEYWORDS: [&str; 7] =
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
