//! The form of a tool for Legacy clients.
//!
//! Until 2025-11-25 the schema of a result describes an object, and so does the schema of each
//! argument. A schema of anything else is wrapped in an object for them, and so are the results of
//! its tool.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use trunkline_jsonrpc::{Members, object_of};

use crate::schema::parse_schema;

/// The difference between a tool for Legacy clients and the tool for Modern ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegacyForm {
    /// None.
    Same,
    /// Its schemas are written in another way.
    Rewritten,
    /// The schema of its results is within an object, and so are the results.
    Wrapped,
}

/// The difference between a tool for Legacy clients and the tool for Modern ones.
pub(crate) fn legacy_form(tool: &[u8]) -> LegacyForm {
    let Ok(members) = Members::parse_with_duplicates(tool) else { return LegacyForm::Same };
    if members.find("outputSchema").is_some_and(|schema| !describes_object(schema)) {
        return LegacyForm::Wrapped;
    }
    let has_flags = |name: &str| members.find(name).is_some_and(|raw| rewrite_flags(raw).is_some());
    if has_flags("inputSchema") || has_flags("outputSchema") {
        LegacyForm::Rewritten
    } else {
        LegacyForm::Same
    }
}

/// The tool for Legacy clients; `None` if it is the same.
pub(crate) fn legacy_tool(tool: &[u8]) -> Option<Vec<u8>> {
    let members = Members::parse_with_duplicates(tool).ok()?;
    let mut has_changed = false;
    let written = members.0.iter().map(|(name, value)| {
        let written = match &**name {
            "inputSchema" => rewrite_flags(value),
            "outputSchema" if describes_object(value) => rewrite_flags(value),
            "outputSchema" => wrap_schema(value),
            _ => None,
        };
        has_changed |= written.is_some();
        (&**name, written.map_or(value.get().into(), Cow::Owned))
    });
    let written = object_of(written.collect::<Vec<_>>());
    has_changed.then_some(written)
}

fn describes_object(schema: &RawValue) -> bool {
    let members = Members::parse_with_duplicates(schema.get().as_bytes());
    members.is_ok_and(|members| members.find("type").is_some_and(|name| name.get() == "\"object\""))
}

/// A schema with objects as the schemas of all properties, as the Legacy revisions require; `None`
/// if all are objects already.
fn rewrite_flags(schema: &RawValue) -> Option<String> {
    let members = Members::parse_with_duplicates(schema.get().as_bytes()).ok()?;
    let properties = members.find("properties")?;
    let all = Members::parse_with_duplicates(properties.get().as_bytes()).ok()?;
    if !all.0.iter().any(|(_, schema)| is_flag(schema)) {
        return None;
    }
    let rewritten = all.0.iter().map(|(name, schema)| {
        let schema = match schema.get() {
            "true" => "{}",
            "false" => "{\"not\":{}}",
            other => other,
        };
        (&**name, Cow::Borrowed(schema))
    });
    let rewritten = String::from_utf8(object_of(rewritten)).ok()?;
    let members = members.0.iter().map(|(name, value)| match &**name {
        "properties" => (&**name, rewritten.as_str().into()),
        name => (name, value.get().into()),
    });
    String::from_utf8(object_of(members)).ok()
}

fn is_flag(schema: &RawValue) -> bool {
    matches!(schema.get(), "true" | "false")
}

/// A schema wrapped in the schema of an object that has its values as `result`.
fn wrap_schema(schema: &RawValue) -> Option<String> {
    let mut members = parse_schema(schema.get().as_bytes()).ok()?;
    let dialect = members.shift_remove("$schema");
    // References in a schema with a name of its own start there.
    if !members.contains_key("$id") {
        move_references(&mut members);
    }
    let inner = Value::Object(members).to_string();
    let inner = String::from_utf8(object_of([(RESULT_MEMBER, inner.into())])).ok()?;
    let mut outer: Vec<(&str, Cow<'_, str>)> = Vec::new();
    outer.extend(dialect.map(|dialect| ("$schema", dialect.to_string().into())));
    outer.push(("type", "\"object\"".into()));
    outer.push(("properties", inner.into()));
    outer.push(("required", format!("[\"{RESULT_MEMBER}\"]").into()));
    String::from_utf8(object_of(outer)).ok()
}

/// Moves references from the root of a schema one level down, so that they keep their targets.
fn move_references(members: &mut Map<String, Value>) {
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            ("$ref" | "$dynamicRef", Value::String(target)) => {
                if let Some(rest) = target.strip_prefix('#')
                    && (rest.is_empty() || rest.starts_with('/'))
                {
                    *target = format!("#/properties/{RESULT_MEMBER}{rest}");
                }
            }
            ("const" | "enum" | "default" | "examples", _) => {}
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(all),
            ) => {
                all.values_mut().filter_map(Value::as_object_mut).for_each(move_references);
            }
            (_, Value::Object(inner)) => move_references(inner),
            (_, Value::Array(items)) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(move_references);
            }
            _ => {}
        }
    }
}

/// The member of a wrapped result that has its value.
pub(super) const RESULT_MEMBER: &str = "result";
