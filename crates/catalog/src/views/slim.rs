//! Shorter definitions of tools, for lists: shorter descriptions, and no parts that only people
//! read. Every part that arguments are checked against keeps its bytes.

use std::borrow::Cow;

use serde_json::value::RawValue;

use trunkline_config::{SlimChoice, SlimConfig};
use trunkline_core::text::shorten_text;
use trunkline_jsonrpc::{string, text};

use crate::elements::definition_texts::{TextEdit, TextRole, edit_texts};
use crate::kind::Kind;

/// An element of `tools` in a shorter form; unchanged if it is no object.
pub(crate) fn slim_tool(raw: &[u8], slim: &SlimConfig) -> Vec<u8> {
    edit_texts(Kind::Tools, raw, slim).into_owned()
}

impl TextEdit for SlimConfig {
    fn edit_text<'a>(&self, role: TextRole, value: &'a RawValue) -> Option<Cow<'a, str>> {
        let is_kept = match role {
            TextRole::Description => return Some(shorten_description(value, self)),
            TextRole::Title => self.titles == SlimChoice::Keep || text(value).is_none(),
            TextRole::Examples => self.examples == SlimChoice::Keep,
            TextRole::Remark => true,
        };
        is_kept.then(|| value.get().into())
    }
}

fn shorten_description<'a>(raw: &'a RawValue, slim: &SlimConfig) -> Cow<'a, str> {
    let short =
        slim.descriptions.zip(text(raw)).and_then(|(most, text)| match shorten_text(&text, most) {
            Cow::Owned(short) => Some(string(&short)),
            Cow::Borrowed(_) => None,
        });
    short.map_or(raw.get().into(), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ALL: SlimConfig =
        SlimConfig { descriptions: Some(20), examples: SlimChoice::Drop, titles: SlimChoice::Drop };

    fn slimmed(tool: &Value, slim: &SlimConfig) -> Value {
        serde_json::from_slice(&slim_tool(tool.to_string().as_bytes(), slim)).unwrap()
    }

    #[test]
    fn text_for_people_is_removed_and_rules_stay() {
        let long = "The first sentence. Another one that is longer.";
        let tool = json!({
            "name": "t", "title": "A tool", "description": long,
            "annotations": { "title": "A tool", "readOnlyHint": true },
            "inputSchema": {
                "type": "object", "title": "Arguments", "required": ["title"],
                "properties": {
                    "title": { "type": "string", "description": long, "examples": ["x"], "title": "Title" },
                    "examples": { "enum": ["examples"], "default": { "title": "kept" } },
                    "list": { "type": "array", "items": { "$ref": "#/$defs/A" },
                        "anyOf": [{ "title": "One", "maxItems": 1 }, true] },
                },
                "$defs": { "A": { "title": "A", "const": { "title": "kept", "examples": [1] } } },
            },
        });
        let short = "The first sentence. …";
        assert_eq!(
            slimmed(&tool, &ALL),
            json!({
                "name": "t", "description": short,
                "annotations": { "readOnlyHint": true },
                "inputSchema": {
                    "type": "object", "required": ["title"],
                    "properties": {
                        "title": { "type": "string", "description": short },
                        "examples": { "enum": ["examples"], "default": { "title": "kept" } },
                        "list": { "type": "array", "items": { "$ref": "#/$defs/A" },
                            "anyOf": [{ "maxItems": 1 }, true] },
                    },
                    "$defs": { "A": { "const": { "title": "kept", "examples": [1] } } },
                },
            })
        );
        let nothing =
            SlimConfig { descriptions: None, examples: SlimChoice::Keep, titles: SlimChoice::Keep };
        assert_eq!(slimmed(&tool, &nothing), tool);
    }

    #[test]
    fn numbers_keep_their_spelling_and_unreadable_schemas_are_unchanged() {
        let raw =
            r#"{"name":"t","inputSchema":{"maximum":1e400,"minimum":12345678901234567890123}}"#;
        assert_eq!(slim_tool(raw.as_bytes(), &ALL), raw.as_bytes());
        for raw in ["", "[]"] {
            assert_eq!(slim_tool(raw.as_bytes(), &ALL), raw.as_bytes());
        }
    }

    #[test]
    fn real_definitions_accept_the_same_arguments() {
        let definitions = include_str!("../../../../tests/definitions/benign.jsonl");
        for line in definitions.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let definition = &line["definition"];
            let short = slim_tool(definition.to_string().as_bytes(), &ALL);
            let short: Value = serde_json::from_slice(&short).unwrap();
            assert_eq!(without_words(&short), without_words(definition));
        }
    }

    /// A value without the members that are dropped, at any depth.
    fn without_words(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let words = ["description", "title", "examples", "example"];
                let kept = members.iter().filter(|(key, _)| !words.contains(&key.as_str()));
                kept.map(|(key, value)| (key.clone(), without_words(value))).collect()
            }
            Value::Array(items) => items.iter().map(without_words).collect(),
            other => other.clone(),
        }
    }
}
