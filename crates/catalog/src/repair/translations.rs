//! Keywords of other dialects that have an exact equivalent in 2020-12.

use serde_json::{Map, Value};

use super::keywords::{is_anchor, is_broken_pattern, translate_pattern};
use super::{RepairKind, Repairs};

/// A dialect, as far as the translation depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Draft4,
    /// Draft-06 and draft-07.
    Draft7,
    Draft201909,
    /// 2020-12, also for schemas that declare nothing, or an unknown dialect.
    Draft202012,
}

impl Dialect {
    pub(super) fn declared(schema: &Value) -> Self {
        let uri = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let bare = uri.split_once("://").map_or(uri, |(_, bare)| bare).trim_end_matches('#');
        match bare {
            "json-schema.org/draft-04/schema" => Self::Draft4,
            "json-schema.org/draft-06/schema" | "json-schema.org/draft-07/schema" => Self::Draft7,
            "json-schema.org/draft/2019-09/schema" => Self::Draft201909,
            _ => Self::Draft202012,
        }
    }

    /// Returns true if keywords beside `$ref` have no effect.
    fn ignores_siblings(self) -> bool {
        matches!(self, Self::Draft4 | Self::Draft7)
    }
}

/// Translates the meaning that keywords of 2020-12, or ignored ones, have in another dialect.
pub(super) fn translate_from(
    from: Dialect,
    members: &mut Map<String, Value>,
    repairs: &mut Repairs,
) {
    if from.ignores_siblings() && members.get("$ref").is_some_and(Value::is_string) {
        members.retain(|keyword, _| EFFECTIVE_BESIDE_REFERENCE.contains(&keyword.as_str()));
    }
    if from == Dialect::Draft4
        && !members.contains_key("$id")
        && let Some(id) = members.shift_remove("id")
    {
        members.insert("$id".to_owned(), id);
    }
    if from == Dialect::Draft201909 && members.shift_remove("$recursiveAnchor").is_some() {
        repairs.note(RepairKind::Translated, "$recursiveAnchor");
    }
    if from == Dialect::Draft201909
        && !members.contains_key("$ref")
        && let Some(target) = members.shift_remove("$recursiveRef")
    {
        members.insert("$ref".to_owned(), target);
    }
    translate_dependencies(members, repairs);
}

/// `dependencies` of 2019-09 and before: either names or a schema.
fn translate_dependencies(members: &mut Map<String, Value>, repairs: &mut Repairs) {
    let Some(Value::Object(all)) = members.get_mut("dependencies") else { return };
    let all = std::mem::take(all);
    members.shift_remove("dependencies");
    repairs.note(RepairKind::Translated, "dependencies");
    for (name, value) in all {
        let (keyword, value) = match value {
            Value::Array(_) => ("dependentRequired", value),
            Value::String(_) => ("dependentRequired", Value::Array(vec![value])),
            Value::Object(_) | Value::Bool(_) => ("dependentSchemas", value),
            Value::Null | Value::Number(_) => continue,
        };
        let target = members.entry(keyword).or_insert_with(|| Map::new().into());
        if let Value::Object(target) = target {
            target.entry(name).or_insert(value);
        }
    }
}

/// Draft-04: `exclusiveMinimum: true` beside `minimum`.
pub(super) fn translate_bounds(members: &mut Map<String, Value>, repairs: &mut Repairs) {
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let Some(Value::Bool(is_exclusive)) = members.get(exclusive) else { continue };
        let is_exclusive = *is_exclusive;
        members.shift_remove(exclusive);
        repairs.note(RepairKind::Translated, exclusive);
        if is_exclusive && members.get(bound).is_some_and(Value::is_number) {
            let number = members.shift_remove(bound).unwrap_or_default();
            members.insert(exclusive.to_owned(), number);
        }
    }
}

/// 2019-09 and before: an array of schemas as `items`, and `additionalItems` for the others.
pub(super) fn translate_tuple(members: &mut Map<String, Value>, repairs: &mut Repairs) {
    if !members.get("items").is_some_and(Value::is_array) {
        return;
    }
    let tuple = members.shift_remove("items").unwrap_or_default();
    let others = members.shift_remove("additionalItems");
    if tuple.as_array().is_some_and(|tuple| !tuple.is_empty()) {
        members.entry("prefixItems").or_insert(tuple);
    }
    if let Some(others) = others.filter(|others| others.is_boolean() || others.is_object()) {
        members.insert("items".to_owned(), others);
    }
    repairs.note(RepairKind::Translated, "items");
}

/// Draft-03: `required: true` on a property, instead of its name in `required`.
pub(super) fn translate_required_properties(
    members: &mut Map<String, Value>,
    repairs: &mut Repairs,
) {
    let Some(Value::Object(properties)) = members.get_mut("properties") else { return };
    let mut required = Vec::new();
    for (name, property) in properties {
        let Value::Object(property) = property else { continue };
        let Some(Value::Bool(is_required)) = property.get("required") else { continue };
        if *is_required {
            required.push(Value::from(name.as_str()));
        }
        property.shift_remove("required");
        repairs.note(RepairKind::Translated, &format!("properties/{name}/required"));
    }
    if required.is_empty() {
        return;
    }
    match members.get_mut("required") {
        Some(Value::Array(names)) => {
            required.retain(|name| !names.contains(name));
            names.extend(required);
        }
        _ => {
            members.insert("required".to_owned(), required.into());
        }
    }
}

/// Draft-07 and before: `$id: "#name"` instead of `$anchor`.
pub(super) fn translate_identifier(members: &mut Map<String, Value>, repairs: &mut Repairs) {
    let name = members.get("$id").and_then(Value::as_str).and_then(|id| id.strip_prefix('#'));
    let Some(name) = name.filter(|name| is_anchor(name)).map(str::to_owned) else { return };
    members.shift_remove("$id");
    members.entry("$anchor").or_insert_with(|| name.into());
    repairs.note(RepairKind::Translated, "$id");
}

/// Translates regular expressions of `patternProperties` to the spelling of ECMA-262. A broken one
/// would have allowed more properties, so without it all are allowed.
pub(super) fn translate_pattern_names(
    members: &mut Map<String, Value>,
    repairs: &mut Repairs,
    tries: &mut usize,
) {
    let Some(Value::Object(all)) = members.get_mut("patternProperties") else { return };
    let count = all.len();
    let has_python = all.keys().any(|pattern| translate_pattern(pattern).is_some());
    if has_python {
        let translated = std::mem::take(all).into_iter().map(|(pattern, schema)| {
            let pattern = translate_pattern(&pattern).unwrap_or(pattern);
            (pattern, schema)
        });
        *all = translated.collect();
        repairs.note(RepairKind::Translated, "patternProperties");
    }
    all.retain(|pattern, _| !is_broken_pattern(pattern, tries));
    if all.len() < count {
        repairs.note(RepairKind::Dropped, "patternProperties");
        for keyword in ["additionalProperties", "unevaluatedProperties"] {
            members.shift_remove(keyword);
        }
    }
}

/// The keywords that have an effect beside `$ref` in dialects that ignore its siblings: references
/// may lead to definitions there, and annotations are for readers.
const EFFECTIVE_BESIDE_REFERENCE: [&str; 10] = [
    "$ref",
    "$defs",
    "definitions",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "readOnly",
    "writeOnly",
];
