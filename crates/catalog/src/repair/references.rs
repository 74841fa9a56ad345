//! References without a target within their schema. Nothing is ever fetched.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{RepairKind, Repairs};
use crate::schema::{DanglingReference, REFERENCE_KEYWORDS, find_dangling_references};

/// Returns true if a reference has no target. `id` is the keyword that identifies a subschema.
pub(super) fn has_dangling_references(schema: &Value, id: &'static str) -> bool {
    !find_dangling_references(schema, id).is_empty()
}

/// Removes references without a target from a schema of 2020-12. A reference into a translated
/// array of `items` is moved to the array's new position.
pub(super) fn drop_dangling_references(schema: &mut Value, repairs: &mut Repairs) {
    let dangling = find_dangling_references(schema, "$id");
    if dangling.is_empty() {
        return;
    }
    edit_references(schema, &dangling, &mut |members, keyword| {
        if let Some(Value::String(target)) = members.get_mut(keyword) {
            *target = follow_tuples(target);
        }
    });
    let dangling = find_dangling_references(schema, "$id");
    edit_references(schema, &dangling, &mut |members, keyword| {
        members.shift_remove(keyword);
        repairs.note(RepairKind::Dropped, keyword);
    });
}

/// Edits these references. Members of an object come before the object's own reference, because an
/// edit moves them.
fn edit_references(
    value: &mut Value,
    all: &HashSet<DanglingReference>,
    edit: &mut impl FnMut(&mut Map<String, Value>, &str),
) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| edit_references(item, all, edit)),
        Value::Object(members) => {
            members.values_mut().for_each(|value| edit_references(value, all, edit));
            for keyword in REFERENCE_KEYWORDS {
                if all.contains(&DanglingReference::new(members, keyword)) {
                    edit(members, keyword);
                }
            }
        }
        _ => {}
    }
}

/// A pointer with `prefixItems` instead of `items` before each position.
fn follow_tuples(target: &str) -> String {
    let mut parts: Vec<&str> = target.split('/').collect();
    let is_position = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let places = parts.windows(2).enumerate();
    let places = places.filter(|(_, pair)| matches!(pair, ["items", next] if is_position(next)));
    let places: Vec<_> = places.map(|(place, _)| place).collect();
    for place in places {
        if let Some(part) = parts.get_mut(place) {
            *part = "prefixItems";
        }
    }
    parts.join("/")
}
