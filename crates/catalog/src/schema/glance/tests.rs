use proptest::prelude::*;
use serde_json::json;

use trunkline_jsonrpc::{Frame, parse};
use trunkline_protocol::call::Params;

use crate::schema::ArgumentSchema;

use super::*;

fn admits(schema: &Value, raw: &str) -> bool {
    QuickCheck::from_schema(schema).admits(raw.as_bytes())
}

#[test]
fn the_arguments_of_common_tools_are_admitted() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "where", "minLength": 1 },
            "kind": { "type": "string", "enum": ["file", "folder"] },
            "depth": { "type": "integer", "minimum": 0, "maximum": 9, "default": 1 },
            "ratio": { "type": "number", "exclusiveMinimum": 0 },
            "all": { "type": "boolean" },
            "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 2 },
            "note": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            "at": { "type": ["integer", "null"] },
            "inner": { "type": "object", "properties": { "x": {} }, "required": ["x"] },
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    for raw in
        [
            r#"{"path":"/a"}"#,
            r#" { "path" : "é" , "note":"\n", "kind":"folder","depth":9,"ratio":0.5,"all":true } "#,
            r#"{"tags":["a","b"],"path":"/","note":null,"at":null,"inner":{"x":1,"y":[]}}"#
                .replace(",\"y\":[]", "")
                .as_str(),
            r#"{"note":"n","at":-3,"p\u0061th":"x"}"#,
        ]
    {
        assert!(admits(&schema, raw), "{raw}");
    }
    for raw in [
        "{}",
        r#"{"path":""}"#,
        r#"{"path":"/a","path":"/b"}"#,
        r#"{"path":"/a","p\u0061th":"/b"}"#,
        r#"{"path":"/a","kind":"link"}"#,
        r#"{"path":"/a","depth":10}"#,
        r#"{"path":"/a","depth":1.0}"#,
        r#"{"path":"/a","ratio":0}"#,
        r#"{"path":"/a","ratio":1e999}"#,
        r#"{"path":"/a","tags":["a","b","c"]}"#,
        r#"{"path":"/a","tags":[1]}"#,
        r#"{"path":"/a","inner":{}}"#,
        r#"{"path":"/a","inner":{"x":{"y":1,"y":2}}}"#,
        r#"{"path":"/a","more":1}"#,
        r#"{"path":"\ud800"}"#,
        r#"{"path":"/a"} {}"#,
        r#"["path"]"#,
    ] {
        assert!(!admits(&schema, raw), "{raw}");
    }
}

/// Schemas of keywords that the quick check knows, and of some that it does
/// not.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!(false)),
        Just(json!({ "type": "null" })),
        Just(json!({ "type": "boolean" })),
        Just(json!({ "type": "string" })),
        Just(json!({ "type": "string", "pattern": "a" })),
        Just(json!({ "enum": ["a", "b", 1] })),
        Just(json!({ "type": "string", "enum": ["a", "b"] })),
        Just(json!({ "type": "integer", "multipleOf": 2 })),
        (0_u64..3, 0_u64..3)
            .prop_map(|(a, b)| json!({ "type": "string", "minLength": a, "maxLength": b })),
        (-2_i64..3, -2_i64..3)
            .prop_map(|(a, b)| json!({ "type": "integer", "minimum": a, "exclusiveMaximum": b })),
        (-2_i64..3, -2_i64..3)
            .prop_map(|(a, b)| json!({ "type": "number", "exclusiveMinimum": a, "maximum": b })),
        Just(json!({ "type": ["string", "null"] })),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({ "anyOf": all })),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|all| json!({ "allOf": all })),
            (inner.clone(), 0_u64..3)
                .prop_map(|(one, n)| json!({ "type": "array", "items": one, "minItems": n })),
            objects(inner),
        ]
    })
}

fn objects(inner: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    let members = prop::collection::btree_map("[ab]", inner.clone(), 0..3);
    let required = prop::collection::btree_set("[abc]", 0..2);
    (members, required, prop::option::of(inner)).prop_map(|(members, required, others)| {
        let mut schema = json!({ "type": "object", "properties": members, "required": required });
        if let Some(others) = others {
            schema["additionalProperties"] = others;
        }
        schema
    })
}

/// Texts that are mostly JSON.
fn texts() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "\"(a|b|\\\\n|\\\\ud800|\\\\u0061|é){0,3}\"",
        "-?[0-3](\\.[05])?(e9999?)?",
        "[0-9]{14,20}",
        Just("?".to_owned()),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = prop_oneof![Just("a"), Just("b"), Just("c"), Just("\\u0061")];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec((key, inner), 0..4).prop_map(|all| {
                let all: Vec<_> =
                    all.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                format!("{{{}}}", all.join(" ,"))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn values_that_a_glance_admits_pass_the_whole_check(
        schema in objects(schemas().boxed()),
        raw in texts(),
    ) {
        let whole = ArgumentSchema::compile(schema.to_string().as_bytes()).unwrap();
        if admits(&schema, &raw) {
            prop_assert!(whole.check_whole(raw.as_bytes()).is_ok(), "{schema} {raw}");
        }
    }

    #[test]
    fn arguments_are_judged_alike_by_themselves_and_as_part_of_a_message(
        schema in objects(schemas().boxed()),
        raw in texts(),
    ) {
        let whole = ArgumentSchema::compile(schema.to_string().as_bytes()).unwrap();
        let params = format!(r#"{{"name":"t","arguments":{raw} }}"#);
        let message = format!(r#" {{"jsonrpc":"2.0","id":1,"params" : {params},"method":"m"}}"#);
        if let Ok(Frame::Request { params: Some(payload), .. }) = parse(&message.into(), 64)
            && let Ok(noted) = Params::read(Some(payload))
        {
            let alone = Params::parse(Some(params.into())).unwrap();
            prop_assert_eq!(noted.arguments(), alone.arguments());
            prop_assert_eq!(noted.arguments_parts().is_some(), raw.starts_with('{'));
            let said = whole.check_outlined(noted.arguments(), noted.arguments_parts());
            let judged = whole.check_whole(noted.arguments().unwrap_or(b"{}"));
            prop_assert_eq!(said.map_err(|no| no.to_string()), judged.map_err(|no| no.to_string()));
        }
    }
}
