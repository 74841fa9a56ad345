use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ToolSignature;

fn declare(tool: &Value) -> String {
    ToolDeclaration::write("t", tool.to_string().as_bytes()).to_string()
}

/// The type of an output with these rules.
fn typed(rules: &Value) -> String {
    let text = declare(
        &json!({"inputSchema": {"additionalProperties": false, "type": "object"}, "outputSchema": rules}),
    );
    text.strip_prefix("t(input?: {}): Promise<").unwrap().strip_suffix(">;").unwrap().to_owned()
}

#[test]
fn a_tool_is_a_function_with_types_and_a_comment() {
    let tool = json!({
        "name": "find-issue",
        "description": "Finds an issue in our tracker.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "state": {"type": "string", "enum": ["open", "closed"]},
                "repo": {"type": "string"},
                "query": {"type": "string"},
                "limit": {"type": "integer", "default": 10},
            },
            "required": ["repo", "query"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {"issues": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}}},
            "required": ["issues"],
        },
    });
    let text = ToolDeclaration::write("find_issue", tool.to_string().as_bytes()).to_string();
    assert_eq!(
        text,
        "/** Finds an issue in our tracker. */\n\
         find_issue(input: { repo: string; query: string; state?: \"open\" | \"closed\"; limit?: number }): \
         Promise<{ issues: { id: number }[] }>;"
    );
    assert_eq!(declare(&json!({"name": "t"})), "t(input?: Record<string, any>): Promise<any>;");
    for raw in ["", "[]", "7", "{\"inputSchema\":7,\"outputSchema\":[],\"description\":{}}"] {
        let text = ToolDeclaration::write("t", raw.as_bytes()).to_string();
        assert_eq!(text, "t(input?: Record<string, any>): Promise<any>;", "{raw}");
    }
}

#[test]
fn every_kind_of_schema_has_a_type() {
    for (rules, expected) in [
        (json!({}), "any"),
        (json!({"type": "boolean"}), "boolean"),
        (json!({"type": "integer"}), "number"),
        (json!({"type": ["string", "null"]}), "string | null"),
        (json!({"type": "array"}), "any[]"),
        (json!({"type": "array", "items": {"type": "string"}}), "string[]"),
        (json!({"type": "array", "items": {"enum": ["a", 1]}}), "(\"a\" | 1)[]"),
        (
            json!({"items": {"properties": {"a": {"type": ["string", "null"]}}}}),
            "{ a?: string | null }[]",
        ),
        (json!({"type": "array", "prefixItems": [{"type": "string"}, {}]}), "[string, any]"),
        (json!({"type": "object"}), "Record<string, any>"),
        (
            json!({"type": "object", "additionalProperties": {"type": "number"}}),
            "Record<string, number>",
        ),
        (json!({"type": "object", "additionalProperties": false}), "{}"),
        (
            json!({"properties": {"two words": false, "x-y": true}}),
            "{ \"two words\"?: never; \"x-y\"?: any }",
        ),
        (
            json!({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}),
            "{ a?: any } & Record<string, string>",
        ),
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "string | null"),
        (
            json!({"allOf": [{"anyOf": [{"type": "string"}, {"const": 7}]}, {"type": "number"}]}),
            "(string | 7) & number",
        ),
        (
            json!({"properties": {"a": {}}, "oneOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}}]}),
            "{ a?: any } & ({ b?: any } | { c?: any })",
        ),
        (json!({"type": "string", "nullable": true}), "(string) | null"),
        (json!({"const": null}), "null"),
        (json!({"enum": []}), "never"),
        (json!({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}), "string"),
        (json!({"$ref": "https://example.com/x"}), "any"),
    ] {
        assert_eq!(typed(&rules), expected, "{rules}");
    }
}

#[test]
fn references_wide_and_deep_schemas_end() {
    let list = json!({"$ref": "#/$defs/L", "$defs": {"L": {"properties": {"value": {}, "next": {"$ref": "#/$defs/L"}}}}});
    assert!(typed(&list).contains("any /* … */"), "{}", typed(&list));
    let tree = json!({"$ref": "#/$defs/T", "$defs": {"T": {"anyOf": vec![json!({"items": {"$ref": "#/$defs/T"}}); 40]}}});
    assert!(typed(&tree).len() < 6_000, "{}", typed(&tree).len());
    let itself = json!({"$ref": "#/$defs/S", "$defs": {"S": {"$ref": "#/$defs/S"}}});
    assert_eq!(typed(&itself), "any /* … */");
    let many: Map<String, Value> = (0..10_000)
        .map(|n| (format!("p{n}"), json!({"enum": (0..100).collect::<Vec<_>>()})))
        .collect();
    let wide = typed(&json!({"properties": many, "required": ["p400"]}));
    assert!(
        wide.len() < 6_000 && wide.starts_with("{ p400: 0 | 1") && wide.ends_with("; /* … */ }"),
        "{wide}"
    );
    let values: Vec<_> = (0..100).map(|n| format!("value {n}")).collect();
    assert!(typed(&json!({"enum": values})).ends_with("| /* … */ string"));
}

#[test]
fn a_description_is_cut_at_a_sentence_and_cannot_leave_its_comment() {
    let comment = |description: &str| {
        let text = declare(&json!({"description": description}));
        text.split_once("\nt(").map(|(comment, _)| comment.to_owned()).unwrap_or_default()
    };
    assert_eq!(comment("One. Two!\nThree?"), "/** One. Two! Three? */");
    assert_eq!(comment("  \n "), "");
    assert_eq!(comment("a */ evil(); /* b"), "/** a *\\/ evil(); /* b */");
    assert_eq!(
        comment("a *\u{200b}/ b\u{1b}[31m\u{202e}"),
        "/** a *\\u{200b}/ b\\u{1b}[31m\\u{202e} */"
    );
    let sentence = format!("{} end.", "word ".repeat(40).trim());
    let long = comment(&format!("{sentence} {sentence} {sentence}"));
    assert_eq!(long, format!("/** {sentence} … */"));
    let endless = comment(&"word ".repeat(1000));
    assert!(endless.len() < 420 && endless.ends_with("word… */"), "{endless}");
}

#[test]
fn names_become_identifiers_that_differ() {
    assert_eq!(
        script_names(&[
            "a-b",
            "a.b",
            "a_b",
            "x",
            "x",
            "1st",
            "class",
            "then",
            "",
            "ünï",
            "tracker__find-issue"
        ]),
        [
            "a_b_2",
            "a_b_3",
            "a_b",
            "x",
            "x_2",
            "_1st",
            "class_",
            "then_",
            "_",
            "_n_",
            "tracker__find_issue"
        ]
    );
    assert_eq!(script_names(&["a-b", "a_b_2", "a_b"]), ["a_b_3", "a_b_2", "a_b"]);
    let many = vec!["a-b"; 20_000];
    assert_eq!(script_names(&many).last().unwrap(), "a_b_20000");
}

#[test]
fn real_definitions_have_declarations_that_fit() {
    let text = include_str!("../../../../../tests/definitions/benign.jsonl");
    for line in text.lines() {
        let definition: Value = serde_json::from_str(line).unwrap();
        let text = declare(&definition["definition"]);
        assert!(text.len() < 8_000 && text.lines().count() <= 2, "{text}");
    }
}

/// Any schema, with keywords that lead to other schemas, and references to itself.
fn any_schema() -> impl Strategy<Value = Value> {
    let kinds = ["string", "integer", "object", "array", "strange"];
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        prop::sample::select(vec!["#/$defs/A", "#/$defs/none", "#"])
            .prop_map(|target| json!({ "$ref": target })),
        prop::sample::select(kinds.to_vec()).prop_map(|kind| json!({ "type": [kind, "null"] })),
        ".{0,200}".prop_map(|text| json!({"enum": vec![text; 40]})),
    ];
    let keywords = ["anyOf", "oneOf", "allOf", "prefixItems", "items", "properties"];
    leaf.prop_recursive(5, 200, 20, move |inner| {
        let schemas = prop::collection::vec(inner.clone(), 0..20);
        let members = prop::collection::btree_map(".{0,40}", inner.clone(), 0..20);
        let keyword = prop::sample::select(keywords.to_vec());
        (keyword, schemas, members, inner).prop_map(
            |(keyword, schemas, members, one)| match keyword {
                "properties" => json!({ keyword: members, "additionalProperties": one }),
                "items" => json!({ keyword: one, "nullable": true }),
                _ => json!({ keyword: schemas }),
            },
        )
    })
}

proptest! {
    #[test]
    fn both_printers_of_schemas_end_within_their_bounds(schema in any_schema()) {
        let root = json!({"properties": {"a": schema, "b": {"$ref": "#/$defs/A"}}, "$defs": {"A": schema}});
        let tool = json!({"name": "t", "inputSchema": root, "outputSchema": root});
        let line = ToolSignature::from_raw(tool.to_string().as_bytes()).to_string();
        prop_assert!(line.chars().count() < 200 && line.lines().count() == 1, "{}", line);
        let text = declare(&tool);
        prop_assert!(text.len() < 16_000 && text.lines().count() == 1, "{}", text.len());
    }

    #[test]
    fn anything_has_a_declaration_that_is_bounded_and_visible(description in ".*", name in ".*", value in ".*") {
        let tool = json!({
            "description": description,
            "inputSchema": {"properties": {name: {"enum": [value]}}},
        });
        let text = declare(&tool);
        let lines: Vec<_> = text.lines().collect();
        prop_assert!(lines.len() <= 2 && text.len() < 9_000);
        prop_assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || trunkline_core::text::is_invisible(c)));
        if let [comment, _] = lines.as_slice() {
            prop_assert_eq!(comment.find("*/"), Some(comment.len() - 2));
        }
    }

    #[test]
    fn script_names_are_identifiers_and_differ(names in proptest::collection::vec("[a-c_.-]{0,3}", 0..40)) {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let made = script_names(&names);
        prop_assert_eq!(made.len(), names.len());
        let distinct: std::collections::HashSet<_> = made.iter().collect();
        prop_assert_eq!(distinct.len(), made.len());
        prop_assert!(made.iter().all(|name| script_name::is_identifier(name)));
    }
}
