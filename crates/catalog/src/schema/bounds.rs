//! Bounds on the cost of a schema, checked before it is compiled (MCP
//! 2026-07-28, Overview, "Composition-Keyword Resource Use").

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::SchemaError;

/// The most bytes of one input schema.
pub const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// The deepest nesting of a schema.
pub const MAX_SCHEMA_DEPTH: usize = 64;
/// The most objects in one schema, each of which could be a subschema.
pub(super) const MAX_SUBSCHEMAS: usize = 4096;
/// The most regular expressions in one schema.
pub(super) const MAX_PATTERNS: usize = 256;

/// The findings about a schema within bounds that its compilation needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaCensus<'a> {
    pub subschemas: usize,
    /// The distinct regular expressions.
    pub patterns: BTreeSet<&'a str>,
}

/// Counts subschemas, and finds the patterns.
///
/// Objects that are data (a `default`, an `enum` member) count as subschemas too: the bound is
/// generous, so distinguishing them gains nothing.
pub(super) fn take_census(schema: &Value) -> Result<SchemaCensus<'_>, SchemaError> {
    let mut census = SchemaCensus::default();
    let mut patterns = 0;
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                census.subschemas += 1;
                for pattern in find_patterns(members) {
                    patterns += 1;
                    census.patterns.insert(pattern);
                }
                open.extend(members.values());
            }
            _ => {}
        }
    }
    if census.subschemas > MAX_SUBSCHEMAS {
        return Err(SchemaError::Subschemas { found: census.subschemas, max: MAX_SUBSCHEMAS });
    }
    if patterns > MAX_PATTERNS {
        return Err(SchemaError::Patterns { found: patterns, max: MAX_PATTERNS });
    }
    Ok(census)
}

/// The regular expressions of one subschema.
pub(super) fn find_patterns(members: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let own = members.get("pattern").and_then(Value::as_str);
    let keys = members.get("patternProperties").and_then(Value::as_object).map(Map::keys);
    own.into_iter().chain(keys.into_iter().flatten().map(String::as_str))
}
