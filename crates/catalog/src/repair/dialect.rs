//! Repairs a JSON Schema: the result is valid 2020-12.
//!
//! A schema that the meta-schema of 2020-12 accepts is unchanged, for any `$schema`: it is checked
//! in its own dialect. In any other schema, keywords with an exact equivalent are translated and
//! other invalid ones removed. Then the whole schema is 2020-12.

use serde_json::{Map, Value, json};

use trunkline_protocol::mcp::Era;

use super::keywords::{
    KeywordForm, has_form, is_broken_pattern, is_type_name, keyword_form, translate_pattern,
};
use super::references::{drop_dangling_references, has_dangling_references};
use super::translations::{
    Dialect, translate_bounds, translate_from, translate_identifier, translate_pattern_names,
    translate_required_properties, translate_tuple,
};
use super::{RepairKind, Repairs};
use crate::schema::{SchemaError, has_known_dialect, parse_schema};

/// The use of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaRole {
    /// The schema of a call's arguments.
    Input,
    /// The schema of a result's structured content.
    Output,
}

/// Repairs a schema; `None` if it needs no repair.
///
/// # Errors
/// [`SchemaError`] if it cannot be read.
pub(super) fn repair_schema(
    role: SchemaRole,
    raw: &str,
    repairs: &mut Repairs,
) -> Result<Option<String>, SchemaError> {
    let own = match parse_schema(raw.as_bytes()) {
        Ok(own) => Value::Object(own),
        // A bound of arguments, which `item` checks.
        Err(SchemaError::TooLarge { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut schema = own;
    let is_flawed = has_flaw(&schema, repairs.source);
    if is_flawed {
        let declared = Dialect::declared(&schema);
        SchemaRepair::new(repairs, Some(declared)).repair_root(&mut schema);
    }
    // Structured content of the Legacy revisions is an object.
    let is_untyped =
        role == SchemaRole::Output && repairs.source == Era::Legacy && schema.get("type").is_none();
    if is_untyped && let Value::Object(members) = &mut schema {
        members.shift_insert(0, "type".to_owned(), "object".into());
        repairs.note(RepairKind::Translated, "type");
    }
    if !is_flawed && !is_untyped {
        return Ok(None);
    }
    Ok(Some(schema.to_string()))
}

/// Returns true if the meta-schema of 2020-12 rejects a schema, or a reference leads nowhere.
fn has_flaw(schema: &Value, source: Era) -> bool {
    let mut found = Repairs::new(source);
    let mut copy = schema.clone();
    SchemaRepair::new(&mut found, None).repair_root(&mut copy);
    let id = if Dialect::declared(schema) == Dialect::Draft4 { "id" } else { "$id" };
    found.count > 0 || has_dangling_references(schema, id)
}

/// The repair of one schema.
struct SchemaRepair<'r> {
    repairs: &'r mut Repairs,
    /// The dialect that the whole schema is translated from; `None` to find flaws only.
    from: Option<Dialect>,
    /// The number of patterns that may still be compiled to find broken ones.
    pattern_tries: usize,
}

impl<'r> SchemaRepair<'r> {
    fn new(repairs: &'r mut Repairs, from: Option<Dialect>) -> Self {
        Self { repairs, from, pattern_tries: MAX_PATTERN_TRIES }
    }

    fn repair_root(&mut self, schema: &mut Value) {
        let Value::Object(members) = schema else { return };
        if !has_known_dialect(members.get("$schema")) {
            members.shift_remove("$schema");
            self.repairs.note(RepairKind::Dropped, "$schema");
        } else if self.from.is_some_and(|from| from != Dialect::Draft202012) {
            members.shift_remove("$schema");
        }
        let own_type = members.get("type").cloned();
        self.repair_members(members);
        // MCP requires it at the root, even if a dialect ignores it beside `$ref`.
        if let Some(own_type) = own_type.filter(|own| own == "object")
            && !members.contains_key("type")
        {
            members.shift_insert(0, "type".to_owned(), own_type);
        }
        if self.from.is_some() {
            drop_dangling_references(schema, self.repairs);
        }
    }

    /// Repairs one subschema with everything in it.
    fn repair_members(&mut self, members: &mut Map<String, Value>) {
        if let Some(from) = self.from {
            translate_from(from, members, self.repairs);
        }
        translate_bounds(members, self.repairs);
        translate_tuple(members, self.repairs);
        translate_required_properties(members, self.repairs);
        translate_identifier(members, self.repairs);
        translate_pattern_names(members, self.repairs, &mut self.pattern_tries);
        let keywords: Vec<_> = members.keys().cloned().collect();
        for keyword in keywords {
            let Some(form) = keyword_form(&keyword) else { continue };
            let Some(value) = members.get_mut(&keyword) else { continue };
            if !self.repair_keyword(form, &keyword, value) {
                members.shift_remove(&keyword);
                self.repairs.note(RepairKind::Dropped, &keyword);
            }
        }
    }

    /// Repairs the value of a keyword; returns false to remove the keyword.
    fn repair_keyword(&mut self, form: KeywordForm, keyword: &str, value: &mut Value) -> bool {
        match form {
            KeywordForm::Types => return self.repair_types(value),
            KeywordForm::Names => return self.repair_names(keyword, value),
            KeywordForm::NamesMap => return self.repair_names_map(keyword, value),
            KeywordForm::Pattern => return self.repair_pattern(value),
            _ if !has_form(form, value) => return false,
            _ => {}
        }
        match (form, value) {
            (KeywordForm::Schema, Value::Object(members)) => self.descend(keyword, members),
            (KeywordForm::SchemaList, Value::Array(all)) => {
                let positions = (0..).map(|position: usize| position.to_string());
                self.repair_each(keyword, positions.zip(all.iter_mut()));
            }
            (KeywordForm::SchemaMap, Value::Object(all)) => {
                let all = all.iter_mut().map(|(name, value)| (name.clone(), value));
                self.repair_each(keyword, all);
            }
            (KeywordForm::Dependencies, Value::Object(all)) => {
                self.repair_dependencies(keyword, all);
            }
            _ => {}
        }
        true
    }

    fn descend(&mut self, keyword: &str, members: &mut Map<String, Value>) {
        // A dialect within a schema has no effect on the rest of it.
        let drops_dialect = members.shift_remove("$schema").is_some();
        let length = self.repairs.place.len();
        self.repairs.place.push('/');
        self.repairs.place.push_str(keyword);
        if drops_dialect {
            self.repairs.note(RepairKind::Dropped, "$schema");
        }
        self.repair_members(members);
        self.repairs.place.truncate(length);
    }

    /// Repairs subschemas by name. A missing one allows everything.
    fn repair_each<'v>(
        &mut self,
        keyword: &str,
        all: impl Iterator<Item = (String, &'v mut Value)>,
    ) {
        for (name, value) in all {
            match value {
                Value::Object(members) => self.descend(&format!("{keyword}/{name}"), members),
                Value::Bool(_) => {}
                other => {
                    *other = json!({});
                    self.repairs.note(RepairKind::Dropped, &format!("{keyword}/{name}"));
                }
            }
        }
    }

    fn repair_types(&mut self, value: &mut Value) -> bool {
        if has_form(KeywordForm::Types, value) {
            return true;
        }
        let Value::Array(all) = value else { return false };
        let mut names: Vec<Value> = Vec::new();
        for one in all.iter() {
            let name = if one.is_null() { &Value::from("null") } else { one };
            if !name.as_str().is_some_and(is_type_name) {
                return false;
            }
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        if names.is_empty() {
            return false;
        }
        *value = names.into();
        self.repairs.note(RepairKind::Translated, "type");
        true
    }

    /// Repairs an array of distinct strings: drops other values, and duplicates.
    fn repair_names(&mut self, keyword: &str, value: &mut Value) -> bool {
        if has_form(KeywordForm::Names, value) {
            return true;
        }
        let Value::Array(all) = value else { return false };
        let mut names: Vec<Value> = Vec::new();
        for name in all.iter().filter(|name| name.is_string()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        *value = names.into();
        self.repairs.note(RepairKind::Translated, keyword);
        true
    }

    fn repair_names_map(&mut self, keyword: &str, value: &mut Value) -> bool {
        let Value::Object(all) = value else { return false };
        let names: Vec<_> = all.keys().cloned().collect();
        for name in names {
            let place = format!("{keyword}/{name}");
            if let Some(value) = all.get_mut(&name)
                && !self.repair_names(&place, value)
            {
                all.shift_remove(&name);
                self.repairs.note(RepairKind::Dropped, &place);
            }
        }
        true
    }

    fn repair_pattern(&mut self, value: &mut Value) -> bool {
        let Value::String(pattern) = value else { return false };
        if let Some(translated) = translate_pattern(pattern) {
            *pattern = translated;
            self.repairs.note(RepairKind::Translated, "pattern");
        }
        !is_broken_pattern(pattern, &mut self.pattern_tries)
    }

    /// Repairs the values of `dependencies`, which 2020-12 still allows.
    fn repair_dependencies(&mut self, keyword: &str, all: &mut Map<String, Value>) {
        for (name, value) in all.iter_mut() {
            let place = format!("{keyword}/{name}");
            match value {
                Value::Object(members) => self.descend(&place, members),
                Value::Bool(_) => {}
                names => {
                    if !self.repair_names(&place, names) {
                        self.repairs.note(RepairKind::Dropped, &place);
                    }
                }
            }
        }
    }
}

/// The most patterns of a schema that are compiled to find broken ones.
const MAX_PATTERN_TRIES: usize = 16;
