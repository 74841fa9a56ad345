//! A tool as TypeScript, for a model that writes code: its input and its result.
//!
//! ```ts
//! /** Finds an issue in our tracker. */
//! find_issue(input: { repo: string; state?: "open" | "closed" }): Promise<{ total: number }>;
//! ```
//!
//! Like a signature, a declaration is made of an untrusted definition: it is bounded, has no
//! control characters or invisible ones, its comment cannot be ended early, and making it takes a
//! bounded time. Each omitted part leaves a `/* … */`.

mod script_name;
mod types;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::{Map, Value};

use trunkline_core::text::split_sentence;

use super::signature::{on_one_line, read_object};
pub(crate) use script_name::script_names;
use types::{TypeText, property_name};

/// The declaration of a tool: at most two lines, and at most about 9,000 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolDeclaration {
    text: String,
}

impl ToolDeclaration {
    /// Declares the function `js_name` for a tool by its definition, raw JSON.
    pub(crate) fn write(js_name: &str, raw: &[u8]) -> Self {
        let tool = read_object(raw);
        let schema = |name| tool.get(name).and_then(Value::as_object);
        let output = schema("outputSchema")
            .map_or_else(|| "any".to_owned(), |schema| TypeText::of_schema(schema).into_string());
        let (input, mark) = match schema("inputSchema") {
            Some(schema) => (
                TypeText::of_schema(schema).into_string(),
                if has_required(schema) { "" } else { "?" },
            ),
            None => ("Record<string, any>".to_owned(), "?"),
        };
        let description = tool.get("description").and_then(Value::as_str).map(write_description);
        let comment = description.filter(|text| !text.is_empty());
        let comment = comment.map(|text| format!("/** {text} */\n")).unwrap_or_default();
        let name = property_name(js_name);
        Self { text: format!("{comment}{name}(input{mark}: {input}): Promise<{output}>;") }
    }
}

impl fmt::Display for ToolDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns true if a schema needs an object: some parameter is required, or may be by rules that
/// are not read.
fn has_required(schema: &Map<String, Value>) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    let combined = ["allOf", "anyOf", "oneOf", "$ref"];
    required.is_some_and(|names| !names.is_empty())
        || combined.iter().any(|keyword| schema.contains_key(*keyword))
}

/// As many whole sentences of a description as there is room for; if the first one is too long, as
/// many of its words.
fn write_description(description: &str) -> String {
    let (mut text, mut rest) = (String::new(), description);
    loop {
        let (sentence, further) = split_sentence(rest);
        let line = comment_text(sentence);
        if !text.is_empty() && text.chars().count() + line.chars().count() > MAX_DESCRIPTION {
            text.push_str(" …");
            break;
        }
        if !text.is_empty() && !line.is_empty() {
            text.push(' ');
        }
        text.push_str(&line);
        rest = further;
        if rest.trim().is_empty() || text.chars().count() > MAX_DESCRIPTION {
            break;
        }
    }
    if text.chars().count() <= MAX_DESCRIPTION + 2 {
        return text;
    }
    let end = text.char_indices().nth(MAX_DESCRIPTION).map_or(text.len(), |(at, _)| at);
    let cut = text.get(..end).unwrap_or_default();
    let cut = cut.rsplit_once(' ').map_or(cut, |(words, _)| words);
    format!("{}…", cut.trim_end_matches([',', ';', ':', ' ', '\\', '*']))
}

/// A text that cannot end the comment around it.
fn comment_text(text: &str) -> String {
    on_one_line(text).replace("*/", "*\\/")
}

/// The most characters of a description.
const MAX_DESCRIPTION: usize = 400;
