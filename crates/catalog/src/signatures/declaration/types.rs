//! JSON Schema as a TypeScript type.

use serde_json::{Map, Value};

use trunkline_core::text::{escape_controls, escape_invisible};

use super::script_name::is_identifier;
use crate::signatures::schema_shape::{
    FurtherMembers, MemberBounds, SchemaKinds, SchemaMember, SchemaReader, SchemaRules, SchemaShape,
};

/// The text of a type while it grows.
///
/// Every type and every property is written only while there is room. So the length bounds the
/// work, even for references that lead to themselves.
pub(super) struct TypeText<'a> {
    reader: SchemaReader<'a>,
    out: String,
}

impl<'a> TypeText<'a> {
    pub(super) fn of_schema(root: &'a Map<String, Value>) -> Self {
        let reader = SchemaReader { root, max_depth: MAX_DEPTH };
        let mut text = Self { reader, out: String::new() };
        text.write_shape(reader.read_rules(root, 0), 0);
        text
    }

    pub(super) fn into_string(self) -> String {
        self.out
    }

    fn is_full(&self) -> bool {
        self.out.len() > MAX_TYPE
    }

    fn write(&mut self, schema: &'a Value, depth: usize) {
        self.write_shape(self.reader.read(schema, depth), depth);
    }

    fn write_shape(&mut self, shape: SchemaShape<'a>, depth: usize) {
        match shape {
            SchemaShape::Any => self.out.push_str("any"),
            SchemaShape::Never => self.out.push_str("never"),
            SchemaShape::TooDeep => self.out.push_str(LEFT_OUT),
            _ if self.is_full() => self.out.push_str(LEFT_OUT),
            SchemaShape::Reference(Some(found)) => self.write(found, depth + 1),
            SchemaShape::Reference(None) => self.out.push_str("any"),
            SchemaShape::Values(values) => self.write_values(values),
            SchemaShape::Rules(rules) if rules.is_nullable() => {
                self.out.push('(');
                self.write_rules(rules, depth);
                self.out.push_str(") | null");
            }
            SchemaShape::Rules(rules) => self.write_rules(rules, depth),
        }
    }

    /// Writes a schema's own rules, and the schemas that it combines.
    fn write_rules(&mut self, rules: SchemaRules<'a>, depth: usize) {
        let unions: Vec<_> = rules.unions().filter(|members| !members.is_empty()).collect();
        let all = rules.all_of().filter(|members| !members.is_empty());
        let is_alone = unions.is_empty() && all.is_none();
        let mut separator = "";
        if rules.has_parts() || is_alone {
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

    fn write_own(&mut self, rules: SchemaRules<'a>, depth: usize) {
        match rules.kinds() {
            SchemaKinds::All => self.out.push_str("any"),
            SchemaKinds::One(kind) | SchemaKinds::Implied(kind) => {
                self.write_kind(kind, rules, depth);
            }
            SchemaKinds::Listed(kinds) => {
                let kinds = kinds.iter().filter_map(Value::as_str).take(MAX_KINDS);
                for (index, kind) in kinds.enumerate() {
                    self.out.push_str(if index > 0 { " | " } else { "" });
                    self.write_kind(kind, rules, depth);
                }
            }
        }
    }

    fn write_kind(&mut self, kind: &str, rules: SchemaRules<'a>, depth: usize) {
        match kind {
            "object" => self.write_object(rules, depth),
            "array" => self.write_array(rules, depth),
            "integer" => self.out.push_str("number"),
            "string" | "number" | "boolean" | "null" => self.out.push_str(kind),
            _ => self.out.push_str("any"),
        }
    }

    fn write_array(&mut self, rules: SchemaRules<'a>, depth: usize) {
        if let Some(members) = rules.first_items() {
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
        match rules.items() {
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

    fn write_object(&mut self, rules: SchemaRules<'a>, depth: usize) {
        let (members, is_cut) = rules.members(DECLARED_PROPERTIES);
        let further = rules.further_members();
        if !members.is_empty() {
            self.write_properties(&members, is_cut, depth);
        }
        match further {
            FurtherMembers::Typed(schema) => {
                self.out.push_str(if members.is_empty() { "" } else { " & " });
                self.out.push_str("Record<string, ");
                self.write(schema, depth + 1);
                self.out.push('>');
            }
            FurtherMembers::Any if members.is_empty() => self.out.push_str("Record<string, any>"),
            FurtherMembers::Forbidden if members.is_empty() => self.out.push_str("{}"),
            FurtherMembers::Any | FurtherMembers::Forbidden => {}
        }
    }

    fn write_properties(&mut self, members: &[SchemaMember<'a>], is_cut: bool, depth: usize) {
        let (mut separator, mut is_cut) = ("", is_cut);
        self.out.push_str("{ ");
        for member in members {
            if self.is_full() {
                is_cut = true;
                break;
            }
            self.out.push_str(separator);
            self.out.push_str(&property_name(member.name));
            self.out.push_str(if member.is_required { ": " } else { "?: " });
            self.write(member.schema, depth + 1);
            separator = "; ";
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
    let text = trunkline_core::text::clip(text, MAX_VALUE);
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
/// The properties of an object that are written.
const DECLARED_PROPERTIES: MemberBounds = MemberBounds { shown: 48, searched: 512 };
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
