//! The schema that clients see of a tool if the configuration changes its arguments.
//!
//! Names are changed wherever a schema applies to the arguments themselves: at its root, in `allOf`
//! and the like, and behind references there. A rule that does not apply to clients' arguments any
//! more, such as an `if` about a fixed value, is left out: the complete arguments are checked
//! against the server's own schema as well.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use trunkline_config::{ArgumentEdit, ArgumentValue};

use super::{ArgumentSchema, PatternBudget};

/// Reason why the arguments of a tool cannot be changed as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentEditFault {
    /// The new name of an argument is that of another one.
    #[error("argument {argument:?} cannot be called {name:?}: the tool has another of this name")]
    NameTaken {
        /// The argument, by the server's own name.
        argument: String,
        /// The configured name.
        name: String,
    },
}

/// The schema for clients, as `edits` change the server's own.
///
/// # Errors
/// [`ArgumentEditFault`] if two arguments would have the same name.
pub(crate) fn edit_schema(
    schema: &Map<String, Value>,
    edits: &[(String, ArgumentEdit)],
) -> Result<Map<String, Value>, ArgumentEditFault> {
    let changes = SchemaChanges::new(schema, edits);
    let declared = declared_arguments(schema);
    for (argument, edit) in edits {
        let Some(name) = &edit.rename else { continue };
        let stays = !changes.hidden.contains(&**name) && !changes.renamed.contains_key(&**name);
        if stays && declared.contains(&**name) && name != argument {
            let (argument, name) = (argument.clone(), name.clone());
            return Err(ArgumentEditFault::NameTaken { argument, name });
        }
    }
    let mut edited = changes.edit_level(schema, 0).0;
    let properties = edited.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        for (argument, edit) in edits.iter().filter(|(_, edit)| !edit.is_hidden()) {
            describe_argument(properties, argument, edit);
        }
    }
    drop_unused_definitions(&mut edited);
    Ok(edited)
}

/// The names that a schema declares for the arguments themselves.
pub(crate) fn declared_arguments(schema: &Map<String, Value>) -> HashSet<&str> {
    let declared = declared_properties(schema).into_iter();
    declared.flat_map(|properties| properties.keys().map(String::as_str)).collect()
}

/// A schema of this argument alone; `None` if no such schema compiles.
pub(crate) fn schema_of_argument(
    schema: &Map<String, Value>,
    argument: &str,
) -> Option<ArgumentSchema> {
    let mut declared = declared_properties(schema).into_iter();
    let property = declared.find_map(|properties| properties.get(argument))?;
    let shared = ["$schema", "$defs", "definitions"].into_iter();
    let shared = shared.filter_map(|key| Some((key.to_owned(), schema.get(key)?.clone())));
    let mut alone: Map<String, Value> = shared.collect();
    alone.insert("type".into(), "object".into());
    alone.insert("properties".into(), json!({ argument: property }));
    ArgumentSchema::from_value(alone, &mut PatternBudget::default()).ok()
}

/// The `properties` of all levels that apply to the arguments themselves.
fn declared_properties(schema: &Map<String, Value>) -> Vec<&Map<String, Value>> {
    let (mut declared, mut levels) = (Vec::new(), vec![(schema, 0)]);
    let mut visits = 0;
    while let Some((level, depth)) = levels.pop().filter(|_| visits < MAX_VISITS) {
        visits += 1;
        declared.extend(level.get("properties").and_then(Value::as_object));
        if depth < MAX_LEVELS {
            let inner = inner_levels(schema, level).into_iter();
            levels.extend(inner.map(|inner| (inner, depth + 1)));
        }
    }
    declared
}

/// Drops definitions without references: a replaced reference would leave its definition behind,
/// with its hidden arguments.
fn drop_unused_definitions(schema: &mut Map<String, Value>) {
    let mut pending = Vec::new();
    for (key, value) in
        schema.iter().filter(|(key, _)| !DEFINITION_KEYWORDS.contains(&key.as_str()))
    {
        find_references(key, value, &mut pending);
    }
    let mut used: HashSet<(&str, String)> = HashSet::new();
    let mut has_other_references = false;
    while let Some(target) = pending.pop() {
        let Some((home, name)) = definition_name(&target) else {
            has_other_references = true;
            continue;
        };
        if let Some(definition) = schema.get(home).and_then(|all| all.get(&name))
            && used.insert((home, name))
        {
            find_references("", definition, &mut pending);
        }
    }
    for home in DEFINITION_KEYWORDS {
        let Some(Value::Object(all)) = schema.get_mut(home) else { continue };
        // A reference may name an anchor or an id.
        all.retain(|name, definition| {
            used.contains(&(home, name.clone()))
                || (has_other_references && has_own_name(definition))
        });
        if all.is_empty() {
            schema.shift_remove(home);
        }
    }
}

/// The location of a definition that a reference leads to, or into.
fn definition_name(target: &str) -> Option<(&'static str, String)> {
    let (home, rest) = target.strip_prefix("#/")?.split_once('/')?;
    let home = DEFINITION_KEYWORDS.into_iter().find(|known| *known == home)?;
    let name = rest.split_once('/').map_or(rest, |(name, _)| name);
    Some((home, unescape_step(name)))
}

/// All references in a value of any kind. Too many of them are harmless.
fn find_references(key: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(target) if REFERENCE_KEYWORDS.contains(&key) => found.push(target.clone()),
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| find_references(key, value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| find_references("", item, found)),
        _ => {}
    }
}

/// Returns true if a definition, or something in it, has a name of its own.
fn has_own_name(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(key, value)| {
            matches!(key.as_str(), "$id" | "id" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor")
                || has_own_name(value)
        }),
        Value::Array(items) => items.iter().any(has_own_name),
        _ => false,
    }
}

/// The names that a schema requires, also in `allOf` and behind references.
pub(crate) fn required_arguments(schema: &Map<String, Value>) -> HashSet<Box<str>> {
    let (mut required, mut levels) = (HashSet::new(), vec![schema]);
    let mut visits = 0;
    while let Some(level) = levels.pop().filter(|_| visits < MAX_VISITS) {
        visits += 1;
        let names = level.get("required").and_then(Value::as_array).into_iter().flatten();
        required.extend(names.filter_map(Value::as_str).map(Box::from));
        let all = level.get("allOf").and_then(Value::as_array).into_iter().flatten();
        levels.extend(all.filter_map(Value::as_object));
        levels.extend(level.get("$ref").and_then(|target| resolve_reference(schema, target)));
    }
    required
}

/// Adds the configured description and default of an argument that clients see.
fn describe_argument(properties: &mut Map<String, Value>, argument: &str, edit: &ArgumentEdit) {
    let name = edit.rename.as_deref().unwrap_or(argument);
    let property = properties.entry(name).or_insert_with(|| json!({}));
    if *property == Value::Bool(true) {
        *property = json!({});
    }
    let Value::Object(property) = property else { return };
    if let Some(description) = &edit.description {
        property.insert("description".into(), description.as_str().into());
    }
    match &edit.default {
        Some(ArgumentValue::Literal(value)) => {
            property.insert("default".into(), value.clone());
        }
        // Substituted values are secrets. The server's own default does not apply to clients.
        Some(_) => {
            property.shift_remove("default");
        }
        None => {}
    }
}

/// The subschemas of a level that apply to the same value.
fn inner_levels<'a>(
    root: &'a Map<String, Value>,
    level: &'a Map<String, Value>,
) -> Vec<&'a Map<String, Value>> {
    let lists =
        ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| level.get(key)?.as_array());
    let single = ["if", "then", "else", "not"].into_iter().filter_map(|key| level.get(key));
    let target = level.get("$ref").and_then(|target| resolve_reference(root, target));
    let dependent = level.get("dependentSchemas").and_then(Value::as_object);
    let all = lists.flatten().chain(single).chain(dependent.into_iter().flat_map(Map::values));
    all.filter_map(Value::as_object).chain(target).collect()
}

/// The subschema that a local `$ref` points to.
fn resolve_reference<'a>(
    root: &'a Map<String, Value>,
    target: &Value,
) -> Option<&'a Map<String, Value>> {
    let pointer = target.as_str()?.strip_prefix("#/")?;
    let mut steps = pointer.split('/').map(unescape_step);
    let first = root.get(&steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(&step))?.as_object()
}

fn unescape_step(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// The changes of one tool's arguments.
struct SchemaChanges<'a> {
    root: &'a Map<String, Value>,
    /// Arguments that clients do not see.
    hidden: HashSet<&'a str>,
    /// Arguments that clients need not send.
    supplied: HashSet<&'a str>,
    renamed: HashMap<&'a str, &'a str>,
    /// The members of levels that may still be visited: references can multiply them.
    patience: Cell<usize>,
}

/// The extent of a level: relaxed if a rule about hidden arguments had to be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LevelExtent {
    Whole,
    Relaxed,
}

/// The state of editing the members of one level.
struct LevelEdit {
    depth: usize,
    has_condition: bool,
    /// Subschemas that apply beside the remaining members.
    applied: Vec<Value>,
    extent: LevelExtent,
}

impl Default for LevelEdit {
    fn default() -> Self {
        let (applied, extent) = (Vec::new(), LevelExtent::Whole);
        Self { depth: 0, has_condition: false, applied, extent }
    }
}

impl LevelEdit {
    fn leave_out(&mut self) -> Option<Value> {
        self.extent = LevelExtent::Relaxed;
        None
    }
}

impl LevelExtent {
    fn join(&mut self, other: Self) {
        if other == Self::Relaxed {
            *self = other;
        }
    }
}

impl<'a> SchemaChanges<'a> {
    fn new(root: &'a Map<String, Value>, edits: &'a [(String, ArgumentEdit)]) -> Self {
        let named = |test: fn(&ArgumentEdit) -> bool| {
            let found = edits.iter().filter(move |(_, edit)| test(edit));
            found.map(|(name, _)| name.as_str()).collect()
        };
        Self {
            root,
            hidden: named(ArgumentEdit::is_hidden),
            supplied: named(|edit| edit.is_hidden() || edit.default.is_some()),
            renamed: edits
                .iter()
                .filter_map(|(name, edit)| Some((name.as_str(), edit.rename.as_deref()?)))
                .collect(),
            patience: Cell::new(MAX_MEMBERS),
        }
    }

    /// Returns true if a level may still be visited.
    fn may_visit(&self, level: &Map<String, Value>) -> bool {
        let members = level.get("properties").and_then(Value::as_object).map_or(0, Map::len);
        let left = self.patience.get().checked_sub(1 + level.len() + members);
        self.patience.set(left.unwrap_or(0));
        left.is_some()
    }

    fn public_name<'b>(&'b self, name: &'b str) -> &'b str {
        self.renamed.get(name).copied().unwrap_or(name)
    }

    /// One level of the schema that applies to the arguments themselves.
    fn edit_level(
        &self,
        level: &Map<String, Value>,
        depth: usize,
    ) -> (Map<String, Value>, LevelExtent) {
        let mut edit = LevelEdit { depth, ..LevelEdit::default() };
        edit.has_condition =
            ["if", "then", "else"].into_iter().any(|key| self.concerns(level.get(key), depth));
        let mut edited = Map::new();
        for (key, value) in level {
            if let Some(value) = self.edit_member(key, value, &mut edit) {
                edited.insert(key.clone(), value);
            }
        }
        if !edit.applied.is_empty()
            && let Value::Array(all) = edited.entry("allOf").or_insert_with(|| json!([]))
        {
            all.extend(edit.applied);
        }
        if edit.extent == LevelExtent::Relaxed {
            edited.shift_remove("unevaluatedProperties");
        }
        (edited, edit.extent)
    }

    /// A member of a level; `None` if it is left out, or applied with the others in `allOf`.
    fn edit_member(&self, key: &str, value: &Value, edit: &mut LevelEdit) -> Option<Value> {
        let depth = edit.depth;
        match (key, value) {
            ("properties", Value::Object(members)) => Some(self.rename_members(members)),
            ("required", Value::Array(names)) => Some(self.required_names(names)),
            ("dependentRequired" | "dependencies" | "dependentSchemas", Value::Object(members)) => {
                Some(self.edit_dependents(members, depth, &mut edit.extent))
            }
            // Without its hidden arguments, more than one of the alternatives may fit.
            ("oneOf", Value::Array(all)) if self.concerns(Some(value), depth) => {
                let any = self.edit_all(all, depth, &mut edit.extent);
                edit.applied.push(json!({ "anyOf": any }));
                edit.leave_out()
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => {
                Some(self.edit_all(all, depth, &mut edit.extent))
            }
            ("if" | "then" | "else", _) if edit.has_condition => edit.leave_out(),
            ("not", _) if self.concerns(Some(value), depth) => edit.leave_out(),
            ("if" | "then" | "else" | "not", Value::Object(inner)) => {
                Some(self.edit_inner(inner, depth, &mut edit.extent))
            }
            ("$ref", target) => self.apply_reference(target, edit),
            ("minProperties", _) if !self.supplied.is_empty() => edit.leave_out(),
            // It may list the names of arguments.
            ("propertyNames", _) if !self.renamed.is_empty() || !self.hidden.is_empty() => {
                edit.leave_out()
            }
            // Examples of all arguments, hidden ones included.
            ("default" | "examples" | "example" | "$dynamicRef" | "$recursiveRef", _) => {
                edit.leave_out()
            }
            _ => Some(value.clone()),
        }
    }

    /// Replaces a reference by a copy of its target: other values may refer to the target, too.
    fn apply_reference(&self, target: &Value, edit: &mut LevelEdit) -> Option<Value> {
        let inner = resolve_reference(self.root, target);
        let Some(inner) = inner.filter(|it| edit.depth < MAX_LEVELS && self.may_visit(it)) else {
            return edit.leave_out();
        };
        let inner = self.edit_inner(inner, edit.depth, &mut edit.extent);
        edit.applied.push(inner);
        None
    }

    fn edit_inner(
        &self,
        level: &Map<String, Value>,
        depth: usize,
        extent: &mut LevelExtent,
    ) -> Value {
        if depth >= MAX_LEVELS {
            extent.join(LevelExtent::Relaxed);
            return json!({});
        }
        let (edited, inner) = self.edit_level(level, depth + 1);
        extent.join(inner);
        Value::Object(edited)
    }

    fn edit_all(&self, all: &[Value], depth: usize, extent: &mut LevelExtent) -> Value {
        let edited = all.iter().map(|one| match one {
            Value::Object(level) => self.edit_inner(level, depth, extent),
            other => other.clone(),
        });
        edited.collect()
    }

    fn rename_members(&self, members: &Map<String, Value>) -> Value {
        let shown = members.iter().filter(|(name, _)| !self.hidden.contains(name.as_str()));
        let renamed = shown.map(|(name, value)| (self.public_name(name).to_owned(), value.clone()));
        Value::Object(renamed.collect())
    }

    fn required_names(&self, names: &[Value]) -> Value {
        let names = names.iter().filter_map(Value::as_str);
        let required = names.filter(|name| !self.supplied.contains(name));
        required.map(|name| Value::from(self.public_name(name))).collect()
    }

    fn edit_dependents(
        &self,
        members: &Map<String, Value>,
        depth: usize,
        extent: &mut LevelExtent,
    ) -> Value {
        let mut edited = Map::new();
        for (name, value) in members {
            if self.supplied.contains(name.as_str()) {
                extent.join(LevelExtent::Relaxed);
                continue;
            }
            let value = match value {
                Value::Array(names) => self.required_names(names),
                Value::Object(level) => self.edit_inner(level, depth, extent),
                other => other.clone(),
            };
            edited.insert(self.public_name(name).to_owned(), value);
        }
        Value::Object(edited)
    }

    /// Returns true if a subschema, or one of several, has a rule about arguments that clients need
    /// not send.
    fn concerns(&self, subschema: Option<&Value>, depth: usize) -> bool {
        match subschema {
            Some(Value::Array(all)) => all.iter().any(|one| self.concerns(Some(one), depth)),
            Some(Value::Object(level)) => self.level_concerns(level, depth),
            _ => false,
        }
    }

    fn level_concerns(&self, level: &Map<String, Value>, depth: usize) -> bool {
        let is_supplied = |name: &str| self.supplied.contains(name);
        let properties = level.get("properties").and_then(Value::as_object);
        let required = level.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        let inner = || inner_levels(self.root, level).into_iter();
        depth >= MAX_LEVELS
            || !self.may_visit(level)
            || properties.is_some_and(|all| all.keys().any(|name| is_supplied(name)))
            || required.any(is_supplied)
            || inner().any(|inner| self.level_concerns(inner, depth + 1))
    }
}

/// Keywords with the definitions that references lead to.
const DEFINITION_KEYWORDS: [&str; 2] = ["$defs", "definitions"];
const REFERENCE_KEYWORDS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// The deepest nesting of levels that apply to the arguments themselves.
const MAX_LEVELS: usize = 8;
/// The most levels that are searched for the names of arguments.
const MAX_VISITS: usize = 256;
/// The most members of levels that are visited. Members behind references count as often as they
/// are reached.
const MAX_MEMBERS: usize = 50_000;

#[cfg(test)]
mod tests;
