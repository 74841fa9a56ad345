//! Plainly valid schemas: common keywords only, each with a value of the kind that it has in every
//! dialect.
//!
//! The meta-schema decides if a schema is valid, but using it takes megabytes once, and a validator
//! for each schema, which most tools never need. Like the quick check, this check either accepts or
//! is undecided: it leaves unknown keywords to the meta-schema.

use std::collections::HashSet;

use jsonschema::Draft;
use serde_json::{Map, Value};

/// Returns true if a schema is plainly valid and compiles. Its depth is bounded already.
pub(super) fn is_plain_schema(schema: &Value, draft: Draft) -> bool {
    // Draft 4 has other values for some keywords.
    let known = [Draft::Draft6, Draft::Draft7, Draft::Draft201909, Draft::Draft202012];
    known.contains(&draft) && is_known_schema(schema)
}

fn is_known_schema(schema: &Value) -> bool {
    match schema {
        Value::Bool(_) => true,
        Value::Object(members) => members.iter().all(|(key, value)| is_valid_keyword(key, value)),
        _ => false,
    }
}

/// Returns true if a keyword may hold this value.
fn is_valid_keyword(keyword: &str, value: &Value) -> bool {
    match keyword {
        "title" | "description" | "$comment" | "format" => value.is_string(),
        "default" | "const" => true,
        "deprecated" | "readOnly" | "writeOnly" | "uniqueItems" => value.is_boolean(),
        "examples" => value.is_array(),
        "type" => {
            value.as_str().is_some_and(is_type_name)
                || distinct_texts(value).is_some_and(|texts| are_type_names(&texts))
        }
        "enum" => distinct_texts(value).is_some_and(|texts| !texts.is_empty()),
        "required" => distinct_texts(value).is_some(),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "multipleOf" => value.as_u64().is_some_and(|of| of > 0),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.is_u64()
        }
        "items" | "additionalProperties" | "propertyNames" | "not" => is_known_schema(value),
        "properties" | "$defs" | "definitions" => {
            value.as_object().is_some_and(|all: &Map<_, _>| all.values().all(is_known_schema))
        }
        "anyOf" | "oneOf" | "allOf" => {
            value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_known_schema))
        }
        other => other.starts_with("x-"),
    }
}

/// An array of distinct texts.
fn distinct_texts(value: &Value) -> Option<HashSet<&str>> {
    let all = value.as_array()?;
    let texts: HashSet<_> = all.iter().map(Value::as_str).collect::<Option<_>>()?;
    (texts.len() == all.len()).then_some(texts)
}

fn are_type_names(texts: &HashSet<&str>) -> bool {
    !texts.is_empty() && texts.iter().all(|text| is_type_name(text))
}

fn is_type_name(text: &str) -> bool {
    ["null", "boolean", "object", "array", "number", "integer", "string"].contains(&text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::{PatternLimits, build_validator};
    use super::*;

    /// Values for a keyword, valid or not.
    fn value(schema: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
        let fixed = [
            json!(null),
            json!(true),
            json!(0),
            json!(3),
            json!(-1),
            json!(0.5),
            json!("string"),
            json!("x"),
            json!([]),
            json!(["a", "b"]),
            json!(["a", "a"]),
            json!(["integer", "null"]),
            json!([1, 1]),
            json!({}),
        ];
        prop_oneof![
            3 => prop::sample::select(fixed.to_vec()),
            1 => schema.clone(),
            1 => prop::collection::vec(schema.clone(), 0..3).prop_map(Value::Array),
            1 => schema.prop_map(|schema| json!({ "a": schema })),
        ]
    }

    fn schema() -> impl Strategy<Value = Value> {
        let keywords = [
            "title",
            "description",
            "$comment",
            "format",
            "default",
            "const",
            "deprecated",
            "readOnly",
            "writeOnly",
            "uniqueItems",
            "examples",
            "type",
            "enum",
            "required",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "items",
            "additionalProperties",
            "propertyNames",
            "not",
            "properties",
            "$defs",
            "definitions",
            "anyOf",
            "oneOf",
            "allOf",
            "x-mcp-header",
            "pattern",
            "if",
            "$ref",
        ];
        let leaf = prop_oneof![Just(json!({})), Just(json!(true)), Just(json!({"type": "string"}))];
        leaf.prop_recursive(3, 24, 4, move |inner| {
            let keyword = prop::sample::select(keywords.to_vec()).prop_map(str::to_owned);
            prop::collection::vec((keyword, value(inner)), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect()))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn plain_schemas_compile_in_every_dialect(schema in schema()) {
            let drafts = [Draft::Draft6, Draft::Draft7, Draft::Draft201909, Draft::Draft202012];
            for draft in drafts.into_iter().filter(|draft| is_plain_schema(&schema, *draft)) {
                prop_assert!(build_validator(&schema, draft, PatternLimits::default()).is_ok(), "{draft:?}: {schema}");
            }
        }
    }

    #[test]
    fn a_tool_of_common_keywords_is_plain_and_one_with_references_is_not() {
        let tool = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "description": "where"},
                "mode": {"enum": ["fast", "deep"], "default": "fast"},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 16},
                "limit": {"type": ["integer", "null"], "minimum": 1, "x-mcp-header": "Limit"},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        assert!(
            is_plain_schema(&tool, Draft::Draft202012) && !is_plain_schema(&tool, Draft::Draft4)
        );
        for other in [json!({"$ref": "#"}), json!({"pattern": "["}), json!({"type": "text"})] {
            let schema = json!({ "type": "object", "properties": { "a": other } });
            assert!(!is_plain_schema(&schema, Draft::Draft202012), "{schema}");
        }
    }
}
