//! Merges a schema with its references and compositions.

use serde_json::{Map, Value, json};

use super::ArgumentMaker;

impl ArgumentMaker<'_> {
    /// One schema that combines this one, the schemas it refers to, all of its
    /// `allOf`, and one of its `anyOf` and `oneOf` each.
    pub(super) fn flat(&mut self, schema: &Map<String, Value>) -> Map<String, Value> {
        let mut flat = Map::new();
        for (key, value) in schema {
            if !MERGED_KEYWORDS.contains(&key.as_str()) {
                flat.insert(key.clone(), value.clone());
            }
        }
        if !self.burn() {
            return flat;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = self.find(target).cloned();
            self.lay(&mut flat, target.as_ref());
        }
        for part in list(schema, "allOf") {
            self.lay(&mut flat, Some(part));
        }
        for key in ["anyOf", "oneOf"] {
            let choices = list(schema, key);
            if !choices.is_empty() {
                let picked = choices.get(self.rng.usize(..choices.len()));
                self.lay(&mut flat, picked);
            }
        }
        if schema.contains_key("if") {
            if self.one_in(2) {
                self.lay(&mut flat, schema.get("if"));
                self.lay(&mut flat, schema.get("then"));
            } else {
                self.lay(&mut flat, schema.get("else"));
            }
        }
        flat
    }

    fn lay(&mut self, flat: &mut Map<String, Value>, part: Option<&Value>) {
        if let Some(Value::Object(part)) = part {
            let part = self.flat(part);
            for (key, value) in part {
                let both = match flat.remove(&key) {
                    Some(first) => both(&key, first, value),
                    None => value,
                };
                flat.insert(key, both);
            }
        }
    }

    /// The target of a reference within the schema.
    fn find(&self, target: &str) -> Option<&Value> {
        let pointer = target.strip_prefix('#')?;
        if pointer.is_empty() || pointer.starts_with('/') {
            return self.root.pointer(pointer);
        }
        let anchored =
            |schema: &&Value| schema.get("$anchor").and_then(Value::as_str) == Some(pointer);
        let defined = self.root.get("$defs").and_then(Value::as_object);
        defined?.values().find(anchored)
    }
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Combines two values of one key.
fn both(key: &str, first: Value, second: Value) -> Value {
    match (key, &first, &second) {
        ("properties" | "patternProperties", Value::Object(a), Value::Object(b)) => {
            let mut all = a.clone();
            for (name, schema) in b {
                let schema = match all.get(name) {
                    Some(other) => json!({ "allOf": [other, schema] }),
                    None => schema.clone(),
                };
                all.insert(name.clone(), schema);
            }
            Value::Object(all)
        }
        ("required", Value::Array(a), Value::Array(b)) => {
            a.iter().chain(b.iter().filter(|name| !a.contains(name))).cloned().collect()
        }
        ("enum" | "type", Value::Array(a), Value::Array(b)) => {
            a.iter().filter(|value| b.contains(value)).cloned().collect()
        }
        ("type", Value::Array(a), one) if a.contains(one) => one.clone(),
        ("items" | "additionalProperties", Value::Object(_), Value::Object(_)) => {
            json!({ "allOf": [first, second] })
        }
        (_, Value::Number(a), Value::Number(b)) => {
            let larger = a.as_f64() > b.as_f64();
            let tighter = if key.to_lowercase().contains("max") { !larger } else { larger };
            if tighter { first } else { second }
        }
        ("additionalProperties", Value::Bool(false), _) | ("enum", ..) => first,
        _ => second,
    }
}

/// Keywords that are merged instead of copied.
const MERGED_KEYWORDS: [&str; 8] = ["$ref", "allOf", "anyOf", "oneOf", "if", "then", "else", "not"];
