//! Schemas with flaws, and the valid ones that they become.

use super::*;

/// The schema of a tool as clients see it.
fn repaired(schema: &str) -> Value {
    let raw = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
    let tool = Tool::parse(raw.as_bytes(), HeaderRules::Ignore);
    let tool = tool.unwrap_or_else(|fault| panic!("{schema}: {fault}"));
    let shown: Value = serde_json::from_slice(tool.shown()).unwrap();
    let schema = shown["inputSchema"].clone();
    assert!(jsonschema::draft202012::meta::is_valid(&schema), "{schema}");
    schema
}

/// An argument's schema as clients see it.
fn argument(schema: &str) -> String {
    let whole = repaired(&format!(r#"{{"type":"object","properties":{{"a":{schema}}}}}"#));
    let mut rest = whole.clone();
    let found = rest["properties"].as_object_mut().unwrap().shift_remove("a").unwrap();
    assert_eq!(rest, json!({ "type": "object", "properties": {} }), "{whole}");
    found.to_string()
}

#[test]
fn keywords_with_an_equivalent_are_translated_and_others_are_removed() {
    for (flawed, expected) in [
        (r#"{"minimum":0,"exclusiveMinimum":true}"#, r#"{"exclusiveMinimum":0}"#),
        (r#"{"maximum":9,"exclusiveMaximum":true}"#, r#"{"exclusiveMaximum":9}"#),
        (r#"{"minimum":0,"exclusiveMinimum":false}"#, r#"{"minimum":0}"#),
        (r#"{"exclusiveMinimum":true}"#, "{}"),
        (r#"{"items":[{"type":"string"},true]}"#, r#"{"prefixItems":[{"type":"string"},true]}"#),
        (r#"{"items":[{}],"additionalItems":false}"#, r#"{"prefixItems":[{}],"items":false}"#),
        (r#"{"items":[],"additionalItems":{"type":"null"}}"#, r#"{"items":{"type":"null"}}"#),
        (r#"{"items":[null,{}]}"#, r#"{"prefixItems":[{},{}]}"#),
        (r#"{"items":null}"#, "{}"),
        (r#"{"pattern":"^(?P<year>[0-9]{4})$"}"#, r#"{"pattern":"^(?<year>[0-9]{4})$"}"#),
        (r#"{"pattern":"\\A[a-z]+\\Z"}"#, r#"{"pattern":"^[a-z]+$"}"#),
        (r#"{"pattern":"([a-z"}"#, "{}"),
        (r#"{"pattern":null}"#, "{}"),
        (
            r#"{"patternProperties":{"^(?P<x>a)":{"type":"any"}}}"#,
            r#"{"patternProperties":{"^(?<x>a)":{}}}"#,
        ),
        (
            r#"{"patternProperties":{"(":{},"b":{}},"additionalProperties":false}"#,
            r#"{"patternProperties":{"b":{}}}"#,
        ),
        (r#"{"required":["x","x","y"]}"#, r#"{"required":["x","y"]}"#),
        (r#"{"required":["x",null,1]}"#, r#"{"required":["x"]}"#),
        (r#"{"required":null}"#, "{}"),
        (r#"{"required":"x"}"#, "{}"),
        (r#"{"required":true}"#, "MOVED"),
        (r#"{"additionalProperties":null}"#, "{}"),
        (r#"{"additionalProperties":"x"}"#, "{}"),
        (r#"{"properties":null}"#, "{}"),
        (r#"{"properties":[]}"#, "{}"),
        (
            r#"{"properties":{"b":null,"c":"x","d":true}}"#,
            r#"{"properties":{"b":{},"c":{},"d":true}}"#,
        ),
        (r#"{"type":"any"}"#, "{}"),
        (r#"{"type":"date"}"#, "{}"),
        (r#"{"type":null}"#, "{}"),
        (r#"{"type":["string","string"]}"#, r#"{"type":["string"]}"#),
        (r#"{"type":["string",null]}"#, r#"{"type":["string","null"]}"#),
        (r#"{"type":["string","any"]}"#, "{}"),
        (r#"{"type":[]}"#, "{}"),
        (r#"{"enum":null,"title":1,"description":null}"#, "{}"),
        (r#"{"enum":{"a":1}}"#, "{}"),
        (r#"{"examples":"x"}"#, "{}"),
        (r#"{"format":null,"$comment":7}"#, "{}"),
        (r#"{"minLength":"1","maxLength":-1,"minItems":1.5}"#, "{}"),
        (r#"{"minimum":"0","maximum":null,"multipleOf":0}"#, "{}"),
        (r#"{"uniqueItems":"yes","deprecated":1,"readOnly":null}"#, "{}"),
        (r#"{"anyOf":[]}"#, "{}"),
        (r#"{"anyOf":null,"oneOf":{},"allOf":"x"}"#, "{}"),
        (r#"{"anyOf":[null,{"type":"string"}]}"#, r#"{"anyOf":[{},{"type":"string"}]}"#),
        (r#"{"not":null,"if":1}"#, "{}"),
        (r##"{"$ref":"#/$defs/gone"}"##, "{}"),
        (r##"{"$ref":"#/definitions/gone","type":"string"}"##, r#"{"type":"string"}"#),
        (r#"{"$ref":"other.json"}"#, "{}"),
        (r#"{"$ref":"https://example.com/x.json#/a"}"#, "{}"),
        (r#"{"$ref":null}"#, "{}"),
        (r#"{"$schema":"https://json-schema.org/draft/2020-12/schema"}"#, "{}"),
        (r##"{"$id":"#name"}"##, r#"{"$anchor":"name"}"#),
        (r#"{"dependencies":{"x":["y","y"]}}"#, r#"{"dependentRequired":{"x":["y"]}}"#),
        (r#"{"dependencies":{"x":null}}"#, "{}"),
        (r#"{"dependentRequired":{"x":"y","z":["w"]}}"#, r#"{"dependentRequired":{"z":["w"]}}"#),
        (
            r#"{"propertyNames":{"pattern":"(?P<a>x)"}}"#,
            r#"{"propertyNames":{"pattern":"(?<a>x)"}}"#,
        ),
    ] {
        if expected != "MOVED" {
            assert_eq!(argument(flawed), expected, "{flawed}");
        }
    }
}

#[test]
fn a_property_that_says_it_is_required_is_named_by_its_object() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"string","required":true},"b":{"required":false},"c":{"required":true}},"required":["c"]}"#;
    assert_eq!(
        repaired(schema),
        json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": {}, "c": {} }, "required": ["c", "a"] })
    );
    let alone = r#"{"type":"object","properties":{"a":{"required":true}},"required":null}"#;
    assert_eq!(repaired(alone)["required"], json!(["a"]));
}

#[test]
fn a_schema_of_another_dialect_is_translated_as_a_whole() {
    for (flawed, expected) in [
        (r#"{"$schema":"https://example.com/own","type":"object"}"#, json!({ "type": "object" })),
        (r#"{"$schema":7,"type":"object"}"#, json!({ "type": "object" })),
        (
            r##"{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","id":"http://e.com/s",
                "properties":{"a":{"minimum":1,"exclusiveMinimum":true},"b":{"$ref":"#/definitions/p","minimum":5}},
                "definitions":{"p":{"type":"integer"}},"dependencies":{"a":["b"],"b":{"required":["c"]}}}"##,
            json!({
                "type": "object", "$id": "http://e.com/s",
                "properties": {
                    "a": { "exclusiveMinimum": 1 }, "b": { "$ref": "#/definitions/p" },
                },
                "definitions": { "p": { "type": "integer" } },
                "dependentRequired": { "a": ["b"] },
                "dependentSchemas": { "b": { "required": ["c"] } },
            }),
        ),
        (
            r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","$ref":"#/definitions/R",
                "definitions":{"R":{"properties":{"t":{"items":[{"type":"string"},{"$ref":"#/definitions/R/properties/t/items/0"}]}}}}}"##,
            json!({
                "type": "object", "$ref": "#/definitions/R",
                "definitions": { "R": { "properties": { "t": { "prefixItems": [
                    { "type": "string" }, { "$ref": "#/definitions/R/properties/t/prefixItems/0" },
                ] } } } },
            }),
        ),
    ] {
        assert_eq!(repaired(flawed), expected, "{flawed}");
    }
}

#[test]
fn a_valid_schema_keeps_its_bytes_in_every_dialect() {
    for schema in [
        r##"{"$schema":"http://json-schema.org/draft-07/schema#", "type":"object","definitions":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/definitions/a","title":"X"}},"dependencies":{"x":["y"]}}"##,
        r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/n/anyOf/0"}]}}}"##,
        r#"{"type":"object","properties":{"required":{"type":"boolean"},"items":{"type":"array","items":true},"type":{"enum":["any"]}},"required":[]}"#,
        r#"{"type":"object","nullable":true,"example":{"type":"any"},"discriminator":{"propertyName":"x"},"x-y":[null]}"#,
        r#"{"type":"object","properties":{"a":{"pattern":"^(?!x)(?<n>a)[^\\s]{1,2}$","minLength":1.0}}}"#,
        r#"{"type":"object","properties":{"a":{"const":{"required":true,"type":"any"},"default":{"exclusiveMinimum":true}}}}"#,
    ] {
        let raw = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
        let tool = Tool::parse(raw.as_bytes(), HeaderRules::Ignore).unwrap();
        assert_eq!((tool.shown().as_ref(), tool.repairs()), (raw.as_bytes(), None), "{schema}");
    }
}

#[test]
fn calls_are_checked_with_the_repaired_schema() {
    let raw = r#"{"name":"t","inputSchema":{"type":"object","properties":{
        "n":{"type":"number","minimum":0,"exclusiveMinimum":true},"s":{"type":"string","required":true}}}}"#;
    let tool = Tool::parse(raw.as_bytes(), HeaderRules::Ignore).unwrap();
    let is_valid = |arguments: &str| tool.arguments.check(Some(arguments.as_bytes())).is_ok();
    assert!(is_valid(r#"{"n":1,"s":"x"}"#));
    assert!(!is_valid(r#"{"n":0,"s":"x"}"#) && !is_valid(r#"{"n":1}"#));
}

#[test]
fn a_schema_past_the_bounds_is_no_flaw() {
    let deep = format!(
        r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{{}}}}}}}"#,
        (0..5000).map(|n| format!(r#""p{n}":{{}}"#)).collect::<Vec<_>>().join(",")
    );
    let fault =
        Tool::parse(deep.as_bytes(), HeaderRules::Ignore).err().map(|fault| fault.to_string());
    assert!(fault.is_some_and(|fault| fault.contains("subschemas")));
}
