use serde_json::{Value, json};
use url::Url;

use super::*;
use crate::schemas::references::DocumentSet;

fn converted(dialect: SchemaDialect, direction: Direction, tree: &Value) -> Value {
    let address = Url::parse("http://a.test/openapi.json").unwrap();
    let set = DocumentSet::new(address, tree.clone());
    let mut book = SchemaBook::new(dialect, direction);
    let schema = book.convert(set.root().find("schema").unwrap()).unwrap();
    serde_json::from_str(&book.write(&schema, 10_000).unwrap()).unwrap()
}

#[test]
fn the_dialect_of_3_0_becomes_2020_12() {
    for (old, new) in [
        (json!({ "type": "string", "nullable": true }), json!({ "type": ["string", "null"] })),
        (
            json!({ "type": "string", "enum": ["a"], "nullable": true }),
            json!({ "type": ["string", "null"], "enum": ["a", null] }),
        ),
        (
            json!({ "oneOf": [{ "type": "integer" }], "nullable": true }),
            json!({ "anyOf": [{ "oneOf": [{ "type": "integer" }] }, { "type": "null" }] }),
        ),
        (
            json!({ "type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false }),
            json!({ "type": "number", "maximum": 9, "exclusiveMinimum": 1 }),
        ),
        (
            json!({ "type": "string", "example": "x" }),
            json!({ "type": "string", "examples": ["x"] }),
        ),
        (
            json!({ "type": "string", "format": "binary" }),
            json!({ "type": "string", "contentEncoding": "base64" }),
        ),
        (json!({ "type": "file", "x-own": 1, "xml": {} }), json!({ "type": "string" })),
        (json!({ "type": "any", "required": true, "enum": [] }), json!({})),
        (json!({ "additionalProperties": true }), json!({ "additionalProperties": {} })),
        (json!({ "additionalProperties": false }), json!({ "additionalProperties": false })),
    ] {
        let tree = json!({ "schema": old });
        assert_eq!(converted(SchemaDialect::V3_0, Direction::Request, &tree), new, "{old}");
    }
}

#[test]
fn the_schemas_of_3_1_stay_as_they_are() {
    let schema = json!({
        "type": ["object", "null"], "exclusiveMinimum": 3,
        "properties": { "a": { "const": 1 }, "b": { "$ref": "#/x", "description": "beside" } },
        "if": { "required": ["a"] }, "then": { "minProperties": 2 }, "prefixItems": [true],
    });
    let tree = json!({ "schema": schema, "x": { "type": "string" } });
    let new = converted(SchemaDialect::V3_1, Direction::Request, &tree);
    assert_eq!(new["properties"]["b"], json!({ "$ref": "#/$defs/x", "description": "beside" }));
    assert_eq!(new["$defs"], json!({ "x": { "type": "string" } }));
    assert_eq!((&new["if"], &new["type"]), (&schema["if"], &schema["type"]));
}

#[test]
fn cycles_survive_and_only_reachable_schemas_are_carried() {
    let tree = json!({
        "schema": { "$ref": "#/components/schemas/Node" },
        "components": { "schemas": {
            "Node": { "allOf": [{ "$ref": "#/components/schemas/Base" }, { "properties": { "next": { "$ref": "#/components/schemas/Node" } } }] },
            "Base": { "allOf": [{ "$ref": "#/components/schemas/Node" }] },
            "Other": { "type": "string" },
        } },
    });
    let new = converted(SchemaDialect::V3_0, Direction::Request, &tree);
    let names: Vec<_> = new["$defs"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["Node", "Base"]);
    assert_eq!(new["$ref"], "#/$defs/Node");
}

#[test]
fn properties_that_do_not_travel_this_way_are_left_out() {
    let tree = json!({
        "schema": {
            "properties": { "id": { "readOnly": true }, "secret": { "$ref": "#/s" }, "name": {} },
            "required": ["id", "secret", "name"],
        },
        "s": { "writeOnly": true },
    });
    for (direction, kept) in
        [(Direction::Request, ["secret", "name"]), (Direction::Response, ["id", "name"])]
    {
        let new = converted(SchemaDialect::V3_1, direction, &tree);
        let names: Vec<_> = new["properties"].as_object().unwrap().keys().collect();
        assert_eq!(json!(names), json!(kept), "{direction:?}");
        assert_eq!(new["required"], json!(kept), "{direction:?}");
    }
}

#[test]
fn a_discriminator_names_definitions() {
    let tree = json!({
        "schema": {
            "oneOf": [{ "$ref": "#/components/schemas/my.Dog" }, { "$ref": "#/components/schemas/Cat" }],
            "discriminator": { "propertyName": "kind", "mapping": { "dog": "my.Dog", "cat": "#/components/schemas/Cat", "fox": "Fox", "gone": "#/nowhere" } },
        },
        "components": { "schemas": { "my.Dog": { "type": "object" }, "Cat": { "type": "object" }, "Fox": { "type": "object" } } },
    });
    let new = converted(SchemaDialect::V3_0, Direction::Response, &tree);
    assert_eq!(
        new["discriminator"],
        json!({ "propertyName": "kind", "mapping": { "dog": "#/$defs/my.Dog", "cat": "#/$defs/Cat" } })
    );
    let names: Vec<_> = new["$defs"].as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        ["my.Dog", "Cat"],
        "a variant that the schema does not allow is no part of it"
    );
}

#[test]
fn a_hidden_property_is_not_required_by_another_part_of_its_schema() {
    let tree = json!({
        "schema": {
            "allOf": [{ "$ref": "#/base" }, { "required": ["id", "name"], "properties": { "name": {} } }],
            "required": ["id"],
        },
        "base": { "properties": { "id": { "readOnly": true } }, "required": ["id"] },
    });
    let new = converted(SchemaDialect::V3_0, Direction::Request, &tree);
    assert_eq!(new["required"], json!([]));
    assert_eq!(new["allOf"][1]["required"], json!(["name"]));
    assert_eq!(new["$defs"]["base"], json!({ "properties": {}, "required": [] }));
}

#[test]
fn parts_that_the_catalog_would_refuse_are_left_out_of_the_schema() {
    let tree = json!({ "schema": {
        "pattern": "(?<bad", "patternProperties": { "[": {}, "^x-": { "pattern": "^(?!a)" } },
    } });
    let new = converted(SchemaDialect::V3_1, Direction::Request, &tree);
    assert_eq!(new, json!({ "patternProperties": { "^x-": { "pattern": "^(?!a)" } } }));
    let deep = (0..70).fold(json!({ "type": "string" }), |inner, _| json!({ "items": inner }));
    let tree = json!({ "schema": { "properties": { "deep": deep }, "default": deep } });
    let new = converted(SchemaDialect::V3_1, Direction::Request, &tree);
    assert!(new.get("default").is_none());
    let text =
        json!({ "type": "object", "properties": { "body": { "anyOf": [new] } } }).to_string();
    assert!(trunkline_catalog::ArgumentSchema::compile(text.as_bytes()).is_ok(), "{text}");
}

#[test]
fn places_within_one_another_take_a_bounded_time() {
    let mut inner = json!({ "description": "x".repeat(2_000_000) });
    for _ in 0..50 {
        inner = json!({ "not": inner });
    }
    let refs: Vec<_> =
        (0..50).map(|at| json!({ "$ref": format!("#/deep{}", "/not".repeat(at)) })).collect();
    let tree = json!({ "schema": { "anyOf": refs }, "deep": inner });
    let set = DocumentSet::new(Url::parse("http://a.test/").unwrap(), tree);
    let mut book = SchemaBook::new(SchemaDialect::V3_1, Direction::Request);
    let schema = book.convert(set.root().find("schema").unwrap()).unwrap();
    let kept: usize = book
        .definitions
        .iter()
        .filter_map(|one| one.converted.as_ref()?.as_ref().ok())
        .map(|(text, _)| text.len())
        .sum();
    assert!(kept <= MAX_DEFINITION_BYTES && kept > 0, "{kept}");
    assert_eq!(book.write(&schema, usize::MAX), Err(SchemaFault::Exhausted));
}

#[test]
fn a_schema_that_is_too_large_with_its_definitions_is_a_fault() {
    let tree = json!({
        "schema": { "$ref": "#/large" }, "large": { "description": "x".repeat(1000) },
    });
    let set = DocumentSet::new(Url::parse("http://a.test/").unwrap(), tree);
    let mut book = SchemaBook::new(SchemaDialect::V3_1, Direction::Request);
    let schema = book.convert(set.root().find("schema").unwrap()).unwrap();
    assert_eq!(book.write(&schema, 500), Err(SchemaFault::TooLarge { max: 500 }));
}
