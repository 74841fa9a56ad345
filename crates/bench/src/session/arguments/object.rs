//! Objects and arrays.

use serde_json::{Map, Value};

use super::ArgumentMaker;

impl ArgumentMaker<'_> {
    pub(super) fn object(&mut self, schema: &Map<String, Value>, depth: usize) -> Value {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let mut required: Vec<&str> = names(schema.get("required")).collect();
        let least = count(schema, "minProperties", 0);
        let most = count(schema, "maxProperties", usize::MAX);
        let mut made = Map::new();
        for (name, property) in properties {
            let optional = !required.contains(&name.as_str());
            let short = made.len() < least;
            let wanted =
                depth < REQUIRED_ONLY_DEPTH && made.len() + required.len() < most && self.one_in(2);
            if property == &Value::Bool(false) || (optional && !wanted && !short) {
                continue;
            }
            if let Some(others) = dependent(schema, name) {
                required.extend(names(Some(others)));
            }
            made.insert(name.clone(), self.member(property, depth));
        }
        let more = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        for name in required {
            if !made.contains_key(name) {
                let value = self.member(properties.get(name).unwrap_or(more), depth);
                made.insert(name.to_owned(), value);
            }
        }
        for place in made.len()..least.min(MAX_MEMBERS) {
            let value = self.member(more, depth);
            made.insert(format!("extra_{place}"), value);
        }
        Value::Object(made)
    }

    pub(super) fn array(&mut self, schema: &Map<String, Value>, depth: usize) -> Value {
        let least = count(schema, "minItems", 0);
        let usual =
            if depth < REQUIRED_ONLY_DEPTH { least.max(1) + self.rng.usize(..3) } else { least };
        let length = usual.min(count(schema, "maxItems", usize::MAX)).min(MAX_MEMBERS);
        // Older drafts have the first items in `items` itself.
        let items = schema.get("items");
        let first = schema.get("prefixItems").or(items.filter(|items| items.is_array()));
        let first = first.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let more = items.filter(|items| !items.is_array()).unwrap_or(&Value::Bool(true));
        let length = if more == &Value::Bool(false) { length.min(first.len()) } else { length };
        let distinct = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let mut made: Vec<Value> = Vec::new();
        if let Some(contained) = schema.get("contains").filter(|_| first.is_empty()) {
            made.push(self.member(contained, depth));
        }
        let mut tries = 0;
        while made.len() < length && tries < MAX_MEMBERS * 4 {
            tries += 1;
            let value = self.member(first.get(made.len()).unwrap_or(more), depth);
            if !distinct || !made.contains(&value) {
                made.push(value);
            }
        }
        Value::Array(made)
    }

    fn member(&mut self, schema: &Value, depth: usize) -> Value {
        if depth < MAX_NESTING && self.burn() { self.make(schema, depth + 1) } else { Value::Null }
    }
}

fn names(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The properties that a property requires.
fn dependent<'a>(schema: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    ["dependentRequired", "dependencies"].iter().find_map(|key| schema.get(*key)?.get(name))
}

fn count(schema: &Map<String, Value>, key: &str, default: usize) -> usize {
    schema
        .get(key)
        .and_then(Value::as_u64)
        .map_or(default, |n| usize::try_from(n).unwrap_or(default))
}

/// From this depth on only required members are generated.
const REQUIRED_ONLY_DEPTH: usize = 3;
/// The deepest nesting.
const MAX_NESTING: usize = 40;
/// The most members or items.
const MAX_MEMBERS: usize = 1000;
