//! Hostile schemas and arguments.

use proptest::prelude::*;

use trunkline_jsonrpc::Outline;

use super::*;

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
        assert!(matches!(compile(&bomb(keyword, 14)), Err(SchemaError::Work { .. })), "{keyword}");
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
fn patterns_that_take_too_much_to_compile_are_refused_before_they_do() {
    let schema =
        |pattern: String| json!({"type": "object", "properties": {"a": {"pattern": pattern}}});
    for costly in [
        // This takes seconds and hundreds of megabytes, before any limit of the engine applies.
        format!("(?i){}", r"\pL".repeat(10_000)),
        format!("(?s-i:{})", "[^a]".repeat(10_000)),
        r"\pL".repeat(10_000),
        // Each part is compiled separately.
        r"(?=\w{99})".repeat(10_000),
        "a".repeat(255 * 1024),
    ] {
        let refused = compile(&schema(costly));
        assert!(matches!(refused, Err(SchemaError::PatternBytes { .. })), "{refused:?}");
    }
    let usual = r"^(?!.*\.\.)(?=.{1,64}$)[\w-]+(\.[\w-]+)*$";
    for usual in [usual, r"(?i)^[a-z]+/[^/]{1,255}$", r"^\p{Lu}\p{L}*$"] {
        assert!(compile(&schema(usual.to_owned())).is_ok(), "{usual}");
    }
    // A member that looks like a pattern may be data.
    let data = json!({"type": "object", "default": {"pattern": "*.rs"}});
    assert!(compile(&data).is_ok());
}

#[test]
fn the_more_a_schema_costs_the_fewer_bytes_are_checked_where_they_arrive() {
    let cheap = |items: Value| {
        let list = json!({"type": "array", "items": items});
        compile(&json!({"type": "object", "properties": {"l": list}})).unwrap().cheap_length()
    };
    assert_eq!(cheap(json!({"type": "string"})), 64 * 1024);
    assert_eq!(cheap(json!({"anyOf": [{"type": "integer"}, {"type": "null"}]})), 64 * 1024);
    let many = |count: usize| (0..count).map(|number| format!("n{number}")).collect::<Vec<_>>();
    let members = |count| many(count).into_iter().map(|name| (name, json!({})));
    for costly in [
        json!({"anyOf": vec![json!({"type": "string"}); 1000]}),
        json!({"enum": many(10_000)}),
        json!({"required": many(10_000)}),
        json!({"const": "x".repeat(200_000)}),
        json!({"properties": members(4_000).collect::<Map<_, _>>()}),
        json!({"pattern": "^.{1,255}$"}),
        json!({"patternProperties": {"^.{1,255}$": {}}}),
        json!({"pattern": r"^(?!a)(b|c)*\1$"}),
    ] {
        let kind = costly.as_object().and_then(|one| one.keys().next().cloned());
        assert!(cheap(costly) <= 2 * 1024, "{kind:?}");
    }
}

#[test]
fn many_arguments_of_a_costly_schema_are_not_admitted_at_sight() {
    let names: Vec<_> = (0..10_000).map(|number| format!("n{number}")).collect();
    let list = json!({"type": "array", "items": {"enum": names}});
    let schema = compile(&json!({"type": "object", "properties": {"l": list}})).unwrap();
    let admits = |count: usize| {
        let raw = json!({"l": vec!["n9999"; count]}).to_string().into_bytes();
        let outline = Outline::of(&raw, MAX_ARGUMENT_DEPTH, u16::MAX).unwrap();
        schema.admits_at_sight(&raw, outline.parts(&raw).unwrap())
    };
    assert!(admits(10) && !admits(1000));
}

#[test]
fn a_schema_at_every_bound_fits_a_worker_thread() {
    // The longest chain at each of the deepest levels, on the stack of one
    // worker.
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
#[test]
fn a_recursive_schema_that_multiplies_is_still_judged_in_time() {
    // Each variant visits the same child before it fails: 3 to the power of 60
    // visits without a cache.
    let variant = |name: &str| json!({"properties": {"c": {"$ref": "#"}}, "required": [name]});
    let schema = json!({
        "type": "object",
        "anyOf": [variant("x"), variant("y"), variant("z"), {"maxProperties": 0}]
    });
    let nested = |depth: usize, end: &str| {
        format!("{}{end}{}", r#"{"c":"#.repeat(depth), r#","z":0}"#.repeat(depth))
    };
    assert_eq!(text(&schema, &nested(60, "{}")), "ok");
    assert!(text(&schema, &nested(60, "1")).starts_with("(root): schema: "));
    assert!(text(&schema, &nested(2, "1")).starts_with("(root): anyOf: "));
}
