use trunkline_config::{Config, ConfigSource, SystemEnvironment};

use super::*;

fn edited(schema: &Value, arguments: &str) -> Value {
    let text =
        format!("[servers.s]\ncommand = \"x\"\n[servers.s.tools.t]\narguments = {arguments}");
    let source =
        ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes: text.into() };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let edits = &config.servers[0].tools.overrides[0].1.transforms.arguments.edits;
    Value::Object(edit_schema(schema.as_object().unwrap(), edits).unwrap())
}

#[test]
fn a_hidden_argument_is_nowhere_in_the_listed_schema() {
    let hidden = "{ secret = { value = 1 }, other = { hide = true } }";
    let property = json!({ "type": "string" });
    let declares =
        json!({ "properties": { "secret": property, "other": property, "a": property } });
    for schema in [
        json!({ "properties": declares["properties"], "required": ["secret", "a"] }),
        json!({ "$ref": "#/$defs/Args", "$defs": { "Args": declares } }),
        json!({ "allOf": [{ "$ref": "#/definitions/A~1b" }], "definitions": { "A/b": declares } }),
        json!({
            "$ref": "#/$defs/Outer",
            "$defs": { "Outer": { "$ref": "#/$defs/Args/allOf/0" }, "Args": { "allOf": [declares] } },
        }),
        json!({ "anyOf": [declares, { "required": ["other"] }] }),
        json!({ "oneOf": [declares, { "required": ["secret"] }] }),
        json!({ "propertyNames": { "enum": ["secret", "a"] } }),
        json!({ "dependentRequired": { "secret": ["a"], "a": ["secret"] } }),
        json!({ "if": { "required": ["secret"] }, "then": { "required": ["a"] } }),
        json!({ "not": { "required": ["other"] }, "examples": [{ "secret": 1 }] }),
        json!({ "dependentSchemas": { "a": declares }, "default": { "other": 1 } }),
    ] {
        let mut schema = schema;
        schema["type"] = json!("object");
        let shown = edited(&schema, hidden).to_string();
        assert!(!shown.contains("secret") && !shown.contains("other"), "{schema} {shown}");
    }
}

#[test]
fn definitions_that_other_values_refer_to_stay() {
    let schema = json!({
        "type": "object",
        "properties": { "tree": { "$ref": "#/$defs/Node" }, "named": { "$ref": "#kind" }, "x": {} },
        "$defs": {
            "Node": { "properties": { "leaf": { "$ref": "#/$defs/Leaf/anyOf/0" } } },
            "Leaf": { "anyOf": [{ "$ref": "#/$defs/Node" }] },
            "Kind": { "$anchor": "kind", "type": "string" },
            "Unused": { "type": "string" },
        },
    });
    let shown = edited(&schema, "{ x = { hide = true } }");
    let kept: Vec<_> = shown["$defs"].as_object().unwrap().keys().collect();
    assert_eq!(kept, ["Node", "Leaf", "Kind"]);
}

#[test]
fn renamed_arguments_are_required_under_their_new_names() {
    let schema = json!({
        "type": "object",
        "properties": { "q": { "type": "string", "description": "old" }, "n": { "default": 1 } },
        "required": ["q", "n"], "minProperties": 2, "propertyNames": { "pattern": "^.$" },
        "dependentRequired": { "q": ["n"] },
    });
    let shown = edited(
        &schema,
        "{ q = { rename = \"query\", description = \"new\" }, n = { default = 7 } }",
    );
    let expected = json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "description": "new" }, "n": { "default": 7 },
        },
        "required": ["query"], "dependentRequired": { "query": [] },
    });
    assert_eq!(shown, expected);
}

#[test]
fn alternatives_that_differ_in_hidden_arguments_only_are_no_longer_exclusive() {
    let schema = json!({
        "type": "object",
        "oneOf": [{ "required": ["a", "k"] }, { "required": ["b", "k"] }],
        "unevaluatedProperties": false,
    });
    let shown = edited(&schema, "{ k = { value = 1 } }");
    let expected = json!({
        "type": "object", "properties": {},
        "allOf": [{ "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] }],
    });
    assert_eq!(shown, expected);
    let unaffected = edited(&schema, "{ z = { value = 1 } }");
    assert_eq!(unaffected["oneOf"], schema["oneOf"]);
}
