//! Shorter definitions of tools, for lists: descriptions that end sooner, and no parts that only
//! people read. Whatever an argument is checked against keeps its bytes.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::config::{SlimChoice, SlimConfig};
use crate::jsonrpc::{JsonError, Members, object_of, string, text};
use crate::text::shorten_text;

/// An element of `tools` in a shorter form; unchanged if it is no object, or has a key twice.
pub(super) fn slim_tool(raw: &[u8], slim: &SlimConfig) -> Vec<u8> {
    let slimmed = rewrite(raw, |key, value| match key {
        "description" => Some(slim.shorten(value)),
        "title" => slim.keep_title(value),
        "annotations" => Some(slim.slim_annotations(value)),
        "inputSchema" | "outputSchema" => Some(slim.slim_schema(value, 0)),
        _ => Some(value.get().into()),
    });
    slimmed.unwrap_or_else(|_| raw.to_owned())
}

impl SlimConfig {
    fn slim_annotations<'a>(&self, raw: &'a RawValue) -> Cow<'a, str> {
        let keep = |key: &str, value: &'a RawValue| match key {
            "title" => self.keep_title(value),
            _ => Some(value.get().into()),
        };
        or_unchanged(rewrite(raw.get().as_bytes(), keep), raw)
    }

    fn slim_schema<'a>(&self, raw: &'a RawValue, depth: usize) -> Cow<'a, str> {
        if depth > MAX_DEPTH {
            return raw.get().into();
        }
        let keep = |key: &str, value: &'a RawValue| match key {
            "description" => Some(self.shorten(value)),
            "title" => self.keep_title(value),
            "examples" | "example" => {
                (self.examples == SlimChoice::Keep).then(|| value.get().into())
            }
            // The names in these are those of the server.
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                let each = |_: &str, one| Some(self.slim_schema(one, depth + 1));
                Some(or_unchanged(rewrite(value.get().as_bytes(), each), value))
            }
            "items"
            | "prefixItems"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else"
            | "allOf"
            | "anyOf"
            | "oneOf" => Some(self.slim_schemas(value, depth + 1)),
            _ => Some(value.get().into()),
        };
        or_unchanged(rewrite(raw.get().as_bytes(), keep), raw)
    }

    /// A schema, or an array of schemas.
    fn slim_schemas<'a>(&self, raw: &'a RawValue, depth: usize) -> Cow<'a, str> {
        match serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
            Ok(all) => {
                let all: Vec<_> = all.iter().map(|one| self.slim_schema(one, depth)).collect();
                Cow::Owned(format!("[{}]", all.join(",")))
            }
            Err(_) => self.slim_schema(raw, depth),
        }
    }

    fn shorten<'a>(&self, raw: &'a RawValue) -> Cow<'a, str> {
        let short = self.descriptions.zip(text(raw)).and_then(|(most, text)| {
            match shorten_text(&text, most) {
                Cow::Owned(short) => Some(string(&short)),
                Cow::Borrowed(_) => None,
            }
        });
        short.map_or(raw.get().into(), Cow::Owned)
    }

    fn keep_title<'a>(&self, raw: &'a RawValue) -> Option<Cow<'a, str>> {
        (self.titles == SlimChoice::Keep || text(raw).is_none()).then(|| raw.get().into())
    }
}

/// An object with what `keep` makes of its values.
fn rewrite<'a>(
    raw: &'a [u8],
    keep: impl Fn(&str, &'a RawValue) -> Option<Cow<'a, str>>,
) -> Result<Vec<u8>, JsonError> {
    let members = Members::parse(raw)?;
    let kept: Vec<_> =
        members.0.iter().filter_map(|(key, value)| Some((&**key, keep(key, value)?))).collect();
    Ok(object_of(kept))
}

fn or_unchanged(rewritten: Result<Vec<u8>, JsonError>, raw: &RawValue) -> Cow<'_, str> {
    let rewritten = rewritten.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    rewritten.map_or(raw.get().into(), Cow::Owned)
}

/// The deepest schema that is shortened.
const MAX_DEPTH: usize = 64;

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
    fn what_only_people_read_goes_and_rules_stay() {
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
    fn numbers_keep_their_spelling_and_what_cannot_be_read_is_unchanged() {
        let raw =
            r#"{"name":"t","inputSchema":{"maximum":1e400,"minimum":12345678901234567890123}}"#;
        assert_eq!(slim_tool(raw.as_bytes(), &ALL), raw.as_bytes());
        for raw in ["", "[]", r#"{"title":"a","title":"b"}"#] {
            assert_eq!(slim_tool(raw.as_bytes(), &ALL), raw.as_bytes());
        }
        let raw = r#"{"name":"t","inputSchema":{"properties":{"a":{"title":"x"},"a":{}}}}"#;
        assert_eq!(slim_tool(raw.as_bytes(), &ALL), raw.as_bytes());
    }

    #[test]
    fn real_definitions_accept_the_same_arguments() {
        let definitions = include_str!("../../tests/definitions/benign.jsonl");
        for line in definitions.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let definition = &line["definition"];
            let short = slim_tool(definition.to_string().as_bytes(), &ALL);
            let short: Value = serde_json::from_slice(&short).unwrap();
            assert_eq!(without_words(&short), without_words(definition));
        }
    }

    /// A value without members that have the names of what is dropped, wherever they are.
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
