//! A tool on one line, for a model that has to choose:
//! `find_issue(repo: string, state?: open|closed) — Find an issue in our tracker.`
//!
//! It is made of the tool's untrusted definition: the line is bounded, has no line breaks, control
//! characters or invisible ones, and reading the definition takes a bounded time.

use std::fmt;

use serde_json::{Map, Value};

use trunkline_core::text::{cut_at_word, escape_controls, escape_invisible, split_sentence};

use super::schema_shape::{
    MemberBounds, SchemaKinds, SchemaMember, SchemaReader, SchemaRules, SchemaShape, read_members,
};

/// A tool's name, parameters and purpose on one line.
///
/// Required parameters come first; `?` marks the optional ones. `int` and `bool` stand for
/// `integer` and `boolean`, `{…}` for an object, `[]` for an array of the type before it. Each
/// omission leaves a mark: `*` after a type with further rules (bounds, patterns, formats), `…` for
/// omitted parameters, values, properties and text. Descriptions and defaults of parameters are
/// never shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSignature {
    line: String,
}

impl ToolSignature {
    /// The signature of a tool by its definition, raw JSON, under its own name.
    pub fn from_raw(raw: &[u8]) -> Self {
        let tool = read_object(raw);
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        Self::write(name, &tool)
    }

    /// The signature of a tool by its definition, raw JSON, under its public name.
    pub fn with_name(name: &str, raw: &[u8]) -> Self {
        Self::write(name, &read_object(raw))
    }

    fn write(name: &str, tool: &Map<String, Value>) -> Self {
        let parameters = match tool.get("inputSchema") {
            Some(Value::Object(schema)) => write_parameters(schema),
            _ => "…".to_owned(),
        };
        let description = tool.get("description").and_then(Value::as_str);
        let description = description.map(write_description).unwrap_or_default();
        let dash = if description.is_empty() { "" } else { " — " };
        Self { line: format!("{}({parameters}){dash}{description}", on_one_line(name)) }
    }
}

impl fmt::Display for ToolSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

pub(crate) fn read_object(raw: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(raw).unwrap_or_default()
}

/// The parameters of a schema, as many as there is room for.
fn write_parameters(schema: &Map<String, Value>) -> String {
    let (members, is_cut) = read_members(schema, SIGNATURE_MEMBERS);
    let types = TypeWriter(SchemaReader { root: schema, max_depth: MAX_DEPTH });
    let mut out = String::new();
    let mut is_cut = is_cut || has_hidden_parameters(schema);
    for SchemaMember { name, schema, is_required } in members {
        let mark = if is_required { "" } else { "?" };
        let separator = if out.is_empty() { "" } else { ", " };
        let one = format!("{separator}{}{mark}: {}", on_one_line(name), types.write(schema, 0));
        if out.chars().count() + one.chars().count() > MAX_PARAMETERS {
            is_cut = true;
            break;
        }
        out.push_str(&one);
    }
    if is_cut {
        out.push_str(if out.is_empty() { "…" } else { ", …" });
    }
    out
}

/// Returns true if a schema of objects has parameters, or rules of their combination, outside of
/// `properties`.
fn has_hidden_parameters(schema: &Map<String, Value>) -> bool {
    let keywords = [
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "$ref",
        "patternProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "minProperties",
    ];
    keywords.iter().any(|keyword| schema.contains_key(*keyword))
}

/// Writes types of one schema.
struct TypeWriter<'a>(SchemaReader<'a>);

impl<'a> TypeWriter<'a> {
    fn write(&self, schema: &'a Value, depth: usize) -> String {
        let mut written = match self.0.read(schema, depth) {
            SchemaShape::Any => return "any".to_owned(),
            SchemaShape::Never => return "never".to_owned(),
            SchemaShape::TooDeep => return "…".to_owned(),
            SchemaShape::Reference(Some(found)) => return self.write(found, depth + 1),
            SchemaShape::Reference(None) => return "any*".to_owned(),
            SchemaShape::Values(values) => write_values(values),
            SchemaShape::Rules(rules) => self.write_rules(rules, depth),
        };
        if has_further_rules(schema) && !written.ends_with(['*', '…', '}']) {
            written.push('*');
        }
        written
    }

    fn write_rules(&self, rules: SchemaRules<'a>, depth: usize) -> String {
        if let Some(members) = rules.unions().next() {
            let members = members.iter().take(MAX_UNION + 1);
            return write_union(members.map(|schema| self.write(schema, depth + 1)));
        }
        if let Some([only]) = rules.all_of() {
            return self.write(only, depth + 1);
        }
        match rules.kinds() {
            SchemaKinds::All => "any".to_owned(),
            SchemaKinds::Implied("array") if rules.items().is_none() => "any".to_owned(),
            SchemaKinds::One(kind) | SchemaKinds::Implied(kind) => {
                self.write_kind(kind, rules, depth)
            }
            SchemaKinds::Listed(kinds) => {
                let kinds = kinds.iter().take(MAX_UNION + 1).filter_map(Value::as_str);
                write_union(kinds.map(|kind| self.write_kind(kind, rules, depth)))
            }
        }
    }

    fn write_kind(&self, kind: &str, rules: SchemaRules<'a>, depth: usize) -> String {
        match kind {
            "array" => match rules.items().map(|items| self.write(items, depth + 1)) {
                Some(items) if items.contains('|') => format!("({items})[]"),
                Some(items) => format!("{items}[]"),
                None => "any[]".to_owned(),
            },
            "object" => "{…}".to_owned(),
            "integer" => "int".to_owned(),
            "boolean" => "bool".to_owned(),
            "string" | "number" | "null" => kind.to_owned(),
            _ => "any*".to_owned(),
        }
    }
}

/// Returns true if a schema has rules that its type does not show.
fn has_further_rules(schema: &Value) -> bool {
    let shown = [
        "type",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "items",
        "properties",
        "required",
        "additionalProperties",
        "title",
        "description",
        "default",
        "examples",
        "example",
        "$comment",
        "$schema",
        "$id",
        "deprecated",
        "readOnly",
        "writeOnly",
        "nullable",
    ];
    let is_single = |key: &str, value: &Value| {
        key == "allOf" && value.as_array().is_some_and(|all| all.len() == 1)
    };
    schema.as_object().into_iter().flatten().any(|(key, value)| {
        !shown.contains(&key.as_str()) && !key.starts_with("x-") && !is_single(key, value)
    })
}

fn write_union(kinds: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for kind in kinds {
        if !all.contains(&kind) {
            all.push(kind);
        }
    }
    if all.len() > MAX_UNION {
        all.truncate(MAX_UNION);
        all.push("…".to_owned());
    }
    if all.is_empty() { "any*".to_owned() } else { all.join("|") }
}

/// The values of an enumeration, as many as there is room for.
fn write_values(values: &[Value]) -> String {
    let mut out = String::new();
    for (index, value) in values.iter().enumerate() {
        let one = match value {
            Value::String(text) if is_plain(text) => text.clone(),
            Value::Array(_) | Value::Object(_) => "…".to_owned(),
            other => on_one_line(&other.to_string()),
        };
        let separator = if index == 0 { "" } else { "|" };
        if index == MAX_VALUES || out.chars().count() + one.chars().count() > MAX_VALUES_LENGTH {
            out.push_str(separator);
            out.push('…');
            break;
        }
        out.push_str(separator);
        out.push_str(&one);
    }
    if out.is_empty() { "never".to_owned() } else { out }
}

/// Returns true if a value is distinct from its context without quotes.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':'))
}

/// The first sentence of a description, cut at a word.
fn write_description(description: &str) -> String {
    let (summary, rest) = split_sentence(description);
    let line = on_one_line(summary);
    if line.chars().count() <= MAX_DESCRIPTION {
        let has_more = !rest.trim().is_empty();
        return if has_more { format!("{line} …") } else { line };
    }
    cut_at_word(&line, MAX_DESCRIPTION)
}

/// A text on one line: spaces for whitespace, escapes for invisible characters.
pub(crate) fn on_one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    escape_controls(&escape_invisible(&words))
}

/// The most characters of all parameters.
const MAX_PARAMETERS: usize = 170;
/// The most characters of a description.
const MAX_DESCRIPTION: usize = 120;
/// The properties of a schema that are read.
const SIGNATURE_MEMBERS: MemberBounds = MemberBounds { shown: 256, searched: 256 };
/// The deepest schema that is read.
const MAX_DEPTH: usize = 6;
/// The most kinds of a union.
const MAX_UNION: usize = 3;
/// The most values of an enumeration.
const MAX_VALUES: usize = 6;
/// The most characters of those values.
const MAX_VALUES_LENGTH: usize = 48;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn signature(tool: &Value) -> String {
        ToolSignature::from_raw(tool.to_string().as_bytes()).to_string()
    }

    fn typed(rules: &Value) -> String {
        let line = signature(&json!({"name": "t", "inputSchema": {"properties": {"a": rules}}}));
        line.strip_prefix("t(a?: ").and_then(|line| line.strip_suffix(')')).unwrap().to_owned()
    }

    #[test]
    fn a_tool_is_one_line() {
        let tool = json!({
            "name": "find_issue",
            "description": "Find an issue in our tracker.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "state": {"type": "string", "enum": ["open", "closed"]},
                    "repo": {"type": "string", "description": "The repository"},
                    "query": {"type": "string"},
                    "limit": {"type": "integer", "default": 10},
                },
                "required": ["repo", "query"],
            },
        });
        assert_eq!(
            signature(&tool),
            "find_issue(repo: string, query: string, state?: open|closed, limit?: int) \
             — Find an issue in our tracker."
        );
        let renamed = ToolSignature::with_name("tracker__find", tool.to_string().as_bytes());
        assert!(renamed.to_string().starts_with("tracker__find(repo: string"));
    }

    #[test]
    fn every_kind_of_type_has_a_form() {
        for (rules, expected) in [
            (json!({"type": "boolean"}), "bool"),
            (json!({"type": "array", "items": {"type": "string"}}), "string[]"),
            (json!({"type": "array", "items": {"enum": ["a", "b"]}}), "(a|b)[]"),
            (json!({"type": "array"}), "any[]"),
            (json!({"type": "array", "items": {"type": "object", "properties": {}}}), "{…}[]"),
            (json!({"type": "object", "properties": {"x": {}}}), "{…}"),
            (json!({"type": ["string", "null"]}), "string|null"),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null}),
                "int|null",
            ),
            (json!({"const": "fixed"}), "fixed"),
            (json!({"enum": ["two words", 7, null, "a|b"]}), "\"two words\"|7|null|\"a|b\""),
            (json!({}), "any"),
            (json!(true), "any"),
            (json!(false), "never"),
        ] {
            assert_eq!(typed(&rules), expected, "{rules}");
        }
    }

    #[test]
    fn omitted_parts_leave_a_mark() {
        for (rules, expected) in [
            (json!({"type": "integer", "minimum": 1, "maximum": 100}), "int*"),
            (json!({"type": "string", "pattern": "^a"}), "string*"),
            (json!({"type": "string", "format": "date"}), "string*"),
            (json!({"enum": ["a", "b", "c", "d", "e", "f", "g", "h"]}), "a|b|c|d|e|f|…"),
            (
                json!({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "number"}]}),
                "string|int|bool|…",
            ),
            (json!({"$ref": "https://example.com/x"}), "any*"),
            (json!({"type": "string", "not": {"const": "x"}}), "string*"),
        ] {
            assert_eq!(typed(&rules), expected, "{rules}");
        }
        let line = signature(
            &json!({"name": "t", "description": "One. Two.", "inputSchema": {"type": "object", "anyOf": []}}),
        );
        assert_eq!(line, "t(…) — One. …");
        assert_eq!(signature(&json!({"name": "t"})), "t(…)");
        assert_eq!(signature(&json!({"name": "t", "inputSchema": {"type": "object"}})), "t()");
    }

    #[test]
    fn references_within_the_schema_are_followed_within_bounds() {
        let tool = json!({"name": "t", "inputSchema": {
            "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}},
            "$defs": {"A": {"enum": ["x", "y"]}, "B": {"$ref": "#/$defs/B"}},
        }});
        assert_eq!(signature(&tool), "t(a?: x|y, b?: …)");
    }

    #[test]
    fn a_line_is_bounded_and_is_one_line() {
        let properties: Map<String, Value> =
            (0..100).map(|n| (format!("parameter_{n}"), json!({"type": "string"}))).collect();
        let tool = json!({
            "name": "many\nlines\u{202e}",
            "description": format!("A\nfirst\tsentence \u{1b}[31m{}", "that goes on ".repeat(100)),
            "inputSchema": {"type": "object", "properties": properties},
        });
        let line = signature(&tool);
        assert!(line.chars().count() < 340, "{}", line.chars().count());
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.contains(", …) — A first sentence") && line.ends_with('…'), "{line}");
        assert!(!line.contains('\u{202e}'));
    }

    #[test]
    fn real_definitions_have_lines_that_fit() {
        let text = include_str!("../../../../tests/definitions/benign.jsonl");
        for line in text.lines() {
            let definition: Value = serde_json::from_str(line).unwrap();
            let line = signature(&definition["definition"]);
            assert!(line.chars().count() < 400 && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn invalid_tools_have_a_line() {
        for raw in [
            "",
            "[]",
            "7",
            "{\"name\":1,\"inputSchema\":[]}",
            "{\"inputSchema\":{\"properties\":[]}}",
        ] {
            assert!(ToolSignature::from_raw(raw.as_bytes()).to_string().starts_with('('), "{raw}");
        }
    }
}
