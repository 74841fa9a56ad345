//! Input schema of a tool: the parameters and the body of an operation as arguments.
//!
//! All arguments share one object. Names that collide get a suffix, and characters that model
//! providers refuse in names are replaced.

use serde_json::{Map, Value, json};

use trunkline_config::EmptyStrings;

use crate::schemas::conversion::ConvertedSchema;
use crate::schemas::names::TakenNames;

/// Arguments of a tool while they are collected.
pub(crate) struct ToolInputs {
    empty_strings: EmptyStrings,
    properties: Map<String, Value>,
    required: Vec<String>,
    needs: Vec<usize>,
    taken: TakenNames,
}

/// An argument before its name is chosen.
pub(crate) struct NewArgument<'a> {
    /// The name in the document.
    pub(crate) name: &'a str,
    /// Suffix for the name if it is taken.
    pub(crate) suffix: &'a str,
    pub(crate) description: Option<&'a str>,
    pub(crate) schema: ConvertedSchema,
    pub(crate) required: bool,
}

impl ToolInputs {
    pub(crate) fn new(empty_strings: EmptyStrings) -> Self {
        let (properties, required, needs, taken) = Default::default();
        Self { empty_strings, properties, required, needs, taken }
    }

    /// Adds an argument, and returns its name.
    pub(crate) fn add(&mut self, argument: NewArgument<'_>) -> String {
        let NewArgument { name, suffix, description, schema, required } = argument;
        let plain = plain_name(name, suffix);
        let name = if self.taken.contains(&plain) {
            self.taken.take(&plain_name(&format!("{plain}_{suffix}"), suffix))
        } else {
            self.taken.take(&plain)
        };
        let mut schema = schema.part_into(&mut self.needs);
        if let (Value::Object(schema), Some(text)) = (&mut schema, description) {
            schema.entry("description").or_insert_with(|| text.into());
        }
        if self.empty_strings == EmptyStrings::Drop && !required && !allows_text(&schema) {
            schema = or_empty_text(schema);
        }
        if required {
            self.required.push(name.clone());
        }
        self.properties.insert(name.clone(), schema);
        name
    }

    /// Returns the input schema.
    pub(crate) fn into_schema(self) -> ConvertedSchema {
        let mut schema = json!({ "type": "object", "properties": self.properties });
        if let (false, Value::Object(members)) = (self.required.is_empty(), &mut schema) {
            members.insert("required".into(), self.required.into());
        }
        if let Value::Object(members) = &mut schema {
            members.insert("additionalProperties".into(), false.into());
        }
        ConvertedSchema::of_parts(schema, self.needs)
    }
}

/// Returns a schema that accepts an empty string as well. An empty string counts as absent, and
/// must pass the check of the arguments until then. The description stays where models look for it.
fn or_empty_text(mut schema: Value) -> Value {
    let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
    let mut either = json!({ "anyOf": [schema, { "const": "" }] });
    if let (Value::Object(members), Some(text)) = (&mut either, description) {
        members.insert("description".into(), text);
    }
    either
}

/// Returns true if an empty string certainly fits a schema.
fn allows_text(schema: &Value) -> bool {
    const RULE_KEYWORDS: [&str; 11] = [
        "$ref",
        "enum",
        "const",
        "pattern",
        "format",
        "minLength",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
    ];
    let Value::Object(members) = schema else { return true };
    let is_text = match members.get("type") {
        Some(Value::Array(names)) => names.iter().any(|name| name == "string"),
        Some(name) => name == "string",
        None => true,
    };
    is_text && !RULE_KEYWORDS.iter().any(|rule| members.contains_key(*rule))
}

/// Returns a name with only the characters that all model providers allow.
fn plain_name(name: &str, fallback: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let replaced: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    // Trimmed only if something was replaced: `_id` is a valid name.
    let plain = if replaced == name { name } else { replaced.trim_matches('_') };
    let plain = plain.get(..plain.len().min(MAX_ARGUMENT_NAME_BYTES)).unwrap_or_default();
    if plain.is_empty() { fallback.to_owned() } else { plain.to_owned() }
}

/// Maximum length in bytes of an argument's name, with room for a suffix. Providers allow 64
/// characters.
const MAX_ARGUMENT_NAME_BYTES: usize = 56;

#[cfg(test)]
mod tests {
    use super::*;

    fn argument<'a>(
        name: &'a str,
        suffix: &'a str,
        schema: Value,
        required: bool,
    ) -> NewArgument<'a> {
        let schema = ConvertedSchema::plain(schema);
        NewArgument { name, suffix, description: None, schema, required }
    }

    #[test]
    fn names_that_collide_get_a_suffix_and_odd_characters_are_replaced() {
        let mut inputs = ToolInputs::new(EmptyStrings::Keep);
        let mut named = |name, suffix| inputs.add(argument(name, suffix, json!({}), true));
        for (name, suffix, expected) in [
            ("id", "path", "id"),
            ("id", "query", "id_query"),
            ("id", "body", "id_body"),
            ("id", "body", "id_body_2"),
            ("filter[name]", "query", "filter_name"),
            ("$top", "query", "top"),
            ("_id", "query", "_id"),
            ("日本", "header", "header"),
        ] {
            assert_eq!(named(name, suffix), expected, "{name}");
        }
        assert_eq!(inputs.into_schema().schema["required"].as_array().unwrap().len(), 8);
    }

    #[test]
    fn an_empty_string_passes_where_it_counts_as_absent() {
        let mut inputs = ToolInputs::new(EmptyStrings::Drop);
        for (name, schema, required) in [
            ("limit", json!({ "type": "integer", "description": "How many" }), false),
            ("kind", json!({ "type": "string", "enum": ["a"] }), false),
            ("text", json!({ "type": "string" }), false),
            ("id", json!({ "type": "integer" }), true),
        ] {
            inputs.add(argument(name, "query", schema, required));
        }
        let schema = inputs.into_schema().schema;
        let or_empty =
            |name: &str| schema["properties"][name]["anyOf"][1] == json!({ "const": "" });
        assert!(or_empty("limit") && or_empty("kind") && !or_empty("text") && !or_empty("id"));
        assert_eq!(schema["properties"]["limit"]["description"], "How many");
    }
}
