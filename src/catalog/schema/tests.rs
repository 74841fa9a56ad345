use proptest::prelude::*;
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
        (
            r#"{"repo":"a/b","repo":"c/d"}"#,
            r#"(root): json: the key "repo" stands twice in one object"#,
        ),
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
    assert_eq!(violations.lines().len(), 10);
    assert!(violations.to_string().ends_with("\n… and 4 more"));
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
    assert!(matches!(schema.rule, Rule::AnyObject));
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
fn nothing_is_fetched() {
    for target in [
        "https://example.com/x",
        "file:///etc/passwd",
        "//127.0.0.1/x",
        "other.json",
        "#/nowhere",
        "#nowhere",
        "#/properties",
        "http://json-schema.org/draft-07/schema#",
    ] {
        for place in ["properties", "$defs"] {
            let schema = json!({"type": "object", place: {"a": {"$ref": target}}});
            assert!(matches!(compile(&schema), Err(SchemaError::Reference { .. })), "{target}");
        }
    }
}

#[test]
fn references_that_multiply_or_never_end_are_refused() {
    let link = |i: usize, keyword: &str| {
        let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
        (format!("d{i}"), json!({keyword: [next, next]}))
    };
    let bomb = |keyword: &str, length: usize| {
        let mut defs: Map<_, _> = (0..length).map(|i| link(i, keyword)).collect();
        defs.insert(format!("d{length}"), json!({"type": "object"}));
        json!({"type": "object", "$ref": "#/$defs/d0", "$defs": defs})
    };
    for keyword in ["allOf", "anyOf", "oneOf"] {
        assert!(compile(&bomb(keyword, 5)).is_ok());
        assert!(matches!(compile(&bomb(keyword, 12)), Err(SchemaError::Work { .. })), "{keyword}");
        assert!(matches!(compile(&bomb(keyword, 1000)), Err(SchemaError::Chain { .. })));
    }
    for endless in [
        json!({"type": "object", "$ref": "#"}),
        json!({"type": "object", "allOf": [{"not": {"$ref": "#"}}]}),
        json!({"type": "object", "$defs": {
            "a": {"$ref": "#/$defs/b"}, "b": {"if": {"$ref": "#/$defs/a"}}
        }}),
        json!({"type": "object", "$dynamicAnchor": "n", "anyOf": [{"$dynamicRef": "#n"}]}),
    ] {
        assert!(matches!(compile(&endless), Err(SchemaError::Chain { .. })), "{endless}");
    }
}

#[test]
fn a_bomb_spread_over_properties_is_refused_too() {
    let mut defs = Map::new();
    for i in 0..14 {
        let next = json!({"properties": {"c": {"$ref": format!("#/$defs/d{}", i + 1)}}});
        defs.insert(format!("d{i}"), json!({"allOf": [next, next]}));
    }
    defs.insert("d14".into(), json!({"type": "object"}));
    let schema = json!({"type": "object", "$ref": "#/$defs/d0", "$defs": defs});
    assert!(matches!(compile(&schema), Err(SchemaError::Work { .. })));
}

#[test]
fn size_depth_and_numbers_are_bounded() {
    let deep = |levels: usize| {
        let (open, close) = (r#"{"not":"#.repeat(levels), "}".repeat(levels));
        format!(r#"{{"type":"object","$defs":{{"a":{open}true{close}}}}}"#)
    };
    assert!(ArgumentSchema::compile(deep(20).as_bytes()).is_ok());
    assert!(matches!(ArgumentSchema::compile(deep(40).as_bytes()), Err(SchemaError::Chain { .. })));
    for levels in [64, 100_000] {
        assert!(matches!(
            ArgumentSchema::compile(deep(levels).as_bytes()),
            Err(SchemaError::Json(JsonError::TooDeep { .. }) | SchemaError::TooLarge { .. })
        ));
    }
    let many = |count: usize, property: Value| {
        let all: Map<_, _> = (0..count).map(|i| (format!("p{i}"), property.clone())).collect();
        compile(&json!({"type": "object", "properties": all})).err()
    };
    assert_eq!(many(1000, json!({"type": "string"})), None);
    assert!(matches!(many(5000, json!({})), Some(SchemaError::Subschemas { .. })));
    assert!(matches!(many(300, json!({"pattern": "a"})), Some(SchemaError::Patterns { .. })));
}

#[test]
fn a_pattern_is_matched_in_linear_time_or_within_a_limit() {
    let schema =
        |pattern: &str| json!({"type": "object", "properties": {"a": {"pattern": pattern}}});
    let argument = json!({"a": "a".repeat(5_000) + "!"}).to_string();
    // Catastrophic on a backtracking engine, plain on a linear one.
    assert!(text(&schema("^(a+)+$"), &argument).starts_with("/a: pattern: expected text"));
    // Look-around works, and a catastrophic one gives up.
    assert_eq!(text(&schema("^(?!admin)"), r#"{"a":"user"}"#), "ok");
    assert_ne!(text(&schema("^(?!admin)"), r#"{"a":"admin"}"#), "ok");
    let hard = text(&schema(r"^(?=(a+)+$)(a|aa)+\1$"), &argument);
    assert!(hard.starts_with("/a: pattern:"), "{hard}");
    for broken in ["(", "(.{1,900}){900}", "(?!x)(?:a{1000}){1000}"] {
        assert!(matches!(compile(&schema(broken)), Err(SchemaError::Pattern { .. })), "{broken}");
    }
}

#[test]
fn what_is_no_object_schema_is_refused() {
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

#[test]
fn a_schema_at_every_bound_fits_a_worker_thread() {
    // The longest chain on each of the most levels, on the stack of one worker.
    let chain =
        |levels: usize, inner: Value| (0..levels).fold(inner, |inner, _| json!({"allOf": [inner]}));
    let schema = json!({
        "type": "object",
        "properties": {"c": {"$ref": "#/$defs/d"}},
        "$defs": {
            "d": chain(14, json!({"$ref": "#/$defs/e"})),
            "e": chain(12, json!({"properties": {"c": {"$ref": "#/$defs/d"}}})),
        },
    });
    let (open, close) = (r#"{"c":"#.repeat(63), "}".repeat(63));
    let check = move || text(&schema, &format!("{open}{{}}{close}"));
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(check).unwrap();
    assert_eq!(thread.join().unwrap(), "ok");
}

fn json_like() -> impl Strategy<Value = Value> {
    let keyword = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "$ref",
        "$id",
        "$anchor",
        "anyOf",
        "not",
        "$defs",
        "enum",
        "pattern",
        "required",
        "x-mcp-header",
        "default",
        "if",
        "$dynamicRef",
        "$dynamicAnchor",
    ]);
    let leaf = prop_oneof![
        Just(json!("object")),
        Just(json!("#")),
        Just(json!("#/properties/type")),
        Just(json!(true)),
        Just(json!("#a")),
        Just(json!("a")),
        Just(json!(1)),
        Just(Value::Null),
    ];
    leaf.prop_recursive(6, 60, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((keyword.clone(), inner), 0..4).prop_map(|members| {
                Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_schema_and_no_arguments_make_it_panic(schema in json_like(), arguments in json_like()) {
        let mut schema = schema;
        if let Some(members) = schema.as_object_mut() {
            members.insert("type".into(), json!("object"));
        }
        if let Ok(compiled) = compile(&schema) {
            let _ = compiled.check(Some(arguments.to_string().as_bytes()));
        }
    }
}
