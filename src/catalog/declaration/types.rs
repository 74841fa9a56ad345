//! JSON Schema as a TypeScript type.

use serde_json::{Map, Value};

use super::super::signature::resolve_reference;
use super::script_name::is_identifier;
use crate::text::{escape_controls, escape_invisible};

/// The text of a type while it grows.
///
/// Every type and every property is written only while there is room. So the length bounds the
/// work, even for references that lead to themselves.
pub(super) struct TypeText<'a> {
    /// The target of local references.
    root: &'a Map<String, Value>,
    out: String,
}

impl<'a> TypeText<'a> {
    pub(super) fn of_schema(root: &'a Map<String, Value>) -> Self {
        let mut text = Self { root, out: String::new() };
        text.write_rules(root, 0);
        text
    }

    pub(super) fn into_string(self) -> String {
        self.out
    }

    fn is_full(&self) -> bool {
        self.out.len() > MAX_TYPE
    }

    fn write(&mut self, rules: &'a Value, depth: usize) {
        match rules {
            Value::Object(rules) => self.write_rules(rules, depth),
            Value::Bool(false) => self.out.push_str("never"),
            _ => self.out.push_str("any"),
        }
    }

    fn write_rules(&mut self, rules: &'a Map<String, Value>, depth: usize) {
        if depth > MAX_DEPTH || self.is_full() {
            self.out.push_str(LEFT_OUT);
            return;
        }
        if let Some(target) = rules.get("$ref").and_then(Value::as_str) {
            return match resolve_reference(self.root, target) {
                Some(found) => self.write(found, depth + 1),
                None => self.out.push_str("any"),
            };
        }
        if let Some(values) = rules.get("enum").and_then(Value::as_array) {
            return self.write_values(values);
        }
        if let Some(value) = rules.get("const") {
            return self.write_values(std::slice::from_ref(value));
        }
        let is_nullable = rules.get("nullable") == Some(&Value::Bool(true));
        if is_nullable {
            self.out.push('(');
        }
        self.write_parts(rules, depth);
        if is_nullable {
            self.out.push_str(") | null");
        }
    }

    /// Writes a schema's own rules, and the schemas that it combines.
    fn write_parts(&mut self, rules: &'a Map<String, Value>, depth: usize) {
        let combined =
            |keyword| rules.get(keyword).and_then(Value::as_array).filter(|all| !all.is_empty());
        let unions: Vec<_> = ["anyOf", "oneOf"].into_iter().filter_map(combined).collect();
        let all = combined("allOf");
        let has_own = ["properties", "additionalProperties", "items", "prefixItems"]
            .iter()
            .any(|keyword| rules.contains_key(*keyword));
        let is_alone = unions.is_empty() && all.is_none();
        let mut separator = "";
        if has_own || is_alone {
            self.write_own(rules, depth);
            separator = " & ";
        }
        for members in unions {
            self.out.push_str(separator);
            self.write_members(members, " | ", !separator.is_empty() || all.is_some(), depth);
            separator = " & ";
        }
        if let Some(members) = all {
            self.out.push_str(separator);
            self.write_members(members, " & ", false, depth);
        }
    }

    fn write_members(&mut self, members: &'a [Value], between: &str, is_part: bool, depth: usize) {
        let is_wrapped = is_part && members.len() > 1;
        self.out.push_str(if is_wrapped { "(" } else { "" });
        for (index, member) in members.iter().enumerate() {
            self.out.push_str(if index > 0 { between } else { "" });
            if index == MAX_MEMBERS {
                self.out.push_str(LEFT_OUT);
                break;
            }
            self.write_grouped(member, between, depth + 1);
        }
        self.out.push_str(if is_wrapped { ")" } else { "" });
    }

    /// Writes a type as one operand among others: a union within an intersection gets parentheses.
    fn write_grouped(&mut self, rules: &'a Value, between: &str, depth: usize) {
        let start = self.out.len();
        self.write(rules, depth);
        let written = self.out.get(start..).unwrap_or_default();
        if between != " | " && written.contains(" | ") {
            self.out.insert(start, '(');
            self.out.push(')');
        }
    }

    fn write_own(&mut self, rules: &'a Map<String, Value>, depth: usize) {
        match rules.get("type") {
            Some(Value::String(kind)) => self.write_named(kind, rules, depth),
            Some(Value::Array(kinds)) => {
                for (index, kind) in
                    kinds.iter().filter_map(Value::as_str).take(MAX_KINDS).enumerate()
                {
                    self.out.push_str(if index > 0 { " | " } else { "" });
                    self.write_named(kind, rules, depth);
                }
            }
            _ if rules.contains_key("properties") => self.write_object(rules, depth),
            _ if rules.contains_key("items") || rules.contains_key("prefixItems") => {
                self.write_array(rules, depth);
            }
            _ => self.out.push_str("any"),
        }
    }

    fn write_named(&mut self, kind: &str, rules: &'a Map<String, Value>, depth: usize) {
        match kind {
            "object" => self.write_object(rules, depth),
            "array" => self.write_array(rules, depth),
            "integer" => self.out.push_str("number"),
            "string" | "number" | "boolean" | "null" => self.out.push_str(kind),
            _ => self.out.push_str("any"),
        }
    }

    fn write_array(&mut self, rules: &'a Map<String, Value>, depth: usize) {
        if let Some(members) = rules.get("prefixItems").and_then(Value::as_array) {
            self.out.push('[');
            for (index, member) in members.iter().enumerate() {
                self.out.push_str(if index > 0 { ", " } else { "" });
                if index == MAX_MEMBERS || self.is_full() {
                    self.out.push_str("...any[]");
                    break;
                }
                self.write(member, depth + 1);
            }
            self.out.push(']');
            return;
        }
        let start = self.out.len();
        match rules.get("items") {
            Some(items) => self.write(items, depth + 1),
            None => self.out.push_str("any"),
        }
        let written = self.out.get(start..).unwrap_or_default();
        // Parentheses in case of doubt: the bar may be within the braces of an object.
        if (written.contains(" | ") || written.contains(" & ")) && !is_one_object(written) {
            self.out.insert(start, '(');
            self.out.push(')');
        }
        self.out.push_str("[]");
    }

    fn write_object(&mut self, rules: &'a Map<String, Value>, depth: usize) {
        let properties = rules.get("properties").and_then(Value::as_object);
        let further = match rules.get("additionalProperties") {
            Some(Value::Bool(false)) => None,
            Some(further @ Value::Object(_)) => Some(Some(further)),
            _ => Some(None),
        };
        let properties = properties.filter(|properties| !properties.is_empty());
        let Some(properties) = properties else {
            match further {
                None => self.out.push_str("{}"),
                Some(None) => self.out.push_str("Record<string, any>"),
                Some(Some(rules)) => {
                    self.out.push_str("Record<string, ");
                    self.write(rules, depth + 1);
                    self.out.push('>');
                }
            }
            return;
        };
        self.write_properties(properties, rules, depth);
        if let Some(Some(further)) = further {
            self.out.push_str(" & Record<string, ");
            self.write(further, depth + 1);
            self.out.push('>');
        }
    }

    fn write_properties(
        &mut self,
        properties: &'a Map<String, Value>,
        rules: &Map<String, Value>,
        depth: usize,
    ) {
        let required = rules.get("required").and_then(Value::as_array);
        let required: Vec<&str> =
            required.into_iter().flatten().filter_map(Value::as_str).take(MAX_PROPERTIES).collect();
        // The required ones first: optional ones are omitted before them.
        let (first, last): (Vec<_>, Vec<_>) = properties
            .iter()
            .take(MAX_LOOKED_AT)
            .partition(|(name, _)| required.contains(&name.as_str()));
        let mut is_cut = properties.len() > MAX_PROPERTIES;
        self.out.push_str("{ ");
        for (index, (name, property)) in
            first.into_iter().chain(last).take(MAX_PROPERTIES).enumerate()
        {
            if self.is_full() {
                is_cut = true;
                break;
            }
            self.out.push_str(if index > 0 { "; " } else { "" });
            self.out.push_str(&property_name(name));
            self.out.push_str(if required.contains(&name.as_str()) { ": " } else { "?: " });
            self.write(property, depth + 1);
        }
        self.out.push_str(if is_cut { "; /* … */ }" } else { " }" });
    }

    /// Writes the values of an enumeration, as many as there is room for. The type of the others
    /// follows.
    fn write_values(&mut self, values: &[Value]) {
        if values.is_empty() {
            self.out.push_str("never");
            return;
        }
        let start = self.out.len();
        for (index, value) in values.iter().enumerate() {
            self.out.push_str(if index > 0 { " | " } else { "" });
            if index == MAX_VALUES || self.out.len() - start > MAX_VALUES_LENGTH {
                let kind = if values.iter().all(Value::is_string) { "string" } else { "any" };
                self.out.push_str("/* … */ ");
                self.out.push_str(kind);
                break;
            }
            match value {
                Value::String(text) if text.len() > MAX_VALUE => self.out.push_str("string"),
                Value::String(text) => self.out.push_str(&quote(text)),
                Value::Array(_) | Value::Object(_) => self.out.push_str("any"),
                other => self.out.push_str(&other.to_string()),
            }
        }
    }
}

/// Returns true if a type is an object's braces from its first character to its last.
fn is_one_object(written: &str) -> bool {
    let mut depth = 0_usize;
    let mut in_text = false;
    let mut is_escaped = false;
    for (at, character) in written.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if in_text => is_escaped = true,
            '"' => in_text = !in_text,
            _ if in_text => {}
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1 == written.len();
                }
            }
            _ if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// The name of a property: quoted if it is no identifier.
pub(super) fn property_name(name: &str) -> String {
    if is_identifier(name) && name.len() <= MAX_VALUE { name.to_owned() } else { quote(name) }
}

/// A text in quotes, cut if it is long. Invisible characters are escaped as in TypeScript.
fn quote(text: &str) -> String {
    let text = crate::text::clip(text, MAX_VALUE);
    let quoted = Value::from(text).to_string();
    // This is no comment, but the text around it may be in one.
    escape_controls(&escape_invisible(&quoted)).replace("*/", "*\\/")
}

/// The replacement of an omitted type.
const LEFT_OUT: &str = "any /* … */";
/// The most bytes of a type, except for the last few.
const MAX_TYPE: usize = 3_500;
/// The deepest type that is written.
const MAX_DEPTH: usize = 8;
/// The most properties of an object.
const MAX_PROPERTIES: usize = 48;
/// The most properties that are searched for required ones.
const MAX_LOOKED_AT: usize = 512;
/// The most members of a union, an intersection or a tuple.
const MAX_MEMBERS: usize = 12;
/// The most names of kinds in one `type`.
const MAX_KINDS: usize = 7;
/// The most values of an enumeration.
const MAX_VALUES: usize = 32;
/// The most bytes of those values.
const MAX_VALUES_LENGTH: usize = 600;
/// The most bytes of one value or name.
const MAX_VALUE: usize = 120;
