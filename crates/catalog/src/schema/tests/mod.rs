mod hostile;

use serde_json::json;

use super::*;

fn compile(schema: &Value) -> Result<ArgumentSchema, SchemaError> {
    ArgumentSchema::compile(schema.to_string().as_bytes())
}

fn text(schema: &Value, arguments: &str) -> String {
    match compile(schema).unwrap().check(Some(arguments.as_bytes())) {
        Ok(()) => "ok".into(),
        Err(violations) => violations.to_string(),
    }
}

#[test]
fn each_violation_names_path_rule_and_kind() {
    let schema = json!({
        "type": "object",
        "required": ["repo"],
        "additionalProperties": false,
        "properties": {
            "repo": {"type": "string", "pattern": "^[a-z]+/[a-z]+$", "maxLength": 9},
            "count": {"type": "integer", "minimum": 1},
            "state": {"enum": ["open", "closed"]},
            "since": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": ["string", "integer"]}, "maxItems": 2},
            "mode": {"const": "fast"},
            "pair": {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        }
    });
    for (arguments, expected) in [
        (r#"{"repo":"a/b","count":2,"since":null}"#, "ok"),
        ("{}", r#"(root): required: property "repo" is missing"#),
        (r#"{"repo":"a/b","count":"x"}"#, "/count: type: expected integer, got string"),
        (r#"{"repo":"a/b","count":1.5}"#, "/count: type: expected integer, got number"),
        (
            r#"{"repo":"a/b","count":0}"#,
            "/count: minimum: expected at least 1, got a smaller integer",
        ),
        (r#"{"repo":"a/b","since":1}"#, "/since: anyOf: expected null or string, got integer"),
        (
            r#"{"repo":"a/b","state":"ajar"}"#,
            r#"/state: enum: expected one of "open", "closed", got another string"#,
        ),
        (
            r#"{"repo":"a/b","tags":["x",{}]}"#,
            "/tags/1: type: expected integer or string, got object",
        ),
        (
            r#"{"repo":"a/b","tags":[1,2,3]}"#,
            "/tags: maxItems: expected at most 2 items in this array",
        ),
        (r#"{"repo":"a/b","mode":"slow"}"#, r#"/mode: const: expected "fast", got another string"#),
        (r#"{"repo":"a/b","pair":{}}"#, "/pair: oneOf: expected one of 2 alternatives, got object"),
        (
            r#"{"repo":"A/b"}"#,
            "/repo: pattern: expected text that matches ^[a-z]+/[a-z]+$, got another string",
        ),
        (
            r#"{"repo":"abcdef/abcdef"}"#,
            "/repo: maxLength: expected at most 9 characters in this string",
        ),
        (
            r#"{"repo":"a/b","reop":1}"#,
            r#"(root): additionalProperties: expected no such property as "reop""#,
        ),
        ("[]", "(root): type: expected object, got array"),
        ("null", "(root): type: expected object, got null"),
        ("{", "(root): json: not valid JSON"),
        (r#"{"repo":"a/b","repo":"c/d"}"#, r#"(root): json: duplicate key "repo""#),
    ] {
        assert_eq!(text(&schema, arguments), expected, "{arguments}");
    }
}

#[test]
fn no_violation_repeats_a_value() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a": {"type": "integer"}, "b": {"enum": [1]}, "c": {"const": 1}, "d": {"pattern": "x"},
            "e": {"not": {"type": "string"}}, "f": {"maxLength": 1}, "g": {"anyOf": [{"minLength": 99}]},
            "h": {"oneOf": [true, true]}, "i": false, "j": {"uniqueItems": true},
            "k": {"propertyNames": {"maxLength": 1}}, "l": {"contains": {"type": "null"}},
        }
    });
    let mut arguments = serde_json::Map::new();
    for key in "abcdefghi".chars() {
        arguments.insert(key.into(), json!("hunter2"));
    }
    arguments.insert("j".into(), json!(["hunter2", "hunter2"]));
    arguments.insert("l".into(), json!(["hunter2"]));
    for (key, value) in arguments {
        let said = text(&schema, &json!({ key.clone(): value }).to_string());
        assert!(said.starts_with(&format!("/{key}: ")) && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn at_most_ten_violations_are_written_out() {
    let schema = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let arguments: Map<_, _> = (0..14).map(|i| (format!("p{i}"), json!(i))).collect();
    let violations =
        compile(&schema).unwrap().check(Some(json!(arguments).to_string().as_bytes())).unwrap_err();
    assert_eq!(violations.lines.len(), 10);
    assert!(violations.to_string().ends_with("\n… and more"));
}

#[test]
fn large_arguments_yield_their_first_violation_only() {
    let schema = json!({"type": "object", "properties": {"l": {"items": {"type": "string"}}}});
    let arguments = json!({"l": vec![1; 100_000]}).to_string();
    assert_eq!(text(&schema, &arguments), "/l/0: type: expected string, got integer");
}

#[test]
fn absent_arguments_are_an_empty_object() {
    assert!(compile(&json!({"type": "object"})).unwrap().check(None).is_ok());
    let strict = compile(&json!({"type": "object", "required": ["a"]})).unwrap();
    assert!(strict.check(None).is_err());
}

#[test]
fn a_schema_that_accepts_any_object_still_wants_an_object() {
    let schema = compile(&json!({"type": "object", "properties": {}, "title": "t"})).unwrap();
    assert!(matches!(schema.rule, CompiledRule::AnyObject));
    assert!(schema.check(Some(br#" {"a":[1]} "#)).is_ok());
    for (raw, found) in [("[]", "array"), ("null", "null"), ("1", "number"), ("\"\"", "string")] {
        let said = schema.check(Some(raw.as_bytes())).unwrap_err().to_string();
        assert_eq!(said, format!("(root): type: expected object, got {found}"));
    }
    assert!(schema.check(Some(b"{")).is_err());
}

#[test]
fn the_declared_dialect_decides() {
    // `items` as an array is a tuple up to 2019-09, and no schema in 2020-12.
    let tuple = json!({"type": "object", "properties": {"a": {"items": [{"type": "string"}]}}});
    for uri in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
        "https://json-schema.org/draft/2019-09/schema",
    ] {
        let mut schema = tuple.clone();
        schema["$schema"] = json!(uri);
        assert_ne!(text(&schema, r#"{"a":[1]}"#), "ok", "{uri}");
    }
    assert!(matches!(compile(&tuple), Err(SchemaError::Invalid { .. })));
    for uri in [json!("https://example.com/dialect"), json!(7), json!("")] {
        let schema = json!({"type": "object", "$schema": uri});
        assert!(matches!(compile(&schema), Err(SchemaError::UnsupportedDialect { .. })));
    }
    let nested = json!({"type": "object", "properties": {"a": {"$schema": "https://e.com"}}});
    assert!(matches!(compile(&nested), Err(SchemaError::UnsupportedDialect { .. })));
}

#[test]
fn formats_are_not_asserted() {
    for dialect in
        ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
    {
        let schema = json!({
            "$schema": dialect, "type": "object", "properties": {"a": {"format": "email"}}
        });
        assert_eq!(text(&schema, r#"{"a":"no"}"#), "ok");
    }
}

#[test]
fn references_within_the_schema_hold() {
    for (reference, extra) in [
        ("#/$defs/id", json!({})),
        ("#/$defs/a~1b%25", json!({"a/b%": {"type": "integer"}})),
        ("#whole", json!({"x": {"$anchor": "whole", "type": "integer"}})),
        (
            "https://example.com/id",
            json!({"x": {"$id": "https://example.com/id", "type": "integer"}}),
        ),
        ("sub/id#/$defs/y", json!({"x": {"$id": "sub/id", "$defs": {"y": {"type": "integer"}}}})),
    ] {
        let mut schema = json!({
            "type": "object",
            "$defs": {"id": {"type": "integer"}},
            "properties": {"a": {"$ref": reference}}
        });
        schema["$defs"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert_eq!(text(&schema, r#"{"a":1}"#), "ok", "{reference}");
        assert_eq!(text(&schema, r#"{"a":"x"}"#), "/a: type: expected integer, got string");
    }
}

#[test]
fn a_schema_may_refer_to_itself_through_a_property() {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#"}}}
    });
    assert_eq!(text(&schema, r#"{"children":[{"children":[{"name":"x"}]}]}"#), "ok");
    assert_eq!(
        text(&schema, r#"{"children":[{"children":[{"name":1}]}]}"#),
        "/children/0/children/0/name: type: expected string, got integer"
    );
}

#[test]
fn schemas_of_non_objects_are_refused() {
    for schema in [json!({}), json!({"type": "string"}), json!({"type": ["object", "null"]})] {
        assert_eq!(compile(&schema).err(), Some(SchemaError::RootType), "{schema}");
    }
    for schema in [json!(true), json!(null), json!([])] {
        assert_eq!(compile(&schema).err(), Some(SchemaError::NotAnObject), "{schema}");
    }
    let twice = br#"{"type":"object","type":"object"}"#;
    assert!(matches!(
        ArgumentSchema::compile(twice),
        Err(SchemaError::Json(JsonError::DuplicateKey { .. }))
    ));
}
