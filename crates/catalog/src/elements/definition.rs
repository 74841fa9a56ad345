//! The definition of an element: the part that reaches a model, in a canonical form.
//!
//! A server may write the same definition in another order, with other escapes, or with members
//! that only one era has. The canonical form has only the members that a model or a policy reads,
//! with sorted keys. Pins compare its digest, which is also an entity tag.

use std::fmt;
use std::sync::{Arc, OnceLock};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use trunkline_search::AnalysedElement;

use trunkline_core::crypto::sha256;
use trunkline_jsonrpc::parse_strict;

use crate::kind::{DefinitionKind, Kind, MAX_ITEM_DEPTH};
use crate::scan::ScanFindings;

/// Values that are computed from a definition when they are first needed.
#[derive(Debug, Default)]
pub(crate) struct DefinitionCells {
    pub(crate) digest: OnceLock<DefinitionDigest>,
    pub(crate) findings: OnceLock<ScanFindings>,
    pub(crate) words: OnceLock<Arc<AnalysedElement>>,
}

/// SHA-256 of a definition's kind and canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DefinitionDigest([u8; 32]);

impl DefinitionDigest {
    /// The digest of a definition in canonical form.
    pub fn compute(kind: DefinitionKind, canonical: &str) -> Self {
        Self(sha256([kind.member(), "\n", canonical].concat().as_bytes()))
    }

    /// The digest in these hexadecimal digits.
    pub fn parse(hex: &str) -> Option<Self> {
        let bytes = HEXLOWER.decode(hex.as_bytes()).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

impl TryFrom<String> for DefinitionDigest {
    type Error = &'static str;

    fn try_from(hex: String) -> Result<Self, Self::Error> {
        Self::parse(&hex).ok_or("expected 64 hexadecimal digits")
    }
}

impl From<DefinitionDigest> for String {
    fn from(digest: DefinitionDigest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for DefinitionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

/// The canonical form of a definition.
///
/// An element with a duplicate key at any depth has no form but its bytes, because readers disagree
/// on which of the values counts.
pub fn canonical_definition(kind: DefinitionKind, raw: &[u8]) -> String {
    let Ok(Value::Object(element)) = parse_strict(raw, MAX_ITEM_DEPTH) else {
        return String::from_utf8_lossy(raw).into_owned();
    };
    let mut definition = Map::new();
    for name in definition_members(kind) {
        if let Some(value) = element.get(*name) {
            definition.insert((*name).to_owned(), value.clone());
        }
    }
    if let Some(Value::Object(annotations)) = definition.get_mut("annotations") {
        annotations.remove(LAST_MODIFIED);
    }
    let mut definition = Value::Object(definition);
    normalize_numbers(&mut definition);
    definition.sort_all_objects();
    definition.to_string()
}

/// The members of an element that a model or a policy reads. `_meta`, `icons` and `execution` differ
/// between eras, and a resource's `size` changes with its contents.
fn definition_members(kind: DefinitionKind) -> &'static [&'static str] {
    let kind = match kind {
        DefinitionKind::Listed(kind) => kind,
        DefinitionKind::Instructions => return &["instructions"],
        DefinitionKind::ServerInfo => {
            return &["name", "title", "version", "description", "icons", "websiteUrl"];
        }
    };
    match kind {
        Kind::Tools => {
            &["name", "title", "description", "inputSchema", "outputSchema", "annotations"]
        }
        Kind::Prompts => &["name", "title", "description", "arguments"],
        Kind::Resources => &["uri", "name", "title", "description", "mimeType", "annotations"],
        Kind::Templates => {
            &["uriTemplate", "name", "title", "description", "mimeType", "annotations"]
        }
        Kind::Skills => &["uri", "frontmatter", "resources"],
    }
}

/// Writes whole numbers as integers: `1.0` and `1` are one JSON number.
fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_i64() && !number.is_u64() => {
            if let Some(whole) = number.as_f64().and_then(whole_number) {
                *value = Value::from(whole);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(members) => members.values_mut().for_each(normalize_numbers),
        _ => {}
    }
}

/// The integer that a floating-point number is, within the range in which it is exact.
fn whole_number(number: f64) -> Option<i64> {
    let is_whole = number.fract() == 0.0 && number.abs() < MAX_EXACT_INTEGER;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within 53 bits")]
    is_whole.then_some(number as i64)
}

/// The time of a resource's last modification, which is no part of its definition.
const LAST_MODIFIED: &str = "lastModified";
/// 2^53: every smaller integer has a floating-point number of its own.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(kind: Kind, raw: &str) -> DefinitionDigest {
        let kind = DefinitionKind::Listed(kind);
        DefinitionDigest::compute(kind, &canonical_definition(kind, raw.as_bytes()))
    }

    #[test]
    fn the_same_definition_has_one_digest_however_it_is_written() {
        let legacy = r#"{"name":"read","description":"Reads.","inputSchema":{"type":"object","properties":{"n":{"minimum":1.0,"type":"number"}}}}"#;
        let modern = r#"{ "inputSchema": {"properties":{"n":{"type":"number","minimum":1}},"type":"object"},
            "_meta": {"x": 1}, "icons": [], "execution": {"taskSupport":"optional"}, "description": "Rea\u0064s.", "name":"read" }"#;
        assert_eq!(digest(Kind::Tools, legacy), digest(Kind::Tools, modern));
        let text = digest(Kind::Tools, legacy).to_string();
        assert_eq!(DefinitionDigest::parse(&text), Some(digest(Kind::Tools, legacy)));
    }

    #[test]
    fn every_member_that_a_model_reads_changes_the_digest() {
        let base = r#"{"name":"t","inputSchema":{}}"#;
        for changed in [
            r#"{"name":"u","inputSchema":{}}"#,
            r#"{"name":"t","inputSchema":{},"title":"T"}"#,
            r#"{"name":"t","inputSchema":{},"description":"d"}"#,
            r#"{"name":"t","inputSchema":{"type":"object"}}"#,
            r#"{"name":"t","inputSchema":{"properties":{"a":{"description":"x"}}}}"#,
            r#"{"name":"t","inputSchema":{},"outputSchema":{}}"#,
            r#"{"name":"t","inputSchema":{},"annotations":{"readOnlyHint":true}}"#,
        ] {
            assert_ne!(digest(Kind::Tools, base), digest(Kind::Tools, changed), "{changed}");
        }
        assert_ne!(digest(Kind::Tools, base), digest(Kind::Prompts, base));
    }

    #[test]
    fn duplicate_keys_at_any_depth_hide_no_change() {
        let one = r#"{"name":"t","inputSchema":{"a":{"description":"x","description":"z"}}}"#;
        let other = r#"{"name":"t","inputSchema":{"a":{"description":"y","description":"z"}}}"#;
        assert_ne!(digest(Kind::Tools, one), digest(Kind::Tools, other));
    }

    #[test]
    fn a_resource_that_was_modified_is_still_the_same_resource() {
        let old = r#"{"uri":"a:b","name":"n","size":1,"annotations":{"lastModified":"2025-01-01T00:00:00Z","priority":1}}"#;
        let new = r#"{"uri":"a:b","name":"n","size":2,"annotations":{"lastModified":"2026-01-01T00:00:00Z","priority":1}}"#;
        assert_eq!(digest(Kind::Resources, old), digest(Kind::Resources, new));
    }
}
