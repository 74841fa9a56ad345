//! Bounds on the cost of a schema, checked before it is compiled (MCP
//! 2026-07-28, Overview, "Composition-Keyword Resource Use").

use serde_json::{Map, Value};

use super::SchemaError;

/// The most bytes of one input schema.
pub(crate) const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// The deepest nesting of a schema.
pub(crate) const MAX_SCHEMA_DEPTH: usize = 64;
/// The most objects in one schema, each of which could be a subschema.
pub(super) const MAX_SUBSCHEMAS: usize = 4096;
/// The most regular expressions in one schema.
pub(super) const MAX_PATTERNS: usize = 256;

/// What the compiler needs to know about a schema that is within bounds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SchemaCensus {
    pub subschemas: usize,
    pub patterns: usize,
}

/// Counts subschemas and patterns.
///
/// Objects that are data (a `default`, an `enum` member) count as subschemas
/// too: the bound is generous, so telling them apart gains nothing.
pub(super) fn take_census(schema: &Value) -> Result<SchemaCensus, SchemaError> {
    let mut census = SchemaCensus::default();
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => {
                census.subschemas += 1;
                census.patterns += count_patterns(members);
                open.extend(members.values());
            }
            _ => {}
        }
    }
    if census.subschemas > MAX_SUBSCHEMAS {
        return Err(SchemaError::Subschemas { found: census.subschemas, max: MAX_SUBSCHEMAS });
    }
    if census.patterns > MAX_PATTERNS {
        return Err(SchemaError::Patterns { found: census.patterns, max: MAX_PATTERNS });
    }
    Ok(census)
}

fn count_patterns(members: &Map<String, Value>) -> usize {
    let own = usize::from(members.get("pattern").is_some_and(Value::is_string));
    own + members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len)
}
