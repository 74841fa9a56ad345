//! Keywords with values that are not schemas, and those that only OpenAPI 3.0 has.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use trunkline_catalog::MAX_SCHEMA_DEPTH;

use crate::schemas::references::Node;

/// Returns the value of a keyword that takes no schema, if 2020-12 has the keyword and allows the
/// value.
pub(crate) fn plain_keyword(key: &str, node: Node<'_>, depth: usize) -> Option<Value> {
    let value = node.value;
    let is_kept = match key {
        "type" => return allowed_type(value),
        "required" => return distinct_texts(value),
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        "examples" => value.is_array(),
        "const" | "default" => true,
        "title" | "description" | "format" | "contentEncoding" | "contentMediaType" => {
            value.is_string()
        }
        "multipleOf" => value.as_f64().is_some_and(|number| number > 0.0),
        "maximum" | "minimum" | "exclusiveMaximum" | "exclusiveMinimum" => value.is_number(),
        "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties"
        | "maxContains" | "minContains" => value.is_u64(),
        "uniqueItems" | "deprecated" => value.is_boolean(),
        _ => false,
    };
    is_kept.then(|| node.copy_within(MAX_SCHEMA_DEPTH.saturating_sub(depth + 1)))?
}

fn allowed_type(value: &Value) -> Option<Value> {
    const SCHEMA_TYPES: [&str; 7] =
        ["null", "boolean", "object", "array", "number", "string", "integer"];
    let is_type = |value: &Value| value.as_str().is_some_and(|name| SCHEMA_TYPES.contains(&name));
    match value {
        Value::Array(all) => {
            let mut kept: Vec<_> = all.iter().filter(|value| is_type(value)).cloned().collect();
            kept.dedup();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        // A `file` of OpenAPI 2.0 becomes a base64 string.
        Value::String(name) if name == "file" => Some("string".into()),
        value => is_type(value).then(|| value.clone()),
    }
}

fn distinct_texts(value: &Value) -> Option<Value> {
    let mut seen = HashSet::new();
    let texts = value.as_array()?.iter().filter_map(Value::as_str);
    let texts: Vec<_> = texts.filter(|text| seen.insert(*text)).collect();
    Some(texts.into())
}

/// Translates bounds of 3.0, where `exclusiveMinimum: true` makes `minimum` exclusive. The maximum
/// works likewise.
pub(crate) fn translate_bounds(schema: &mut Map<String, Value>, members: &Map<String, Value>) {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if members.get(exclusive) == Some(&Value::Bool(true))
            && let Some(value) = schema.remove(bound)
        {
            schema.insert(exclusive.into(), value);
        }
    }
}

/// Allows `null` besides the type, which is `nullable: true` in 3.0.
pub(crate) fn allow_null(mut schema: Map<String, Value>) -> Value {
    if schema.is_empty() {
        return Value::Object(schema);
    }
    let Some(Value::String(name)) = schema.get("type") else {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    };
    let both = json!([name, "null"]);
    schema.insert("type".into(), both);
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    Value::Object(schema)
}
