use fastrand::Rng;
use serde_json::{Value, json};

use super::*;

/// Validates against the schema with the library itself, including formats.
#[track_caller]
fn fits(schema: &Value) {
    let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
    let generator = Generator::new(schema).unwrap();
    for seed in 0..40 {
        let text = generator.arguments(&mut Rng::with_seed(seed));
        let text = text.unwrap_or_else(|error| panic!("{error}: {schema}"));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(validator.is_valid(&value), "{text} for {schema}");
    }
}

fn with(property: &Value) -> Value {
    json!({ "type": "object", "properties": { "x": property }, "required": ["x"], "additionalProperties": false })
}

#[test]
fn generated_arguments_fit_their_schema() {
    for property in [
        json!({ "type": "integer", "minimum": 3, "maximum": 4 }),
        json!({ "type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5 }),
        json!({ "type": "integer", "multipleOf": 7, "minimum": 50 }),
        json!({ "type": "integer", "maximum": -9_007_199_254_740_000_i64 }),
        json!({ "type": "number", "minimum": 0.5, "maximum": 0.6 }),
        json!({ "type": "number", "multipleOf": 0.25, "maximum": 10 }),
        json!({ "type": ["string", "null"], "maxLength": 1 }),
        json!({ "type": "string", "minLength": 300 }),
        json!({ "type": "string", "pattern": "^[A-Z]{3}-\\d{4,6}(a|b)?$" }),
        json!({ "type": "string", "pattern": "foo", "minLength": 10 }),
        json!({ "type": "string", "format": "date-time" }),
        json!({ "type": "string", "format": "uuid" }),
        json!({ "type": "string", "format": "email" }),
        json!({ "type": "string", "format": "ipv6" }),
        json!({ "type": "string", "format": "unknown", "minLength": 1 }),
        json!({ "enum": ["a", 1, null, { "x": [] }] }),
        json!({ "const": { "a": 1 } }),
        json!({ "type": "array", "items": { "type": "boolean" }, "minItems": 2, "maxItems": 3 }),
        json!({ "type": "array", "items": { "enum": [1, 2, 3] }, "uniqueItems": true, "minItems": 3 }),
        json!({ "type": "array", "prefixItems": [{ "type": "string" }, { "type": "integer" }], "items": false, "minItems": 2 }),
        json!({ "type": "array", "contains": { "const": 5 } }),
        json!({ "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 3 }] }),
        json!({ "oneOf": [{ "type": "integer", "multipleOf": 3 }, { "type": "integer", "multipleOf": 5 }] }),
        json!({ "allOf": [{ "type": "integer", "minimum": 3 }, { "type": "integer", "maximum": 3 }] }),
        json!({ "not": { "type": "string" }, "type": ["string", "integer"] }),
        json!({ "type": "object", "minProperties": 2, "additionalProperties": { "type": "integer" } }),
        json!({ "type": "object", "maxProperties": 1, "properties": { "a": {}, "b": {}, "c": {} }, "required": ["b"] }),
        json!({ "type": "object", "required": ["a"] }),
        json!({ "type": "object", "properties": { "a": {}, "b": {} }, "dependentRequired": { "a": ["b"] } }),
        json!({ "type": "string", "default": "x", "examples": ["y"] }),
        json!({ "type": "object", "properties": { "kind": { "enum": ["a", "b"] }, "a": { "type": "integer" } },
            "required": ["kind"], "if": { "properties": { "kind": { "const": "a" } } }, "then": { "required": ["a"] } }),
        json!(true),
        json!({}),
    ] {
        fits(&with(&property));
    }
}

#[test]
fn references_are_followed_and_circles_end() {
    fits(&json!({
        "type": "object",
        "properties": { "tree": { "$ref": "#/$defs/node" } },
        "required": ["tree"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": { "$ref": "#/$defs/name" },
                    "children": { "type": "array", "items": { "$ref": "#/$defs/node" } },
                },
                "required": ["name"],
                "additionalProperties": false,
            },
            "name": { "type": "string", "minLength": 2, "maxLength": 4 },
        },
    }));
}

#[test]
fn older_drafts_are_known() {
    fits(&json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": { "x": { "type": "integer", "minimum": 3, "exclusiveMinimum": true, "maximum": 4 } },
        "required": ["x"],
    }));
    fits(&json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": { "x": { "type": "array", "items": [{ "type": "string" }], "minItems": 1 } },
        "required": ["x"],
        "definitions": {},
    }));
}

#[test]
fn a_tool_without_arguments_gets_none() {
    let generator = Generator::new(&Value::Null).unwrap();
    assert_eq!(generator.arguments(&mut Rng::with_seed(1)).unwrap(), "{}");
}

#[test]
fn impossible_arguments_are_reported() {
    for property in [
        json!(false),
        json!({ "type": "integer", "minimum": 3, "maximum": 2 }),
        json!({ "allOf": [{ "type": "object" }, { "type": "string" }] }),
    ] {
        let generator = Generator::new(&with(&property)).unwrap();
        assert!(generator.arguments(&mut Rng::with_seed(1)).is_err(), "{property}");
    }
}

#[test]
fn a_schema_that_only_grows_ends() {
    let schema = json!({
        "type": "object",
        "properties": { "x": { "$ref": "#" } },
        "required": ["x"],
    });
    let generator = Generator::new(&schema).unwrap();
    assert!(generator.arguments(&mut Rng::with_seed(1)).is_err());
}
